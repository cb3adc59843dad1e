package kvservice

import (
	"bytes"
	"io"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"raftkv/kvservice/machine"
	"raftkv/raft"
)

// Applying and installing are one stream: what is committed behind a snapshot
// waits until all of it has been read (SN-08).
func TestEntriesBehindASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		appendA := machine.Command{Kind: machine.KindAppend, Key: "x", Value: "a", Nonce: machine.Nonce{1}}
		from := machine.New()
		for i, c := range []machine.Command{{Kind: machine.KindSettings, Settings: machine.DefaultSettings()}, appendA} {
			_, err := from.Apply(raft.CommitEntry{Index: raft.Index(i) + 1, Term: 1, Command: c.Encode()})
			require.NoError(t, err)
		}
		var state bytes.Buffer
		require.NoError(t, from.WriteSnapshot(&state))

		s := New(Config{ID: 1})
		commits := make(chan raft.CommitEntry, 2)
		ended := make(chan error, 1)
		go func() { ended <- s.Run(&scriptedRaft{}, commits) }()
		data, slowly := io.Pipe()
		commits <- raft.CommitEntry{Index: 2, Term: 1, Kind: raft.EntrySnapshot, Installed: &raft.InstalledSnapshot{Snapshot: raft.Snapshot{Index: 2, Term: 1}, Data: data}}
		commits <- raft.CommitEntry{Index: 3, Term: 1, Command: appendA.Encode()}
		synctest.Wait()
		require.Len(t, commits, 1, "the entry has not waited for the snapshot")
		_, err := slowly.Write(state.Bytes())
		require.NoError(t, err)
		require.NoError(t, slowly.Close())
		close(commits)
		require.NoError(t, <-ended)
		require.Equal(t, raft.Index(3), s.machine.AppliedIndex())
		require.Equal(t, "aa", s.machine.Get("x").Value)
	})
}
