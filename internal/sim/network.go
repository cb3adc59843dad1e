package sim

import (
	"fmt"
	"time"

	"raftkv/raft"
)

// network joins the servers. A message may be lost, arrive twice, overtake
// others, or come after several elections. What is under way when a link is cut
// still arrives.
type network struct {
	// random[from][to] is the stream of a direction: what happens on one link does
	// not shuffle what happens on the others.
	random [][]*source
	// cuts[from][to] counts the faults that block this direction.
	cuts [][]int
	// heldUntil[from][to] is when this direction lets go what it has kept, as a
	// connection does that repeats what was lost.
	heldUntil [][]time.Duration
	// lastArrival[from][to] keeps messages in order where the plan says so.
	lastArrival [][]time.Duration
	// extra[from][to] is what a slow link adds to every message.
	extra  [][]time.Duration
	lossy  int // faults that make the network lose every other message
	healed bool
}

func newNetwork(seed uint64, plan *plan) network {
	nodes := plan.nodes + plan.spares
	n := network{random: make([][]*source, nodes)}
	n.cuts = make([][]int, nodes)
	n.heldUntil = make([][]time.Duration, nodes)
	n.extra = make([][]time.Duration, nodes)
	n.lastArrival = make([][]time.Duration, nodes)
	for i := range nodes {
		for to := range nodes {
			n.random[i] = append(n.random[i], newSource(seed, fmt.Sprint("link ", i, " ", to)))
		}
		n.heldUntil[i] = make([]time.Duration, nodes)
		n.cuts[i] = make([]int, nodes)
		n.extra[i] = make([]time.Duration, nodes)
		n.lastArrival[i] = make([]time.Duration, nodes)
	}
	for _, l := range plan.slowLinks {
		n.extra[l.from][l.to] = l.delay
	}
	return n
}

// heal makes the network a good one, for ever.
func (n *network) heal() {
	n.healed = true
	for i := range n.cuts {
		clear(n.cuts[i])
		clear(n.heldUntil[i])
	}
}

func (s *simulation) sendAll(messages []raft.Message) {
	for i := range messages {
		s.send(messages[i])
	}
}

func (s *simulation) send(m raft.Message) {
	n := &s.network
	from, to := index(m.From), index(m.To)
	if to < 0 || to >= len(s.nodes) {
		return
	}
	f := fate{copies: 1, times: [2]time.Duration{s.plan.linkDelay}}
	if !n.healed {
		f = s.drawFate(from, to)
	}
	s.sends++
	flight, ok := s.address(m)
	flight.id = s.sends
	if !ok {
		f = fate{lost: "they do not accept each other's disk"}
	}
	s.watcher.sent(s.sends, m, &f)
	for i := range f.copies {
		s.deliverIn(from, to, f.times[i], flight)
	}
}

// fate is what the network does with a message.
type fate struct {
	lost   string // why it never arrives; "" if it does
	copies int
	times  [2]time.Duration // how long each copy is under way
	late   time.Duration    // of the first, how much is out of the ordinary
}

// drawFate draws as many numbers for each message, whatever becomes of it, so
// that the next messages fare the same if this one is spared (decisions.go).
func (s *simulation) drawFate(from, to int) (f fate) {
	n := &s.network
	random := n.random[from][to]
	lost := random.chance(s.plan.drop)
	lossy := random.oneIn(2)
	doubled := random.chance(s.plan.duplicate)
	var late [2]time.Duration
	for i := range f.times {
		f.times[i], late[i] = s.linkTime(from, to)
	}
	switch {
	case n.cuts[from][to] > 0:
		f.lost = "the link is cut"
	case n.lossy > 0 && lossy:
		f.lost = "the network loses every other message"
	case s.decide(loseMessage, from+1, to+1, lost):
		f.lost = "the network lost it"
	default:
		f.copies = 1
		if s.decide(doubleMessage, from+1, to+1, doubled) {
			f.copies = 2
		}
	}
	for i := range f.copies {
		if s.decide(delayMessage, from+1, to+1, late[i] > 0) {
			f.times[i] += late[i]
		} else {
			late[i] = 0
		}
	}
	f.late = late[0]
	return f
}

// linkTime draws how long a message is under way, and how much longer if it is
// one of those that come late.
func (s *simulation) linkTime(from, to int) (t, late time.Duration) {
	n := &s.network
	random := n.random[from][to]
	t = s.plan.linkDelay + random.around(s.plan.linkJitter)
	t += n.extra[from][to] + max(0, n.heldUntil[from][to]-s.now)
	isLate, late := random.chance(s.plan.late), random.span(0, s.plan.lateBy)
	if !isLate {
		late = 0
	}
	return t, late
}

func (s *simulation) deliverIn(from, to int, t time.Duration, f flight) {
	at := s.now + t
	if s.plan.inOrder {
		at = max(at, s.network.lastArrival[from][to])
		s.network.lastArrival[from][to] = at
	}
	s.queue.push(happening{at: at, kind: messageArrives, node: int32(to), arg: s.messages.put(f)})
}

// index and id translate between a server's id, from 1, and its place in
// simulation.nodes.
func index(id raft.ServerID) int { return int(id) - 1 }
func id(index int) raft.ServerID { return raft.ServerID(index + 1) }
