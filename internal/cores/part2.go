package cores

import (
	raft "raftkv/part2-commands"
	"raftkv/rafttest"
)

// Part2 is the algorithm of part 2. Nothing of it survives a crash.
type Part2 struct{ cm *raft.ConsensusModule }

// NewPart2 starts a server of part 2.
func NewPart2(id raft.ServerID, peerIDs []raft.ServerID, _ *struct{}) (Part2, rafttest.Effects) {
	cm, out := raft.NewConsensusModule(id, peerIDs)
	n := Part2{cm}
	return n, n.effects(out)
}

func (n Part2) step(event raft.Event) rafttest.Effects { return n.effects(n.cm.Step(event)) }

func (n Part2) ElectionTimeout() rafttest.Effects      { return n.step(raft.ElectionTimeout{}) }
func (n Part2) HeartbeatTimeout() rafttest.Effects     { return n.step(raft.HeartbeatTimeout{}) }
func (n Part2) Receive(body any) rafttest.Effects      { return n.step(body.(raft.Message)) }
func (n Part2) Submit(command []byte) rafttest.Effects { return n.step(raft.Submit{Command: command}) }

func (n Part2) Status() rafttest.Status {
	s := n.cm.Status()
	return rafttest.Status{
		State:       s.State.String(),
		Term:        int(s.Term),
		VotedFor:    int(s.VotedFor),
		LeaderID:    int(s.LeaderID),
		CommitIndex: int(s.CommitIndex),
	}
}

func (n Part2) Log() (log []rafttest.Entry) {
	for i := raft.Index(1); ; i++ {
		e, ok := n.cm.Entry(i)
		if !ok {
			return log
		}
		log = append(log, rafttest.At(i, e.Term, e.Command))
	}
}

func (n Part2) Progress(peer int) (next, match int, ok bool) {
	nextIndex, matchIndex, ok := n.cm.Progress(raft.ServerID(peer))
	return int(nextIndex), int(matchIndex), ok
}

func (n Part2) effects(out raft.Effects) rafttest.Effects {
	return rafttest.Effects{
		Index:          int(out.Submitted.Index),
		Term:           int(out.Submitted.Term),
		Send:           rafttest.Map(out.Send, func(m raft.Message) rafttest.Message { return rafttest.Message{To: int(m.To), Body: m} }),
		ElectionTimer:  rafttest.TimerAction(out.Timers[raft.ElectionTimer]),
		HeartbeatTimer: rafttest.TimerAction(out.Timers[raft.HeartbeatTimer]),
		Commit:         rafttest.Map(out.Commit, func(e raft.CommitEntry) rafttest.Entry { return rafttest.At(e.Index, e.Term, e.Command) }),
	}
}
