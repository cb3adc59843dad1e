package storage_test

import (
	"errors"
	"fmt"
	"maps"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/internal/simdisk"
	"raftkv/raft"
	"raftkv/raft/storage"
)

// step is something that a server does with its storage, and what it means.
type step struct {
	name string
	do   func(s storage.Storage) error
	done func(w twin) twin
	// What a crash in the middle may leave. Nil: the state before or after.
	cut func(w twin) []twin
}

func (p step) outcomes(w twin) []twin {
	if p.cut != nil {
		return p.cut(w)
	}
	return []twin{w, p.done(w)}
}

func saving(s raft.Save) step {
	return step{
		name: "save",
		do:   func(st storage.Storage) error { return st.Save(s) },
		done: func(w twin) twin { return w.saved(s) },
		cut:  func(w twin) []twin { return w.cutShort(s) },
	}
}

func taking(index raft.Index, term raft.Term) step {
	data := stateAt(index, 700)
	snapshot := snapshotOf(index, term, data)
	return step{
		name: "take",
		do:   func(st storage.Storage) error { return take(st, snapshot, data) },
		done: func(w twin) twin { return w.stored(snapshot) },
	}
}

func receiving(index raft.Index, term raft.Term) step {
	data := stateAt(index, 700)
	snapshot := snapshotOf(index, term, data)
	return step{
		name: "receive",
		do:   func(st storage.Storage) error { return receive(st, snapshot, data) },
		done: func(w twin) twin { return w.stored(snapshot) },
	}
}

func compacting(upTo raft.Index) step {
	return step{
		name: "compact",
		do:   func(st storage.Storage) error { return st.Compact(upTo) },
		done: func(w twin) twin { return w.compacted(upTo) },
		cut:  func(w twin) []twin { return []twin{w.compacted(upTo)} },
	}
}

func resetting(term raft.Term, to raft.LogPosition, es ...raft.LogEntry) step {
	s := raft.Save{CurrentTerm: term, VotedFor: 2, Reset: to}
	if len(es) > 0 {
		s.FirstIndex, s.Entries = to.Index+1, es
	}
	return saving(s)
}

// life is a server's: it takes snapshots and compacts; as a follower that was
// away it gets one that its log conflicts with, one that goes far beyond its log,
// and one that its log matches; then it takes snapshots again.
var life = []step{
	saving(raft.Save{CurrentTerm: 1, VotedFor: 1}),
	saving(saveAt(1, 1, entries(1, 8, 150)...)),
	taking(4, 1),
	saving(saveAt(1, 9, entries(1, 6, 150)...)),
	taking(9, 1),
	compacting(8), // up to 4 is what two snapshots allow
	saving(saveAt(2, 12, entries(2, 6, 150)...)),
	saving(saveAt(2, 18, entries(2, 6, 150)...)),
	taking(16, 2),
	compacting(16),
	saving(raft.Save{CurrentTerm: 4}),
	receiving(20, 4), // the log has entry 20 of term 2
	resetting(4, raft.LogPosition{Index: 20, Term: 4}),
	saving(saveAt(4, 21, entries(4, 3, 150)...)),
	compacting(20),
	receiving(40, 4), // the log ends at 23
	resetting(5, raft.LogPosition{Index: 40, Term: 4}, entries(5, 4, 150)...),
	saving(saveAt(5, 45, entries(5, 6, 150)...)),
	receiving(43, 5), // the log has it
	saving(saveAt(5, 51, entries(5, 6, 150)...)),
	compacting(43),
	taking(55, 5),
	compacting(50),
	saving(raft.Save{CurrentTerm: 6, VotedFor: 2}),
}

// live does the steps until one fails. It returns what a restart may find.
func live(disk *simdisk.Disk, steps []step) (possible []twin, at string, err error) {
	var w twin
	s, err := storage.Open(dir, options(disk))
	if err != nil {
		return []twin{w}, "open", err
	}
	for _, p := range steps {
		if err := p.do(s); err != nil {
			return p.outcomes(w), p.name, err
		}
		w = p.done(w)
	}
	return []twin{w}, "", nil
}

func liveALife(disk *simdisk.Disk) error {
	_, at, err := live(disk, life)
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	return nil
}

