package storage_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/internal/simdisk"
	"raftkv/raft"
	"raftkv/raft/storage"
)

// twoSnapshots returns a disk with snapshots 4 and 9 and the log from some entry
// up to 4 on to 14, and what a server finds there.
func twoSnapshots(t require.TestingT) (*simdisk.Disk, twin) {
	disk := newDisk(1)
	s := open(t, disk)
	var w twin
	for _, p := range life[:6] {
		require.NoError(t, p.do(s), p.name)
		w = p.done(w)
	}
	return disk, w
}

// DK-06: the newest snapshot is damaged anywhere. The log reaches back to the one
// before, so the server starts from there, says so in one line, and leaves the
// damaged file for people to see until it has a newer one.
func TestDamagedNewestSnapshotFallsBack(t *testing.T) {
	disk, w := twoSnapshots(t)
	whole := disk.ReadFile(snapshotFile(9))
	older := w
	older.snapshots = older.snapshots[:1]
	damages := map[string][]byte{"empty": {}, "longer": append(slices.Clone(whole), 0)}
	for at := range whole {
		damaged := slices.Clone(whole)
		damaged[at] ^= 0xff
		damages[fmt.Sprint("byte ", at)] = damaged
		damages[fmt.Sprint("cut at ", at)] = whole[:at]
	}
	for name, damaged := range damages {
		disk.Kill()
		disk.WriteFile(snapshotFile(9), damaged)
		s := open(t, disk)
		requireFound(t, s, []twin{older})
		require.Len(t, s.Warnings(), 1, name)
		require.Contains(t, s.Warnings()[0], snapshotName(9)+" is damaged at offset ")
		require.NotContains(t, s.Warnings()[0], "\n")
		require.Equal(t, damaged, disk.ReadFile(snapshotFile(9)), name)
	}

	// The server applies the log once more and takes the same snapshot again.
	s := open(t, func() *simdisk.Disk { disk.Kill(); return disk }())
	require.NoError(t, taking(9, 1).do(s))
	disk.Crash()
	s = open(t, disk)
	requireFound(t, s, []twin{w})
	require.Empty(t, s.Warnings())
	require.Equal(t, whole, disk.ReadFile(snapshotFile(9)))
}

// With one snapshot the other way to start is the log from the beginning.
func TestDamagedOnlySnapshotFallsBackToTheLog(t *testing.T) {
	disk := newDisk(1)
	s := open(t, disk)
	var w twin
	for _, p := range life[:3] {
		require.NoError(t, p.do(s), p.name)
		w = p.done(w)
	}
	disk.BitFlip(snapshotFile(4), 300)
	disk.Kill()
	s = open(t, disk)
	w.snapshots = nil
	requireFound(t, s, []twin{w})
	require.Len(t, s.Warnings(), 1)
}

// Where the log begins behind it, a damaged snapshot is the end of the server: it
// would start with less than it has promised.
func TestDamagedSnapshotWithoutALogIsRefused(t *testing.T) {
	disk := newDisk(1)
	s := open(t, disk)
	for _, p := range life[:15] { // the last is the compaction behind snapshot 20
		require.NoError(t, p.do(s), p.name)
	}
	whole := disk.ReadFile(snapshotFile(20))
	for at := range whole {
		damaged := slices.Clone(whole)
		damaged[at] ^= 0xff
		disk.WriteFile(snapshotFile(20), damaged)
		corrupt := requireRefused(t, disk, snapshotName(20), fmt.Sprint("byte ", at))
		require.Contains(t, corrupt.Reason, "without this snapshot the log, which begins behind index 20, is of no use")
	}
	require.NoError(t, disk.Remove(snapshotFile(20)))
	corrupt := requireRefused(t, disk, snapshotName(20), "missing")
	require.Contains(t, corrupt.Reason, "it is missing, and the log goes on behind it")
}

// Both damaged, and the beginning of the log is gone.
func TestTwoDamagedSnapshotsAreRefused(t *testing.T) {
	disk, _ := twoSnapshots(t)
	require.Nil(t, disk.ReadFile(segmentFile(1)))
	disk.BitFlip(snapshotFile(9), 300)
	disk.BitFlip(snapshotFile(4), 20)
	requireRefused(t, disk, snapshotName(9), "")
	require.NoError(t, disk.Remove(snapshotFile(9)))
	requireRefused(t, disk, snapshotName(4), "")
	require.NoError(t, disk.Remove(snapshotFile(4)))
	corrupt := requireRefused(t, disk, segmentName(1), "")
	require.Contains(t, corrupt.Reason, "no snapshot stands for what it held")
}

// The end of the log is gone, and with it perhaps a vote. If a snapshot shows it,
// the server does not start.
func TestLogOfAnOlderTermThanTheSnapshotIsRefused(t *testing.T) {
	disk := newDisk(1)
	s := open(t, disk)
	save(t, s, saveAt(1, 1, entries(1, 3, 30)...))
	before := disk.ReadFile(segmentFile(1))
	save(t, s, raft.Save{CurrentTerm: 5})
	require.NoError(t, receiving(9, 5).do(s))
	disk.WriteFile(segmentFile(1), before)
	corrupt := requireRefused(t, disk, segmentName(1), "")
	require.Contains(t, corrupt.Reason, "the last term in the log is 1, but snapshot 9 is of term 5")
}

