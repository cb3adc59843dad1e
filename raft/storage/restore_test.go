package storage_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/internal/simdisk"
	"raftkv/raft"
	"raftkv/raft/storage"
)

func restoreOptions(disk *simdisk.Disk) storage.Options {
	o := options(disk)
	o.Identity = storage.NewIdentity("restored", 7, []storage.Member{{ID: 7, Addr: "g:7"}})
	return o
}

var restoredState = stateAt(50, 3000)

func restore(disk *simdisk.Disk) error {
	return storage.Restore(dir, restoreOptions(disk), snapshotOf(50, 6, restoredState), bytes.NewReader(restoredState))
}

func TestRestore(t *testing.T) {
	disk := newDisk(1)
	require.NoError(t, restore(disk))
	disk.Crash()
	s := openWith(t, restoreOptions(disk))
	want := snapshotOf(50, 6, restoredState)
	want.ConfigurationIndex = 50
	want.Configuration = raft.NewConfiguration(7).WithAddresses(raft.Address{ID: 7, Addr: "g:7"})
	require.Equal(t, raft.PersistentState{CurrentTerm: 6, Snapshot: want, Start: raft.LogPosition{Index: 50, Term: 6}}, load(t, s))
	_, _, err := raft.NewConsensusModule(raft.Config{ID: 7}, load(t, s))
	require.NoError(t, err)
	save(t, s, saveAt(7, 51, command(7, "it goes on")))
	require.Len(t, load(t, s).Entries, 1)
}

// Power is lost somewhere: the directory is complete, or no server starts from
// it, or it is as empty as before.
func TestRestoreCrashAtEveryOperation(t *testing.T) {
	whole := newDisk(0)
	require.NoError(t, restore(whole))
	ends := map[string]int{}
	for n := range whole.Counters().Ops {
		testSeeds(t, 20, func(t *testing.T, seed uint64) {
			disk := newDisk(seed)
			disk.CrashAfter(n)
			require.ErrorIs(t, restore(disk), simdisk.ErrPowerOff)
			disk.Crash()
			s, err := storage.Open(dir, restoreOptions(disk))
			if err != nil {
				var corrupt *storage.CorruptError
				require.ErrorAs(t, err, &corrupt)
				require.Equal(t, filepath.Join(dir, "identity"), corrupt.File)
				require.ErrorIs(t, restore(disk), storage.ErrInUse)
				ends["refused"]++
				return
			}
			if state := load(t, s); state.Snapshot.Index == 0 {
				require.Zero(t, state)
				ends["empty"]++
			} else {
				require.EqualValues(t, 50, state.Snapshot.Index)
				require.EqualValues(t, 50, state.Start.Index)
				ends["restored"]++
			}
		})
	}
	require.Len(t, ends, 3, "%v", ends)
}

func TestRestoreRefuses(t *testing.T) {
	disk := newDisk(1)
	open(t, disk)
	disk.Kill()
	before := contents(t, disk)
	err := restore(disk)
	require.ErrorIs(t, err, storage.ErrInUse)
	require.Equal(t, "directory "+dir+" is not empty (identity)", err.Error())
	require.Equal(t, before, contents(t, disk))

	disk = newDisk(1)
	snapshot := snapshotOf(50, 6, restoredState)
	for _, data := range [][]byte{restoredState[:2999], append(restoredState[:3000:3000], 'x'), bytes.ToUpper(restoredState)} {
		disk = newDisk(1)
		require.ErrorIs(t, storage.Restore(dir, restoreOptions(disk), snapshot, bytes.NewReader(data)), storage.ErrDamagedSnapshot)
		_, err := storage.Open(dir, restoreOptions(disk))
		require.Error(t, err, "no server starts from half a snapshot")
	}
	disk = newDisk(1)
	o := options(disk)
	o.Identity = storage.JoinIdentity(1, "joined", 3, 0)
	require.ErrorIs(t, storage.Restore(dir, o, snapshot, bytes.NewReader(restoredState)), raft.ErrConfig)
	require.Zero(t, disk.Counters().Ops)
}

// A server that is added to a cluster knows no members.
func TestJoiner(t *testing.T) {
	disk := newDisk(1)
	o := options(disk)
	o.Identity = storage.JoinIdentity(identity.Cluster, "test", 9, 7)
	require.NoError(t, openWith(t, o).Close())
	require.Equal(t, o.Identity, openWith(t, o).Identity())
	disk.Kill()
	o.Identity = storage.JoinIdentity(identity.Cluster+1, "test", 9, 7)
	_, err := storage.Open(dir, o)
	require.ErrorIs(t, err, storage.ErrIdentity)
	require.ErrorContains(t, err, "its cluster id is a89cca42c19625c5, not a89cca42c19625c6")
	o.Identity = storage.NewIdentity("test", 9, []storage.Member{{ID: 9, Addr: "i:9"}})
	_, err = storage.Open(dir, o)
	require.ErrorContains(t, err, "it was first started with the members of a cluster that it joined, not 9=i:9")
}
