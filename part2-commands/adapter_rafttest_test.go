package raft

import "raftkv/rafttest"

// tested is a ConsensusModule as rafttest sees it. Nothing of it survives a crash.
type tested struct{ cm *ConsensusModule }

func NewNode(id ServerID, peerIDs []ServerID, _ *struct{}) (tested, rafttest.Effects) {
	cm, out := NewConsensusModule(id, peerIDs)
	return tested{cm}, effects(out)
}

func (n tested) ElectionTimeout() rafttest.Effects  { return effects(n.cm.Step(ElectionTimeout{})) }
func (n tested) HeartbeatTimeout() rafttest.Effects { return effects(n.cm.Step(HeartbeatTimeout{})) }
func (n tested) Submit(command []byte) rafttest.Effects {
	return effects(n.cm.Step(Submit{command}))
}
func (n tested) Receive(m any) rafttest.Effects { return effects(n.cm.Step(m.(Message))) }

func (n tested) Status() rafttest.Status {
	s := n.cm.Status()
	return rafttest.Status{State: s.State.String(), Term: int(s.Term), VotedFor: int(s.VotedFor), LeaderID: int(s.LeaderID), CommitIndex: int(s.CommitIndex)}
}
func (n tested) Log() []rafttest.Entry {
	return rafttest.Map(n.cm.log[1:], func(e LogEntry) rafttest.Entry { return rafttest.At(0, e.Term, e.Command) })
}

func effects(out Effects) (e rafttest.Effects) {
	e.Index, e.Term = int(out.Submitted.Index), int(out.Submitted.Term)
	e.Commit = rafttest.Map(out.Commit, func(c CommitEntry) rafttest.Entry { return rafttest.At(c.Index, c.Term, c.Command) })
	e.Send = rafttest.Map(out.Send, func(m Message) rafttest.Message { return rafttest.Message{To: int(m.To), Body: m} })
	e.ElectionTimer, e.HeartbeatTimer = rafttest.TimerAction(out.Timers[ElectionTimer]), rafttest.TimerAction(out.Timers[HeartbeatTimer])
	return e
}
