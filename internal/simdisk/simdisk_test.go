package simdisk_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/internal/simdisk"
	"raftkv/raft/storage"
)

const sector = simdisk.SectorSize

var (
	root = string(filepath.Separator)
	file = filepath.Join(root, "file")
)

func newDisk(seed uint64) *simdisk.Disk { return simdisk.New(rand.New(rand.NewPCG(seed, 0))) }

func create(t *testing.T, d *simdisk.Disk, name string) storage.File {
	f, err := d.Create(name)
	require.NoError(t, err)
	return f
}

func write(t *testing.T, f storage.File, at int64, b []byte) {
	n, err := f.WriteAt(b, at)
	require.NoError(t, err)
	require.Equal(t, len(b), n)
}

func sectors(fill byte, n int) []byte { return bytes.Repeat([]byte{fill}, n*sector) }

// durable makes a file that a loss of power leaves alone.
func durable(t *testing.T, d *simdisk.Disk, name string, b []byte) storage.File {
	f := create(t, d, name)
	write(t, f, 0, b)
	require.NoError(t, f.Sync())
	require.NoError(t, d.SyncDir(filepath.Dir(name)))
	return f
}

// outcomes runs a story once per seed and counts how it ends.
func outcomes(t *testing.T, story func(d *simdisk.Disk) string) map[string]int {
	found := map[string]int{}
	for seed := range uint64(300) {
		found[story(newDisk(seed))]++
	}
	return found
}

func keys(m map[string]int) []string {
	var ks []string
	for k := range m {
		ks = append(ks, k)
	}
	return ks
}

func TestWhatIsSyncedStays(t *testing.T) {
	found := outcomes(t, func(d *simdisk.Disk) string {
		durable(t, d, file, sectors('a', 3))
		d.Crash()
		return string(d.ReadFile(file))
	})
	require.Equal(t, []string{string(sectors('a', 3))}, keys(found))
}

// Any subset of the unsynced sectors may be lost, each in one piece, and a
// sector written twice may be found in between.
func TestUnsyncedSectorsAreLostOneByOne(t *testing.T) {
	found := outcomes(t, func(d *simdisk.Disk) string {
		f := durable(t, d, file, sectors('a', 3))
		write(t, f, sector, sectors('b', 1))
		write(t, f, sector, sectors('c', 2))
		d.Crash()
		b := d.ReadFile(file)
		for s := range 3 {
			require.Equal(t, sectors(b[s*sector], 1), b[s*sector:(s+1)*sector], "a sector does not tear")
		}
		return string([]byte{b[0], b[sector], b[2*sector]})
	})
	require.ElementsMatch(t, []string{"aaa", "aba", "aca", "aac", "abc", "acc"}, keys(found))
}

func TestUnsyncedGrowthMayBeLost(t *testing.T) {
	found := outcomes(t, func(d *simdisk.Disk) string {
		f := durable(t, d, file, sectors('a', 1))
		write(t, f, sector, sectors('b', 1))
		d.Crash()
		b := d.ReadFile(file)
		return fmt.Sprint(len(b)/sector, b[len(b)-1])
	})
	require.ElementsMatch(t, []string{"1 97", "2 0", "2 98"}, keys(found))
}

func TestUnsyncedNamesAreLostOneByOne(t *testing.T) {
	a, b := filepath.Join(root, "a"), filepath.Join(root, "b")
	found := outcomes(t, func(d *simdisk.Disk) string {
		durable(t, d, a, []byte("new"))
		durable(t, d, b, []byte("old"))
		require.NoError(t, d.Rename(a, b))
		require.Equal(t, "new", string(d.ReadFile(b)))
		d.Crash()
		return fmt.Sprintf("a=%s b=%s", d.ReadFile(a), d.ReadFile(b))
	})
	require.ElementsMatch(t, []string{"a=new b=old", "a=new b=new", "a= b=old", "a= b=new"}, keys(found))

	found = outcomes(t, func(d *simdisk.Disk) string {
		durable(t, d, a, []byte("new"))
		durable(t, d, b, []byte("old"))
		require.NoError(t, d.Rename(a, b))
		require.NoError(t, d.SyncDir(root))
		d.Crash()
		return fmt.Sprintf("a=%s b=%s", d.ReadFile(a), d.ReadFile(b))
	})
	require.Equal(t, []string{"a= b=new"}, keys(found))
}

