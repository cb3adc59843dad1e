package storage

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"sync"

	"raftkv/raft"
)

// FileStorage keeps a server's state in a data directory. Its methods may be
// called by several goroutines. A Save waits for the disk, and so do others
// that need mu meanwhile; the data of snapshots are written and read beside it.
type FileStorage struct {
	fs           FS
	dir          string
	segmentBytes int
	identity     Identity
	store        raft.StoreID
	lock         io.Closer

	// Held while files of the log are removed or read again. Locked before mu.
	compacting sync.Mutex

	mu        sync.Mutex
	known     map[raft.ServerID]knownStore
	snapshots snapshots
	warnings  []string

	// Where the next batch goes. Behind end the segment holds only zeros.
	file     File
	segments logSegments // the last one is this
	size     int64       // of the segment, in bytes
	end      int64
	batch    uint64 // the number of the last batch
	buffer   []byte // the last batch's memory, used again for the next

	// The log is what stands behind index start, up to last. Compact leaves start
	// as it is, although the log may begin later then.
	start, last raft.Index

	recovered *raft.PersistentState // what Open read, until Load has returned it
	err       error                 // the first failure, or ErrClosed; final
}

var _ Storage = (*FileStorage)(nil)

// Warnings returns what Open has found damaged and could do without, a line each,
// for the log of the program. Such a file stays until a newer snapshot replaces it.
func (s *FileStorage) Warnings() []string { return s.warnings }

// StoreID returns the random id that this directory was given at its first start.
func (s *FileStorage) StoreID() raft.StoreID { return s.store }

// Identity returns what was stored at the first start.
func (s *FileStorage) Identity() Identity { return s.identity }

// Load returns what is saved. The first call returns what Open has read; a
// later one reads the files again. Errors of reading are not final, but if a log
// has to be dropped that is written, as by Save.
func (s *FileStorage) Load() (raft.PersistentState, error) {
	s.compacting.Lock()
	defer s.compacting.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return raft.PersistentState{}, s.err
	}
	if s.recovered == nil {
		names, err := listDir(s.fs, s.dir)
		if err != nil {
			return raft.PersistentState{}, err
		}
		f, err := readState(s.fs, s.dir, names, s.store, nil)
		if err != nil {
			return raft.PersistentState{}, err
		}
		if err := s.takeUp(f); err != nil {
			return raft.PersistentState{}, s.poison(err)
		}
	}
	state := *s.recovered
	s.recovered = nil // from now on the server has it; do not keep a second one
	return state, nil
}

// Save appends one batch, the record of term and vote, a Reset if there is one,
// and then the entries, with one write and one sync. It begins a new segment if
// the batch does not fit into the present one.
//
// It fails with ErrBadSave and has then done nothing. Any other error is final:
// what the disk holds is unknown until the directory is opened again.
func (s *FileStorage) Save(save raft.Save) error {
	if !save.Needed() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	if err := checkSave(save, s.start, s.last, s.snapshots.newest().Index); err != nil {
		return err
	}
	s.recovered = nil
	err := s.write(save)
	if err != nil && !errors.Is(err, ErrBadSave) {
		err = s.poison(err)
	}
	return err
}

func (s *FileStorage) write(save raft.Save) error {
	w := batchWriter{newChecksum(s.store), s.batch + 1, s.buffer[:0]}
	w.state(save.CurrentTerm, save.VotedFor)
	if save.Reset.Index != 0 {
		w.reset(save.Reset)
	}
	for i, e := range save.Entries {
		w.entry(save.FirstIndex+raft.Index(i), e)
	}
	s.buffer = w.bytes
	if len(w.bytes) > maxSegmentBytes-segmentHeader {
		return fmt.Errorf("%w: %d bytes at once", ErrBadSave, len(w.bytes))
	}
	if err := s.append(w.bytes); err != nil {
		return err
	}
	s.batch = w.number
	if save.Reset.Index != 0 {
		s.start, s.last = save.Reset.Index, save.Reset.Index
		s.segments.wrote(anyIndex)
	}
	if save.FirstIndex != 0 {
		s.last = save.FirstIndex + raft.Index(len(save.Entries)) - 1
		s.segments.wrote(save.FirstIndex)
	}
	return nil
}

