package raft

// Storage is where a server keeps what must survive a crash. It is used by one
// goroutine.
type Storage interface {
	// Load returns what was saved; the zero value if nothing was. The result is
	// good until the next Save.
	Load() (PersistentState, error)

	// Save makes s durable: when it returns nil, a crash cannot take s back.
	// After an error nobody knows what is stored, and the server must stop.
	Save(s Save) error
}

// MapStorage is a Storage in memory: what it holds survives the Server, not the
// process. (In the posts it was a map.) The zero value is empty. At most one
// running server may use it.
type MapStorage struct {
	state PersistentState
}

// NewMapStorage returns an empty storage.
func NewMapStorage() *MapStorage { return &MapStorage{} }

// Load returns what was saved. It never fails.
func (m *MapStorage) Load() (PersistentState, error) { return m.state, nil }

// Save replaces term and vote and, from s.FirstIndex on, the log. It never fails.
func (m *MapStorage) Save(s Save) error {
	m.state.CurrentTerm, m.state.VotedFor = s.CurrentTerm, s.VotedFor
	if s.FirstIndex != 0 {
		kept := m.state.Entries[:s.FirstIndex-1]
		m.state.Entries = append(kept, s.Entries...)
	}
	return nil
}
