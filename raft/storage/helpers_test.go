package storage_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/internal/simdisk"
	"raftkv/raft"
	"raftkv/raft/storage"
)

// The directory of all tests on a simulated disk, two levels deep so that the
// first start has to make two.
var dir = filepath.Join(string(filepath.Separator)+"var", "raftkv")

// segmentBytes is small, so that a few saves fill several segments.
const segmentBytes = 1024

var identity = storage.NewIdentity("test", 1, []storage.Member{{ID: 1, Addr: "a:1"}, {ID: 2, Addr: "b:2"}, {ID: 3, Addr: "c:3"}})

var storeID = raft.StoreID{0: 0x5e, 15: 0xed}

func options(disk *simdisk.Disk) storage.Options {
	return storage.Options{
		FS:           disk,
		Identity:     identity,
		SegmentBytes: segmentBytes,
		NewStoreID:   func() raft.StoreID { return storeID },
	}
}

func newDisk(seed uint64) *simdisk.Disk { return simdisk.New(rand.New(rand.NewPCG(seed, 0))) }

func open(t require.TestingT, disk *simdisk.Disk) *storage.FileStorage {
	s, err := storage.Open(dir, options(disk))
	require.NoError(t, err)
	return s
}

func load(t require.TestingT, s storage.Storage) raft.PersistentState {
	state, err := s.Load()
	require.NoError(t, err)
	return state
}

// reopen is the death of the process and the next start: what Save has
// returned must be there.
func reopen(t require.TestingT, disk *simdisk.Disk) raft.PersistentState {
	disk.Kill()
	return load(t, open(t, disk))
}

// contents returns all files of the directory.
func contents(t require.TestingT, disk *simdisk.Disk) map[string]string {
	names, err := disk.ReadDir(dir)
	require.NoError(t, err)
	files := map[string]string{}
	for _, name := range names {
		files[name] = string(disk.ReadFile(filepath.Join(dir, name)))
	}
	return files
}

// requireRefused makes sure that the directory is refused as corrupt, in one
// line that names the file, and that nothing is changed.
func requireRefused(t require.TestingT, disk *simdisk.Disk, file string, msg string) *storage.CorruptError {
	disk.Kill()
	before := contents(t, disk)
	_, err := storage.Open(dir, options(disk))
	var corrupt *storage.CorruptError
	require.ErrorAs(t, err, &corrupt, msg)
	require.Equal(t, filepath.Join(dir, file), corrupt.File, msg)
	require.NotContains(t, err.Error(), "\n")
	require.Equal(t, before, contents(t, disk), msg)
	return corrupt
}

func command(term raft.Term, text string) raft.LogEntry {
	return raft.LogEntry{Term: term, Kind: raft.EntryCommand, Command: []byte(text)}
}

// entries returns n entries whose commands are of the given size.
func entries(term raft.Term, n, size int) []raft.LogEntry {
	es := make([]raft.LogEntry, n)
	for i := range es {
		text := fmt.Sprintf("term %d, number %d ", term, i)
		for len(text) < size {
			text += "."
		}
		es[i] = command(term, text[:size])
	}
	return es
}

func saveAt(term raft.Term, first raft.Index, es ...raft.LogEntry) raft.Save {
	return raft.Save{CurrentTerm: term, VotedFor: 1, FirstIndex: first, Entries: es}
}

// apply is what a Save means, said as plainly as possible: the slow twin that
// the storages are compared with.
func apply(state raft.PersistentState, s raft.Save) raft.PersistentState {
	next := raft.PersistentState{CurrentTerm: s.CurrentTerm, VotedFor: s.VotedFor}
	for i, e := range state.Entries {
		if s.FirstIndex == 0 || raft.Index(i+1) < s.FirstIndex {
			next.Entries = append(next.Entries, e)
		}
	}
	next.Entries = append(next.Entries, s.Entries...)
	return next
}

// outcomes returns everything that a crash within a Save may leave: the state
// before, then term and vote, then one entry more at a time.
func outcomes(state raft.PersistentState, s raft.Save) []raft.PersistentState {
	all := []raft.PersistentState{state}
	all = append(all, apply(state, raft.Save{CurrentTerm: s.CurrentTerm, VotedFor: s.VotedFor}))
	for n := 1; n <= len(s.Entries); n++ {
		part := s
		part.Entries = s.Entries[:n]
		all = append(all, apply(state, part))
	}
	return all
}

// spans returns the places of the records in a segment, written down here a
// second time from docs/storage.md.
type span struct{ start, end int }

func spans(segment []byte) []span {
	var all []span
	for at := 64; at+32 <= len(segment); {
		n := int(binary.LittleEndian.Uint32(segment[at+4:]))
		if n == 0 {
			break
		}
		end := at + (32+n+7)/8*8
		all = append(all, span{at, end})
		at = end
	}
	return all
}

// sectorsOf returns the sectors, from and up to, in which a batch stands.
func sectorsOf(batch []span) (from, to int) {
	return batch[0].start / simdisk.SectorSize, (batch[len(batch)-1].end + simdisk.SectorSize - 1) / simdisk.SectorSize
}

// tear returns the segment after a loss of power while a batch was written: of its
// sectors those in subset have come, a bit for each. firstLost is where the first
// hole begins, and whole how many records are complete before it.
func tear(before, after []byte, batch []span, subset int) (torn []byte, firstLost, whole int) {
	torn, firstLost = slices.Clone(before), batch[len(batch)-1].end
	from, to := sectorsOf(batch)
	for i := range to - from {
		lo, hi := (from+i)*simdisk.SectorSize, (from+i+1)*simdisk.SectorSize
		if subset>>i&1 == 1 {
			copy(torn[lo:hi], after[lo:hi])
		} else {
			firstLost = min(firstLost, max(lo, batch[0].start))
		}
	}
	for _, place := range batch {
		if place.end <= firstLost {
			whole++
		}
	}
	return torn, firstLost, whole
}

func save(t require.TestingT, s storage.Storage, saves ...raft.Save) {
	for _, sv := range saves {
		require.NoError(t, s.Save(sv))
	}
}

func testSeeds(t *testing.T, n int, run func(t *testing.T, seed uint64)) {
	for seed := range uint64(n) {
		if !t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { run(t, seed) }) {
			return
		}
	}
}

func segmentFile(n int) string { return filepath.Join(dir, segmentName(n)) }
func segmentName(n int) string { return fmt.Sprintf("log-%010d", n) }

func openWith(t require.TestingT, o storage.Options) *storage.FileStorage {
	s, err := storage.Open(dir, o)
	require.NoError(t, err)
	return s
}

// rightChecksums makes a record's checksums right again, as docs/storage.md
// defines them: CRC32C over the store id and then the bytes.
func rightChecksums(header, payload []byte) {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := func(b []byte) uint32 { return crc32.Checksum(append(storeID[:], b...), table) }
	binary.LittleEndian.PutUint32(header[24:], sum(payload))
	binary.LittleEndian.PutUint32(header, sum(header[4:]))
}