func (s *FileStorage) append(batch []byte) error {
	if s.size-s.end < int64(len(batch)) {
		if err := s.beginSegment(len(batch)); err != nil {
			return err
		}
	}
	if _, err := s.file.WriteAt(batch, s.end); err != nil {
		return err
	}
	if err := s.file.Sync(); err != nil {
		return err
	}
	s.end += int64(len(batch))
	return nil
}

// beginSegment makes the next segment, with room for a batch of the given length.
func (s *FileStorage) beginSegment(batchBytes int) error {
	next := segmentInfo{sequence: s.segments[len(s.segments)-1].sequence + 1, firstBatch: s.batch + 1, store: s.store}
	size := int64(max(s.segmentBytes, segmentHeader+batchBytes))
	if err := createSegment(s.fs, s.dir, next, size, nil); err != nil {
		return err
	}
	file, err := s.fs.OpenWrite(filepath.Join(s.dir, segmentName(next.sequence)))
	if err != nil {
		return err
	}
	full := s.file
	s.file, s.size, s.end = file, size, segmentHeader
	s.segments = append(s.segments, logSegment{next.sequence, noEntry})
	return full.Close()
}

// poison makes err the answer to everything from now on. Trying again is no
// way out: after a failed sync the operating system may report the next one as
// done although the bytes never reached the disk.
func (s *FileStorage) poison(err error) error {
	s.err = fmt.Errorf("data directory %s cannot be written any more: %w", s.dir, err)
	return s.err
}

// failure returns the error that has ended the storage, if one has.
func (s *FileStorage) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// fail is poison for those who do not hold mu.
func (s *FileStorage) fail(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	return s.poison(err)
}

// KnownStores returns which store each other server had when it was last heard.
func (s *FileStorage) KnownStores() map[raft.ServerID]raft.StoreID {
	s.mu.Lock()
	defer s.mu.Unlock()
	stores := make(map[raft.ServerID]raft.StoreID, len(s.known))
	for id, k := range s.known {
		stores[id] = k.store
	}
	return stores
}

// RememberStore notes which store a server has, durably before it returns. It
// blocks for the disk, but only when the server is new. Call it before the
// first message of the server is passed on. since is when the server was added
// (raft.Address): one that was removed and added again may come with a new store.
//
// If the server had another store before, it has lost its disk, and with it the
// votes and entries that it has promised to keep: that is ErrForeignStore, and
// its messages must not be heard. Errors of the disk are final, as for Save.
func (s *FileStorage) RememberStore(server raft.ServerID, since raft.Index, store raft.StoreID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	if had, ok := s.known[server]; ok && since <= had.since {
		if had.store != store {
			return fmt.Errorf("server %d %w", server, ErrForeignStore)
		}
		return nil
	}
	known := maps.Clone(s.known)
	known[server] = knownStore{since, store}
	if err := publishText(s.fs, s.dir, peersTemp, peersName, encodePeers(s.store, known)); err != nil {
		return s.poison(err)
	}
	s.known = known
	return nil
}

// Close closes the files and frees the lock. Nothing needs to be written: what
// Save has returned is durable. Later calls of other methods are ErrClosed, or
// the error that came before. Closing twice is fine.
func (s *FileStorage) Close() error {
	p := &s.snapshots
	p.receiving.Lock()
	defer p.receiving.Unlock()
	p.reading.Lock()
	defer p.reading.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	if p.received != nil {
		p.received.close() // the next start removes it
	}
	p.closeFile()
	err := errors.Join(s.file.Close(), s.lock.Close())
	s.file = nil
	if s.err == nil {
		s.err = ErrClosed
	}
	return err
}