// What a directory holds goes with its name.
func TestLostDirectory(t *testing.T) {
	dir := filepath.Join(root, "dir")
	found := outcomes(t, func(d *simdisk.Disk) string {
		require.NoError(t, d.Mkdir(dir))
		durable(t, d, filepath.Join(dir, "file"), []byte("x"))
		d.Crash()
		names, err := d.ReadDir(dir)
		return fmt.Sprint(names, errors.Is(err, fs.ErrNotExist))
	})
	require.ElementsMatch(t, []string{"[] true", "[file] false"}, keys(found))
}

// After a sync that failed the sectors count as written, and are not.
func TestFailedSyncForgets(t *testing.T) {
	errDisk := errors.New("the disk says no")
	found := outcomes(t, func(d *simdisk.Disk) string {
		f := durable(t, d, file, sectors('a', 1))
		write(t, f, 0, sectors('b', 1))
		d.FailAfter(0, errDisk)
		require.ErrorIs(t, f.Sync(), errDisk)
		require.NoError(t, f.Sync(), "the next one has nothing to do")
		require.EqualValues(t, 'b', d.ReadFile(file)[0], "reads see what was written")
		d.Crash()
		return string(d.ReadFile(file)[:1])
	})
	require.ElementsMatch(t, []string{"a", "b"}, keys(found))
}

func TestFailedWriteIsPartial(t *testing.T) {
	errDisk := errors.New("the disk says no")
	found := outcomes(t, func(d *simdisk.Disk) string {
		f := create(t, d, file)
		d.FailAfter(0, errDisk)
		n, err := f.WriteAt(sectors('a', 2), 0)
		require.ErrorIs(t, err, errDisk)
		require.Len(t, d.ReadFile(file), n)
		return fmt.Sprint(n > 0, n == 2*sector)
	})
	require.Contains(t, found, "true false")
}

func TestDiskFull(t *testing.T) {
	d := newDisk(1)
	d.SetLimit(2 * sector)
	f := durable(t, d, file, sectors('a', 1))
	n, err := f.WriteAt(sectors('b', 2), sector)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, sector, n)
	write(t, f, 0, sectors('c', 2)) // in place there is room
	n, err = f.WriteAt([]byte{1}, 9*sector)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Zero(t, n)
}

func TestPowerOff(t *testing.T) {
	d := newDisk(1)
	f := durable(t, d, file, []byte("x"))
	_, err := d.Lock(filepath.Join(root, "lock"))
	require.NoError(t, err)
	d.CrashAfter(1)
	write(t, f, 0, []byte("y"))
	_, err = f.WriteAt([]byte("z"), 0)
	require.ErrorIs(t, err, simdisk.ErrPowerOff)
	_, err = f.ReadAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, simdisk.ErrPowerOff)
	require.ErrorIs(t, f.Sync(), simdisk.ErrPowerOff)
	_, err = d.Open(file)
	require.ErrorIs(t, err, simdisk.ErrPowerOff)
	_, err = d.ReadDir(root)
	require.ErrorIs(t, err, simdisk.ErrPowerOff)

	d.Crash()
	_, err = f.WriteAt([]byte("z"), 0)
	require.Error(t, err, "an open file does not survive")
	_, err = d.Lock(filepath.Join(root, "lock"))
	require.NoError(t, err, "a lock does not survive")
}

func TestKillLosesNothing(t *testing.T) {
	d := newDisk(1)
	f := create(t, d, file)
	write(t, f, 0, []byte("x"))
	l, err := d.Lock(file)
	require.NoError(t, err)
	_, err = d.Lock(file)
	require.ErrorIs(t, err, storage.ErrLocked)
	d.Kill()
	require.Equal(t, "x", string(d.ReadFile(file)))
	_, err = f.Size()
	require.Error(t, err)
	_, err = d.Lock(file)
	require.NoError(t, err)
	require.NoError(t, l.Close(), "the dead process's lock is not the new one's")
	_, err = d.Lock(file)
	require.ErrorIs(t, err, storage.ErrLocked)
}

