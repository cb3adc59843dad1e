package storage_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/internal/simdisk"
	"raftkv/raft"
	"raftkv/raft/storage"
)

func TestIdentityIsStoredAtTheFirstStart(t *testing.T) {
	disk := newDisk(1)
	s := open(t, disk)
	require.Equal(t, identity, s.Identity())
	require.Equal(t, storeID, s.StoreID())
	require.NoError(t, s.Close())

	o := options(disk)
	o.NewStoreID = func() raft.StoreID { panic("a directory gets one store id, once") }
	s = openWith(t, o)
	require.Equal(t, identity, s.Identity())
	require.Equal(t, storeID, s.StoreID())
}

func TestClusterID(t *testing.T) {
	a, b, c := storage.Member{ID: 1, Addr: "a:1"}, storage.Member{ID: 2, Addr: "b:2"}, storage.Member{ID: 3, Addr: "c:3"}
	base := storage.NewIdentity("x", 1, []storage.Member{a, b, c})
	require.Equal(t, base, storage.NewIdentity("x", 1, []storage.Member{c, a, b}), "the order does not matter")
	require.Equal(t, base.Cluster, storage.NewIdentity("x", 2, []storage.Member{a, b, c}).Cluster, "one cluster, one id")
	for name, other := range map[string]storage.Identity{
		"name":    storage.NewIdentity("y", 1, []storage.Member{a, b, c}),
		"fewer":   storage.NewIdentity("x", 1, []storage.Member{a, b}),
		"address": storage.NewIdentity("x", 1, []storage.Member{a, b, {ID: 3, Addr: "c:4"}}),
		"id":      storage.NewIdentity("x", 1, []storage.Member{a, b, {ID: 4, Addr: "c:3"}}),
	} {
		require.NotEqual(t, base.Cluster, other.Cluster, name)
	}
}

func TestOtherIdentityIsRefused(t *testing.T) {
	disk := newDisk(1)
	require.NoError(t, open(t, disk).Close())
	before := contents(t, disk)
	members := identity.Members
	for want, other := range map[string]storage.Identity{
		"it is server 1's, not server 2's":                                         storage.NewIdentity("test", 2, members),
		`its cluster is "test", not "other"`:                                       storage.NewIdentity("other", 1, members),
		"it was first started with the members 1=a:1,2=b:2,3=c:3, not 1=a:1,2=b:2": storage.NewIdentity("test", 1, members[:2]),
	} {
		o := options(disk)
		o.Identity = other
		_, err := storage.Open(dir, o)
		require.ErrorIs(t, err, storage.ErrIdentity)
		require.Equal(t, "data directory "+dir+" belongs to another server or cluster: "+want, err.Error())
		require.Equal(t, before, contents(t, disk))
	}
}

func TestImpossibleIdentityMakesNoDirectory(t *testing.T) {
	for name, bad := range map[string]storage.Identity{
		"not a member": storage.NewIdentity("test", 4, identity.Members),
		"nobody":       storage.NewIdentity("test", 0, []storage.Member{{ID: 0, Addr: "a:1"}}),
		"twice":        storage.NewIdentity("test", 1, []storage.Member{{ID: 1, Addr: "a:1"}, {ID: 1, Addr: "b:2"}}),
		"nothing":      {},
	} {
		disk := newDisk(1)
		o := options(disk)
		o.Identity = bad
		_, err := storage.Open(dir, o)
		require.ErrorIs(t, err, raft.ErrConfig, name)
		require.Zero(t, disk.Counters().Ops, name)
	}
}

// A name may hold anything; the files stay readable and exact.
func TestIdentityWithStrangeNames(t *testing.T) {
	disk := newDisk(1)
	o := options(disk)
	o.Identity = storage.NewIdentity("a \"b\"\n\xff", 7, []storage.Member{{ID: 7, Addr: "[::1]:9 "}})
	require.NoError(t, openWith(t, o).Close())
	require.Equal(t, o.Identity, openWith(t, o).Identity())
}

