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

func TestDumpOfSnapshots(t *testing.T) {
	disk := newDisk(1)
	s := open(t, disk)
	save(t, s, saveAt(2, 1, raft.LogEntry{Term: 2, Kind: raft.EntryConfiguration, Command: twoServers.AppendTo(nil)}))
	require.NoError(t, receiving(8, 2).do(s))
	dump := func() string {
		var out strings.Builder
		require.NoError(t, storage.Dump(&out, dir, disk))
		_, after, _ := strings.Cut(out.String(), "\n") // the line of the identity
		return after
	}
	snapshot := snapshotFile(8) + `: up to entry 8 of term 2, 700 bytes, configuration of entry 4: voters [1 2] and of before [1], learners [5], 1=a:1, 2=b:2 since 3
`
	log := segmentFile(1) + `:
        64  batch 1  term 2, vote server 1
       112  batch 1    1: term 2, configuration: voters [1 2] and of before [1], learners [5], 1=a:1, 2=b:2 since 3
`
	require.Equal(t, snapshot+log+`snapshot 8 replaces the log; the next start writes a reset
term 2, vote server 1, snapshot 8, 0 entries behind index 8 of term 2; the log ends at offset 184 of `+segmentFile(1)+`
`, dump())
	save(t, s, raft.Save{CurrentTerm: 2, Reset: raft.LogPosition{Index: 8, Term: 2}, FirstIndex: 9, Entries: entries(2, 1, 8)})
	require.Equal(t, snapshot+log+`       184  batch 2  term 2, vote nobody
       232  batch 2    reset: the log begins behind index 8 of term 2
       280  batch 2    9: term 2, 8 bytes "term 2, "
term 2, vote nobody, snapshot 8, 1 entries behind index 8 of term 2; the log ends at offset 344 of `+segmentFile(1)+`
`, dump())

	disk.BitFlip(snapshotFile(8), 500)
	var out strings.Builder
	err := storage.Dump(&out, dir, disk)
	disk.Kill()
	_, refused := storage.Open(dir, options(disk))
	require.EqualError(t, refused, err.Error())
	require.Contains(t, out.String(), "DAMAGED: "+err.Error())
	require.Contains(t, out.String(), `9: term 2, 8 bytes "term 2, "`)
}
