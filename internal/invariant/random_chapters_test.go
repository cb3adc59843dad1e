package invariant

import (
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/raft"
)

// chapters lets a cluster do one more thing: read, change its members, hand over,
// or take a snapshot. The cluster's servers wait for nothing, so a snapshot is
// there at once.
func (c *cluster) chapters() {
	id := c.voters[c.rng.IntN(len(c.voters))]
	n := c.nodes[id]
	s := n.cm.Status()
	request := raft.RequestID(c.steps + 1)
	switch c.rng.IntN(4) {
	case 0:
		c.checker.BeforeRead(id, []raft.RequestID{request})
		c.step(id, raft.Read{Requests: []raft.RequestID{request}})
	case 1:
		next := raft.Configuration{}
		for _, v := range c.voters {
			switch c.rng.IntN(3) {
			case 0:
				next.Voters = append(next.Voters, v)
			case 1:
				next.Learners = append(next.Learners, v)
			}
		}
		c.step(id, raft.ChangeConfiguration{Request: request, Expected: s.ConfigurationIndex, Next: next})
	case 2:
		c.step(id, raft.TransferLeadership{Request: request, To: c.voters[c.rng.IntN(len(c.voters))]})
	case 3:
		e, ok := n.cm.Entry(s.LastApplied)
		if !ok || n.batch.Save.Needed() || s.LastApplied <= s.SnapshotIndex {
			return
		}
		changes := c.checker.changesUpTo(s.LastApplied)
		last := changes[len(changes)-1]
		snapshot := raft.Snapshot{Index: s.LastApplied, Term: e.Term, Configuration: last.Configuration, ConfigurationIndex: last.index, Size: 4}
		require.NoError(c.t, c.checker.SnapshotStored(id, snapshot))
		n.disk.Snapshot = snapshot
		c.step(id, raft.SnapshotStored{Snapshot: snapshot})
	}
}

// TestLegalRunsOfLaterChapters is TestLegalRuns with all that Figure 2 leaves out.
func TestLegalRunsOfLaterChapters(t *testing.T) {
	committed, changed, installed := 0, 0, 0
	for seed := range uint64(150) {
		c := newCluster(t, seed, 1+int(seed%5), raft.Config{
			DisablePreVote: seed%2 == 0, MaxBatchBytes: 1 + int(seed%7)*20, MaxInflight: 1 + int(seed%4), TrailingBytes: 1 + int(seed%3)*50,
		})
		for range 3000 {
			c.act()
			if c.rng.IntN(12) == 0 {
				c.chapters()
			}
		}
		committed += len(c.checker.committed)
		changed += len(c.checker.changes)
		installed += c.installed
	}
	require.Greater(t, committed, 8_000, "the runs do not get far enough to tell anything")
	require.Greater(t, changed, 500, "members hardly ever change")
	require.Greater(t, installed, 20, "snapshots are hardly ever installed")
}
