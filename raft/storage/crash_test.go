package storage_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/internal/simdisk"
	"raftkv/raft"
	"raftkv/raft/storage"
)

var errDisk = errors.New("the disk says no")

// run opens the directory and saves, until something fails. It returns what
// was acknowledged, what else a restart may find, and the error.
func run(disk *simdisk.Disk, saves []raft.Save) (acknowledged raft.PersistentState, possible []raft.PersistentState, err error) {
	possible = []raft.PersistentState{{}}
	s, err := storage.Open(dir, options(disk))
	if err != nil {
		return acknowledged, possible, err
	}
	for _, next := range saves {
		if err := s.Save(next); err != nil {
			return acknowledged, outcomes(acknowledged, next), err
		}
		acknowledged = apply(acknowledged, next)
		possible = []raft.PersistentState{acknowledged}
	}
	return acknowledged, possible, nil
}

// atEveryOperation does everything once to count the operations of the disk, and
// then calls check per operation and seed, for damage at that operation.
func atEveryOperation(t *testing.T, everything func(*simdisk.Disk) error, seeds int, check func(t *testing.T, disk *simdisk.Disk, n int)) {
	disk := newDisk(0)
	require.NoError(t, everything(disk))
	operations := disk.Counters().Ops
	require.Greater(t, operations, 10)
	for n := range operations {
		for seed := range seeds {
			if !t.Run(fmt.Sprintf("operation %d seed %d", n, seed), func(t *testing.T) { check(t, newDisk(uint64(seed)), n) }) {
				return
			}
		}
	}
}

// startThroughCrashes starts after a crash, with a further loss of power at each
// operation of the start.
func startThroughCrashes(t *testing.T, disk *simdisk.Disk) {
	for n := 0; ; n++ {
		disk.CrashAfter(n)
		s, err := storage.Open(dir, options(disk))
		if err == nil {
			require.NoError(t, s.Close())
			break
		}
		require.ErrorIs(t, err, simdisk.ErrPowerOff)
		disk.Crash()
	}
	disk.Crash()
}

// recoverAndGoOn restarts after a crash, with further losses of power during
// the recovery, and makes sure that the server finds one of the possible
// states, keeps it, and can go on.
func recoverAndGoOn(t *testing.T, disk *simdisk.Disk, possible []raft.PersistentState) {
	startThroughCrashes(t, disk)
	found := load(t, open(t, disk))
	require.Contains(t, possible, found)
	disk.Crash() // what a server has been shown must not go away
	s := open(t, disk)
	require.Equal(t, found, load(t, s))
	require.Equal(t, identity, s.Identity())

	next := saveAt(9, raft.Index(len(found.Entries)+1), entries(9, 3, 100)...)
	save(t, s, next)
	disk.Crash()
	require.Equal(t, apply(found, next), load(t, open(t, disk)))
}

// The saves of these tests fill several segments and overwrite the log across
// them: entries 2 and up are replaced when the third segment is in use.
var truncation = []raft.Save{
	{CurrentTerm: 1, VotedFor: 1},
	saveAt(1, 1, entries(1, 3, 100)...),
	saveAt(1, 4, entries(1, 4, 100)...),
	saveAt(1, 8, entries(1, 5, 150)...),
	{CurrentTerm: 2, VotedFor: 3},
	saveAt(3, 2, entries(3, 2, 200)...),
	saveAt(3, 4, entries(3, 1, 10)...),
	saveAt(3, 5, entries(3, 6, 400)...),
	saveAt(4, 6, entries(4, 1, 10)...),
}

func saveTruncation(disk *simdisk.Disk) error {
	_, _, err := run(disk, truncation)
	return err
}

// PE-03, PE-07, DK-01, DK-04: power may be lost after any operation.
func TestPowerLossAtEveryOperation(t *testing.T) {
	lost := 0
	atEveryOperation(t, saveTruncation, 8, func(t *testing.T, disk *simdisk.Disk, n int) {
		disk.CrashAfter(n)
		_, possible, err := run(disk, truncation)
		require.ErrorIs(t, err, simdisk.ErrPowerOff)
		disk.Crash()
		recoverAndGoOn(t, disk, possible)
		lost += disk.Counters().LostSectors
	})
	require.Greater(t, lost, 100, "the test must lose something")
}

// The process may die after any operation. The next one finds names and bytes
// that are in memory only, and must not build on them before they are durable.
func TestDeathAtEveryOperation(t *testing.T) {
	atEveryOperation(t, saveTruncation, 8, func(t *testing.T, disk *simdisk.Disk, n int) {
		disk.CrashAfter(n)
		_, possible, err := run(disk, truncation)
		require.ErrorIs(t, err, simdisk.ErrPowerOff)
		disk.Kill()
		s := open(t, disk)
		found := load(t, s)
		require.Contains(t, possible, found)
		next := saveAt(9, raft.Index(len(found.Entries)+1), entries(9, 3, 100)...)
		save(t, s, next)
		disk.Crash()
		require.Equal(t, apply(found, next), load(t, open(t, disk)))
	})
}

