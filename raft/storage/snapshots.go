package storage

import (
	"errors"
	"io"
	"path/filepath"
	"sync"

	"raftkv/raft"
)

// snapshots is what a FileStorage knows of its snapshots. Their data are written
// and read without FileStorage.mu, which Save needs.
type snapshots struct {
	stored []*storedSnapshot // oldest first; FileStorage.mu guards it
	taking bool              // a snapshotWriter is open; FileStorage.mu guards it

	// Held during a Receive, for as long as that takes.
	receiving sync.Mutex
	received  *unfinishedSnapshot // nil between snapshots
	expected  raft.Snapshot       // what it is to become

	// Held during a ReadSnapshot. The last file stays open, because the next part
	// of the same snapshot will be wanted. Locked before FileStorage.mu.
	reading  sync.Mutex
	open     File // nil if there is none
	openPath string
}

// newest returns the newest snapshot; Index 0 if there is none.
func (p *snapshots) newest() raft.Snapshot {
	if len(p.stored) == 0 {
		return raft.Snapshot{}
	}
	return p.stored[len(p.stored)-1].Snapshot
}

// find returns a stored snapshot, or nil.
func (p *snapshots) find(index raft.Index) *storedSnapshot {
	for _, s := range p.stored {
		if s.Index == index {
			return s
		}
	}
	return nil
}

// closeFile closes the file that ReadSnapshot has left open; it is opened again
// when it is needed. Call it with reading locked.
func (p *snapshots) closeFile() {
	if p.open != nil {
		_ = p.open.Close()
		p.open = nil
	}
}

// publish gives a finished snapshot its name. This is the one moment at which it
// comes into being, for a server that runs and for one that starts, and it is
// monotone: a snapshot that took long never replaces a newer one (pitfall SN-04).
// An error but ErrOlderSnapshot is final, because nobody knows which names the
// directory has after a loss of power.
func (s *FileStorage) publish(u *unfinishedSnapshot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	if u.snapshot.Index <= s.snapshots.newest().Index {
		return ErrOlderSnapshot
	}
	path := filepath.Join(s.dir, snapshotName(u.snapshot.Index))
	if err := s.fs.Rename(u.path, path); err != nil {
		return s.poison(err)
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return s.poison(err)
	}
	s.snapshots.stored = append(s.snapshots.stored, &storedSnapshot{Snapshot: u.snapshot, file: path, dataAt: u.dataAt})
	return nil
}

// Receive writes a part to a temporary file and, every now and then, syncs it.
// With the last part the file gets its name.
func (s *FileStorage) Receive(c raft.Chunk) error {
	p := &s.snapshots
	p.receiving.Lock()
	defer p.receiving.Unlock()
	if err := s.failure(); err != nil {
		return err
	}
	if c.Offset == 0 {
		if err := checkChunk(c, c.Snapshot, 0); err != nil {
			return err
		}
		if err := s.beginReceive(c.Snapshot); err != nil {
			return s.fail(err)
		}
	}
	next := uint64(0)
	if p.received != nil {
		next = p.received.snapshot.Size
	}
	if err := checkChunk(c, p.expected, next); err != nil {
		return err
	}
	if _, err := p.received.Write(c.Data); err != nil {
		return s.fail(err)
	}
	if !c.Last() {
		return nil
	}
	whole := p.received
	p.received, p.expected = nil, raft.Snapshot{}
	if whole.snapshot.Checksum != c.Snapshot.Checksum {
		whole.drop()
		return ErrDamagedSnapshot
	}
	if err := whole.finish(); err != nil {
		return s.fail(err)
	}
	err := s.publish(whole)
	if errors.Is(err, ErrOlderSnapshot) {
		whole.drop() // the newer one stands for this one too
		return nil
	}
	return err
}

func (s *FileStorage) beginReceive(snapshot raft.Snapshot) (err error) {
	p := &s.snapshots
	if p.received != nil {
		p.received.close() // and write over it
	}
	p.expected = snapshot
	p.received, err = createSnapshotFile(s.fs, filepath.Join(s.dir, receivedTemp), snapshot, s.store)
	return err
}

