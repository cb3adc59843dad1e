package storage_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"raftkv/raft"
	"raftkv/raft/storage"
)

// drawSave draws a Save that a log ending at last can hold.
func drawSave(t *rapid.T, last int) raft.Save {
	s := raft.Save{
		CurrentTerm: raft.Term(rapid.IntRange(1, 9).Draw(t, "term")),
		VotedFor:    raft.ServerID(rapid.IntRange(0, 3).Draw(t, "vote")),
	}
	n := rapid.IntRange(0, 5).Draw(t, "entries")
	if n == 0 {
		return s
	}
	s.FirstIndex = raft.Index(rapid.IntRange(1, last+1).Draw(t, "first index"))
	for range n {
		s.Entries = append(s.Entries, raft.LogEntry{
			Term:    raft.Term(rapid.IntRange(1, 9).Draw(t, "entry term")),
			Command: []byte(rapid.StringN(0, -1, 400).Draw(t, "command")),
		})
	}
	return s
}

// Both storages do what the slow twin does, whatever is saved, and a Load
// stays what it was when later saves replace its entries.
func TestStoragesDoWhatTheModelDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, s := range []storage.Storage{storage.NewMapStorage(), open(t, newDisk(1))} {
			var model, old, oldModel raft.PersistentState
			for range rapid.IntRange(0, 20).Draw(t, "saves") {
				next := drawSave(t, len(model.Entries))
				require.NoError(t, s.Save(next))
				model = apply(model, next)
				require.Equal(t, model, load(t, s))
				require.Equal(t, oldModel, old)
				if rapid.Bool().Draw(t, "keep") {
					old, oldModel = load(t, s), model
				}
			}
			require.NoError(t, s.Close())
		}
	})
}

func TestMapStorageClonesAreIndependent(t *testing.T) {
	a := storage.NewMapStorage()
	save(t, a, saveAt(1, 1, command(1, "x"), command(1, "y")))
	b := a.Clone()
	save(t, a, saveAt(1, 3, command(1, "only in a")))
	save(t, b, saveAt(2, 2, command(2, "only in b")))
	require.Equal(t, []raft.LogEntry{command(1, "x"), command(1, "y"), command(1, "only in a")}, load(t, a).Entries)
	require.Equal(t, []raft.LogEntry{command(1, "x"), command(2, "only in b")}, load(t, b).Entries)
}

func TestSaveRefusesWhatNoLogCanHold(t *testing.T) {
	for _, s := range []storage.Storage{storage.NewMapStorage(), open(t, newDisk(1))} {
		save(t, s, saveAt(1, 1, command(1, "x")))
		before := load(t, s)
		for name, bad := range map[string]raft.Save{
			"a hole":                     saveAt(1, 3, command(1, "y")),
			"an index without entries":   saveAt(1, 1),
			"entries without an index":   saveAt(1, 0, command(1, "y")),
			"an index far behind an end": saveAt(1, 1<<63, command(1, "y")),
		} {
			require.ErrorIs(t, s.Save(bad), storage.ErrBadSave, name)
		}
		require.Equal(t, before, load(t, s))
		// It is the caller's fault, not the disk's: the storage can go on.
		save(t, s, saveAt(1, 2, command(1, "y")))
	}
}

func TestSaveOfNothingWritesNothing(t *testing.T) {
	disk := newDisk(1)
	s := open(t, disk)
	before := disk.Counters()
	require.NoError(t, s.Save(raft.Save{}))
	require.Equal(t, before, disk.Counters())
}

// The price of a Save is one write and one sync, however many entries it has.
func TestSaveIsOneWriteAndOneSync(t *testing.T) {
	disk := newDisk(1)
	s := open(t, disk)
	before := disk.Counters()
	save(t, s, saveAt(1, 1, entries(1, 5, 20)...))
	after := disk.Counters()
	require.Equal(t, 1, after.Writes-before.Writes)
	require.Equal(t, 1, after.Syncs-before.Syncs)
	require.Equal(t, 2, after.Ops-before.Ops)
}

