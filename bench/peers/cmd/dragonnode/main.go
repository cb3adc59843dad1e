// Command dragonnode is a node of dragonboat with the map of package kv and the
// JSON front. Its log is in pebble, dragonboat's default.
package main

import (
	"context"
	"errors"
	"io"
	"log"
	"path/filepath"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/logger"
	"github.com/lni/dragonboat/v4/statemachine"

	"raftkv/bench/peers/internal/front"
	"raftkv/bench/peers/internal/kv"
	"raftkv/bench/peers/internal/node"
)

const shard = 1

func main() {
	c := node.Parse()
	for _, part := range []string{"raft", "rsm", "transport", "grpc", "dragonboat", "logdb", "config", "tan", "registry", "pebblekv"} {
		logger.GetLogger(part).SetLevel(logger.ERROR)
	}
	host, err := dragonboat.NewNodeHost(config.NodeHostConfig{
		NodeHostDir:    filepath.Join(c.Dir, "dragonboat"),
		RTTMillisecond: 100,
		RaftAddress:    c.Peers[c.ID],
	})
	node.Check(err)
	members := map[uint64]string{}
	for i, peer := range c.Peers {
		members[uint64(i+1)] = peer
	}
	m := machine{kv.New()}
	self := uint64(c.ID + 1)
	node.Check(host.StartReplica(members, false, func(_, _ uint64) statemachine.IStateMachine { return m }, config.Config{
		ReplicaID: self, ShardID: shard,
		ElectionRTT: 10, HeartbeatRTT: 1, CheckQuorum: true,
		SnapshotEntries: 100_000, CompactionOverhead: 10_000,
	}))
	log.Fatal(front.Serve(c.Clients[c.ID], store{host, self}))
}

// store is what the front needs.
type store struct {
	host *dragonboat.NodeHost
	self uint64
}

const patience = 5 * time.Second

var errEntry = errors.New("the entry could not be applied")

// Apply uses no session of dragonboat's: the map has its own, as under the other
// libraries.
func (s store) Apply(entry []byte) (kv.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := s.host.SyncPropose(ctx, s.host.GetNoOPSession(shard), entry)
	if err != nil {
		return kv.Result{}, err
	}
	if r.Value&bad != 0 {
		return kv.Result{}, errEntry
	}
	return kv.Result{Found: r.Value&found != 0, Duplicate: r.Value&duplicate != 0}, nil
}

// The result of an entry, as the number that dragonboat carries.
const (
	found = 1 << iota
	duplicate
	bad
)

type read struct {
	value string
	found bool
}

func (s store) Get(key string) (string, bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer, err := s.host.SyncRead(ctx, shard, key)
	if err != nil {
		return "", false, err
	}
	r := answer.(read)
	return r.value, r.found, nil
}

func (s store) Leads() bool {
	leader, _, known, err := s.host.GetLeaderID(shard)
	return err == nil && known && leader == s.self
}

// machine makes package kv a statemachine.IStateMachine.
type machine struct{ *kv.Machine }

func (m machine) Update(e statemachine.Entry) (statemachine.Result, error) {
	r, err := m.Apply(e.Cmd)
	var value uint64
	if r.Found {
		value |= found
	}
	if r.Duplicate {
		value |= duplicate
	}
	if err != nil {
		value = bad
	}
	return statemachine.Result{Value: value}, nil
}

func (m machine) Lookup(key any) (any, error) {
	value, found := m.Get(key.(string))
	return read{value, found}, nil
}

func (m machine) SaveSnapshot(to io.Writer, _ statemachine.ISnapshotFileCollection, _ <-chan struct{}) error {
	return m.Save(to)
}

func (m machine) RecoverFromSnapshot(from io.Reader, _ []statemachine.SnapshotFile, _ <-chan struct{}) error {
	return m.Load(from)
}

func (m machine) Close() error { return nil }
