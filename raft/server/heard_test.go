package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/raft"
	"raftkv/raft/storage"
)

// A new leader does not know what its predecessors have committed. A follower that
// took its word for it would call its state fresh when it is not (seed 2 of the
// simulator: index 1 had been committed sixteen seconds before).
func TestNewLeaderSaysNothingAboutAge(t *testing.T) {
	s, err := New(Config{
		Raft:    raft.Config{ID: 1, Configuration: raft.NewConfiguration(1, 2, 3)},
		Storage: storage.NewMapStorage(),
	})
	require.NoError(t, err)
	var effects raft.Effects
	says := func(args raft.AppendEntriesArgs) {
		args.LeaderID = 2
		s.step(&effects, raft.Message{From: 2, To: 1, Body: args})
		s.publish()
	}
	entries := []raft.LogEntry{{Term: 1, Kind: raft.EntryEmpty}, {Term: 2, Kind: raft.EntryEmpty}}

	says(raft.AppendEntriesArgs{Term: 2, Entries: entries[:1]})
	at, _ := s.Heard()
	require.True(t, at.IsZero(), "it has not committed anything yet")
	says(raft.AppendEntriesArgs{Term: 2, PrevLogIndex: 1, PrevLogTerm: 1, Entries: entries[1:], LeaderCommit: 1})
	at, _ = s.Heard()
	require.True(t, at.IsZero(), "what it has committed is another leader's")
	says(raft.AppendEntriesArgs{Term: 2, PrevLogIndex: 2, PrevLogTerm: 2, LeaderCommit: 2})
	at, index := s.Heard()
	require.False(t, at.IsZero())
	require.EqualValues(t, 2, index)

	// A late message of the same leader, from before it had committed index 2.
	says(raft.AppendEntriesArgs{Term: 2, PrevLogIndex: 1, PrevLogTerm: 1, Entries: entries[1:], LeaderCommit: 1})
	late, index := s.Heard()
	require.EqualValues(t, 2, index)
	require.Equal(t, at, late, "it tells nothing new")
}
