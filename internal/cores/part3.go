package cores

import (
	raft "raftkv/part3-persistence"
	"raftkv/rafttest"
)

// Part3 is the algorithm of part 3, over a disk that survives it.
type Part3 struct {
	cm   *raft.ConsensusModule
	disk *raft.MapStorage
}

// NewPart3 starts a server of part 3.
func NewPart3(id raft.ServerID, peerIDs []raft.ServerID, disk *raft.MapStorage) (Part3, rafttest.Effects) {
	saved, _ := disk.Load() // never fails
	cm, out := raft.NewConsensusModule(id, peerIDs, saved)
	n := Part3{cm, disk}
	return n, n.effects(out)
}

func (n Part3) step(event raft.Event) rafttest.Effects { return n.effects(n.cm.Step(event)) }

func (n Part3) ElectionTimeout() rafttest.Effects      { return n.step(raft.ElectionTimeout{}) }
func (n Part3) HeartbeatTimeout() rafttest.Effects     { return n.step(raft.HeartbeatTimeout{}) }
func (n Part3) Receive(body any) rafttest.Effects      { return n.step(body.(raft.Message)) }
func (n Part3) Submit(command []byte) rafttest.Effects { return n.step(raft.Submit{Command: command}) }

func (n Part3) Status() rafttest.Status {
	s := n.cm.Status()
	return rafttest.Status{
		State:       s.State.String(),
		Term:        int(s.Term),
		VotedFor:    int(s.VotedFor),
		LeaderID:    int(s.LeaderID),
		CommitIndex: int(s.CommitIndex),
	}
}

func (n Part3) Log() (log []rafttest.Entry) {
	for i := raft.Index(1); ; i++ {
		e, ok := n.cm.Entry(i)
		if !ok {
			return log
		}
		log = append(log, rafttest.At(i, e.Term, e.Command))
	}
}

func (n Part3) Progress(peer int) (next, match int, ok bool) {
	nextIndex, matchIndex, ok := n.cm.Progress(raft.ServerID(peer))
	return int(nextIndex), int(matchIndex), ok
}

func (n Part3) effects(out raft.Effects) rafttest.Effects {
	message := func(m raft.Message) rafttest.Message { return rafttest.Message{To: int(m.To), Body: m} }
	e := rafttest.Effects{
		Index:          int(out.Submitted.Index),
		Term:           int(out.Submitted.Term),
		Send:           rafttest.Map(out.Send, message),
		SendAfter:      rafttest.Map(out.SendAfter, message),
		ElectionTimer:  rafttest.TimerAction(out.Timers[raft.ElectionTimer]),
		HeartbeatTimer: rafttest.TimerAction(out.Timers[raft.HeartbeatTimer]),
		Commit:         rafttest.Map(out.Commit, func(e raft.CommitEntry) rafttest.Entry { return rafttest.At(e.Index, e.Term, e.Command) }),
	}
	if out.Save.Needed() {
		e.Save = func() rafttest.Effects {
			n.disk.Save(out.Save) // never fails
			now := n.cm.Status()
			return n.step(raft.Saved{Index: now.LastIndex, Term: now.Term})
		}
	}
	return e
}
