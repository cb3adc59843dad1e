package storage_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/raft"
	"raftkv/raft/storage"
)

func TestDump(t *testing.T) {
	disk := newDisk(1)
	s := open(t, disk)
	require.NoError(t, s.RememberStore(2, 0, raft.StoreID{2}))
	save(t, s,
		raft.Save{CurrentTerm: 1},
		saveAt(2, 1, raft.LogEntry{Term: 2, Kind: raft.EntryEmpty}, command(2, "x=1\n")),
	)
	before, ops := contents(t, disk), disk.Counters().Ops
	var out strings.Builder
	require.NoError(t, storage.Dump(&out, dir, disk), "the running server's lock is no obstacle")
	require.Equal(t, `server 1 of cluster "test" (a89cca42c19625c5), members 1=a:1,2=b:2,3=c:3, store 5e0000000000000000000000000000ed
server 2 has store 02000000000000000000000000000000
`+segmentFile(1)+`:
        64  batch 1  term 1, vote nobody
       112  batch 2  term 2, vote server 1
       160  batch 2    1: term 2, empty
       216  batch 2    2: term 2, 4 bytes "x=1\n"
term 2, vote server 1, 2 entries; the log ends at offset 272 of `+segmentFile(1)+`
`, out.String())
	require.Equal(t, before, contents(t, disk))
	require.Equal(t, ops, disk.Counters().Ops, "nothing was changed")
}

func TestDumpOfATornTail(t *testing.T) {
	disk, _ := threeBatches(t)
	last := spans(disk.ReadFile(segmentFile(1)))[8]
	disk.BitFlip(segmentFile(1), int64(last.start+40))
	var out strings.Builder
	require.NoError(t, storage.Dump(&out, dir, disk), "a server could start")
	require.Contains(t, out.String(), "torn tail: the checksum of the record does not match; the next start cuts it off")
	require.Contains(t, out.String(), "term 3, vote server 1, 5 entries")
}

// The worst directory is the one that somebody wants to look into.
func TestDumpOfDamagedDirectories(t *testing.T) {
	for name, tc := range map[string]struct {
		file   string
		offset int64
		after  string // what is still printed behind the damage
	}{
		"a record":         {segmentName(1), 64 + 48 + 40, "term 3, vote server 1"},
		"a segment header": {segmentName(1), 20, `4: term 1, 100 bytes`},
		"another segment":  {segmentName(2), 100, `term 4, vote server 1`},
		"identity":         {"identity", 5, `1: term 1, 100 bytes`},
		"peers":            {"peers", 5, `1: term 1, 100 bytes`},
	} {
		disk := newDisk(1)
		_, _, err := run(disk, truncation)
		require.NoError(t, err)
		disk.BitFlip(filepath.Join(dir, tc.file), tc.offset)
		disk.Kill()
		_, refused := storage.Open(dir, options(disk))
		var corrupt *storage.CorruptError
		require.ErrorAs(t, refused, &corrupt, name)

		var out strings.Builder
		err = storage.Dump(&out, dir, disk)
		require.Equal(t, refused.Error(), err.Error(), name)
		_, rest, found := strings.Cut(out.String(), "DAMAGED: "+refused.Error()+"\n")
		require.True(t, found, "%s: %s", name, out.String())
		require.Contains(t, rest, tc.after, name)
	}
}

func TestDumpOfWhatIsNoDataDirectory(t *testing.T) {
	require.Error(t, storage.Dump(&strings.Builder{}, filepath.Join(t.TempDir(), "missing"), nil))
	disk := newDisk(1)
	disk.WriteFile(filepath.Join(dir, "thesis.tex"), nil)
	require.NoError(t, disk.Mkdir(filepath.Dir(dir)))
	require.NoError(t, disk.Mkdir(dir))
	require.ErrorIs(t, storage.Dump(&strings.Builder{}, dir, disk), storage.ErrNotDataDir)
}
