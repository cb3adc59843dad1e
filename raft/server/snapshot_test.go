package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/raft"
	"raftkv/raft/storage"
)

// readState reads what writeState has written: a state that is the list of the
// commands that led to it.
func readState(t require.TestingT, data io.ReadCloser) (commands []string) {
	lines := bufio.NewScanner(data)
	for lines.Scan() {
		commands = append(commands, lines.Text())
	}
	require.NoError(t, lines.Err())
	require.NoError(t, data.Close())
	return commands
}

func writeState(w io.Writer, commands []string) error {
	for _, command := range commands {
		if _, err := fmt.Fprintln(w, command); err != nil {
			return err
		}
	}
	return nil
}

// takeSnapshot stores the state that a server has now.
func (n *node) takeSnapshot() error {
	configuration, index := n.Configuration()
	n.mu.Lock()
	state, at := n.applied, n.at
	n.mu.Unlock()
	return n.TakeSnapshot(raft.Snapshot{
		Index: at.Index, Term: at.Term, Configuration: configuration, ConfigurationIndex: index,
	}, func(w io.Writer) error { return writeState(w, state) })
}

// A follower that was away while the log was cut short gets the state instead,
// and then the entries behind it.
func TestFollowerGetsASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := mapStores(3)
		c := newCluster(t, stores...)
		lead := c.leader()
		away := lead%3 + 1
		c.cutBoth(away, lead, (lead+1)%3+1)
		for i := range 50 {
			_, _, err := c.nodes[lead].Submit(t.Context(), fmt.Appendf(nil, "command %d", i))
			require.NoError(t, err)
		}
		pass(time.Second)
		require.NoError(t, c.nodes[lead].takeSnapshot())
		pass(time.Second)
		require.Equal(t, raft.Index(51), c.nodes[lead].Status().SnapshotIndex)
		require.Equal(t, raft.Index(52), c.nodes[lead].Status().FirstIndex, "the log begins behind it")
		_, _, err := c.nodes[lead].Submit(t.Context(), []byte("one more"))
		require.NoError(t, err)
		c.heal()
		pass(time.Second)
		require.Equal(t, c.nodes[lead].commands(), c.nodes[away].commands())
		require.Equal(t, raft.Index(51), c.nodes[away].Status().SnapshotIndex)

		require.NoError(t, c.nodes[away].Stop())
		c.prepare(away, stores[away-1], 3)
		c.nodes[away].Start(&link{c, away})
		pass(time.Second)
		require.Equal(t, c.nodes[lead].commands(), c.nodes[away].commands(), "it starts with the snapshot")
	})
}

// A follower far behind gets a snapshot over a link so slow that the leader takes
// ten newer ones meanwhile, and cuts its log short behind each. What the follower
// needs next is kept for it, and later a tail of the log, so one snapshot is
// enough (pitfall SN-10).
func TestSlowFollowerIsNotChasedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, nodes: map[raft.ServerID]*node{}, cut: map[[2]raft.ServerID]bool{}, batch: 4 << 10, tail: 16 << 10}
		for id := raft.ServerID(1); id <= 3; id++ {
			c.prepare(id, storage.NewMapStorage(), 3)
		}
		for id := raft.ServerID(1); id <= 3; id++ {
			c.nodes[id].Start(&link{c, id})
		}
		t.Cleanup(c.stop)
		lead := c.nodes[c.leader()]
		away := c.leader()%3 + 1
		c.cutBoth(away, 1, 2, 3)
		write := func() {
			_, _, err := lead.Submit(t.Context(), fmt.Appendf(nil, "%0100d", lead.Status().LastIndex))
			require.NoError(t, err)
		}
		for range 2000 {
			write()
		}
		pass(time.Second)
		require.NoError(t, lead.takeSnapshot())
		pass(time.Second)

		c.mu.Lock()
		c.slow = away
		c.mu.Unlock()
		c.heal()
		taken := 0
		for ms := range 3000 { // a command each millisecond, a snapshot each fiftieth
			write()
			if ms%50 == 0 {
				require.NoError(t, lead.takeSnapshot())
				taken++
			}
			pass(time.Millisecond)
		}
		behind := lead.Status().LastIndex - c.nodes[away].Status().LastIndex
		require.Less(t, behind, raft.Index(100), "it follows, as far as its link lets it")
		n := c.nodes[away]
		n.mu.Lock()
		defer n.mu.Unlock()
		require.Equal(t, 1, n.restored, "of the %d snapshots taken it needed one", taken)
	})
}