func TestKnownPeers(t *testing.T) {
	disk := newDisk(1)
	s := open(t, disk)
	require.Empty(t, s.KnownStores())
	require.NoError(t, s.RememberStore(2, 0, raft.StoreID{22}))
	require.NoError(t, s.RememberStore(3, 0, raft.StoreID{33}))
	disk.Crash()

	s = open(t, disk)
	require.Equal(t, map[raft.ServerID]raft.StoreID{2: {22}, 3: {33}}, s.KnownStores())
	before := disk.Counters()
	require.NoError(t, s.RememberStore(2, 0, raft.StoreID{22}))
	err := s.RememberStore(2, 0, raft.StoreID{99})
	require.ErrorIs(t, err, storage.ErrForeignStore)
	require.Equal(t, "server 2 lost its disk: remove it and add it again", err.Error())
	require.Equal(t, before, disk.Counters(), "what is known costs nothing")
	save(t, s, saveAt(1, 1, command(1, "a foreign store is not our disk's fault")))

	require.NoError(t, s.RememberStore(2, 7, raft.StoreID{99}), "it was removed, and added again at index 7")
	require.ErrorIs(t, s.RememberStore(2, 7, raft.StoreID{22}), storage.ErrForeignStore)
	require.ErrorIs(t, s.RememberStore(2, 0, raft.StoreID{22}), storage.ErrForeignStore, "the old one is still running")
	disk.Crash()
	s = open(t, disk)
	require.ErrorIs(t, s.RememberStore(2, 7, raft.StoreID{22}), storage.ErrForeignStore)
	require.NoError(t, s.RememberStore(2, 9, raft.StoreID{22}), "it was added once more")

	s.KnownStores()[2] = raft.StoreID{1}
	require.Equal(t, raft.StoreID{22}, s.KnownStores()[2], "the caller gets a copy")
}

// Every byte of the two text files is covered: they are never torn.
func TestEveryByteOfTheTextFilesFlippedIsRefused(t *testing.T) {
	for _, name := range []string{"identity", "peers"} {
		disk := newDisk(1)
		require.NoError(t, open(t, disk).RememberStore(2, 0, raft.StoreID{2}))
		file := filepath.Join(dir, name)
		whole := disk.ReadFile(file)
		for at := range whole {
			disk.BitFlip(file, int64(at))
			requireRefused(t, disk, name, fmt.Sprint("byte ", at))
			disk.WriteFile(file, whole[:at])
			requireRefused(t, disk, name, fmt.Sprint("cut at ", at))
			disk.WriteFile(file, whole)
		}
		require.NoError(t, disk.Remove(file))
		requireRefused(t, disk, name, "missing")
	}
}

// Without its identity a used directory is damaged, and not new: a server that
// has forgotten its votes must not start.
func TestIdentityMissingFromAUsedDirectory(t *testing.T) {
	for name, use := range map[string]func(s *storage.FileStorage) error{
		"a record":     func(s *storage.FileStorage) error { return s.Save(raft.Save{CurrentTerm: 1}) },
		"two segments": func(s *storage.FileStorage) error { return s.Save(saveAt(1, 1, entries(1, 2, 900)...)) },
		"a peer":       func(s *storage.FileStorage) error { return s.RememberStore(2, 0, raft.StoreID{2}) },
	} {
		disk := newDisk(1)
		require.NoError(t, use(open(t, disk)), name)
		require.NoError(t, disk.Remove(filepath.Join(dir, "identity")))
		requireRefused(t, disk, "identity", name)
	}
}

func TestPeersOfAnotherDirectoryAreRefused(t *testing.T) {
	disk, other := newDisk(1), newDisk(2)
	open(t, disk)
	o := options(other)
	o.NewStoreID = func() raft.StoreID { return raft.StoreID{1} }
	openWith(t, o)
	file := filepath.Join(dir, "peers")
	disk.WriteFile(file, other.ReadFile(file))
	requireRefused(t, disk, "peers", "")
}

func TestForeignDirectoryIsRefused(t *testing.T) {
	disk := newDisk(1)
	require.NoError(t, disk.Mkdir(filepath.Dir(dir)))
	require.NoError(t, disk.Mkdir(dir))
	disk.WriteFile(filepath.Join(dir, "thesis.tex"), []byte("three years of work"))
	before := contents(t, disk)
	_, err := storage.Open(dir, options(disk))
	require.ErrorIs(t, err, storage.ErrNotDataDir)
	require.Contains(t, err.Error(), "thesis.tex")
	require.Equal(t, before, contents(t, disk), "not even a lock file")
}

// A file that we do not know is nobody's concern once a directory is ours.
func TestUnknownFilesAreLeftAlone(t *testing.T) {
	disk := newDisk(1)
	save(t, open(t, disk), saveAt(1, 1, command(1, "x")))
	notes := filepath.Join(dir, "log-1.bak")
	disk.WriteFile(notes, []byte("notes"))
	require.Len(t, reopen(t, disk).Entries, 1)
	require.Equal(t, "notes", string(disk.ReadFile(notes)))
}

