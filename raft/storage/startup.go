package storage

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"raftkv/raft"
)

// found is what a directory holds: a log and snapshots that go together.
type found struct {
	log       *replay
	last      *segment
	snapshots []*storedSnapshot // good ones, oldest first

	dropped  bool            // the newest snapshot replaces the log
	warnings []*CorruptError // damaged snapshots newer than the one to start from
}

// readState reads a directory. It changes nothing.
func readState(fsys FS, dir string, names []string, store raft.StoreID, visit func(*segment, int, record)) (*found, error) {
	log, last, err := readLog(fsys, dir, names, store, visit)
	if err != nil {
		return nil, err
	}
	f := &found{log: log, last: last}
	if err := f.readSnapshots(fsys, dir, names, store); err != nil {
		return nil, err
	}
	return f, f.connect(dir)
}

// readSnapshots finds the newest snapshot that is whole, and the older ones. Of
// those it reads the headers only: they are for the day when the newest is damaged.
func (f *found) readSnapshots(fsys FS, dir string, names []string, store raft.StoreID) error {
	for _, index := range slices.Backward(snapshotIndexes(names)) {
		s, err := readSnapshotHeader(fsys, dir, index, store)
		if err == nil && len(f.snapshots) == 0 {
			err = s.verify(fsys)
		}
		var damage *CorruptError
		switch {
		case err == nil:
			f.snapshots = append(f.snapshots, s)
		case !errors.As(err, &damage):
			return err
		case len(f.snapshots) == 0:
			f.warnings = append(f.warnings, damage)
		}
	}
	slices.Reverse(f.snapshots)
	return nil
}

// connect makes log and snapshot one state to start from, or says why there is
// none. The log must begin at or before the end of the snapshot; without a
// snapshot, at the beginning.
//
// An older snapshot than the newest is as good as long as this holds: the server
// applies the entries behind it once more. It has promised nothing that it would
// not find in the log, because a log that begins behind the damaged snapshot is
// refused here.
func (f *found) connect(dir string) error {
	state := &f.log.state
	var newest raft.Snapshot
	if n := len(f.snapshots); n > 0 {
		newest = f.snapshots[n-1].Snapshot
	}
	start := state.Start.Index
	switch {
	case newest.Index >= start && (start > 0 || !f.log.headless):
	case len(f.warnings) > 0:
		w := *f.warnings[0]
		w.Reason += fmt.Sprintf(", and without this snapshot the log, which begins behind index %d, is of no use", start)
		return &w
	case f.log.headless:
		before := f.log.segments[0].sequence - 1
		return &CorruptError{filepath.Join(dir, segmentName(before)), 0, "it is missing, and no snapshot stands for what it held"}
	default:
		return &CorruptError{filepath.Join(dir, snapshotName(start)), 0, "it is missing, and the log goes on behind it"}
	}
	if newest.Index == 0 {
		return nil
	}
	if newest.Term > state.CurrentTerm {
		return &CorruptError{f.last.file, int64(f.log.end), fmt.Sprintf(
			"the last term in the log is %d, but snapshot %d is of term %d: the end of the log is missing", state.CurrentTerm, newest.Index, newest.Term)}
	}
	f.dropped = connect(state, newest)
	return nil
}