// recoverAndLive starts after a crash, with further losses of power during the
// start, finds one of the possible states, and goes on from it.
func recoverAndLive(t *testing.T, disk *simdisk.Disk, possible []twin) {
	startThroughCrashes(t, disk)
	s := open(t, disk)
	found := requireFound(t, s, possible)
	require.Empty(t, s.Warnings())
	names, err := disk.ReadDir(dir)
	require.NoError(t, err)
	for _, name := range names {
		require.NotContains(t, name, ".tmp")
	}
	disk.Crash() // what a server has been shown must not go away
	s = open(t, disk)
	found = requireFound(t, s, []twin{found})

	last := found.last()
	for _, p := range []step{
		saving(saveAt(9, last+1, entries(9, 9, 150)...)),
		taking(last+3, 9),
		compacting(last + 3),
		receiving(last+6, 9),
		compacting(last + 6),
		saving(saveAt(9, last+10, entries(9, 3, 150)...)),
	} {
		require.NoError(t, p.do(s), p.name)
		found = p.done(found)
	}
	disk.Crash()
	requireFound(t, open(t, disk), []twin{found})
}

// SN-11, DK-04: power may be lost after any operation of taking, receiving,
// resetting and compacting.
func TestPowerLossAtEveryOperationOfALife(t *testing.T) {
	cut := map[string]int{}
	atEveryOperation(t, liveALife, 6, func(t *testing.T, disk *simdisk.Disk, n int) {
		disk.CrashAfter(n)
		possible, at, err := live(disk, life)
		require.ErrorIs(t, err, simdisk.ErrPowerOff)
		cut[at]++
		disk.Crash()
		recoverAndLive(t, disk, possible)
	})
	for _, at := range []string{"open", "save", "take", "receive", "compact"} {
		require.NotZero(t, cut[at], at)
	}
}

// The process alone may die there. The next one finds names that are in memory
// only, and then power is lost: a log that was reset for a snapshot whose name is
// gone would be the end of the server.
func TestDeathAtEveryOperationOfALife(t *testing.T) {
	atEveryOperation(t, liveALife, 4, func(t *testing.T, disk *simdisk.Disk, n int) {
		disk.CrashAfter(n)
		possible, _, err := live(disk, life)
		require.ErrorIs(t, err, simdisk.ErrPowerOff)
		for n := 0; ; n++ {
			disk.Kill()
			disk.CrashAfter(n)
			if s, err := storage.Open(dir, options(disk)); err == nil {
				require.NoError(t, s.Close())
				break
			}
		}
		recoverAndLive(t, disk, possible)
	})
}

// PE-05 for snapshots: what fails while a snapshot is taken fails the snapshot
// alone, unless it is the publication; everything else ends the storage.
func TestFailureOfEveryOperationOfALife(t *testing.T) {
	wentOn, ended, unnoticed := map[string]int{}, map[string]int{}, map[int]bool{}
	atEveryOperation(t, liveALife, 4, func(t *testing.T, disk *simdisk.Disk, n int) {
		disk.FailAfter(n, errDisk)
		var w twin
		s, err := storage.Open(dir, options(disk))
		if err != nil {
			disk.Crash()
			recoverAndLive(t, disk, []twin{w})
			return
		}
		noticed := false
		for _, p := range life {
			err := p.do(s)
			if err == nil {
				w = p.done(w)
				continue
			}
			require.ErrorIs(t, err, errDisk)
			noticed = true
			if s.Save(raft.Save{CurrentTerm: max(w.term, 1), VotedFor: w.vote}) == nil {
				require.Equal(t, "take", p.name)
				wentOn[p.name]++
				require.NoError(t, p.do(s), "the next attempt may succeed")
				w = p.done(w)
				continue
			}
			require.Equal(t, err, s.Save(raft.Save{CurrentTerm: 99}))
			ended[p.name]++
			require.Equal(t, err, s.Receive(raft.Chunk{Snapshot: snapshotOf(99, 9, nil)}))
			require.Equal(t, err, s.Compact(1))
			_, err2 := s.CreateSnapshot(snapshotOf(99, 9, nil))
			require.Equal(t, err, err2)
			require.NoError(t, s.Close())
			disk.Crash()
			recoverAndLive(t, disk, p.outcomes(w))
			return
		}
		unnoticed[n] = !noticed
		disk.Crash()
		recoverAndLive(t, disk, []twin{w})
	})
	maps.DeleteFunc(unnoticed, func(_ int, yes bool) bool { return !yes })
	require.Len(t, unnoticed, 1, "only the sync of the root, which the first start has not made")
	for _, name := range []string{"save", "take", "receive", "compact"} {
		require.NotZero(t, ended[name], name)
	}
	require.NotZero(t, wentOn["take"])
}

// The sectors of a batch with a Reset reach the disk in any order, like those of
// any other: the old log, the reset one, or a part of what follows.
func TestEverySubsetOfTheSectorsOfAReset(t *testing.T) {
	disk := newDisk(1)
	o := options(disk)
	o.SegmentBytes = 8192
	s := openWith(t, o)
	var w twin
	last := raft.Save{CurrentTerm: 3, VotedFor: 2, Reset: raft.LogPosition{Index: 9, Term: 2}, FirstIndex: 10, Entries: entries(3, 12, 300)}
	for _, p := range []step{saving(saveAt(2, 1, entries(1, 5, 150)...)), receiving(9, 2)} {
		require.NoError(t, p.do(s))
		w = p.done(w)
	}
	before := disk.ReadFile(segmentFile(1))
	require.NoError(t, s.Save(last))
	after := disk.ReadFile(segmentFile(1))
	batch := spans(after)[len(spans(before)):]
	require.Len(t, batch, 14)
	from, to := sectorsOf(batch)
	require.GreaterOrEqual(t, to-from, 8)
	for subset := range 1 << (to - from) {
		torn, _, whole := tear(before, after, batch, subset)
		disk.WriteFile(segmentFile(1), torn)
		disk.Kill()
		s := openWith(t, o)
		// The snapshot is there in any case, so a log that was not reset is now.
		found := requireFound(t, s, w.cutShort(last)[whole:whole+1])
		require.EqualValues(t, 9, found.start.Index)
		require.NoError(t, s.Save(saveAt(4, found.last()+1, command(4, "after the tear"))))
		disk.Crash()
		requireFound(t, openWith(t, o), []twin{found.saved(saveAt(4, found.last()+1, command(4, "after the tear")))})
	}
}

// DK-05: the disk is full. A snapshot that is taken fails and leaves the room to
// others; the log goes on in the segment that it has.
func TestDiskFullWhileASnapshotIsTaken(t *testing.T) {
	for room := 0; room < 700; room += 37 {
		disk := newDisk(uint64(room))
		s := open(t, disk)
		w := twin{}.saved(saveAt(1, 1, entries(1, 3, 20)...))
		save(t, s, saveAt(1, 1, entries(1, 3, 20)...))
		used := disk.Used()
		disk.SetLimit(used + int64(room))
		require.ErrorIs(t, taking(3, 1).do(s), syscall.ENOSPC)
		require.Equal(t, used, disk.Used(), "nothing is left over")
		next := saveAt(2, 4, entries(2, 3, 20)...)
		save(t, s, next)
		w = w.saved(next)

		disk.SetLimit(0)
		require.NoError(t, taking(5, 2).do(s))
		disk.Crash()
		requireFound(t, open(t, disk), []twin{taking(5, 2).done(w)})
	}
}

// A received snapshot is part of what the leader has been told, and the server
// stops: it makes room by hand, and asks again from the beginning.
func TestDiskFullWhileASnapshotIsReceived(t *testing.T) {
	disk := newDisk(1)
	s := open(t, disk)
	w := twin{}.saved(saveAt(1, 1, entries(1, 3, 20)...))
	save(t, s, saveAt(1, 1, entries(1, 3, 20)...))
	disk.SetLimit(disk.Used() + 400)
	err := receiving(30, 1).do(s)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, err, s.Save(raft.Save{CurrentTerm: 2}))
	disk.SetLimit(0)
	disk.Kill()
	s = open(t, disk)
	requireFound(t, s, []twin{w})
	require.NoError(t, receiving(30, 1).do(s))
	require.False(t, errors.Is(s.Save(raft.Save{CurrentTerm: 2}), syscall.ENOSPC))
}
