package storage

import (
	"slices"

	"raftkv/raft"
)

// MapStorage keeps a server's state in memory, for tests and simulations. What
// is saved survives a restart of the server, not of the process. (The posts'
// MapStorage kept named byte slices, hence the name.)
//
// The zero value is empty and ready. It must be used by one goroutine at a time.
type MapStorage struct {
	state raft.PersistentState
}

var _ Storage = (*MapStorage)(nil)

// NewMapStorage returns an empty storage.
func NewMapStorage() *MapStorage { return &MapStorage{} }

// Load returns what has been saved. It never fails.
func (m *MapStorage) Load() (raft.PersistentState, error) {
	state := m.state
	state.Entries = slices.Clip(state.Entries)
	return state, nil
}

// Save replaces term and vote and, from s.FirstIndex on, the log. The entries
// are shared with the caller, who must not change them. It fails with ErrBadSave
// only.
func (m *MapStorage) Save(s raft.Save) error {
	if !s.Needed() {
		return nil
	}
	if err := checkSave(s, raft.Index(len(m.state.Entries))); err != nil {
		return err
	}
	m.state.CurrentTerm, m.state.VotedFor = s.CurrentTerm, s.VotedFor
	if s.FirstIndex != 0 {
		kept := m.state.Entries[:s.FirstIndex-1]
		if len(kept) < len(m.state.Entries) {
			// Without spare room append copies, and a clone or an earlier Load keeps
			// the entries that are replaced here.
			kept = slices.Clip(kept)
		}
		m.state.Entries = append(kept, s.Entries...)
	}
	return nil
}

// Close does nothing; the storage can be loaded again.
func (m *MapStorage) Close() error { return nil }

// Clone returns an independent copy. Entries are shared; nobody changes them.
func (m *MapStorage) Clone() *MapStorage {
	c := *m
	c.state.Entries = slices.Clip(m.state.Entries)
	return &c
}
