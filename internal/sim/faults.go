package sim

import (
	"fmt"
	"time"

	"raftkv/raft"
)

// fault is a kind of thing that goes wrong at some time, by chance.
type fault int

const (
	splitNetwork  fault = iota // two groups that do not hear each other
	isolateLeader              // whoever leads
	isolateServer
	oneWayCut    // one direction of one link
	cutLink      // one link; both ends still reach the others
	loseMessages // every other one
	crashServer
	crashLeader
	crashAll
	pauseServer // stopped, or asleep: its timers run out meanwhile
	slowDisk
	failSave

	// These only strike a whole server (Profile.Disks).
	halveNetwork // two groups as large as possible
	bridgeHalves // and one server that hears both
	ringNetwork  // each hears its neighbours
	deafServer   // is heard and hears nobody
	muteServer   // hears and is heard by nobody
	warpClock    // timers of one server run fast, or slow
	fillDisk
	rotDisk  // a bit flips in what was synced
	wipeDisk // a server comes back with an empty one

	// No faults, but they strike like them (Profile.Extensions).
	askSnapshot    // of any server
	transferLeader // to any server
	endServer      // it hands over first

	jumpClock // of one server, in a machine that slept or was moved
	faultKinds
)

// lateFaults is the first of the faults that only strike a whole server,
// chapterFaults the first of those that belong to a later chapter.
const (
	lateFaults    = halveNetwork
	chapterFaults = askSnapshot
)

// crashFaults need a server that comes back with what it has saved.
var crashFaults = []fault{crashServer, crashLeader, crashAll, slowDisk, failSave}

// trigger is an occasion on which a server crashes more often than by chance:
// the moments at which it has just promised something.
type trigger int

const (
	onWinning trigger = iota
	onVoting
	onAppending
	onCommitting
	onSaving

	onSnapshot // one was stored, or a part has come
	onTransfer // TimeoutNow was sent, or has come
	onChange   // the configuration has changed, or was committed
	triggers
)

// lateTriggers is the first of those that belong to a later chapter.
const lateTriggers = onSnapshot

// planFault lets the next fault happen after a while, and so on until all is healed.
func (s *simulation) planFault() {
	if s.plan.faultEvery == 0 {
		return
	}
	s.after(s.faults.around(s.plan.faultEvery), func() {
		if s.healed {
			return
		}
		s.strikes++
		f := fault(s.faults.weighted(s.plan.faults[:]))
		if s.decide(strikeFault, 1+int(f), 0, true) {
			s.strike(f, newSource(s.seed, fmt.Sprint("fault ", s.strikes)))
		}
		s.planFault()
	})
}

// strike lets a fault happen. What lasts ends by itself after a while. Each fault
// has a stream of its own, so that one that does not strike shuffles no other.
func (s *simulation) strike(f fault, random *source) {
	lasts := random.around(pick[time.Duration](random, 1, 3, 10) * s.plan.electionTimeout)
	victim := s.nodes[random.below(len(s.nodes))]
	other := s.nodes[random.below(len(s.nodes))]
	if f == isolateLeader || f == crashLeader || f == transferLeader {
		victim = s.someLeader(victim, random)
	}
	switch f {
	case splitNetwork:
		side := random.below(1 << len(s.nodes))
		s.cut("the network splits", lasts, random, func(from, to int) bool { return side>>from&1 != side>>to&1 })
		s.noteAll("the network splits")
		s.count(NetworkSplit)
	case isolateLeader, isolateServer:
		s.cut(fmt.Sprintf("server %d is cut off", victim.id), lasts, random, func(from, to int) bool { return from == victim.index || to == victim.index })
		s.note(victim, "is cut off")
	case oneWayCut:
		s.cut("a one-way cut", lasts, random, func(from, to int) bool { return from == victim.index && to == other.index })
		s.note(victim, "is not heard by a server that it hears")
		s.count(OneWayCut)
	case cutLink:
		s.cut("a link is cut", lasts, random, func(from, to int) bool {
			return from == victim.index && to == other.index || from == other.index && to == victim.index
		})
		s.note(victim, "loses one link")
	case loseMessages:
		s.network.lossy++
		over := s.watcher.network("the network loses every other message", nil, nil)
		s.because("the network loses every other message for %v", lasts)
		s.atEnd(lasts, func() { s.network.lossy--; over() })
		s.noteAll("the network loses every other message")
	case crashServer, crashLeader:
		s.because("server %d crashes", victim.id)
		if victim.up {
			s.stopAndReturn(victim, random)
		}
	case crashAll:
		s.because("all servers lose power")
		for _, n := range s.nodes {
			s.stop(n, true)
			s.after(random.around(s.plan.downTime), func() { s.start(n) })
		}
		s.count(PowerCutEverywhere)
	case pauseServer:
		victim.pausedUntil = max(victim.pausedUntil, s.now+lasts)
		s.longestPause = max(s.longestPause, victim.pausedUntil-s.now)
		over := s.watcher.network(fmt.Sprintf("server %d is paused", victim.id), []raft.ServerID{victim.id}, nil)
		s.because("server %d pauses for %v", victim.id, lasts)
		s.atEnd(lasts, over)
		s.note(victim, "pauses")
		s.count(Pause)
	case slowDisk:
		victim.slowDisk++
		over := s.watcher.network(fmt.Sprintf("server %d has a slow disk", victim.id), []raft.ServerID{victim.id}, nil)
		s.because("server %d has a slow disk for %v", victim.id, lasts)
		s.atEnd(lasts, func() { victim.slowDisk--; over() })
		s.note(victim, "has a slow disk")
	case halveNetwork, bridgeHalves, ringNetwork, deafServer, muteServer:
		s.shapeNetwork(f, lasts, random)
	case warpClock:
		s.warp(victim, lasts, random)
	case fillDisk:
		s.fill(victim, lasts, random)
	case rotDisk:
		s.rot(victim, lasts, random)
	case wipeDisk:
		s.wipe(victim, lasts, random)
	case askSnapshot:
		s.askForSnapshot(victim)
	case transferLeader:
		s.handOver(victim, random, func() {})
	case endServer:
		s.terminate(victim, random)
	case jumpClock:
		s.jumpClock(victim, random)
	case failSave:
		s.because("server %d's next save fails", victim.id)
		victim.disk.failNext = true
	}
}