// CreateSnapshot begins to write a snapshot to a temporary file.
func (s *FileStorage) CreateSnapshot(snapshot raft.Snapshot) (SnapshotWriter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return nil, s.err
	case s.snapshots.taking:
		return nil, ErrSnapshotUnderWay
	case snapshot.Index <= s.snapshots.newest().Index:
		return nil, ErrOlderSnapshot
	}
	file, err := createSnapshotFile(s.fs, filepath.Join(s.dir, takenTemp), snapshot, s.store)
	if err != nil {
		return nil, err
	}
	s.snapshots.taking = true
	return &snapshotWriter{storage: s, file: file}, nil
}

// snapshotWriter is a SnapshotWriter with a buffer.
type snapshotWriter struct {
	storage *FileStorage
	file    *unfinishedSnapshot // nil after Commit or Abort
	buffer  []byte
	err     error // the first of any write
}

const snapshotBuffer = 256 << 10 // bytes

// Write writes to the temporary file. A failure here, say of a full disk, is not
// one of the storage: nothing refers to this file yet, and nothing ever will
// unless all of it has become durable.
func (w *snapshotWriter) Write(b []byte) (int, error) {
	if w.file == nil {
		return 0, ErrClosed
	}
	written := 0
	for written < len(b) && w.err == nil {
		if w.buffer == nil {
			w.buffer = make([]byte, 0, snapshotBuffer)
		}
		n := min(len(b)-written, cap(w.buffer)-len(w.buffer))
		w.buffer = append(w.buffer, b[written:written+n]...)
		written += n
		if len(w.buffer) == cap(w.buffer) {
			w.flush()
		}
	}
	return written, w.err
}

func (w *snapshotWriter) flush() {
	if w.err == nil {
		_, w.err = w.file.Write(w.buffer)
	}
	w.buffer = w.buffer[:0]
}

// Commit syncs the file and gives it its name.
func (w *snapshotWriter) Commit() (raft.Snapshot, error) {
	if w.file == nil {
		return raft.Snapshot{}, ErrClosed
	}
	w.flush()
	if w.err == nil {
		w.err = w.file.finish()
	}
	if w.err == nil {
		w.err = w.storage.publish(w.file)
	}
	if w.err != nil {
		w.Abort()
		return raft.Snapshot{}, w.err
	}
	taken := w.file.snapshot
	w.end(false)
	return taken, nil
}

// Abort removes the temporary file.
func (w *snapshotWriter) Abort() {
	if w.file != nil {
		w.end(true)
	}
}

// end lets the next snapshot begin.
func (w *snapshotWriter) end(drop bool) {
	s := w.storage
	s.mu.Lock()
	defer s.mu.Unlock()
	if drop && s.err == nil {
		w.file.drop()
	} else {
		w.file.close() // after Close the directory may be somebody else's already
	}
	s.snapshots.taking = false
	w.file, w.buffer = nil, nil
}

// ReadSnapshot reads from the file of a snapshot. Save does not wait for it.
func (s *FileStorage) ReadSnapshot(snapshot raft.Snapshot, offset uint64, b []byte) error {
	p := &s.snapshots
	p.reading.Lock()
	defer p.reading.Unlock()
	s.mu.Lock()
	stored, err := p.find(snapshot.Index), s.err
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if stored == nil || !stored.Same(snapshot) {
		return ErrNoSnapshot
	}
	if offset > stored.Size || uint64(len(b)) > stored.Size-offset {
		return io.ErrUnexpectedEOF
	}
	if p.open == nil || p.openPath != stored.file {
		p.closeFile()
		if p.open, err = s.fs.Open(stored.file); err != nil {
			return err
		}
		p.openPath = stored.file
	}
	return readFull(p.open, b, stored.dataAt+int64(offset))
}

// OpenSnapshot opens the file of a snapshot, which Compact will not remove before
// it is closed: not every operating system can remove a file that is open.
func (s *FileStorage) OpenSnapshot(index raft.Index) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	stored := s.snapshots.find(index)
	if stored == nil {
		return nil, ErrNoSnapshot
	}
	file, err := s.fs.Open(stored.file)
	if err != nil {
		return nil, err
	}
	stored.readers++
	return &openSnapshot{snapshotReader{snapshot: stored, file: file}, s}, nil
}

// openSnapshot is a reader that holds on to its file.
type openSnapshot struct {
	snapshotReader
	storage *FileStorage // nil when it is closed
}

func (r *openSnapshot) Close() error {
	if r.storage == nil {
		return nil
	}
	r.storage.mu.Lock()
	r.snapshot.readers--
	r.storage.mu.Unlock()
	r.storage = nil
	return r.file.Close()
}
