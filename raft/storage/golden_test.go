package storage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/raft"
	"raftkv/raft/storage"
)

const golden = "testdata/datadir"

// goldenSaves is how testdata/datadir was made, in segments of 512 bytes.
var goldenSaves = []raft.Save{
	{CurrentTerm: 1, VotedFor: 2},
	{CurrentTerm: 2, VotedFor: 1, FirstIndex: 1, Entries: []raft.LogEntry{{Term: 2, Kind: raft.EntryEmpty}}},
	{CurrentTerm: 2, VotedFor: 1, FirstIndex: 2, Entries: []raft.LogEntry{command(2, "x=1"), command(2, "y=2"), command(2, "")}},
	{CurrentTerm: 4, FirstIndex: 3, Entries: []raft.LogEntry{{Term: 4, Kind: raft.EntryEmpty}, command(4, "z=3")}},
}

// The formats are final: what an earlier program has written must open, and
// today's program must write the same bytes. If this test fails the code is
// wrong, not the directory.
func TestGoldenDirectory(t *testing.T) {
	disk := newDisk(1)
	o := options(disk)
	o.SegmentBytes = 512
	s := openWith(t, o)
	var model raft.PersistentState
	for _, next := range goldenSaves {
		save(t, s, next)
		model = apply(model, next)
	}
	require.NoError(t, s.RememberStore(2, 0, raft.StoreID{0x22, 15: 0x01}))
	require.NoError(t, s.RememberStore(3, 0, raft.StoreID{0x33, 15: 0x02}))
	require.NoError(t, s.Close())
	written := contents(t, disk)

	opened := openGolden(t, golden, written, "identity", "log-0000000001", "log-0000000002", "peers")
	require.Equal(t, model, load(t, opened))
	require.Equal(t, map[raft.ServerID]raft.StoreID{2: {0x22, 15: 0x01}, 3: {0x33, 15: 0x02}}, opened.KnownStores())
	require.Equal(t, storeID, opened.StoreID())
}

// openGolden compares the files of a golden directory with what was written today,
// and opens a copy of it on the real file system, which must change nothing.
func openGolden(t *testing.T, golden string, written map[string]string, names ...string) *storage.FileStorage {
	found, err := storage.OSFS{}.ReadDir(golden)
	require.NoError(t, err)
	require.Equal(t, names, found)
	copied := t.TempDir()
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(golden, name))
		require.NoError(t, err)
		require.Equal(t, []byte(written[name]), b, name)
		require.NoError(t, os.WriteFile(filepath.Join(copied, name), b, 0o600))
	}
	opened, err := storage.Open(copied, storage.Options{Identity: identity})
	require.NoError(t, err)
	t.Cleanup(func() { opened.Close() })
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(copied, name))
		require.NoError(t, err)
		require.Equal(t, written[name], string(b), "opening changes nothing in %s", name)
	}
	return opened
}

const goldenSnapshots = "testdata/snapshots"

// goldenSnapshot is a snapshot of testdata/snapshots.
func goldenSnapshot(index raft.Index, term raft.Term, data string) (raft.Snapshot, []byte) {
	s := snapshotOf(index, term, []byte(data))
	s.Configuration = raft.Configuration{
		Voters:    []raft.ServerID{1, 2, 3},
		Addresses: []raft.Address{{ID: 1, Addr: "a:1"}, {ID: 2, Addr: "b:2"}, {ID: 3, Addr: "c:3", Since: 2}},
	}
	s.ConfigurationIndex = 2
	return s, []byte(data)
}

// The same for what came later: snapshots, a log that has lost its beginning, and
// one that has begun anew.
func TestGoldenSnapshots(t *testing.T) {
	disk := newDisk(1)
	o := options(disk)
	o.SegmentBytes = 512
	s := openWith(t, o)
	first, firstData := goldenSnapshot(3, 1, "x=1 ")
	second, secondData := goldenSnapshot(6, 1, "x=2 y=2 ")
	third, thirdData := goldenSnapshot(20, 4, "z=20 ")
	save(t, s, saveAt(1, 1, entries(1, 6, 30)...)) // the first segment is full
	require.NoError(t, take(s, first, firstData))
	save(t, s, saveAt(2, 7, entries(2, 3, 30)...))
	require.NoError(t, take(s, second, secondData))
	save(t, s, raft.Save{CurrentTerm: 4, VotedFor: 3})
	require.NoError(t, receive(s, third, thirdData))
	save(t, s, raft.Save{CurrentTerm: 4, VotedFor: 3, Reset: raft.LogPosition{Index: 20, Term: 4}, FirstIndex: 21, Entries: []raft.LogEntry{command(4, "z=21")}})
	require.NoError(t, s.Compact(20))
	require.NoError(t, s.Close())

	opened := openGolden(t, goldenSnapshots, contents(t, disk), "identity", "log-0000000004", "peers", snapshotName(6), snapshotName(20))
	require.Empty(t, opened.Warnings())
	require.Equal(t, raft.PersistentState{
		CurrentTerm: 4,
		VotedFor:    3,
		Snapshot:    third,
		Start:       raft.LogPosition{Index: 20, Term: 4},
		Entries:     []raft.LogEntry{command(4, "z=21")},
	}, load(t, opened))
	b := make([]byte, len(secondData))
	require.NoError(t, opened.ReadSnapshot(second, 0, b))
	require.Equal(t, secondData, b)
}

// docs/storage.md shows the bytes of this directory as they are.
func TestDocsShowTheGoldenBytes(t *testing.T) {
	b, err := os.ReadFile("../../docs/storage.md")
	require.NoError(t, err)
	doc := string(b)
	for _, name := range []string{"identity", "peers"} {
		text, err := os.ReadFile(filepath.Join(golden, name))
		require.NoError(t, err)
		require.Contains(t, doc, "```\n"+string(text)+"```\n")
	}
	segment, err := os.ReadFile(filepath.Join(golden, segmentName(1)))
	require.NoError(t, err)
	require.Contains(t, doc, hexText(segment, 0, spans(segment)[2].end))

	snapshot, err := os.ReadFile(filepath.Join(goldenSnapshots, snapshotName(20)))
	require.NoError(t, err)
	require.Contains(t, doc, hexText(snapshot, 0, len(snapshot)))
	segment, err = os.ReadFile(filepath.Join(goldenSnapshots, segmentName(4)))
	require.NoError(t, err)
	places := spans(segment)
	reset := places[len(places)-2]
	require.Contains(t, doc, hexText(segment, reset.start, reset.end))
}

func hexText(b []byte, from, to int) string {
	var hex strings.Builder
	for at := from; at < to; at += 16 {
		fmt.Fprintf(&hex, "%08x  % x\n", at, b[at:min(at+16, to)])
	}
	return "```\n" + hex.String() + "```\n"
}
