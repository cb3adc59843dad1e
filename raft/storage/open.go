package storage

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"raftkv/raft"
)

// Options says how to open a data directory.
type Options struct {
	// FS is the file system; nil means OSFS.
	FS FS

	// Identity is whose directory it must be. The first start stores it, and a
	// later one with another identity is ErrIdentity.
	Identity Identity

	// SegmentBytes is the size of new log segments; one is larger if its first
	// batch needs more. Zero means 16 MiB, and 1 GiB is the most. A segment is
	// filled with zeros when it is begun, within a Save: larger ones make that
	// rarer and longer.
	SegmentBytes int

	// NewStoreID makes the store id of a new directory. Nil means crypto/rand;
	// simulations need one that can be repeated.
	NewStoreID func() raft.StoreID
}

// Open opens a data directory, or makes one, and locks it until Close. It reads
// the whole log and the newest snapshot and makes sure that all of it is durable.
// A batch that was cut short by a crash is dropped from its first damaged byte on.
// If the newest snapshot is damaged but the log reaches back to the one before, or
// to the beginning, it starts from there and Warnings says so.
//
// It fails with ErrLocked, ErrNotDataDir, ErrIdentity, ErrNewerVersion or a
// *CorruptError, and has then changed nothing; with raft.ErrConfig for an
// identity that no server can have; or with the error of the file system. Each
// is one line that says what to do or where to look.
func Open(dir string, o Options) (*FileStorage, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	// Before the lock, because the lock makes a file.
	names, err := listDir(o.FS, dir)
	if err != nil {
		return nil, err
	}
	if err := checkNames(dir, names); err != nil {
		return nil, err
	}
	if err := makeDir(o.FS, dir); err != nil {
		return nil, err
	}
	lock, err := o.FS.Lock(filepath.Join(dir, lockName))
	if errors.Is(err, ErrLocked) {
		return nil, fmt.Errorf("data directory %s %w", dir, ErrLocked)
	}
	if err != nil {
		return nil, err
	}
	s := &FileStorage{fs: o.FS, dir: dir, segmentBytes: o.SegmentBytes, lock: lock}
	if err := s.open(o); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return s, nil
}

// withDefaults fills in what was left out, and checks the rest.
func (o Options) withDefaults() (Options, error) {
	if o.FS == nil {
		o.FS = OSFS{}
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = defaultSegmentBytes
	}
	if o.SegmentBytes < segmentHeader || o.SegmentBytes > maxSegmentBytes {
		return o, fmt.Errorf("%w: segments of %d bytes; they must have %d to %d", raft.ErrConfig, o.SegmentBytes, segmentHeader, maxSegmentBytes)
	}
	if o.NewStoreID == nil {
		o.NewStoreID = randomStoreID
	}
	return o, o.Identity.check()
}

// randomStoreID never fails: crypto/rand ends the program if there is no randomness.
func randomStoreID() (id raft.StoreID) {
	rand.Read(id[:])
	return id
}

// open first looks at everything, and only then changes anything.
func (s *FileStorage) open(o Options) error {
	names, err := listDir(s.fs, s.dir)
	if err != nil {
		return err
	}
	if !slices.Contains(names, identityName) {
		if err := firstStart(s.fs, s.dir, names, o); err != nil {
			return err
		}
		if names, err = listDir(s.fs, s.dir); err != nil {
			return err
		}
	}
	if s.identity, s.store, err = readIdentity(s.fs, s.dir); err != nil {
		return err
	}
	if difference := s.identity.differs(o.Identity); difference != "" {
		return fmt.Errorf("data directory %s %w: %s", s.dir, ErrIdentity, difference)
	}
	if s.known, err = readPeers(s.fs, s.dir, s.store); err != nil {
		return err
	}
	f, err := readState(s.fs, s.dir, names, s.store, nil)
	if err != nil {
		return err
	}

	if err := removeTemps(s.fs, s.dir, names); err != nil {
		return err
	}
	if s.file, err = s.fs.OpenWrite(f.last.file); err != nil {
		return err
	}
	err = f.log.repair(s.file, f.last.bytes)
	if err == nil {
		// A name may not be durable yet, if the process died right after a rename.
		err = s.fs.SyncDir(s.dir)
	}
	if err == nil {
		s.segments, s.size, s.end = f.log.segments, int64(len(f.last.bytes)), int64(f.log.end)
		s.batch = f.log.batch
		s.snapshots.stored = f.snapshots
		err = s.takeUp(f)
	}
	if err != nil {
		return errors.Join(err, s.file.Close())
	}
	for _, w := range f.warnings {
		s.warnings = append(s.warnings, w.Error())
	}
	return nil
}

// takeUp goes on with what was read. If the newest snapshot replaces the log, the
// log on the disk must say so before it goes on behind the snapshot: a Reset that
// a crash has prevented is made up for. The name of the snapshot is durable here.
func (s *FileStorage) takeUp(f *found) error {
	state := &f.log.state
	s.recovered = state
	s.start, s.last = state.Start.Index, f.log.lastIndex()
	if !f.dropped {
		return nil
	}
	return s.write(raft.Save{CurrentTerm: state.CurrentTerm, VotedFor: state.VotedFor, Reset: state.Start})
}
