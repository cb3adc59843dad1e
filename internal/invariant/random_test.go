package invariant

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/raft"
)

// cluster runs package raft with an adversary in the place of network, disks
// and clocks, to see that a correct core is never accused.
type cluster struct {
	t       testing.TB
	rng     *rand.Rand
	config  raft.Config
	voters  []raft.ServerID
	checker *Checker
	nodes   map[raft.ServerID]*node
	flying  []raft.Message
	steps   int

	installed int // snapshots
}

type node struct {
	cm     *raft.ConsensusModule
	disk   raft.PersistentState
	timers raft.Timers
	batch  raft.Effects // stepped and not carried out yet
}

func newCluster(t testing.TB, seed uint64, servers int, config raft.Config) *cluster {
	c := &cluster{t: t, rng: rand.New(rand.NewPCG(seed, 1)), config: config, nodes: map[raft.ServerID]*node{}}
	for id := range servers {
		c.voters = append(c.voters, raft.ServerID(id+1))
	}
	c.checker = New(c.voters...)
	for _, id := range c.voters {
		c.nodes[id] = &node{}
		c.start(id)
	}
	return c
}

func (c *cluster) start(id raft.ServerID) {
	n := c.nodes[id]
	config := c.config
	config.ID, config.Configuration = id, raft.NewConfiguration(c.voters...)
	cm, effects, err := raft.NewConsensusModule(config, n.disk)
	require.NoError(c.t, err)
	n.cm, n.batch, n.timers = cm, raft.Effects{}, raft.Timers{}
	n.batch.Merge(effects)
	require.NoError(c.t, c.checker.Restarted(id, n.disk))
}

func (c *cluster) step(id raft.ServerID, event raft.Event) {
	n := c.nodes[id]
	effects := n.cm.Step(event)
	c.steps++
	if c.checker != nil {
		if err := c.checker.AfterStep(id, n.cm, effects); err != nil {
			c.t.Fatalf("step %d, %#v: %v", c.steps, event, err)
		}
	}
	n.batch.Merge(effects)
}

// carryOut does what a server's loop does after a batch.
func (c *cluster) carryOut(id raft.ServerID) {
	n := c.nodes[id]
	for {
		effects := n.batch
		n.batch = raft.Effects{}
		c.flying = append(c.flying, filled(effects.Send)...)
		if save := effects.Save; save.Needed() {
			n.disk.CurrentTerm, n.disk.VotedFor = save.CurrentTerm, save.VotedFor
			if save.Reset.Index != 0 {
				n.disk.Start, n.disk.Entries = save.Reset, nil
				c.installed++
			}
			if save.FirstIndex != 0 {
				n.disk.Entries = append(n.disk.Entries[:save.FirstIndex-1-n.disk.Start.Index], save.Entries...)
			}
			if c.checker != nil {
				require.NoError(c.t, c.checker.AfterSave(id, save))
			}
			c.step(id, raft.Saved{Index: n.disk.Start.Index + raft.Index(len(n.disk.Entries)), Term: n.disk.CurrentTerm})
		}
		for _, chunk := range effects.Receive {
			if chunk.Last() {
				n.disk.Snapshot = chunk.Snapshot
				require.NoError(c.t, c.checker.SnapshotStored(id, chunk.Snapshot))
				c.step(id, raft.SnapshotStored{Snapshot: chunk.Snapshot})
			}
		}
		c.flying = append(c.flying, effects.SendAfter...)
		for _, e := range effects.Commit {
			if c.checker != nil {
				require.NoError(c.t, c.checker.Applied(id, e))
			}
			c.step(id, raft.Applied{Index: e.Index})
		}
		for kind, change := range effects.Timers {
			if change.Action != raft.LeaveTimer {
				n.timers[kind] = change
			}
		}
		if !n.batch.Save.Needed() && len(n.batch.Receive) == 0 && len(n.batch.Send)+len(n.batch.SendAfter)+len(n.batch.Commit) == 0 {
			return
		}
	}
}

// filled are messages with the bytes of snapshots, which are all the same here.
func filled(messages []raft.Message) []raft.Message {
	for i, m := range messages {
		if args, ok := m.Body.(raft.InstallSnapshotArgs); ok {
			args.Data = make([]byte, args.Length)
			messages[i].Body = args
		}
	}
	return messages
}

// act does one random thing.
func (c *cluster) act() {
	id := c.voters[c.rng.IntN(len(c.voters))]
	n := c.nodes[id]
	switch r := c.rng.IntN(100); {
	case r < 70 && len(c.flying) > 0:
		at := c.rng.IntN(len(c.flying))
		m := c.flying[at]
		if c.rng.IntN(10) > 0 { // else it comes again
			c.flying[at] = c.flying[len(c.flying)-1]
			c.flying = c.flying[:len(c.flying)-1]
		}
		id = m.To
		c.step(id, m)
	case r < 72 && len(c.flying) > 0:
		at := c.rng.IntN(len(c.flying))
		c.flying = append(c.flying[:at], c.flying[at+1:]...)
	case r < 80:
		kind := raft.TimerKind(c.rng.IntN(len(n.timers)))
		if kind == raft.ElectionTimer && c.rng.IntN(3) > 0 {
			return
		}
		c.step(id, raft.Timeout(kind, n.timers[kind].Number))
	case r < 95:
		c.step(id, raft.Submit{Commands: [][]byte{fmt.Appendf(nil, "c%d", c.steps)}})
	case r < 96:
		c.start(id) // a crash, with whatever is in the batch unsaved
		return
	}
	if c.rng.IntN(3) > 0 {
		c.carryOut(id)
	}
	if len(c.flying) > 200 {
		c.flying = c.flying[100:]
	}
}

// TestLegalRuns is the look-alike for all invariants at once: package raft
// under every sort of trouble.
func TestLegalRuns(t *testing.T) {
	committed := 0
	for seed := range uint64(200) {
		c := newCluster(t, seed, 1+int(seed%5), raft.Config{
			DisablePreVote: seed%2 == 0, DisableQuorumCheck: seed%3 == 0, MaxBatchBytes: 1 + int(seed%7)*20, MaxInflight: 1 + int(seed%4),
		})
		for range 3000 {
			c.act()
		}
		committed += len(c.checker.committed)
	}
	require.Greater(t, committed, 10_000, "the runs do not get far enough to tell anything")
}

// BenchmarkStep steps a leader that replicates commands to two followers, with
// and without the checker.
func BenchmarkStep(b *testing.B) {
	for _, checked := range []bool{false, true} {
		b.Run(fmt.Sprintf("checked=%v", checked), func(b *testing.B) {
			c := newCluster(b, 1, 3, raft.Config{DisablePreVote: true})
			if !checked {
				c.checker = nil
			}
			c.step(1, raft.ElectionTimeout{Number: c.nodes[1].batch.Timers[raft.ElectionTimer].Number})
			c.carryOut(1)
			c.steps = 0
			for b.Loop() {
				if len(c.flying) == 0 {
					c.step(1, raft.Submit{Commands: [][]byte{[]byte("x=1")}})
					c.carryOut(1)
				}
				m := c.flying[0]
				c.flying = c.flying[1:]
				c.step(m.To, m)
				c.carryOut(m.To)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(c.steps), "ns/step")
		})
	}
}
