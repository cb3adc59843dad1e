package storage_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/internal/simdisk"
	"raftkv/raft"
)

// threeBatches fills a segment with three batches of three records each and
// returns the state after each of them.
func threeBatches(t require.TestingT) (*simdisk.Disk, []raft.PersistentState) {
	disk := newDisk(1)
	s := open(t, disk)
	states := []raft.PersistentState{{}}
	for i := range 3 {
		term := raft.Term(i + 1)
		next := saveAt(term, raft.Index(2*i+1), entries(term, 2, 45+i)...)
		save(t, s, next)
		states = append(states, apply(states[i], next))
	}
	require.Len(t, spans(disk.ReadFile(segmentFile(1))), 9)
	return disk, states
}

// DK-02: each byte of a batch that was synced before a later one was written.
// Neither a server that starts with less than it has promised nor a changed
// file, which somebody might still repair, is acceptable.
func TestEveryByteOfAnEarlierBatchFlippedIsRefused(t *testing.T) {
	disk, _ := threeBatches(t)
	whole := disk.ReadFile(segmentFile(1))
	places := spans(whole)
	for _, place := range places[:6] { // of batches 1 and 2
		for at := place.start; at < place.end; at++ {
			for _, mask := range []byte{0x01, 0x80, 0xff} {
				damaged := slices.Clone(whole)
				damaged[at] ^= mask
				disk.WriteFile(segmentFile(1), damaged)
				corrupt := requireRefused(t, disk, segmentName(1), fmt.Sprintf("byte %d ^ %x", at, mask))
				require.EqualValues(t, place.start, corrupt.Offset)
			}
		}
	}
}

// The same in a segment that another one follows, up to its last byte. That the
// last segment is empty makes no difference: it was begun after a sync.
func TestEveryByteOfAnEarlierSegmentFlippedIsRefused(t *testing.T) {
	disk, _ := threeBatches(t)
	s := open(t, func() *simdisk.Disk { disk.Kill(); return disk }())
	save(t, s, saveAt(4, 7, entries(4, 5, 200)...))
	for _, lastIs := range []string{"whole", "empty"} {
		if lastIs == "empty" {
			last := disk.ReadFile(segmentFile(2))
			clear(last[64:])
			disk.WriteFile(segmentFile(2), last)
		}
		whole := disk.ReadFile(segmentFile(1))
		for at := range whole {
			damaged := slices.Clone(whole)
			damaged[at] ^= 0xff
			disk.WriteFile(segmentFile(1), damaged)
			requireRefused(t, disk, segmentName(1), fmt.Sprintf("byte %d, last segment %s", at, lastIs))
		}
		disk.WriteFile(segmentFile(1), whole)
	}
}

// The header of a segment is durable before the segment has its name, so even
// the last one's is never torn.
func TestEveryByteOfASegmentHeaderFlippedIsRefused(t *testing.T) {
	disk := newDisk(1)
	open(t, disk)
	whole := disk.ReadFile(segmentFile(1))
	for at := range 64 {
		damaged := slices.Clone(whole)
		damaged[at] ^= 0xff
		disk.WriteFile(segmentFile(1), damaged)
		requireRefused(t, disk, segmentName(1), fmt.Sprint("byte ", at))
	}
	for size := range 64 {
		disk.WriteFile(segmentFile(1), whole[:size])
		requireRefused(t, disk, segmentName(1), fmt.Sprint("size ", size))
	}
}

// Damage in the last batch cannot be told from a loss of power in the middle of
// its write: what comes before the damaged record is kept.
func TestEveryByteOfTheLastBatchFlippedKeepsWhatIsBefore(t *testing.T) {
	disk, states := threeBatches(t)
	whole := disk.ReadFile(segmentFile(1))
	places := spans(whole)
	last := saveAt(3, 5, entries(3, 2, 47)...)
	for i, place := range places[6:] {
		want := outcomes(states[2], last)[i]
		for at := place.start; at < place.end; at++ {
			damaged := slices.Clone(whole)
			damaged[at] ^= 0xff
			disk.WriteFile(segmentFile(1), damaged)
			require.Equal(t, want, reopen(t, disk), "byte %d", at)
		}
	}
}

