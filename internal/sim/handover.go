package sim

import (
	"errors"

	"raftkv/raft"
)

// handOver asks somebody who believes to lead to hand over: to whoever lacks
// least, or to a server that may be slow, cut off or not there at all.
func (s *simulation) handOver(leader *node, random *source, then func()) {
	if !leader.up {
		then()
		return
	}
	to := raft.None
	if members := leader.configuration.Members(); len(members) > 0 && !random.oneIn(3) {
		to = members[random.below(len(members))]
	}
	s.because("server %d is asked to hand over to %d", leader.id, to)
	s.note(leader, "is asked to hand over")
	s.arrive(leader, input{ask: &ask{
		event: func(id raft.RequestID) raft.Event { return raft.TransferLeadership{Request: id, To: to} },
		answer: func(a raft.Answer) {
			switch {
			case a.Err == nil && to != leader.id:
				s.count(TransferEnded)
			case errors.Is(a.Err, raft.ErrTransferAborted):
				s.count(TransferAborted)
			}
			then()
		},
	}})
}

// terminate is what SIGTERM does: the server hands over, and stops when that has
// ended, or has taken too long.
func (s *simulation) terminate(victim *node, random *source) {
	s.because("server %d is told to end", victim.id)
	life, over := victim.life, false
	end := func() {
		if !over && victim.up && victim.life == life {
			s.stopSoon(victim, "ends", false)
		}
		over = true
	}
	s.count(Terminated)
	if victim.status.State == raft.Leader {
		s.handOver(victim, random, end)
		s.after(2*s.plan.electionTimeout, end)
	} else {
		end()
	}
}

// countTransfers looks for what may befall a transfer in one step.
func (s *simulation) countTransfers(n *node, before *raft.Status) {
	now := &n.status
	if now.TransferTo != raft.None && before.TransferTo == raft.None {
		late := true
		for _, m := range s.record.Effects.Send {
			if _, ok := m.Body.(raft.TimeoutNowArgs); ok {
				late = false
			}
		}
		if late {
			s.count(TargetLagging)
		}
	}
	m, ok := s.record.Event.(raft.Message)
	if !ok {
		return
	}
	switch body := m.Body.(type) {
	case raft.TimeoutNowArgs:
		if now.State == raft.Candidate && now.Term > before.Term {
			s.count(TookOver)
		} else {
			s.count(TimeoutNowLate)
		}
	case raft.RequestVoteArgs:
		if !body.Transfer && !n.known && before.State != raft.Leader && len(s.record.Effects.SendAfter) == 0 {
			s.count(VoteRefusedAfterRestart)
		}
	case raft.PreVoteArgs:
		if !n.known && before.State != raft.Leader && len(s.record.Effects.SendAfter) == 0 {
			s.count(VoteRefusedAfterRestart)
		}
	}
}
