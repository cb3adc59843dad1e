package raft

import "raftkv/rafttest"

// tested is a ConsensusModule as rafttest sees it, over a disk that survives it.
type tested struct {
	cm   *ConsensusModule
	disk *MapStorage
}

func NewNode(id ServerID, peerIDs []ServerID, disk *MapStorage) (tested, rafttest.Effects) {
	cm, out := NewConsensusModule(id, peerIDs, disk.state)
	return tested{cm, disk}, tested{cm, disk}.effects(out)
}

func (n tested) ElectionTimeout() rafttest.Effects      { return n.effects(n.cm.Step(ElectionTimeout{})) }
func (n tested) HeartbeatTimeout() rafttest.Effects     { return n.effects(n.cm.Step(HeartbeatTimeout{})) }
func (n tested) Receive(m any) rafttest.Effects         { return n.effects(n.cm.Step(m.(Message))) }
func (n tested) Submit(command []byte) rafttest.Effects { return n.effects(n.cm.Step(Submit{command})) }
func (n tested) Log() []rafttest.Entry {
	return rafttest.Map(n.cm.log[1:], func(e LogEntry) rafttest.Entry { return rafttest.At(0, e.Term, e.Command) })
}
func (n tested) Status() rafttest.Status {
	s := n.cm.Status()
	return rafttest.Status{State: s.State.String(), Term: int(s.Term), VotedFor: int(s.VotedFor), LeaderID: int(s.LeaderID), CommitIndex: int(s.CommitIndex)}
}
func (n tested) effects(out Effects) (e rafttest.Effects) {
	e.Index, e.Term = int(out.Submitted.Index), int(out.Submitted.Term)
	e.Send, e.SendAfter = rafttest.Map(out.Send, message), rafttest.Map(out.SendAfter, message)
	e.ElectionTimer, e.HeartbeatTimer = rafttest.TimerAction(out.Timers[ElectionTimer]), rafttest.TimerAction(out.Timers[HeartbeatTimer])
	e.Commit = rafttest.Map(out.Commit, func(c CommitEntry) rafttest.Entry { return rafttest.At(c.Index, c.Term, c.Command) })
	if out.Save.Needed() {
		e.Save = func() rafttest.Effects {
			n.disk.Save(out.Save) // never fails
			return n.effects(n.cm.Step(Saved{n.cm.log.lastIndex(), n.cm.currentTerm}))
		}
	}
	return e
}
func message(m Message) rafttest.Message { return rafttest.Message{To: int(m.To), Body: m} }