// Sectors reach the disk in any order: every subset of those of the last batch
// may be missing, with later records of the batch whole behind the hole.
func TestHoleInsideTheLastBatch(t *testing.T) {
	disk := newDisk(1)
	o := options(disk)
	o.SegmentBytes = 8192
	s := openWith(t, o)
	save(t, s, saveAt(1, 1, entries(1, 3, 150)...))
	first := load(t, s)
	before := disk.ReadFile(segmentFile(1))
	last := saveAt(2, 3, entries(2, 20, 130)...)
	save(t, s, last)
	after := disk.ReadFile(segmentFile(1))
	require.NoError(t, s.Close())

	batch := spans(after)[4:]
	from, to := sectorsOf(batch)
	require.GreaterOrEqual(t, to-from, 7)
	holes := 0
	for subset := range 1 << (to - from) {
		torn, firstLost, whole := tear(before, after, batch, subset)
		disk.WriteFile(segmentFile(1), torn)
		if whole < len(batch) && !isZero(torn[firstLost:]) {
			holes++
		}
		disk.Kill()
		s := openWith(t, o)
		want := outcomes(first, last)[whole]
		require.Equal(t, want, load(t, s), "subset %b", subset)
		// DK-03: what is saved now stands where the torn records stood.
		next := saveAt(3, raft.Index(len(want.Entries)+1), command(3, "after the tear"))
		save(t, s, next)
		disk.Crash()
		require.Equal(t, apply(want, next), load(t, openWith(t, o)), "subset %b", subset)
	}
	require.Greater(t, holes, 50, "the test must meet records behind holes")
}

// A batch is missing in the middle, as if its write had been lost by a disk
// that said it was done.
func TestLostBatchIsRefused(t *testing.T) {
	disk, _ := threeBatches(t)
	whole := disk.ReadFile(segmentFile(1))
	places := spans(whole)
	clear(whole[places[3].start:places[5].end])
	disk.WriteFile(segmentFile(1), whole)
	corrupt := requireRefused(t, disk, segmentName(1), "")
	require.EqualValues(t, places[3].start, corrupt.Offset)
}

// The segment that follows says which batch it begins with, so even whole
// batches at the end of the one before are missed.
func TestLostEndOfAnEarlierSegmentIsRefused(t *testing.T) {
	disk, _ := threeBatches(t)
	disk.Kill()
	save(t, open(t, disk), saveAt(4, 7, entries(4, 5, 200)...))
	whole := disk.ReadFile(segmentFile(1))
	places := spans(whole)
	clear(whole[places[6].start:])
	for _, damaged := range [][]byte{whole, whole[:places[6].start]} {
		disk.WriteFile(segmentFile(1), damaged)
		corrupt := requireRefused(t, disk, segmentName(1), "")
		require.EqualValues(t, places[6].start, corrupt.Offset)
		require.Contains(t, corrupt.Reason, "batch 3 is missing")
	}
}

// DK-07: garbage behind the end is no log, whatever length it claims.
func TestTailOfGarbage(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	for name, fill := range map[string]func([]byte){
		"zeros": func(b []byte) { clear(b) },
		"0xFF":  func(b []byte) { copy(b, bytes.Repeat([]byte{0xff}, len(b))) },
		"random": func(b []byte) {
			for i := range b {
				b[i] = byte(rnd.Uint32())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			disk, states := threeBatches(t)
			whole := disk.ReadFile(segmentFile(1))
			end := spans(whole)[8].end
			for from := end; from < len(whole); from++ {
				damaged := slices.Clone(whole)
				fill(damaged[from:])
				disk.WriteFile(segmentFile(1), damaged)
				require.Equal(t, states[3], reopen(t, disk))
				require.Equal(t, whole, disk.ReadFile(segmentFile(1)), "the garbage is gone")
			}
		})
	}
}

// DK-01: the file ends anywhere within the last record.
func TestCutAtEveryByteOfTheLastRecord(t *testing.T) {
	disk, states := threeBatches(t)
	whole := disk.ReadFile(segmentFile(1))
	last := spans(whole)[8]
	for size := last.start; size <= last.end; size++ {
		disk.WriteFile(segmentFile(1), whole[:size])
		want := states[3]
		if size < last.end {
			want.Entries = want.Entries[:5]
		}
		require.Equal(t, want, reopen(t, disk), "size %d", size)

		disk.Kill()
		next := saveAt(4, raft.Index(len(want.Entries)+1), entries(4, 2, 100)...)
		save(t, open(t, disk), next)
		require.Equal(t, apply(want, next), reopen(t, disk), "size %d", size)

		// Back to one segment for the next round.
		require.NoError(t, disk.Remove(segmentFile(2)))
	}
}

// DK-03: a short batch is written over a long torn one. Were the rest of the
// torn one still there, it would now lie behind a later batch and look like it.
func TestTornTailIsRemovedBeforeTheNextAppend(t *testing.T) {
	disk := newDisk(1)
	s := open(t, disk)
	save(t, s, saveAt(1, 1, command(1, "x")), saveAt(2, 2, entries(2, 6, 20)...))
	torn := disk.ReadFile(segmentFile(1))
	places := spans(torn)
	torn[places[3].start] ^= 1 // the first entry of the last batch; five more are whole
	disk.WriteFile(segmentFile(1), torn)

	disk.Kill()
	s = open(t, disk)
	disk.Crash() // the removal is durable
	cut := disk.ReadFile(segmentFile(1))
	require.Equal(t, torn[:places[3].start], cut[:places[3].start])
	require.True(t, isZero(cut[places[3].start:]))

	s = open(t, disk)
	save(t, s, raft.Save{CurrentTerm: 3, VotedFor: 2}, raft.Save{CurrentTerm: 4, VotedFor: 3})
	want := raft.PersistentState{CurrentTerm: 4, VotedFor: 3, Entries: []raft.LogEntry{command(1, "x")}}
	require.Equal(t, want, reopen(t, disk))
}

