package server

import (
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/raft"
	"raftkv/raft/storage"
	"raftkv/raft/transport"
)

// BenchmarkCommit is three servers in one process, with a disk that is never slow
// and connections inside the process: what it takes from Submit until the command
// is applied at the leader, with so many submitters at a time. The allocations are
// those of all three servers.
func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{1, 64, 256} {
		b.Run(fmt.Sprint("submitters=", n), func(b *testing.B) {
			leader, applied := benchmarkCluster(b)
			work := make(chan struct{})
			var submitters sync.WaitGroup
			for range n {
				submitters.Go(func() {
					command := make([]byte, 128)
					for range work {
						_, _, err := leader.Submit(b.Context(), command)
						if err != nil {
							b.Error(err)
							return
						}
						<-applied
					}
				})
			}
			b.ReportAllocs()
			for b.Loop() {
				work <- struct{}{}
			}
			close(work)
			submitters.Wait()
		})
	}
}

// benchmarkCluster returns the leader of a cluster, and a channel with one item
// for each command that it applies. Each server stores a snapshot now and then.
func benchmarkCluster(b *testing.B) (leader *Server, applied <-chan struct{}) {
	const n = 3
	network := transport.NewNetwork()
	servers := make([]*Server, n)
	leads := make(chan *Server, 2*n)
	done := make(chan struct{}, 4096)
	for i := range n {
		id := raft.ServerID(i + 1)
		commits := make(chan raft.CommitEntry, 256)
		s, err := New(Config{
			Raft:       raft.Config{ID: id, Configuration: raft.NewConfiguration(1, 2, 3)},
			Storage:    storage.NewMapStorage(),
			CommitChan: commits,
			Observe: func(now raft.Status) {
				if now.State == raft.Leader {
					leads <- servers[i]
				}
			},
			ElectionTimeout: time.Second, // nobody may take over in the midst of it
		})
		require.NoError(b, err)
		servers[i] = s
		go consume(s, commits, done)
	}
	for i, s := range servers {
		id := raft.ServerID(i + 1)
		t := network.Join(transport.Config{ID: id, Deliver: s.Deliver, Peers: map[raft.ServerID]string{1: "", 2: "", 3: ""}})
		s.Start(t)
		b.Cleanup(func() {
			require.NoError(b, s.Stop())
			require.NoError(b, t.Close())
		})
	}
	return <-leads, done
}

// consume is a state machine that keeps nothing, and tells of each command if its
// server leads.
func consume(s *Server, commits <-chan raft.CommitEntry, done chan<- struct{}) {
	const snapshotEvery = 1 << 14
	for e := range commits {
		if e.Kind != raft.EntryCommand {
			continue
		}
		if s.Status().State == raft.Leader {
			done <- struct{}{}
		}
		if e.Index%snapshotEvery == 0 {
			configuration, _ := s.Configuration()
			s.TakeSnapshot(raft.Snapshot{Index: e.Index, Term: e.Term, Configuration: configuration}, func(w io.Writer) error { return nil })
		}
	}
}
