package part4

import (
	"raftkv/internal/cores"
	raft "raftkv/part3-persistence"
	"raftkv/part4-kvservice/kvservice"
	"raftkv/rafttest"
)

// tested is a service over part 3's core, as rafttest sees it.
type tested struct {
	cores.Part3
	rs  *cores.Proposer
	kvs kvservice.Virtual
}

func NewService(id raft.ServerID, peerIDs []raft.ServerID, disk *raft.MapStorage) (tested, rafttest.Effects) {
	core, effects := cores.NewPart3(id, peerIDs, disk)
	rs := &cores.Proposer{Part3: core}
	return tested{core, rs, kvservice.NewVirtual(id, rs)}, effects
}

func (n tested) Call(r rafttest.Request) (func() (rafttest.Answer, bool), rafttest.Effects) {
	answer := n.kvs.Start(kvservice.Command{Kind: kvservice.CommandKind(r.Op), Key: r.Key, Value: r.Value})
	return func() (rafttest.Answer, bool) {
		status, result, ok := answer()
		return rafttest.Answer{Result: rafttest.Result(status), Value: result.ResultValue, Found: result.ResultFound}, ok
	}, n.rs.Take()
}

func (n tested) Apply(e rafttest.Entry)  { n.kvs.Apply(cores.CommitEntry(e)) }
func (n tested) Data() map[string]string { return n.kvs.Data() }
