package cores

import (
	raft "raftkv/part3-persistence"
	"raftkv/part5-dedup/api"
	"raftkv/part5-dedup/kvservice"
	"raftkv/rafttest"
)

// Part5 is a server of part 5: its service over part 3's core.
type Part5 struct {
	Part3
	rs  *Proposer
	kvs kvservice.Virtual
}

// NewPart5 starts a server of part 5.
func NewPart5(id raft.ServerID, peerIDs []raft.ServerID, disk *raft.MapStorage) (Part5, rafttest.Effects) {
	core, effects := NewPart3(id, peerIDs, disk)
	rs := &Proposer{Part3: core}
	return Part5{core, rs, kvservice.NewVirtual(id, rs)}, effects
}

func (n Part5) Call(r rafttest.Request) (func() (rafttest.Answer, bool), rafttest.Effects) {
	identity := api.Identity{ClientID: int64(r.ClientID), RequestID: int64(r.RequestID)}
	answer := n.kvs.Start(kvservice.Command{Identity: identity, Kind: kvservice.CommandKind(r.Op), Key: r.Key, Value: r.Value})
	return func() (rafttest.Answer, bool) {
		status, result, ok := answer()
		return rafttest.Answer{Result: rafttest.Result(status), Value: result.ResultValue, Found: result.ResultFound}, ok
	}, n.rs.Take()
}

func (n Part5) Apply(e rafttest.Entry)  { n.kvs.Apply(CommitEntry(e)) }
func (n Part5) Data() map[string]string { return n.kvs.Data() }

// LastRequestIDs returns what the service remembers of each client.
func (n Part5) LastRequestIDs() map[int64]int64 { return n.kvs.LastRequestIDs() }