// A part that was damaged on its way is noticed when the last one has come, and
// all of it is sent again.
func TestDamagedSnapshotIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := mapStores(3)
		flip := &flippingStorage{Storage: stores[0]}
		stores[0] = flip
		c := newCluster(t, stores...)
		lead := c.leader()
		for lead == 1 {
			pass(time.Second)
			require.NoError(t, c.nodes[lead].TransferLeadership(t.Context(), 2))
			lead = c.leader()
		}
		c.cutBoth(1, 2, 3)
		_, _, err := c.nodes[lead].Submit(t.Context(), []byte("a"))
		require.NoError(t, err)
		pass(time.Second)
		require.NoError(t, c.nodes[lead].takeSnapshot())
		flip.next = true
		c.heal()
		pass(time.Second)
		require.False(t, flip.next, "it was damaged once")
		require.Equal(t, c.nodes[lead].commands(), c.nodes[1].commands())
	})
}

// flippingStorage changes a bit of the next part that it receives.
type flippingStorage struct {
	storage.Storage
	next bool
}

func (s *flippingStorage) Receive(c raft.Chunk) error {
	if s.next {
		s.next = false
		c.Data = append([]byte{c.Data[0] ^ 1}, c.Data[1:]...)
	}
	return s.Storage.Receive(c)
}

// Snapshot writers that fail leave the server as it was.
func TestSnapshotThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, mapStores(1)...)
		n := c.nodes[c.leader()]
		full := errors.New("no space left on device")
		err := n.TakeSnapshot(raft.Snapshot{Index: 1, Term: 1}, func(io.Writer) error { return full })
		require.ErrorIs(t, err, full)
		require.Zero(t, n.Status().SnapshotIndex)
		_, _, err = n.Submit(t.Context(), []byte("x"))
		require.NoError(t, err)
		pass(time.Second)
		require.NoError(t, n.takeSnapshot())
		pass(time.Second)
		require.Equal(t, raft.Index(2), n.Status().SnapshotIndex)
	})
}

// A read is confirmed by a majority, or not at all.
func TestReadIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, mapStores(3)...)
		old := c.leader()
		pass(time.Second)
		_, _, err := c.nodes[old].Submit(t.Context(), []byte("x=1"))
		require.NoError(t, err)
		pass(time.Second)
		index, err := c.nodes[old].ReadIndex(t.Context())
		require.NoError(t, err)
		require.Equal(t, raft.Index(2), index)

		var notLeader *raft.NotLeaderError
		_, err = c.nodes[old%3+1].ReadIndex(t.Context())
		require.ErrorAs(t, err, &notLeader)
		require.Equal(t, old, notLeader.Leader)

		c.cutBoth(old, old%3+1, (old+1)%3+1)
		_, err = c.nodes[old].ReadIndex(t.Context())
		require.ErrorAs(t, err, &notLeader, "it resigns, and tells those who wait")
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		next := c.leader()
		c.cutBoth(next, next%3+1, (next+1)%3+1)
		_, err = c.nodes[next].ReadIndex(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// A lease ends nine tenths of an election timeout after the round that it rests
// on was sent, wherever the leader is by then.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, mapStores(3)...)
		lead := c.leader()
		pass(time.Second)
		_, ok := c.nodes[lead].LeaseIndex()
		require.True(t, ok)
		_, ok = c.nodes[lead%3+1].LeaseIndex()
		require.False(t, ok, "a follower has none")

		c.cutBoth(lead, lead%3+1, (lead+1)%3+1)
		pass(120 * time.Millisecond) // the last round was sent within the 15 ms before the cut
		_, ok = c.nodes[lead].LeaseIndex()
		require.True(t, ok, "nobody else can have been elected yet")
		pass(15 * time.Millisecond)
		_, ok = c.nodes[lead].LeaseIndex()
		require.False(t, ok)
		require.Equal(t, raft.Leader, c.nodes[lead].Status().State, "though it has not noticed yet")
	})
}

