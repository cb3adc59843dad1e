// Command hashinode is a node of hashicorp/raft with the map of package kv and the
// JSON front, its log in raft-boltdb or raft-wal.
package main

import (
	"errors"
	"flag"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	boltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"

	"raftkv/bench/peers/internal/front"
	"raftkv/bench/peers/internal/kv"
	"raftkv/bench/peers/internal/node"
)

func main() {
	kind := flag.String("log", "wal", "where the log goes: bolt or wal")
	timeout := flag.Duration("timeout", time.Second, "HeartbeatTimeout and ElectionTimeout; the lease is half of it")
	batch := flag.Bool("batch", false, "BatchApplyCh, and up to 512 entries in a message")
	c := node.Parse()

	logs, stable, err := openLog(*kind, c.Dir)
	node.Check(err)
	cache, err := raft.NewLogCache(512, logs)
	node.Check(err)
	snapshots, err := raft.NewFileSnapshotStore(c.Dir, 2, io.Discard)
	node.Check(err)
	self := c.Peers[c.ID]
	tcp, err := net.ResolveTCPAddr("tcp", self)
	node.Check(err)
	transport, err := raft.NewTCPTransport(self, tcp, 3, 10*time.Second, io.Discard)
	node.Check(err)

	config := raft.DefaultConfig()
	config.LocalID = raft.ServerID(self)
	config.HeartbeatTimeout, config.ElectionTimeout, config.LeaderLeaseTimeout = *timeout, *timeout, *timeout/2
	config.CommitTimeout = min(config.CommitTimeout, *timeout/20)
	config.Logger = hclog.NewNullLogger()
	if *batch {
		config.BatchApplyCh, config.MaxAppendEntries = true, 512
	}
	started, err := raft.HasExistingState(cache, stable, snapshots)
	node.Check(err)
	m := machine{kv.New()}
	r, err := raft.NewRaft(config, m, cache, stable, snapshots, transport)
	node.Check(err)
	if !started {
		var members raft.Configuration
		for _, peer := range c.Peers {
			members.Servers = append(members.Servers, raft.Server{ID: raft.ServerID(peer), Address: raft.ServerAddress(peer)})
		}
		if err := r.BootstrapCluster(members).Error(); err != nil && !errors.Is(err, raft.ErrCantBootstrap) {
			log.Fatal(err)
		}
	}
	log.Fatal(front.Serve(c.Clients[c.ID], store{r, m.Machine}))
}

func openLog(kind, dir string) (raft.LogStore, raft.StableStore, error) {
	switch kind {
	case "bolt":
		b, err := boltdb.NewBoltStore(filepath.Join(dir, "log.bolt"))
		return b, b, err
	case "wal":
		dir = filepath.Join(dir, "log.wal")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, nil, err
		}
		w, err := wal.Open(dir, wal.WithLogger(hclog.NewNullLogger()))
		return w, w, err
	}
	return nil, nil, errors.New("--log is bolt or wal")
}

// store is what the front needs.
type store struct {
	raft    *raft.Raft
	machine *kv.Machine
}

const patience = 5 * time.Second

func (s store) Apply(entry []byte) (kv.Result, error) {
	done := s.raft.Apply(entry, patience)
	if err := done.Error(); err != nil {
		if errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrLeadershipLost) {
			err = front.ErrNotLeader
		}
		return kv.Result{}, err
	}
	a := done.Response().(applied)
	return a.result, a.err
}

// Get asks a majority whether this node still leads, then reads the map.
func (s store) Get(key string) (string, bool, error) {
	if s.raft.VerifyLeader().Error() != nil {
		return "", false, front.ErrNotLeader
	}
	value, found := s.machine.Get(key)
	return value, found, nil
}

func (s store) Leads() bool { return s.raft.State() == raft.Leader }

// machine makes package kv a raft.BatchingFSM.
type machine struct{ *kv.Machine }

type applied struct {
	result kv.Result
	err    error
}

func (m machine) Apply(l *raft.Log) any {
	result, err := m.Machine.Apply(l.Data)
	return applied{result, err}
}

func (m machine) ApplyBatch(logs []*raft.Log) []any {
	all := make([]any, len(logs))
	for i, l := range logs {
		if l.Type == raft.LogCommand {
			all[i] = m.Apply(l)
		}
	}
	return all
}

func (m machine) Snapshot() (raft.FSMSnapshot, error) { return snapshot{m.Copy()}, nil }

func (m machine) Restore(from io.ReadCloser) error {
	defer from.Close()
	return m.Load(from)
}

type snapshot struct{ machine *kv.Machine }

func (s snapshot) Persist(sink raft.SnapshotSink) error {
	if err := s.machine.Save(sink); err != nil {
		sink.Cancel()
		return err
	}
	return sink.Close()
}

func (s snapshot) Release() {}
