package storage

import (
	"bytes"
	"hash/crc32"
	"io"
	"slices"
	"sync"

	"raftkv/raft"
)

// MapStorage keeps a server's state in memory, for tests and simulations. What
// is saved survives a restart of the server, not of the process. (The posts'
// MapStorage kept named byte slices, hence the name.)
//
// The zero value is empty and ready.
type MapStorage struct {
	mu        sync.Mutex
	state     raft.PersistentState // Snapshot is only set by Load
	snapshots []memorySnapshot     // oldest first
	receiving memorySnapshot       // as much as has come
	taking    *memoryWriter        // nil if no snapshot is being taken
}

type memorySnapshot struct {
	raft.Snapshot
	data []byte // never changed, only appended to
}

var _ Storage = (*MapStorage)(nil)

// NewMapStorage returns an empty storage.
func NewMapStorage() *MapStorage { return &MapStorage{} }

// Load returns what has been saved. It never fails. It is a restart: a snapshot
// that is being taken or received is lost.
func (m *MapStorage) Load() (raft.PersistentState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taking, m.receiving = nil, memorySnapshot{}
	if newest := m.newest(); newest.Index != 0 {
		connect(&m.state, newest)
	}
	state := m.state
	state.Entries = slices.Clip(state.Entries)
	return state, nil
}

// newest returns the newest snapshot; Index 0 if there is none.
func (m *MapStorage) newest() raft.Snapshot {
	if len(m.snapshots) == 0 {
		return raft.Snapshot{}
	}
	return m.snapshots[len(m.snapshots)-1].Snapshot
}

// Save replaces term and vote and, from s.FirstIndex on, the log. The entries
// are shared with the caller, who must not change them. It fails with ErrBadSave
// only.
func (m *MapStorage) Save(s raft.Save) error {
	if !s.Needed() {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	start := m.state.Start.Index
	if err := checkSave(s, start, start+raft.Index(len(m.state.Entries)), m.newest().Index); err != nil {
		return err
	}
	m.state.CurrentTerm, m.state.VotedFor = s.CurrentTerm, s.VotedFor
	if s.Reset.Index != 0 {
		m.state.Start, m.state.Entries = s.Reset, nil
	}
	if s.FirstIndex != 0 {
		kept := m.state.Entries[:s.FirstIndex-1-m.state.Start.Index]
		if len(kept) < len(m.state.Entries) {
			// Without spare room append copies, and a clone or an earlier Load keeps
			// the entries that are replaced here.
			kept = slices.Clip(kept)
		}
		m.state.Entries = append(kept, s.Entries...)
	}
	return nil
}

// Receive adds a part to the snapshot that is being received.
func (m *MapStorage) Receive(c raft.Chunk) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	begun := m.receiving
	if c.Offset == 0 {
		begun = memorySnapshot{Snapshot: c.Snapshot}
	}
	if err := checkChunk(c, begun.Snapshot, uint64(len(begun.data))); err != nil {
		return err
	}
	begun.data = append(begun.data, c.Data...)
	m.receiving = begun
	if !c.Last() {
		return nil
	}
	whole := m.receiving
	m.receiving = memorySnapshot{}
	if crc32.Checksum(whole.data, castagnoli) != whole.Checksum {
		return ErrDamagedSnapshot
	}
	_ = m.publish(whole) // if there is a newer one, it stands for this one too
	return nil
}

// publish makes s the newest snapshot, unless it is not.
func (m *MapStorage) publish(s memorySnapshot) error {
	if s.Index <= m.newest().Index {
		return ErrOlderSnapshot
	}
	m.snapshots = append(m.snapshots, s)
	return nil
}

// CreateSnapshot begins a snapshot in memory.
func (m *MapStorage) CreateSnapshot(s raft.Snapshot) (SnapshotWriter, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.taking != nil {
		return nil, ErrSnapshotUnderWay
	}
	if s.Index <= m.newest().Index {
		return nil, ErrOlderSnapshot
	}
	m.taking = &memoryWriter{storage: m, snapshot: s}
	return m.taking, nil
}

type memoryWriter struct {
	storage  *MapStorage
	snapshot raft.Snapshot
	bytes.Buffer
}

func (w *memoryWriter) Commit() (raft.Snapshot, error) {
	m := w.storage
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.taking != w {
		return raft.Snapshot{}, ErrClosed // it was aborted, or the server has started anew
	}
	m.taking = nil
	w.snapshot.Size = uint64(w.Len())
	w.snapshot.Checksum = crc32.Checksum(w.Bytes(), castagnoli)
	if err := m.publish(memorySnapshot{w.snapshot, w.Bytes()}); err != nil {
		return raft.Snapshot{}, err
	}
	return w.snapshot, nil
}

func (w *memoryWriter) Abort() {
	w.storage.mu.Lock()
	defer w.storage.mu.Unlock()
	if w.storage.taking == w {
		w.storage.taking = nil
	}
}

// ReadSnapshot fills b from a stored snapshot.
func (m *MapStorage) ReadSnapshot(s raft.Snapshot, offset uint64, b []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, have := range m.snapshots {
		if have.Same(s) {
			if offset > s.Size || uint64(len(b)) > s.Size-offset {
				return io.ErrUnexpectedEOF
			}
			copy(b, have.data[offset:])
			return nil
		}
	}
	return ErrNoSnapshot
}

// OpenSnapshot returns the bytes of a stored snapshot.
func (m *MapStorage) OpenSnapshot(index raft.Index) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, have := range m.snapshots {
		if have.Index == index {
			return io.NopCloser(bytes.NewReader(have.data)), nil
		}
	}
	return nil, ErrNoSnapshot
}

// Compact forgets what it may.
func (m *MapStorage) Compact(upTo raft.Index) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var indexes []raft.Index
	for _, s := range m.snapshots {
		indexes = append(indexes, s.Index)
	}
	from := min(keepFrom(indexes, upTo), m.state.Start.Index+raft.Index(len(m.state.Entries)))
	if from > m.state.Start.Index {
		n := from - m.state.Start.Index
		m.state.Start = raft.LogPosition{Index: from, Term: m.state.Entries[n-1].Term}
		m.state.Entries = slices.Clone(m.state.Entries[n:])
	}
	var kept []memorySnapshot
	for i, s := range m.snapshots {
		if keeps(indexes, i, upTo) {
			kept = append(kept, s)
		}
	}
	m.snapshots = kept
	return nil
}

// Close does nothing; the storage can be loaded again.
func (m *MapStorage) Close() error { return nil }

// Clone returns an independent copy, as a restart finds it. Entries and snapshots
// are shared; nobody changes them.
func (m *MapStorage) Clone() *MapStorage {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &MapStorage{state: m.state, snapshots: slices.Clip(m.snapshots)}
	c.state.Entries = slices.Clip(m.state.Entries)
	return c
}
