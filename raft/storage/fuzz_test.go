package storage_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/raft"
	"raftkv/raft/storage"
)

// FuzzRecovery starts a server from a segment that holds anything. With mend,
// the checksums of whatever looks like a record are made right first, so that
// the fuzzer gets past them. Either the directory is refused and unchanged, or
// it opens and is a storage like any other.
func FuzzRecovery(f *testing.F) {
	disk, _ := threeBatches(f)
	whole := disk.ReadFile(segmentFile(1))[64:]
	end := spans(disk.ReadFile(segmentFile(1)))[8].end - 64
	f.Add([]byte{}, false)
	f.Add(whole, false)
	f.Add(whole[:end], false)
	f.Add(whole[:end-30], false)
	f.Add(append(make([]byte, 200), whole[200:]...), false)
	f.Add(slices.Repeat([]byte{0xff}, 300), false)
	f.Add(slices.Repeat([]byte{1, 0, 0, 0, 0, 0, 0, 0}, 60), true)
	f.Fuzz(func(t *testing.T, records []byte, mend bool) {
		disk := newDisk(1)
		open(t, disk)
		disk.Kill()
		segment := append(disk.ReadFile(segmentFile(1))[:64], records...)
		if mend {
			mendRecords(segment)
		}
		disk.WriteFile(segmentFile(1), segment)
		before := contents(t, disk)

		dumpErr := storage.Dump(&strings.Builder{}, dir, disk)
		s, err := storage.Open(dir, options(disk))
		require.Equal(t, err == nil, dumpErr == nil, "Dump and Open agree")
		if err != nil {
			var corrupt *storage.CorruptError
			require.True(t, errors.As(err, &corrupt), err)
			require.Equal(t, before, contents(t, disk))
			return
		}
		found := load(t, s)
		disk.Crash()
		s = open(t, disk)
		require.Equal(t, found, load(t, s))
		next := saveAt(5, raft.Index(len(found.Entries)+1), entries(5, 2, 50)...)
		save(t, s, next)
		require.Equal(t, apply(found, next), reopen(t, disk))
	})
}

func mendRecords(segment []byte) {
	for at := 64; at+32 <= len(segment); {
		n := int(binary.LittleEndian.Uint32(segment[at+4:]) % 256)
		n = min(n, len(segment)-at-32)
		binary.LittleEndian.PutUint32(segment[at+4:], uint32(n))
		rightChecksums(segment[at:at+32], segment[at+32:at+32+n])
		at += (32 + n + 7) / 8 * 8
	}
}
