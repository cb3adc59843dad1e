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

	names, err := storage.OSFS{}.ReadDir(golden)
	require.NoError(t, err)
	require.Equal(t, []string{"identity", "log-0000000001", "log-0000000002", "peers"}, names)
	copied := t.TempDir()
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(golden, name))
		require.NoError(t, err)
		require.Equal(t, []byte(written[name]), b, name)
		require.NoError(t, os.WriteFile(filepath.Join(copied, name), b, 0o600))
	}

	opened, err := storage.Open(copied, storage.Options{Identity: identity})
	require.NoError(t, err)
	defer opened.Close()
	require.Equal(t, model, load(t, opened))
	require.Equal(t, map[raft.ServerID]raft.StoreID{2: {0x22, 15: 0x01}, 3: {0x33, 15: 0x02}}, opened.KnownStores())
	require.Equal(t, storeID, opened.StoreID())
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(copied, name))
		require.NoError(t, err)
		require.Equal(t, written[name], string(b), "opening changes nothing in %s", name)
	}
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
	var hex strings.Builder
	end := spans(segment)[2].end
	for at := 0; at < end; at += 16 {
		fmt.Fprintf(&hex, "%08x  % x\n", at, segment[at:min(at+16, end)])
	}
	require.Contains(t, doc, "```\n"+hex.String()+"```\n")
}
