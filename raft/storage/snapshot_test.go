package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"raftkv/raft"
	"raftkv/raft/storage"
)

// twoServers is a configuration with everything in it.
var twoServers = raft.Configuration{
	Voters:    []raft.ServerID{1, 2},
	OldVoters: []raft.ServerID{1},
	Learners:  []raft.ServerID{5},
	Addresses: []raft.Address{{ID: 1, Addr: "a:1"}, {ID: 2, Addr: "b:2", Since: 3}},
}

// snapshotOf describes a snapshot with the given bytes.
func snapshotOf(index raft.Index, term raft.Term, data []byte) raft.Snapshot {
	return raft.Snapshot{
		Index: index, Term: term,
		Configuration: twoServers, ConfigurationIndex: index / 2,
		Size: uint64(len(data)), Checksum: crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)),
	}
}

// stateAt is what a state machine might write at an index: n bytes.
func stateAt(index raft.Index, n int) []byte {
	text := fmt.Appendf(nil, "the state after entry %d, ", index)
	return bytes.Repeat(text, n/len(text)+1)[:n]
}

// take takes a snapshot in several writes.
func take(s storage.Storage, snapshot raft.Snapshot, data []byte) error {
	description := snapshot
	description.Size, description.Checksum = 0, 0
	w, err := s.CreateSnapshot(description)
	if err != nil {
		return err
	}
	defer w.Abort()
	for part := range parts(data, 100) {
		if n, err := w.Write(part); err != nil {
			return err
		} else if n != len(part) {
			return io.ErrShortWrite
		}
	}
	taken, err := w.Commit()
	if err == nil && !reflect.DeepEqual(taken, snapshot) {
		return fmt.Errorf("taken %v instead of %v", taken, snapshot)
	}
	return err
}

// receive receives a snapshot in parts.
func receive(s storage.Storage, snapshot raft.Snapshot, data []byte) error {
	at := uint64(0)
	for part := range parts(data, 300) {
		if err := s.Receive(raft.Chunk{Snapshot: snapshot, Offset: at, Data: part}); err != nil {
			return err
		}
		at += uint64(len(part))
	}
	return nil
}

func parts(data []byte, n int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(data) > 0 {
			part := data[:min(n, len(data))]
			if data = data[len(part):]; !yield(part) {
				return
			}
		}
	}
}

func snapshotFile(index int) string { return filepath.Join(dir, snapshotName(index)) }
func snapshotName(index int) string { return fmt.Sprintf("snapshot-%020d", index) }

// both runs a test with a MapStorage and with a FileStorage.
func both(t *testing.T, test func(t *testing.T, s storage.Storage)) {
	t.Run("memory", func(t *testing.T) { test(t, storage.NewMapStorage()) })
	t.Run("files", func(t *testing.T) { test(t, open(t, newDisk(1))) })
}

func TestTakenAndReceivedSnapshotsCanBeRead(t *testing.T) {
	both(t, func(t *testing.T, s storage.Storage) {
		save(t, s, saveAt(3, 1, entries(3, 20, 30)...))
		for i, put := range []func(storage.Storage, raft.Snapshot, []byte) error{take, receive} {
			index := raft.Index(7 + 3*i)
			data := stateAt(index, 1500)
			snapshot := snapshotOf(index, 3, data)
			require.NoError(t, put(s, snapshot, data))

			r, err := s.OpenSnapshot(index)
			require.NoError(t, err)
			read, err := io.ReadAll(r)
			require.NoError(t, err)
			require.Equal(t, data, read)
			require.NoError(t, r.Close())
			for at := 0; at < len(data); at += 400 {
				b := make([]byte, min(400, len(data)-at))
				require.NoError(t, s.ReadSnapshot(snapshot, uint64(at), b))
				require.Equal(t, data[at:at+len(b)], b)
			}
			require.ErrorIs(t, s.ReadSnapshot(snapshot, 1400, make([]byte, 101)), io.ErrUnexpectedEOF)
			other := snapshot
			other.Checksum++
			require.ErrorIs(t, s.ReadSnapshot(other, 0, make([]byte, 1)), storage.ErrNoSnapshot)
			_, err = s.OpenSnapshot(index + 1)
			require.ErrorIs(t, err, storage.ErrNoSnapshot)

			state := load(t, s)
			require.Equal(t, snapshot, state.Snapshot)
			require.Zero(t, state.Start)
			require.Len(t, state.Entries, 20)
		}
	})
}