// PE-05: whatever fails, it is reported, and nothing is reported as saved after
// it. The disk of this test forgets what a failed sync has not written.
func TestFailureOfEveryOperationPoisons(t *testing.T) {
	harmless := map[int]bool{}
	atEveryOperation(t, saveTruncation, 4, func(t *testing.T, disk *simdisk.Disk, n int) {
		disk.FailAfter(n, errDisk)
		s, err := storage.Open(dir, options(disk))
		if err != nil {
			require.ErrorIs(t, err, errDisk)
			disk.Crash()
			recoverAndGoOn(t, disk, []raft.PersistentState{{}})
			return
		}
		var acknowledged raft.PersistentState
		for i, next := range truncation {
			err := s.Save(next)
			if err == nil {
				acknowledged = apply(acknowledged, next)
				continue
			}
			require.ErrorIs(t, err, errDisk)
			require.Contains(t, err.Error(), dir)
			require.Equal(t, err, s.Save(next))
			require.Equal(t, err, s.Save(truncation[0]))
			require.Equal(t, err, s.RememberStore(2, 0, raft.StoreID{2}))
			_, loadErr := s.Load()
			require.Equal(t, err, loadErr)
			require.NoError(t, s.Close())
			disk.Crash()
			recoverAndGoOn(t, disk, outcomes(acknowledged, truncation[i]))
			return
		}
		harmless[n] = true
	})
	// The first start also tries to sync the root, which it has not made.
	require.Len(t, harmless, 1)
}

// The server is restarted by its supervisor after a failed sync, without a loss
// of power. It reads the whole batch from memory, promises things, and then
// power is lost.
func TestBatchOfAFailedSyncIsMadeDurableBeforeItIsBelieved(t *testing.T) {
	testSeeds(t, 50, func(t *testing.T, seed uint64) {
		disk := newDisk(seed)
		s := open(t, disk)
		save(t, s, saveAt(1, 1, entries(1, 2, 50)...))
		disk.FailAfter(1, errDisk) // the sync, not the write
		require.ErrorIs(t, s.Save(saveAt(2, 3, entries(2, 3, 100)...)), errDisk)
		shown := reopen(t, disk)
		require.Len(t, shown.Entries, 5)
		disk.Crash()
		require.Equal(t, shown, load(t, open(t, disk)))
	})
}

// DK-05: the disk fills up. A segment is filled with zeros first, so only a new
// one can fail.
func TestDiskFull(t *testing.T) {
	disk := newDisk(1)
	run(disk, truncation)
	full := 0
	for _, file := range contents(t, disk) {
		full += len(file)
	}
	for limit := 1; limit <= full+segmentBytes; limit += 101 {
		disk := newDisk(uint64(limit))
		disk.SetLimit(int64(limit))
		acknowledged, possible, err := run(disk, truncation)
		if err == nil {
			require.Equal(t, acknowledged, reopen(t, disk))
			continue
		}
		require.ErrorIs(t, err, syscall.ENOSPC)
		disk.Kill()
		disk.SetLimit(0)
		found := load(t, open(t, disk))
		require.Contains(t, possible, found)
		require.Equal(t, acknowledged, found, "a Save that needs a new segment is not begun without one")
	}
}

// Crashes within the first start leave no directory that cannot be started, and
// none that has forgotten something.
func TestFirstStartCrashAtEveryOperation(t *testing.T) {
	steps := newDisk(0)
	open(t, steps)
	for n := range steps.Counters().Ops {
		testSeeds(t, 20, func(t *testing.T, seed uint64) {
			disk := newDisk(seed)
			disk.CrashAfter(n)
			_, err := storage.Open(dir, options(disk))
			require.ErrorIs(t, err, simdisk.ErrPowerOff)
			disk.Crash()
			recoverAndGoOn(t, disk, []raft.PersistentState{{}})
			names, err := disk.ReadDir(dir)
			require.NoError(t, err)
			require.Equal(t, []string{"identity", "lock", "log-0000000001", "peers"}, names, "nothing is left over")
		})
	}
}

// A crash within RememberStore leaves the old list or the new one.
func TestRememberStoreCrashAtEveryOperation(t *testing.T) {
	remember := func(disk *simdisk.Disk, n int) error {
		s, err := storage.Open(dir, options(disk))
		if err != nil {
			return err
		}
		if err := s.RememberStore(2, 0, raft.StoreID{2}); err != nil {
			return err
		}
		disk.CrashAfter(n)
		return s.RememberStore(3, 0, raft.StoreID{3})
	}
	old := map[raft.ServerID]raft.StoreID{2: {2}}
	both := map[raft.ServerID]raft.StoreID{2: {2}, 3: {3}}
	const operations = 5 // create, write, sync, rename, sync the directory
	for n := range operations + 1 {
		testSeeds(t, 20, func(t *testing.T, seed uint64) {
			disk := newDisk(seed)
			err := remember(disk, n)
			disk.Crash()
			known := open(t, disk).KnownStores()
			if n == operations {
				require.NoError(t, err)
				require.Equal(t, both, known)
				return
			}
			require.ErrorIs(t, err, simdisk.ErrPowerOff)
			require.Contains(t, []map[raft.ServerID]raft.StoreID{old, both}, known)
			names, err := disk.ReadDir(dir)
			require.NoError(t, err)
			require.NotContains(t, names, filepath.Base("peers.tmp"))
		})
	}
}