// cut blocks, for a while, every direction of a link for which blocked says yes.
// Some cuts lose what is sent meanwhile, others hold it back and let all of it
// go at their end: then replies come to a leader that was another one when it asked.
func (s *simulation) cut(what string, lasts time.Duration, random *source, blocked func(from, to int) bool) {
	var links [][2]raft.ServerID
	for from := range s.nodes {
		for to := range s.nodes {
			if from != to && blocked(from, to) {
				links = append(links, [2]raft.ServerID{id(from), id(to)})
			}
		}
	}
	each := func(do func(from, to int)) {
		for _, l := range links {
			do(index(l[0]), index(l[1]))
		}
	}
	if random.oneIn(3) {
		what += "; messages are held back"
		each(func(from, to int) {
			s.network.heldUntil[from][to] = max(s.network.heldUntil[from][to], s.now+lasts)
		})
		s.atEnd(lasts, s.watcher.network(what, nil, links))
	} else {
		each(func(from, to int) { s.network.cuts[from][to]++ })
		over := s.watcher.network(what, nil, links)
		s.atEnd(lasts, func() {
			each(func(from, to int) { s.network.cuts[from][to]-- })
			over()
		})
	}
	s.because("%s %v for %v", what, links, lasts)
}

// atEnd plans the end of a fault, unless all is healed before.
func (s *simulation) atEnd(lasts time.Duration, end func()) {
	s.after(lasts, func() {
		if !s.healed {
			end()
		}
	})
}

// someLeader returns a server that believes to lead, or the given one if none does.
func (s *simulation) someLeader(otherwise *node, random *source) *node {
	first := random.below(len(s.nodes))
	for i := range s.nodes {
		if n := s.nodes[(first+i)%len(s.nodes)]; n.up && n.status.State == raft.Leader {
			return n
		}
	}
	return otherwise
}

// considerCrash looks whether a step is an occasion to crash, and draws whether
// the server will, and where in its loop.
func (s *simulation) considerCrash(n *node, before *raft.Status) {
	if s.healed || s.now < s.nextTrigger || n.doom != alive {
		return
	}
	now, save := &n.status, &s.record.Effects.Save
	occasion := [triggers]bool{
		onWinning:    now.State == raft.Leader && before.State != raft.Leader,
		onVoting:     now.VotedFor != raft.None && (now.VotedFor != before.VotedFor || now.Term != before.Term),
		onAppending:  now.LastIndex > before.LastIndex && now.State == raft.Leader,
		onCommitting: now.CommitIndex > before.CommitIndex,
		onSaving:     save.Needed(),
		onSnapshot:   now.SnapshotIndex > before.SnapshotIndex || len(s.record.Effects.Receive) > 0,
		onTransfer:   now.TransferTo != before.TransferTo,
		onChange: now.ConfigurationIndex != before.ConfigurationIndex ||
			before.CommitIndex < now.ConfigurationIndex && now.CommitIndex >= now.ConfigurationIndex,
	}
	for t, is := range occasion {
		if !is || !n.luck.chance(s.plan.triggers[t]) {
			continue
		}
		n.crashes++
		random := newSource(s.seed, fmt.Sprint("crash ", n.index, " ", n.crashes))
		doom := phase(random.between(int(atOnce), int(afterAll)))
		switch {
		case trigger(t) == onSaving:
			doom = duringSave
		case trigger(t) == onAppending && random.oneIn(2):
			doom = pick(random, duringSave, afterSend) // others have what this server will lose
		}
		s.nextTrigger = s.now + random.around(s.plan.triggerGap)
		if s.decide(crashTrigger, int(n.id), 1+t, true) {
			s.because("server %d crashes %s, %s", n.id, triggerNames[t], phaseNames[doom])
			n.doom, n.doomy = doom, random
			s.count(CrashOnWinning + Event(t))
		}
		return
	}
}

var triggerNames = [triggers]string{
	onWinning: "after winning", onVoting: "after voting", onAppending: "after appending as leader",
	onCommitting: "after committing", onSaving: "while saving",
	onSnapshot: "with a snapshot", onTransfer: "with a transfer", onChange: "with another configuration",
}

var phaseNames = [phases]string{
	atOnce: "before it has done anything about it", afterSend: "after sending what need not wait for its disk",
	duringSave: "within the write", afterSave: "after the write", beforeApply: "before its state machine hears of it",
	afterAll: "after all is done",
}

// crashes carries out a crash that was planned for this phase of the loop.
func (s *simulation) crashes(n *node, at phase) bool {
	doomed := n.doom == at
	if doomed || at == afterAll {
		n.doom = alive // a phase that this round did not have is over, too
	}
	if doomed {
		s.stopAndReturn(n, n.doomy)
	}
	return doomed
}
