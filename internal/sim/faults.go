package sim

import (
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
	faultKinds
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
	triggers
)

// planFault lets the next fault happen after a while, and so on until all is healed.
func (s *simulation) planFault() {
	if s.plan.faultEvery == 0 {
		return
	}
	s.after(s.faults.around(s.plan.faultEvery), func() {
		if !s.healed {
			s.strike(fault(s.faults.weighted(s.plan.faults[:])))
			s.planFault()
		}
	})
}

// strike lets a fault happen. What lasts ends by itself after a while.
func (s *simulation) strike(f fault) {
	lasts := s.faults.around(pick[time.Duration](s.faults, 1, 3, 10) * s.plan.electionTimeout)
	victim := s.nodes[s.faults.below(len(s.nodes))]
	other := s.nodes[s.faults.below(len(s.nodes))]
	if f == isolateLeader || f == crashLeader {
		victim = s.someLeader(victim)
	}
	switch f {
	case splitNetwork:
		side := s.faults.below(1 << len(s.nodes))
		s.cut(lasts, func(from, to int) bool { return side>>from&1 != side>>to&1 })
		s.noteAll("the network splits")
		s.count(NetworkSplit)
	case isolateLeader, isolateServer:
		s.cut(lasts, func(from, to int) bool { return from == victim.index || to == victim.index })
		s.note(victim, "is cut off")
	case oneWayCut:
		s.cut(lasts, func(from, to int) bool { return from == victim.index && to == other.index })
		s.note(victim, "is not heard by a server that it hears")
		s.count(OneWayCut)
	case cutLink:
		s.cut(lasts, func(from, to int) bool {
			return from == victim.index && to == other.index || from == other.index && to == victim.index
		})
		s.note(victim, "loses one link")
	case loseMessages:
		s.network.lossy++
		s.atEnd(lasts, func() { s.network.lossy-- })
		s.noteAll("the network loses every other message")
	case crashServer, crashLeader:
		if victim.up {
			s.stopAndReturn(victim)
		}
	case crashAll:
		for _, n := range s.nodes {
			s.stop(n, true)
			s.after(s.faults.around(s.plan.downTime), func() { s.start(n) })
		}
		s.count(PowerCutEverywhere)
	case pauseServer:
		victim.pausedUntil = max(victim.pausedUntil, s.now+lasts)
		s.note(victim, "pauses")
		s.count(Pause)
	case slowDisk:
		victim.slowDisk++
		s.atEnd(lasts, func() { victim.slowDisk-- })
		s.note(victim, "has a slow disk")
	case failSave:
		victim.disk.failNext = true
	}
}

// cut blocks, for a while, every direction of a link for which blocked says yes.
// Some cuts lose what is sent meanwhile, others hold it back and let all of it
// go at their end: then replies come to a leader that was another one when it asked.
func (s *simulation) cut(lasts time.Duration, blocked func(from, to int) bool) {
	if s.faults.oneIn(3) {
		for from := range s.nodes {
			for to := range s.nodes {
				if blocked(from, to) {
					s.network.heldUntil[from][to] = max(s.network.heldUntil[from][to], s.now+lasts)
				}
			}
		}
		return
	}
	add := func(n int) {
		for from := range s.nodes {
			for to := range s.nodes {
				if blocked(from, to) {
					s.network.cuts[from][to] += n
				}
			}
		}
	}
	add(+1)
	s.atEnd(lasts, func() { add(-1) })
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
func (s *simulation) someLeader(otherwise *node) *node {
	first := s.faults.below(len(s.nodes))
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
	}
	for t, is := range occasion {
		if is && s.faults.chance(s.plan.triggers[t]) {
			n.doom = phase(s.faults.between(int(atOnce), int(afterAll)))
			if trigger(t) == onSaving || trigger(t) == onAppending && s.faults.oneIn(2) {
				n.doom = duringSave
			}
			s.nextTrigger = s.now + s.faults.around(s.plan.triggerGap)
			s.count(CrashOnWinning + Event(t))
			return
		}
	}
}

// crashes carries out a crash that was planned for this phase of the loop.
func (s *simulation) crashes(n *node, at phase) bool {
	doomed := n.doom == at
	if doomed || at == afterAll {
		n.doom = alive // a phase that this round did not have is over, too
	}
	if doomed {
		s.stopAndReturn(n)
	}
	return doomed
}