// SN-04: a snapshot that takes long must not replace one that came meanwhile.
func TestOlderSnapshotNeverReplacesANewerOne(t *testing.T) {
	both(t, func(t *testing.T, s storage.Storage) {
		save(t, s, saveAt(2, 1, entries(2, 10, 30)...))
		slow, err := s.CreateSnapshot(raft.Snapshot{Index: 10, Term: 2, Configuration: twoServers})
		require.NoError(t, err)
		_, err = slow.Write(stateAt(10, 500))
		require.NoError(t, err)

		newer := snapshotOf(20, 2, stateAt(20, 700))
		require.NoError(t, receive(s, newer, stateAt(20, 700)))
		save(t, s, raft.Save{CurrentTerm: 2, Reset: raft.LogPosition{Index: 20, Term: 2}, FirstIndex: 21, Entries: entries(2, 2, 30)})
		require.NoError(t, s.Compact(20))

		_, err = slow.Commit()
		require.ErrorIs(t, err, storage.ErrOlderSnapshot)
		_, err = s.OpenSnapshot(10)
		require.ErrorIs(t, err, storage.ErrNoSnapshot)
		for _, late := range []raft.Index{10, 20} {
			_, err = s.CreateSnapshot(raft.Snapshot{Index: late, Term: 2})
			require.ErrorIs(t, err, storage.ErrOlderSnapshot)
		}
		// One that is received is as well as there: the newer stands for it.
		require.NoError(t, receive(s, snapshotOf(15, 2, stateAt(15, 90)), stateAt(15, 90)))

		state := load(t, s)
		require.Equal(t, newer, state.Snapshot)
		require.Equal(t, raft.LogPosition{Index: 20, Term: 2}, state.Start)
		require.Len(t, state.Entries, 2)
	})
}

func TestOneSnapshotIsTakenAtATime(t *testing.T) {
	both(t, func(t *testing.T, s storage.Storage) {
		save(t, s, saveAt(1, 1, entries(1, 10, 30)...))
		first, err := s.CreateSnapshot(raft.Snapshot{Index: 3, Term: 1})
		require.NoError(t, err)
		_, err = s.CreateSnapshot(raft.Snapshot{Index: 4, Term: 1})
		require.ErrorIs(t, err, storage.ErrSnapshotUnderWay)
		require.NoError(t, receive(s, snapshotOf(5, 1, stateAt(5, 700)), stateAt(5, 700)), "receiving is another thing")

		first.Abort()
		first.Abort()
		_, err = first.Commit()
		require.ErrorIs(t, err, storage.ErrClosed)
		require.NoError(t, take(s, snapshotOf(6, 1, stateAt(6, 700)), stateAt(6, 700)))
		first.Abort()
	})
}

// SN-07: parts come in order, and a first part begins anew, whatever came before.
func TestPartsOfASnapshot(t *testing.T) {
	both(t, func(t *testing.T, s storage.Storage) {
		save(t, s, saveAt(1, 1, entries(1, 2, 30)...))
		data := stateAt(9, 600)
		snapshot := snapshotOf(9, 1, data)
		part := func(from, to int) raft.Chunk {
			return raft.Chunk{Snapshot: snapshot, Offset: uint64(from), Data: data[from:to]}
		}
		require.ErrorIs(t, s.Receive(part(200, 400)), storage.ErrBadChunk, "nothing has come")
		require.NoError(t, s.Receive(part(0, 200)))
		require.ErrorIs(t, s.Receive(part(100, 200)), storage.ErrBadChunk, "it has come")
		require.ErrorIs(t, s.Receive(part(300, 400)), storage.ErrBadChunk, "a hole")
		other := part(200, 400)
		other.Snapshot.Checksum++
		require.ErrorIs(t, s.Receive(other), storage.ErrBadChunk, "of another snapshot")
		long := part(200, 600)
		long.Data = append(long.Data[:400:400], 'x')
		require.ErrorIs(t, s.Receive(long), storage.ErrBadChunk, "more than the whole")
		require.ErrorIs(t, s.Receive(raft.Chunk{}), storage.ErrBadChunk, "of none")
		require.NoError(t, s.Receive(part(200, 400)), "none of them has done anything")

		require.NoError(t, s.Receive(part(0, 300)), "from the beginning")
		wrong := part(300, 600)
		wrong.Data = append([]byte{}, wrong.Data...)
		wrong.Data[7] ^= 1
		require.ErrorIs(t, s.Receive(wrong), storage.ErrDamagedSnapshot)
		require.ErrorIs(t, s.Receive(part(300, 600)), storage.ErrBadChunk, "it was dropped")
		require.Zero(t, load(t, s).Snapshot)
		require.NoError(t, receive(s, snapshot, data))
		require.Equal(t, snapshot, load(t, s).Snapshot)
	})
}