// A batch never spans segments: what does not fit opens a new one, which is
// as large as it must be.
func TestBatchLargerThanASegment(t *testing.T) {
	disk := newDisk(1)
	s := open(t, disk)
	large := entries(1, 7, 700)
	save(t, s, saveAt(1, 1, command(1, "small")), saveAt(1, 2, large...), saveAt(1, 9, command(1, "small")))
	require.Len(t, disk.ReadFile(segmentFile(1)), segmentBytes)
	second := disk.ReadFile(segmentFile(2))
	places := spans(second)
	require.Len(t, places, 8)
	require.Equal(t, len(second), places[7].end, "no larger than needed")
	require.Len(t, disk.ReadFile(segmentFile(3)), segmentBytes)

	want := append(append([]raft.LogEntry{command(1, "small")}, large...), command(1, "small"))
	require.Equal(t, want, reopen(t, disk).Entries)
}

func TestEntriesOfAllKinds(t *testing.T) {
	disk := newDisk(1)
	want := []raft.LogEntry{
		{Term: 1, Kind: raft.EntryEmpty},
		{Term: 1, Kind: raft.EntryCommand, Command: []byte{}},
		{Term: 1 << 63, Kind: raft.EntryCommand, Command: []byte{0, 255, '\n'}},
	}
	save(t, open(t, disk), saveAt(1<<63, 1, want...))
	require.Equal(t, want, reopen(t, disk).Entries)
}

func TestClose(t *testing.T) {
	disk := newDisk(1)
	s := open(t, disk)
	save(t, s, saveAt(1, 1, command(1, "x")))
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Save(saveAt(1, 2, command(1, "y"))), storage.ErrClosed)
	require.ErrorIs(t, s.RememberStore(2, 0, raft.StoreID{2}), storage.ErrClosed)
	_, err := s.Load()
	require.ErrorIs(t, err, storage.ErrClosed)
	require.Len(t, load(t, open(t, disk)).Entries, 1)
}

// TestRandomRun mixes saves, restarts, losses of power and failures of the
// disk. Whatever Save has returned must be there; of a Save that failed or was
// interrupted, any beginning may be.
func TestRandomRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		disk := newDisk(rapid.Uint64().Draw(t, "seed"))
		model := raft.PersistentState{}
		possible := []raft.PersistentState{model} // what a restart may find
		peers := map[raft.ServerID]raft.StoreID{}
		var s *storage.FileStorage
		start := func() {
			var err error
			for s == nil {
				if s, err = storage.Open(dir, options(disk)); err != nil {
					s = nil
					var corrupt *storage.CorruptError
					require.NotErrorAs(t, err, &corrupt)
					disk.Crash()
				}
			}
			model = load(t, s)
			require.Contains(t, possible, model)
			possible = []raft.PersistentState{model}
			for id, store := range s.KnownStores() {
				require.Equal(t, raft.StoreID{byte(id)}, store)
			}
			for id := range peers {
				require.Contains(t, s.KnownStores(), id)
			}
		}
		start()
		t.Repeat(map[string]func(*rapid.T){
			"save": func(t *rapid.T) {
				next := drawSave(t, len(model.Entries))
				if err := s.Save(next); err != nil {
					possible = outcomes(model, next)
					require.Equal(t, err, s.Save(next), "every later Save returns the first error")
					if rapid.Bool().Draw(t, "power") {
						disk.Crash()
					} else {
						disk.Kill()
					}
					s = nil
					start()
					return
				}
				model = apply(model, next)
				possible = []raft.PersistentState{model}
			},
			"remember": func(t *rapid.T) {
				id := raft.ServerID(rapid.IntRange(2, 5).Draw(t, "server"))
				if err := s.RememberStore(id, 0, raft.StoreID{byte(id)}); err != nil {
					disk.Crash()
					s = nil
					start()
					return
				}
				peers[id] = raft.StoreID{byte(id)}
			},
			"restart": func(t *rapid.T) { disk.Kill(); s = nil; start() },
			"crash":   func(t *rapid.T) { disk.Crash(); s = nil; start() },
			"power fails soon": func(t *rapid.T) {
				disk.CrashAfter(rapid.IntRange(0, 12).Draw(t, "operations"))
			},
			"disk fails soon": func(t *rapid.T) {
				disk.FailAfter(rapid.IntRange(0, 12).Draw(t, "operations"), errDisk)
			},
		})
	})
}

func TestLoadTwice(t *testing.T) {
	s := open(t, newDisk(1))
	save(t, s, saveAt(1, 1, command(1, "x")))
	first := load(t, s)
	require.Equal(t, first, load(t, s))
	save(t, s, saveAt(2, 1, command(2, "y")))
	require.Equal(t, []raft.LogEntry{command(1, "x")}, slices.Clone(first.Entries))
	require.Equal(t, []raft.LogEntry{command(2, "y")}, load(t, s).Entries)
}
