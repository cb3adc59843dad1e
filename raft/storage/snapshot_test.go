package storage_test

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"reflect"
	"testing"

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
