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
func (n tested) Receive(m any) rafttest.Effects     { return effects(n.cm.Step(m.(Message))) }

func (n tested) Status() rafttest.Status {
	s := n.cm.Status()
	return rafttest.Status{State: s.State.String(), Term: int(s.Term), VotedFor: int(s.VotedFor), LeaderID: int(s.LeaderID)}
}

func effects(out Effects) (e rafttest.Effects) {
	e.Send = rafttest.Map(out.Send, func(m Message) rafttest.Message { return rafttest.Message{To: int(m.To), Body: m} })
	e.ElectionTimer, e.HeartbeatTimer = rafttest.TimerAction(out.Timers[ElectionTimer]), rafttest.TimerAction(out.Timers[HeartbeatTimer])
	return e
}
