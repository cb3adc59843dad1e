package cores

import (
	raft "raftkv/part1-election"
	"raftkv/rafttest"
)

// Part1 is the algorithm of part 1. Nothing of it survives a crash.
type Part1 struct{ cm *raft.ConsensusModule }

// NewPart1 starts a server of part 1.
func NewPart1(id raft.ServerID, peerIDs []raft.ServerID, _ *struct{}) (Part1, rafttest.Effects) {
	cm, out := raft.NewConsensusModule(id, peerIDs)
	n := Part1{cm}
	return n, n.effects(out)
}

func (n Part1) step(event raft.Event) rafttest.Effects { return n.effects(n.cm.Step(event)) }

func (n Part1) ElectionTimeout() rafttest.Effects  { return n.step(raft.ElectionTimeout{}) }
func (n Part1) HeartbeatTimeout() rafttest.Effects { return n.step(raft.HeartbeatTimeout{}) }
func (n Part1) Receive(body any) rafttest.Effects  { return n.step(body.(raft.Message)) }

func (n Part1) Status() rafttest.Status {
	s := n.cm.Status()
	return rafttest.Status{
		State:    s.State.String(),
		Term:     int(s.Term),
		VotedFor: int(s.VotedFor),
		LeaderID: int(s.LeaderID),
	}
}

func (n Part1) effects(out raft.Effects) rafttest.Effects {
	return rafttest.Effects{
		Send:           rafttest.Map(out.Send, func(m raft.Message) rafttest.Message { return rafttest.Message{To: int(m.To), Body: m} }),
		ElectionTimer:  rafttest.TimerAction(out.Timers[raft.ElectionTimer]),
		HeartbeatTimer: rafttest.TimerAction(out.Timers[raft.HeartbeatTimer]),
	}
}