// The file system does what the real one does, as far as storage relies on it.
func TestLikeTheRealOne(t *testing.T) {
	for name, tc := range map[string]struct {
		fs  storage.FS
		dir string
	}{
		"simulated": {newDisk(1), root},
		"real":      {storage.OSFS{}, t.TempDir()},
	} {
		t.Run(name, func(t *testing.T) {
			path := func(name string) string { return filepath.Join(tc.dir, name) }
			require.NoError(t, tc.fs.Mkdir(path("d")))
			require.ErrorIs(t, tc.fs.Mkdir(path("d")), fs.ErrExist)
			require.ErrorIs(t, tc.fs.Mkdir(path("no/d")), fs.ErrNotExist)
			_, err := tc.fs.ReadDir(path("no"))
			require.ErrorIs(t, err, fs.ErrNotExist)
			_, err = tc.fs.Open(path("no"))
			require.ErrorIs(t, err, fs.ErrNotExist)
			_, err = tc.fs.OpenWrite(path("no"))
			require.ErrorIs(t, err, fs.ErrNotExist)
			require.ErrorIs(t, tc.fs.Remove(path("no")), fs.ErrNotExist)
			require.ErrorIs(t, tc.fs.Rename(path("no"), path("x")), fs.ErrNotExist)

			f, err := tc.fs.Create(path("b"))
			require.NoError(t, err)
			write(t, f, 3, []byte("defg"))
			size, err := f.Size()
			require.NoError(t, err)
			require.EqualValues(t, 7, size)
			b := make([]byte, 9)
			n, err := f.ReadAt(b, 1)
			require.Equal(t, io.EOF, err)
			require.Equal(t, "\x00\x00defg", string(b[:n]))
			_, err = f.ReadAt(b, 7)
			require.Equal(t, io.EOF, err)
			require.NoError(t, f.Sync())
			require.NoError(t, f.Close())

			f, err = tc.fs.Open(path("b"))
			require.NoError(t, err)
			_, err = f.WriteAt([]byte("x"), 0)
			require.Error(t, err, "opened for reading")
			require.NoError(t, f.Close())

			f, err = tc.fs.Create(path("a"))
			require.NoError(t, err)
			require.NoError(t, f.Close())
			names, err := tc.fs.ReadDir(tc.dir)
			require.NoError(t, err)
			require.Equal(t, []string{"a", "b", "d"}, names)
			require.NoError(t, tc.fs.Rename(path("b"), path("a")))
			require.NoError(t, tc.fs.SyncDir(tc.dir))
			f, err = tc.fs.Create(path("a"))
			require.NoError(t, err)
			size, err = f.Size()
			require.NoError(t, err)
			require.Zero(t, size, "Create empties a file")
			require.NoError(t, f.Close())
			require.NoError(t, tc.fs.Remove(path("a")))
			names, err = tc.fs.ReadDir(tc.dir)
			require.NoError(t, err)
			require.Equal(t, []string{"d"}, names)

			l, err := tc.fs.Lock(path("lock"))
			require.NoError(t, err)
			_, err = tc.fs.Lock(path("lock"))
			require.ErrorIs(t, err, storage.ErrLocked)
			require.NoError(t, l.Close())
			l, err = tc.fs.Lock(path("lock"))
			require.NoError(t, err)
			require.NoError(t, l.Close())
		})
	}
}

func TestBitFlip(t *testing.T) {
	d := newDisk(1)
	durable(t, d, file, []byte{0, 0, 0})
	d.BitFlip(file, 1)
	d.Crash()
	b := d.ReadFile(file)
	require.Zero(t, b[0]|b[2])
	require.Contains(t, []byte{1, 2, 4, 8, 16, 32, 64, 128}, b[1])
}

// One seed, one history.
func TestSameSeedSameDamage(t *testing.T) {
	story := func(seed uint64) (string, simdisk.Counters) {
		d := newDisk(seed)
		var end string
		for round := range 20 {
			for i := range 5 {
				name := filepath.Join(root, fmt.Sprint(i))
				f := create(t, d, name)
				write(t, f, 0, sectors(byte('a'+round), 4))
				if i%2 == 0 {
					require.NoError(t, f.Sync())
				}
			}
			d.Crash()
			for i := range 5 {
				end += string(d.ReadFile(filepath.Join(root, fmt.Sprint(i))))
			}
		}
		return end, d.Counters()
	}
	for seed := range uint64(20) {
		a, countA := story(seed)
		b, countB := story(seed)
		require.Equal(t, a, b)
		require.Equal(t, countA, countB)
	}
	a, _ := story(1)
	b, _ := story(2)
	require.NotEqual(t, a, b)
}
