package storage

import (
	"math"
	"path/filepath"
	"slices"

	"raftkv/raft"
)

// logSegment is a segment that the log still has, with the lowest index of an entry
// that was written to it. A server that reads from this segment on finds the log
// from there, or from further back if a later segment has a lower one, which then
// has overwritten the others:
//
//	log-1  1 2 3 4      lowest 1
//	log-2  5 6 7        lowest 5
//	log-3  4 5 6 7 8    lowest 4: entries 4 to 7 were overwritten
//	log-4               lowest noEntry
//
// So if the log up to 4 may be forgotten, log-1 and log-2 can go. One number per
// segment is all that has to be remembered, and Save costs the same however long
// the log is.
type logSegment struct {
	sequence uint64
	lowest   raft.Index
}

const (
	noEntry raft.Index = math.MaxUint64 // none yet

	// There is a Reset in this segment. It says itself where the log begins, and
	// the log has nothing from earlier segments.
	anyIndex raft.Index = 0
)

// logSegments are in order; the last one is written to.
type logSegments []logSegment

// wrote notes what is the lowest index of some entries that were written, or anyIndex.
func (l logSegments) wrote(index raft.Index) {
	last := &l[len(l)-1]
	last.lowest = min(last.lowest, index)
}

// unneeded returns how many segments at the front can go if the log up to an
// index may be forgotten. The entry with which the log then begins only serves
// to tell its term, so it must be one of those.
func (l logSegments) unneeded(upTo raft.Index) (n int) {
	for i := 1; i < len(l); i++ {
		if l[i].lowest <= upTo {
			n = i
		}
	}
	return n
}

// Compact removes segments from the beginning of the log, and then snapshots.
//
// A crash may come between any two removals. Segments go one by one, each removal
// durable before the next, so what is left is always the end of the log without
// a hole. Term and vote stand at the beginning of every batch; and a segment is
// removed only if a batch with an entry or a Reset is behind it.
func (s *FileStorage) Compact(upTo raft.Index) error {
	s.compacting.Lock()
	defer s.compacting.Unlock()

	segments, kept, err := s.forget(upTo)
	if err != nil {
		return err
	}
	for _, segment := range segments {
		err := s.fs.Remove(filepath.Join(s.dir, segmentName(segment.sequence)))
		if err == nil {
			err = s.fs.SyncDir(s.dir)
		}
		if err != nil {
			return s.fail(err)
		}
	}
	if err := s.removeSnapshots(kept); err != nil {
		return s.fail(err)
	}
	return nil
}

// forget decides what Compact removes, and makes the storage forget it. It
// returns the segments that go and the indexes of the snapshots that stay.
func (s *FileStorage) forget(upTo raft.Index) (segments logSegments, kept []raft.Index, err error) {
	p := &s.snapshots
	p.reading.Lock()
	defer p.reading.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, nil, s.err
	}
	indexes := make([]raft.Index, len(p.stored))
	for i, stored := range p.stored {
		indexes[i] = stored.Index
	}
	n := s.segments.unneeded(keepFrom(indexes, upTo))
	segments, s.segments = slices.Clone(s.segments[:n]), slices.Clone(s.segments[n:])

	var stay []*storedSnapshot
	for i, stored := range p.stored {
		if stored.readers > 0 || keeps(indexes, i, upTo) {
			stay, kept = append(stay, stored), append(kept, stored.Index)
		}
	}
	if len(stay) < len(p.stored) {
		p.closeFile()
	}
	p.stored = stay
	return segments, kept, nil
}

// removeSnapshots removes the files of all snapshots but those that are kept and
// those that are newer: one that was published just now, or one that is damaged
// and tells that something has been lost.
func (s *FileStorage) removeSnapshots(kept []raft.Index) error {
	names, err := s.fs.ReadDir(s.dir)
	if err != nil {
		return err
	}
	removed := false
	for _, index := range snapshotIndexes(names) {
		if len(kept) == 0 || index > kept[len(kept)-1] {
			break
		}
		if slices.Contains(kept, index) {
			continue
		}
		if err := s.fs.Remove(filepath.Join(s.dir, snapshotName(index))); err != nil {
			return err
		}
		removed = true
	}
	if !removed {
		return nil
	}
	return s.fs.SyncDir(s.dir)
}