func TestSnapshotMisplaced(t *testing.T) {
	disk, w := twoSnapshots(t)
	other := newDisk(2)
	o := options(other)
	o.NewStoreID = func() raft.StoreID { return raft.StoreID{1} }
	s := openWith(t, o)
	save(t, s, saveAt(1, 1, entries(1, 12, 30)...))
	require.NoError(t, taking(9, 1).do(s))
	older := w
	older.snapshots = older.snapshots[:1]
	for reason, data := range map[string][]byte{
		"it belongs to another data directory": other.ReadFile(snapshotFile(9)),
		"it is snapshot 4 under another name":  disk.ReadFile(snapshotFile(4)),
	} {
		disk.Kill()
		disk.WriteFile(snapshotFile(9), data)
		s := open(t, disk)
		requireFound(t, s, []twin{older})
		require.Contains(t, s.Warnings()[0], reason)
	}
}

func TestSnapshotOfANewerVersionIsRefused(t *testing.T) {
	disk, _ := twoSnapshots(t)
	whole := disk.ReadFile(snapshotFile(9))
	binary.LittleEndian.PutUint32(whole[8:], 2)
	rightHeader(whole)
	disk.WriteFile(snapshotFile(9), whole)
	disk.Kill()
	_, err := storage.Open(dir, options(disk))
	require.ErrorIs(t, err, storage.ErrNewerVersion)
	require.Contains(t, err.Error(), snapshotFile(9))
}

// rightHeader makes the checksum of a snapshot's header right again, as
// docs/storage.md defines it.
func rightHeader(b []byte) {
	n := min(72+int(binary.LittleEndian.Uint32(b[52:])), len(b))
	covered := append(slices.Clone(b[:12]), b[16:n]...)
	binary.LittleEndian.PutUint32(b[12:], crc32.Checksum(covered, crc32.MakeTable(crc32.Castagnoli)))
}

// A snapshot that rots while the server runs does not end like a whole one.
func TestReaderNoticesDamage(t *testing.T) {
	disk := newDisk(1)
	s := open(t, disk)
	save(t, s, saveAt(1, 1, entries(1, 3, 30)...))
	require.NoError(t, taking(3, 1).do(s))
	disk.BitFlip(snapshotFile(3), 400)
	r, err := s.OpenSnapshot(3)
	require.NoError(t, err)
	var corrupt *storage.CorruptError
	_, err = io.ReadAll(r)
	require.ErrorAs(t, err, &corrupt)
}

// An entry at or below the place of a Reset, and other nonsense with checksums
// that are right, is nobody's loss of power.
func TestResetNonsenseIsRefused(t *testing.T) {
	for name, change := range map[string]func(reset, entry []byte){
		"to index 0":             func(p, _ []byte) { clear(p[:8]) },
		"an entry before it":     func(_, e []byte) { e[0] = 9 },
		"an entry far behind it": func(_, e []byte) { e[0] = 11 },
	} {
		disk := newDisk(1)
		s := open(t, disk)
		save(t, s, saveAt(1, 1, entries(1, 3, 30)...))
		require.NoError(t, receiving(9, 1).do(s))
		save(t, s, raft.Save{CurrentTerm: 1, Reset: raft.LogPosition{Index: 9, Term: 1}, FirstIndex: 10, Entries: entries(1, 1, 30)})
		b := disk.ReadFile(segmentFile(1))
		places := spans(b)
		reset, entry := b[places[5].start:places[5].end], b[places[6].start:places[6].end]
		change(reset[32:], entry[32:])
		rightChecksums(reset[:32], reset[32:48])
		rightChecksums(entry[:32], entry[32:32+binary.LittleEndian.Uint32(entry[4:])])
		disk.WriteFile(segmentFile(1), b)
		requireRefused(t, disk, segmentName(1), name)
	}
}

// FuzzSnapshotFile starts a server from two snapshots of which the newest is
// anything. With mend its header's checksum is made right first. The server
// starts from one of them, or is refused for a newer version, and Dump says the same.
func FuzzSnapshotFile(f *testing.F) {
	disk, _ := twoSnapshots(f)
	whole := disk.ReadFile(snapshotFile(9))
	f.Add(whole, false)
	f.Add(whole, true)
	f.Add(whole[:80], true)
	f.Add(whole[:72], true)
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, data []byte, mend bool) {
		if data = slices.Clone(data); mend && len(data) >= 72 {
			rightHeader(data)
		}
		disk, w := twoSnapshots(t)
		disk.Kill()
		disk.WriteFile(snapshotFile(9), data)
		before := contents(t, disk)
		dumpErr := storage.Dump(&strings.Builder{}, dir, disk)
		s, err := storage.Open(dir, options(disk))
		require.Equal(t, err == nil, dumpErr == nil, "Dump and Open agree")
		if err != nil {
			var corrupt *storage.CorruptError
			require.True(t, errors.Is(err, storage.ErrNewerVersion) || errors.As(err, &corrupt), err)
			require.Equal(t, before, contents(t, disk))
			return
		}
		if len(s.Warnings()) > 0 {
			w.snapshots = w.snapshots[:1]
			requireFound(t, s, []twin{w})
			return
		}
		r, err := s.OpenSnapshot(9)
		require.NoError(t, err)
		_, err = io.ReadAll(r)
		require.NoError(t, err, "what was accepted can be read")
	})
}