// A Reset is one more thing that a Save can say; nothing is left of before.
func TestReset(t *testing.T) {
	both(t, func(t *testing.T, s storage.Storage) {
		save(t, s, saveAt(2, 1, entries(2, 12, 30)...))
		to := raft.LogPosition{Index: 9, Term: 3}
		require.ErrorIs(t, s.Save(raft.Save{CurrentTerm: 3, Reset: to}), storage.ErrBadSave, "no snapshot stands for the log")
		require.NoError(t, receive(s, snapshotOf(9, 3, stateAt(9, 50)), stateAt(9, 50)))
		for name, bad := range map[string]raft.Save{
			"behind the snapshot":     {CurrentTerm: 3, Reset: raft.LogPosition{Index: 10, Term: 3}},
			"entries before the log":  {CurrentTerm: 3, Reset: to, FirstIndex: 9, Entries: entries(3, 1, 20)},
			"entries with a hole":     {CurrentTerm: 3, Reset: to, FirstIndex: 11, Entries: entries(3, 1, 20)},
			"an end without an entry": {CurrentTerm: 3, Reset: to, FirstIndex: 10},
		} {
			require.ErrorIs(t, s.Save(bad), storage.ErrBadSave, name)
		}
		save(t, s, raft.Save{CurrentTerm: 3, VotedFor: 2, Reset: to})
		require.ErrorIs(t, s.Save(saveAt(3, 9, command(3, "x"))), storage.ErrBadSave, "the log begins behind it")
		save(t, s, saveAt(3, 10, command(3, "x"), command(3, "y")), saveAt(3, 11, command(3, "z")))
		state := load(t, s)
		require.Equal(t, to, state.Start)
		require.Equal(t, []raft.LogEntry{command(3, "x"), command(3, "z")}, state.Entries)
	})
}

// One Save is one batch, with a Reset or without.
func TestResetIsOneWriteAndOneSync(t *testing.T) {
	disk := newDisk(1)
	s := open(t, disk)
	save(t, s, saveAt(1, 1, entries(1, 2, 20)...))
	require.NoError(t, receive(s, snapshotOf(9, 1, stateAt(9, 50)), stateAt(9, 50)))
	before := disk.Counters().Ops
	save(t, s, raft.Save{CurrentTerm: 1, Reset: raft.LogPosition{Index: 9, Term: 1}, FirstIndex: 10, Entries: entries(1, 2, 20)})
	require.Equal(t, before+2, disk.Counters().Ops)
}

// What Compact leaves: two snapshots, the log from the older one on, and every
// snapshot that may still be wanted.
func TestCompactKeepsTwoWaysToStart(t *testing.T) {
	both(t, func(t *testing.T, s storage.Storage) {
		has := func(indexes ...raft.Index) {
			t.Helper()
			for index := raft.Index(1); index <= 60; index++ {
				r, err := s.OpenSnapshot(index)
				if slices.Contains(indexes, index) {
					require.NoError(t, err, "snapshot %d", index)
					require.NoError(t, r.Close())
				} else {
					require.ErrorIs(t, err, storage.ErrNoSnapshot, "snapshot %d", index)
				}
			}
		}
		put := func(index raft.Index) {
			require.NoError(t, take(s, snapshotOf(index, 1, stateAt(index, 300)), stateAt(index, 300)))
		}
		for i := range 60 {
			save(t, s, saveAt(1, raft.Index(i+1), entries(1, 1, 150)...))
		}
		put(10)
		require.NoError(t, s.Compact(10))
		require.Zero(t, load(t, s).Start, "with one snapshot the other way is the whole log")
		put(20)
		put(30)
		put(40)
		require.NoError(t, s.Compact(20))
		has(20, 30, 40)
		require.NoError(t, s.Compact(40))
		has(30, 40)
		state := load(t, s)
		require.LessOrEqual(t, state.Start.Index, raft.Index(30))
		require.GreaterOrEqual(t, state.Start.Index, raft.Index(28), "a segment holds three of these entries")
		require.EqualValues(t, 60, state.Start.Index+raft.Index(len(state.Entries)))
		require.NoError(t, s.Compact(40), "again")
		has(30, 40)
	})
}

// Memory and disk go with what is left, not with what was. The same Save is also
// never a different one because something was compacted.
func TestCompactFreesSegments(t *testing.T) {
	disk := newDisk(1)
	s := open(t, disk)
	index := raft.Index(0)
	most := 0
	for range 40 {
		for range 10 {
			save(t, s, saveAt(1, index+1, entries(1, 3, 100)...))
			index += 3
		}
		require.NoError(t, take(s, snapshotOf(index, 1, stateAt(index, 300)), stateAt(index, 300)))
		require.NoError(t, s.Compact(index))
		names, err := disk.ReadDir(dir)
		require.NoError(t, err)
		most = max(most, len(names))
	}
	require.Less(t, most, 20)
	require.LessOrEqual(t, len(load(t, s).Entries), 40)
}

// Nothing from before a Reset can be of use, even to a server with one snapshot.
func TestCompactFreesWhatIsBeforeAReset(t *testing.T) {
	disk := newDisk(1)
	s := open(t, disk)
	for i := range 12 {
		save(t, s, saveAt(1, raft.Index(i+1), entries(1, 1, 150)...))
	}
	require.NoError(t, receive(s, snapshotOf(50, 1, stateAt(50, 300)), stateAt(50, 300)))
	save(t, s, raft.Save{CurrentTerm: 1, Reset: raft.LogPosition{Index: 50, Term: 1}, FirstIndex: 51, Entries: entries(1, 1, 150)})
	require.NoError(t, s.Compact(50))
	names, err := disk.ReadDir(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"identity", "lock", segmentName(5), "peers", snapshotName(50)}, names)
}

// A Load without a restart fits log and snapshot together as well, and the log
// goes on from there.
func TestLoadBetweenSnapshotAndReset(t *testing.T) {
	both(t, func(t *testing.T, s storage.Storage) {
		save(t, s, saveAt(1, 1, entries(1, 3, 30)...))
		load(t, s)
		require.NoError(t, receive(s, snapshotOf(9, 1, stateAt(9, 50)), stateAt(9, 50)))
		require.Equal(t, raft.LogPosition{Index: 9, Term: 1}, load(t, s).Start)
		save(t, s, saveAt(1, 10, command(1, "x")))
		require.Equal(t, []raft.LogEntry{command(1, "x")}, load(t, s).Entries)
	})
}

// A reader keeps its snapshot for as long as it reads, and Compact removes it later.
func TestSnapshotIsReadWhileItIsCompacted(t *testing.T) {
	both(t, func(t *testing.T, s storage.Storage) {
		save(t, s, saveAt(1, 1, entries(1, 20, 30)...))
		put := func(index raft.Index) {
			require.NoError(t, take(s, snapshotOf(index, 1, stateAt(index, 2000)), stateAt(index, 2000)))
		}
		put(3)
		r, err := s.OpenSnapshot(3)
		require.NoError(t, err)
		first := make([]byte, 700)
		_, err = io.ReadFull(r, first)
		require.NoError(t, err)
		require.NoError(t, s.ReadSnapshot(snapshotOf(3, 1, stateAt(3, 2000)), 0, make([]byte, 10)))
		put(6)
		put(9)
		require.NoError(t, s.Compact(9))
		again, err := s.OpenSnapshot(3)
		require.Equal(t, inMemory(s), err != nil, "the file stays as long as it is open")
		if err == nil {
			require.NoError(t, again.Close())
		}
		rest, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, stateAt(3, 2000), append(first, rest...))
		require.NoError(t, r.Close())
		require.NoError(t, r.Close())
		require.NoError(t, s.Compact(9))
		_, err = s.OpenSnapshot(3)
		require.ErrorIs(t, err, storage.ErrNoSnapshot)
		require.ErrorIs(t, s.ReadSnapshot(snapshotOf(3, 1, stateAt(3, 2000)), 0, make([]byte, 10)), storage.ErrNoSnapshot)
	})
}

func inMemory(s storage.Storage) bool {
	_, yes := s.(*storage.MapStorage)
	return yes
}

// A directory that was closed may have another owner.
func TestSnapshotsAfterClose(t *testing.T) {
	disk := newDisk(1)
	s := open(t, disk)
	save(t, s, saveAt(1, 1, entries(1, 20, 30)...))
	w, err := s.CreateSnapshot(raft.Snapshot{Index: 5, Term: 1})
	require.NoError(t, err)
	require.NoError(t, s.Receive(raft.Chunk{Snapshot: snapshotOf(9, 1, stateAt(9, 50)), Data: stateAt(9, 20)}))
	require.NoError(t, s.Close())
	again := open(t, disk)
	others, err := again.CreateSnapshot(raft.Snapshot{Index: 6, Term: 1})
	require.NoError(t, err)
	_, err = w.Commit()
	require.ErrorIs(t, err, storage.ErrClosed)
	_, err = others.Commit()
	require.NoError(t, err, "the new owner is not disturbed")
	require.ErrorIs(t, s.Receive(raft.Chunk{}), storage.ErrClosed)
	require.ErrorIs(t, s.Compact(1), storage.ErrClosed)
	require.ErrorIs(t, s.ReadSnapshot(raft.Snapshot{}, 0, nil), storage.ErrClosed)
	_, err = s.OpenSnapshot(6)
	require.ErrorIs(t, err, storage.ErrClosed)
}

// Everything at once, for the race detector, and the point of it: Save goes on
// while a snapshot is written, received and read.
func TestManyGoroutines(t *testing.T) {
	s, err := storage.Open(t.TempDir(), storage.Options{Identity: identity, SegmentBytes: segmentBytes})
	require.NoError(t, err)
	defer s.Close()
	save(t, s, saveAt(1, 1, entries(1, 200, 20)...))
	var all sync.WaitGroup
	all.Go(func() {
		for i := range 100 {
			assert.NoError(t, s.Save(saveAt(1, raft.Index(201+i), entries(1, 1, 100)...)))
		}
	})
	all.Go(func() {
		for i := range 20 {
			index := raft.Index(2 * (i + 1))
			if err := take(s, snapshotOf(index, 1, stateAt(index, 3000)), stateAt(index, 3000)); !errors.Is(err, storage.ErrOlderSnapshot) {
				assert.NoError(t, err)
			}
			assert.NoError(t, s.Compact(index))
		}
	})
	all.Go(func() {
		for i := range 20 {
			index := raft.Index(2*i + 1)
			assert.NoError(t, receive(s, snapshotOf(index, 1, stateAt(index, 3000)), stateAt(index, 3000)))
			assert.NoError(t, s.Compact(index))
		}
	})
	for range 2 {
		all.Go(func() {
			for i := range 400 {
				index := raft.Index(i % 41)
				b := make([]byte, 1000)
				if err := s.ReadSnapshot(snapshotOf(index, 1, stateAt(index, 3000)), 1000, b); err == nil {
					assert.Equal(t, stateAt(index, 3000)[1000:2000], b)
				} else {
					assert.ErrorIs(t, err, storage.ErrNoSnapshot)
				}
				if r, err := s.OpenSnapshot(index); err == nil {
					data, err := io.ReadAll(r)
					assert.NoError(t, err)
					assert.Len(t, data, 3000)
					assert.NoError(t, r.Close())
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 40, load(t, s).Snapshot.Index)
}
