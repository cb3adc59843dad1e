package sim

import (
	"fmt"
	"time"
)

// The shapes that a network may take while some of its links are cut. Each is a
// way to fool a protocol that thinks of servers as up or down: here all are up,
// and no two agree on who is.

// shapeNetwork cuts the links that the shape does not have.
func (s *simulation) shapeNetwork(f fault, lasts time.Duration, random *source) {
	place := random.shuffled(len(s.nodes)) // of each server: in a row, or around a ring
	half := len(s.nodes) / 2
	switch f {
	case halveNetwork:
		s.cut("the network falls into halves", lasts, random, func(from, to int) bool { return (place[from] < half) != (place[to] < half) })
		s.noteAll("the network falls into halves")
		s.count(Halves)
	case bridgeHalves:
		if len(s.nodes) < 3 {
			return
		}
		// The server in the middle is heard on both sides: each side may believe
		// that it has a majority, and only the bridge's one vote decides.
		s.cut("two halves are joined by one server", lasts, random, func(from, to int) bool {
			return place[from] < half && place[to] > half || place[from] > half && place[to] < half
		})
		s.noteAll("two halves are joined by one server")
		s.count(Bridge)
	case ringNetwork:
		if len(s.nodes) < 4 {
			return // with three, each is everybody's neighbour
		}
		s.cut("a ring", lasts, random, func(from, to int) bool {
			steps := (place[from] - place[to] + len(s.nodes)) % len(s.nodes)
			return steps != 1 && steps != len(s.nodes)-1
		})
		s.noteAll("the network is a ring")
		s.count(Ring)
	case deafServer, muteServer:
		victim := s.nodes[place[0]]
		what, event := "hears nobody", Deaf
		if f == muteServer {
			what, event = "is heard by nobody", Mute
		}
		s.cut(fmt.Sprintf("server %d %s", victim.id, what), lasts, random, func(from, to int) bool {
			return f == deafServer && to == victim.index || f == muteServer && from == victim.index
		})
		s.note(victim, what)
		s.count(event)
	}
}

// warp lets a server's timers run fast or slow for a while. Those that run
// already keep their time, as timers of an operating system do.
func (s *simulation) warp(victim *node, lasts time.Duration, random *source) {
	rate := pick(random, 100, 300, 2000, 5000)
	what := fmt.Sprintf("server %d's timers take %d/1000 of their time", victim.id, rate)
	before := victim.warp
	victim.warp = rate
	s.because("%s for %v", what, lasts)
	over := s.watcher.network(what, nil, nil)
	s.atEnd(lasts, func() { victim.warp = before; over() })
	if rate < 1000 {
		s.note(victim, "has a fast clock")
		s.count(FastClock)
	} else {
		s.note(victim, "has a slow clock")
		s.count(SlowClock)
	}
}
