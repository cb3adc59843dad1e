package raft

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMapStorage(t *testing.T) {
	m := NewMapStorage()
	check := func(want PersistentState) {
		got, err := m.Load()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	a, b, c := LogEntry{Term: 1, Command: []byte("a")}, LogEntry{Term: 1}, LogEntry{Term: 2}

	check(PersistentState{})
	require.NoError(t, m.Save(Save{CurrentTerm: 1, VotedFor: 2, FirstIndex: 1, Entries: []LogEntry{a, b, b}}))
	check(PersistentState{1, 2, []LogEntry{a, b, b}})
	require.NoError(t, m.Save(Save{CurrentTerm: 2})) // a term and no vote in it; the log stays
	check(PersistentState{2, None, []LogEntry{a, b, b}})
	require.NoError(t, m.Save(Save{CurrentTerm: 2, VotedFor: 1, FirstIndex: 2, Entries: []LogEntry{c}}))
	check(PersistentState{2, 1, []LogEntry{a, c}}) // what stood behind is gone
}