func TestNewerVersionIsRefused(t *testing.T) {
	text := func(b []byte) []byte {
		s := strings.Replace(string(b[:len(b)-len("crc32c 00000000\n")]), "format 1", "format 2", 1) + "something new\n"
		return fmt.Appendf(nil, "%scrc32c %08x\n", s, crc32.Checksum([]byte(s), crc32.MakeTable(crc32.Castagnoli)))
	}
	segment := func(b []byte) []byte {
		binary.LittleEndian.PutUint32(b[8:], 2)
		covered := append(append([]byte{}, b[:12]...), b[16:64]...)
		binary.LittleEndian.PutUint32(b[12:], crc32.Checksum(covered, crc32.MakeTable(crc32.Castagnoli)))
		return b
	}
	for name, change := range map[string]func([]byte) []byte{"identity": text, "peers": text, segmentName(1): segment} {
		disk := newDisk(1)
		open(t, disk)
		file := filepath.Join(dir, name)
		disk.WriteFile(file, change(disk.ReadFile(file)))
		disk.Kill()
		before := contents(t, disk)
		_, err := storage.Open(dir, options(disk))
		require.ErrorIs(t, err, storage.ErrNewerVersion)
		require.Equal(t, file+" was written by a newer version of raftkv (format 2; this program knows formats up to 1)", err.Error())
		require.Equal(t, before, contents(t, disk))
	}
}

func TestLockExcludes(t *testing.T) {
	simulated := newDisk(1)
	for name, tc := range map[string]struct {
		fs  storage.FS
		dir string
	}{
		"simulated": {simulated, dir},
		"real":      {storage.OSFS{}, t.TempDir()},
	} {
		t.Run(name, func(t *testing.T) {
			o := storage.Options{FS: tc.fs, Identity: identity, SegmentBytes: segmentBytes}
			first, err := storage.Open(tc.dir, o)
			require.NoError(t, err)
			_, err = storage.Open(tc.dir, o)
			require.ErrorIs(t, err, storage.ErrLocked)
			require.Equal(t, "data directory "+tc.dir+" is in use by another process", err.Error())
			save(t, first, saveAt(1, 1, command(1, "x")))
			require.NoError(t, first.Close())
			second, err := storage.Open(tc.dir, o)
			require.NoError(t, err)
			require.Len(t, load(t, second).Entries, 1)
			require.NoError(t, second.Close())
		})
	}
}

// A refused Open frees the lock, so that the right flags work at once.
func TestRefusedOpenFreesTheLock(t *testing.T) {
	disk := newDisk(1)
	require.NoError(t, open(t, disk).Close())
	o := options(disk)
	o.Identity = storage.NewIdentity("other", 1, identity.Members)
	_, err := storage.Open(dir, o)
	require.ErrorIs(t, err, storage.ErrIdentity)
	open(t, disk)
}

func TestTwoDirectoriesHaveTwoStoreIDs(t *testing.T) {
	ids := map[raft.StoreID]bool{}
	for range 3 {
		o := options(newDisk(1))
		o.NewStoreID = nil
		ids[openWith(t, o).StoreID()] = true
	}
	require.Len(t, ids, 3)
}

func TestSegmentBytesBounds(t *testing.T) {
	for _, n := range []int{-1, 1, 63, 1<<30 + 1} {
		o := options(newDisk(1))
		o.SegmentBytes = n
		_, err := storage.Open(dir, o)
		require.ErrorIs(t, err, raft.ErrConfig)
	}
}

// The real file system, once around: all operations, in a directory that does
// not exist yet.
func TestSystemRealFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	o := storage.Options{Identity: identity, SegmentBytes: segmentBytes}
	var model raft.PersistentState
	for range 3 {
		s, err := storage.Open(dir, o)
		require.NoError(t, err)
		require.Equal(t, model, load(t, s))
		for _, next := range truncation {
			if next.FirstIndex != 0 {
				next.FirstIndex = min(next.FirstIndex, raft.Index(len(model.Entries)+1))
			}
			save(t, s, next)
			model = apply(model, next)
		}
		require.NoError(t, s.RememberStore(2, 0, raft.StoreID{2}))
		require.NoError(t, s.Close())
	}
	require.NoError(t, storage.Dump(&strings.Builder{}, dir, nil))

	_, err := storage.OSFS{}.ReadDir(filepath.Join(dir, "nothing"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, os.WriteFile(filepath.Join(dir, segmentName(1)), []byte("damaged"), 0o600))
	_, err = storage.Open(dir, o)
	var corrupt *storage.CorruptError
	require.ErrorAs(t, err, &corrupt)
}

var _ storage.FS = (*simdisk.Disk)(nil)
