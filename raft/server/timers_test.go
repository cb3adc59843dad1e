package server

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/raft"
	"raftkv/raft/storage"
)

// Servers that wait equally long campaign together, split the votes, and do so
// again for ever (§5.2, LV-02). In a cluster one of them is always a little
// earlier, so this looks at the waits themselves.
func TestElectionTimeoutIsDrawnAnew(t *testing.T) {
	config := Config{ElectionTimeout: 150 * time.Millisecond}
	drawn := map[time.Duration]bool{}
	for range 100 {
		d := timeout(raft.ElectionTimer, config)
		require.GreaterOrEqual(t, d, config.ElectionTimeout)
		require.Less(t, d, 2*config.ElectionTimeout)
		drawn[d] = true
	}
	require.Greater(t, len(drawn), 90)
	require.Equal(t, config.ElectionTimeout, timeout(raft.LeaderContactTimer, config))
	require.Equal(t, config.ElectionTimeout, timeout(raft.QuorumCheckTimer, config))
}

// The process slept. When it wakes up its election timer is due, and a message
// of the leader is in the inbox, too.
func TestMessagesComeBeforeTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []raft.CMState
		s, err := New(Config{
			Raft:    raft.Config{Cluster: 7, ID: 1, Configuration: raft.NewConfiguration(1, 2, 3)},
			Storage: storage.NewMapStorage(),
			Observe: func(s raft.Status) { seen = append(seen, s.State) },
		})
		require.NoError(t, err)
		s.transport = &link{c: &cluster{nodes: map[raft.ServerID]*node{1: {}}}, from: 1}
		<-time.After(time.Second)
		require.Zero(t, s.timers.wait(time.Now()), "a timer is due")
		s.Deliver([]raft.Message{{Cluster: 7, From: 2, To: 1, Body: raft.AppendEntriesArgs{Term: 1, LeaderID: 2}}})
		require.NoError(t, s.round())
		require.Equal(t, raft.ServerID(2), s.Status().LeaderID)
		require.NotContains(t, seen, raft.PreCandidate, "it has looked for another leader")
	})
}