// Checksums that are right over contents that make no sense are nobody's loss
// of power: even in the last batch they are refused and not cut off.
func TestNonsenseWithRightChecksumsIsRefused(t *testing.T) {
	const state, entry = 6, 8 // the first and the last record of the last batch
	for name, tc := range map[string]struct {
		record int
		change func(header, payload []byte)
	}{
		"unknown type":        {entry, func(h, _ []byte) { h[8] = 9 }},
		"reserved byte 9":     {entry, func(h, _ []byte) { h[9] = 1 }},
		"reserved byte 28":    {entry, func(h, _ []byte) { h[28] = 1 }},
		"another distance":    {entry, func(h, _ []byte) { h[12]++ }},
		"another batch":       {entry, func(h, _ []byte) { h[16]++ }},
		"index behind a hole": {entry, func(_, p []byte) { p[0] += 2 }},
		"index 0":             {entry, func(_, p []byte) { clear(p[:8]) }},
		"unknown entry kind":  {entry, func(_, p []byte) { p[16] = 77 }},
		"state in the middle": {entry, func(h, _ []byte) { h[8] = 1 }},
		"a batch left out":    {state, func(h, _ []byte) { h[16]++ }},
		"a batch twice":       {state, func(h, _ []byte) { h[16]-- }},
		"state with distance": {state, func(h, _ []byte) { h[12] = 8 }},
		"entry at the start":  {state, func(h, _ []byte) { h[8] = 2 }},
	} {
		disk, _ := threeBatches(t)
		b := disk.ReadFile(segmentFile(1))
		place := spans(b)[tc.record]
		header := b[place.start : place.start+32]
		payload := b[place.start+32 : place.start+32+int(binary.LittleEndian.Uint32(header[4:]))]
		tc.change(header, payload)
		rightChecksums(header, payload)
		disk.WriteFile(segmentFile(1), b)
		corrupt := requireRefused(t, disk, segmentName(1), name)
		require.EqualValues(t, place.start, corrupt.Offset, name)
	}
}

func TestSegmentsMissingOrMisplaced(t *testing.T) {
	build := func() *simdisk.Disk {
		disk := newDisk(1)
		_, _, err := run(disk, truncation)
		require.NoError(t, err)
		require.NotEmpty(t, disk.ReadFile(segmentFile(4)))
		return disk
	}
	disk := build()
	require.NoError(t, disk.Remove(segmentFile(1)))
	requireRefused(t, disk, segmentName(1), "the first is missing")

	disk = build()
	require.NoError(t, disk.Remove(segmentFile(2)))
	requireRefused(t, disk, segmentName(2), "one in the middle is missing")

	disk = build()
	disk.WriteFile(segmentFile(2), disk.ReadFile(segmentFile(3)))
	requireRefused(t, disk, segmentName(2), "one is another under its name")

	disk = build()
	foreign := newDisk(2)
	o := options(foreign)
	o.NewStoreID = func() raft.StoreID { return raft.StoreID{1} }
	openWith(t, o)
	disk.WriteFile(segmentFile(1), foreign.ReadFile(segmentFile(1)))
	corrupt := requireRefused(t, disk, segmentName(1), "one comes from another directory")
	require.Contains(t, corrupt.Reason, "another data directory")
}

// A client stores a copy of the log as a value. Its records are no records of
// this log: a torn tail in the middle of the value stays a torn tail.
func TestLogStoredAsAValueIsNoLaterBatch(t *testing.T) {
	disk, states := threeBatches(t)
	copyOfLog := disk.ReadFile(segmentFile(1))
	disk.Kill()
	// Shift the copy so that its records lie at multiples of 8 bytes in the file.
	value := raft.LogEntry{Term: 4, Command: append(make([]byte, 7), copyOfLog[64:]...)}
	next := saveAt(4, 7, value)
	save(t, open(t, disk), next)
	b := disk.ReadFile(segmentFile(2))
	at := spans(b)[1].start
	require.True(t, bytes.Equal(b[at+56:at+56+100], copyOfLog[64:164]))
	b[at] ^= 1
	disk.WriteFile(segmentFile(2), b)
	want := apply(states[3], raft.Save{CurrentTerm: 4, VotedFor: 1})
	require.Equal(t, want, reopen(t, disk))
}

func isZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }
