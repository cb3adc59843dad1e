package cores

import (
	raft "raftkv/part3-persistence"
	"raftkv/rafttest"
)

// Proposer is the raft.Server of a service in virtual time: part 3's core. What a
// Submit asks for waits until somebody takes it, because the service submits in
// the middle of its own work.
type Proposer struct {
	Part3
	out rafttest.Effects
}

// Submit is raft.Server.Submit.
func (p *Proposer) Submit(command []byte) (raft.Index, raft.Term, error) {
	p.out = p.Part3.Submit(command)
	if p.out.Index == 0 {
		return 0, 0, &raft.NotLeaderError{Leader: raft.ServerID(p.Status().LeaderID), Term: raft.Term(p.Status().Term)}
	}
	return raft.Index(p.out.Index), raft.Term(p.out.Term), nil
}

// Take returns what the latest Submit has asked for, once.
func (p *Proposer) Take() rafttest.Effects {
	out := p.out
	p.out = rafttest.Effects{}
	return out
}

// CommitEntry turns what rafttest gives to a state machine into what it is in part 3.
func CommitEntry(e rafttest.Entry) raft.CommitEntry {
	entry := raft.CommitEntry{Index: raft.Index(e.Index), Term: raft.Term(e.Term), Command: e.Command}
	if e.Command == nil {
		entry.Kind = raft.EntryEmpty
	}
	return entry
}
