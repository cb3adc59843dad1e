package cores

import (
	raft "raftkv/part3-persistence"
	"raftkv/part4-kvservice/kvservice"
	"raftkv/rafttest"
)

// Part4 is a server of part 4: its service over part 3's core.
type Part4 struct {
	Part3
	rs  *Proposer
	kvs kvservice.Virtual
}

// NewPart4 starts a server of part 4.
func NewPart4(id raft.ServerID, peerIDs []raft.ServerID, disk *raft.MapStorage) (Part4, rafttest.Effects) {
	core, effects := NewPart3(id, peerIDs, disk)
	rs := &Proposer{Part3: core}
	return Part4{core, rs, kvservice.NewVirtual(id, rs)}, effects
}

func (n Part4) Call(r rafttest.Request) (func() (rafttest.Answer, bool), rafttest.Effects) {
	answer := n.kvs.Start(kvservice.Command{Kind: kvservice.CommandKind(r.Op), Key: r.Key, Value: r.Value})
	return func() (rafttest.Answer, bool) {
		status, result, ok := answer()
		return rafttest.Answer{Result: rafttest.Result(status), Value: result.ResultValue, Found: result.ResultFound}, ok
	}, n.rs.Take()
}

func (n Part4) Apply(e rafttest.Entry)  { n.kvs.Apply(CommitEntry(e)) }
func (n Part4) Data() map[string]string { return n.kvs.Data() }