// Transfers: to the one that was named, to whoever lacks least, and to one that
// cannot take over.
func TestTransferLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, mapStores(3)...)
		lead := c.leader()
		pass(time.Second)
		to := lead%3 + 1
		began := time.Now()
		require.NoError(t, c.nodes[lead].TransferLeadership(t.Context(), to))
		pass(10 * time.Millisecond)
		require.Equal(t, to, c.leader())
		require.Less(t, time.Since(began), 150*time.Millisecond, "nobody had to wait for a timeout")

		require.NoError(t, c.nodes[to].TransferLeadership(t.Context(), raft.None))
		pass(time.Second)
		lead = c.leader()
		require.NotEqual(t, to, lead)
		require.ErrorIs(t, c.nodes[lead].TransferLeadership(t.Context(), 9), raft.ErrNotVoter)

		c.cutBoth(lead%3+1, lead, (lead+1)%3+1)
		_, _, err := c.nodes[lead].Submit(t.Context(), []byte("x"))
		require.NoError(t, err)
		require.ErrorIs(t, c.nodes[lead].TransferLeadership(t.Context(), lead%3+1), raft.ErrTransferAborted)
		_, _, err = c.nodes[lead].Submit(t.Context(), []byte("y"))
		require.NoError(t, err, "it goes on")
	})
}

// Members come as learners, become voters together, and the leader itself goes.
func TestChangeConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, mapStores(1)...)
		pass(time.Second)
		for id := raft.ServerID(2); id <= 4; id++ {
			c.prepare(id, storage.NewMapStorage(), 0)
			c.nodes[id].Start(&link{c, id})
		}
		change := func(n *node, next raft.Configuration) {
			_, at := n.Configuration()
			index, err := n.ChangeConfiguration(t.Context(), at, next)
			require.NoError(t, err)
			pass(time.Second)
			now, _ := n.Configuration()
			require.Equal(t, next, now)
			require.GreaterOrEqual(t, n.Status().CommitIndex, index)
		}
		lead := c.nodes[c.leader()]
		_, err := lead.ChangeConfiguration(t.Context(), 0, raft.NewConfiguration(1, 2, 3, 4))
		require.ErrorIs(t, err, raft.ErrNotCaughtUp)
		change(lead, raft.Configuration{Voters: []raft.ServerID{1}, Learners: []raft.ServerID{2, 3, 4}})
		_, err = lead.ChangeConfiguration(t.Context(), 0, raft.NewConfiguration(1, 2, 3, 4))
		require.ErrorIs(t, err, raft.ErrChanged)
		change(lead, raft.NewConfiguration(1, 2, 3, 4))
		change(lead, raft.NewConfiguration(2, 3, 4))

		next := c.leader()
		require.NotEqual(t, raft.ServerID(1), next, "it was removed, so it has handed over")
		_, _, err = c.nodes[next].Submit(t.Context(), []byte("x"))
		require.NoError(t, err)
		pass(10 * time.Second)
		for id := raft.ServerID(2); id <= 4; id++ {
			require.Equal(t, []string{"x"}, c.nodes[id].commands())
		}
		require.Equal(t, next, c.leader(), "the one that left disturbs nobody")
	})
}
