package cores

import (
	raft "raftkv/part3-persistence"
	four "raftkv/part4-kvservice/kvservice"
	"raftkv/part5-dedup/api"
	five "raftkv/part5-dedup/kvservice"
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

// Part4 is a server of part 4: its service over part 3's core.
type Part4 struct {
	Part3
	rs  *Proposer
	kvs four.Virtual
}

// NewPart4 starts a server of part 4.
func NewPart4(id raft.ServerID, peerIDs []raft.ServerID, disk *raft.MapStorage) (Part4, rafttest.Effects) {
	core, effects := NewPart3(id, peerIDs, disk)
	rs := &Proposer{Part3: core}
	return Part4{core, rs, four.NewVirtual(id, rs)}, effects
}

func (n Part4) Call(r rafttest.Request) (func() (rafttest.Answer, bool), rafttest.Effects) {
	answer := n.kvs.Start(four.Command{Kind: four.CommandKind(r.Op), Key: r.Key, Value: r.Value})
	return func() (rafttest.Answer, bool) {
		status, result, ok := answer()
		return rafttest.Answer{Result: rafttest.Result(status), Value: result.ResultValue, Found: result.ResultFound}, ok
	}, n.rs.Take()
}

func (n Part4) Apply(e rafttest.Entry)  { n.kvs.Apply(CommitEntry(e)) }
func (n Part4) Data() map[string]string { return n.kvs.Data() }

// Part5 is a server of part 5: its service over part 3's core.
type Part5 struct {
	Part3
	rs  *Proposer
	kvs five.Virtual
}

// NewPart5 starts a server of part 5.
func NewPart5(id raft.ServerID, peerIDs []raft.ServerID, disk *raft.MapStorage) (Part5, rafttest.Effects) {
	core, effects := NewPart3(id, peerIDs, disk)
	rs := &Proposer{Part3: core}
	return Part5{core, rs, five.NewVirtual(id, rs)}, effects
}

func (n Part5) Call(r rafttest.Request) (func() (rafttest.Answer, bool), rafttest.Effects) {
	identity := api.Identity{ClientID: int64(r.ClientID), RequestID: int64(r.RequestID)}
	answer := n.kvs.Start(five.Command{Identity: identity, Kind: five.CommandKind(r.Op), Key: r.Key, Value: r.Value})
	return func() (rafttest.Answer, bool) {
		status, result, ok := answer()
		return rafttest.Answer{Result: rafttest.Result(status), Value: result.ResultValue, Found: result.ResultFound}, ok
	}, n.rs.Take()
}

func (n Part5) Apply(e rafttest.Entry)  { n.kvs.Apply(CommitEntry(e)) }
func (n Part5) Data() map[string]string { return n.kvs.Data() }

// LastRequestIDs returns what the service remembers of each client.
func (n Part5) LastRequestIDs() map[int64]int64 { return n.kvs.LastRequestIDs() }
