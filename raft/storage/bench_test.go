package storage_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/raft"
	"raftkv/raft/storage"
)

// BenchmarkSave writes batches of 128-byte entries to the real disk, new
// segments included.
func BenchmarkSave(b *testing.B) {
	for _, n := range []int{1, 16, 256} {
		b.Run(fmt.Sprint("batch=", n), func(b *testing.B) {
			s, err := storage.Open(b.TempDir(), storage.Options{Identity: identity})
			require.NoError(b, err)
			defer s.Close()
			es := entries(1, n, 128)
			b.ReportAllocs()
			b.SetBytes(int64(n * 128))
			index := raft.Index(1)
			for b.Loop() {
				require.NoError(b, s.Save(saveAt(1, index, es...)))
				index += raft.Index(n)
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

// The steady state: a Save uses the memory of the one before. (docs/performance.md)
func TestSaveAllocatesNextToNothing(t *testing.T) {
	s, err := storage.Open(t.TempDir(), storage.Options{Identity: identity})
	require.NoError(t, err)
	defer s.Close()
	es := entries(1, 64, 128)
	index := raft.Index(1)
	require.LessOrEqual(t, testing.AllocsPerRun(20, func() {
		if err := s.Save(saveAt(1, index, es...)); err != nil {
			t.Error(err)
		}
		index += 64
	}), 2.0)
}

// BenchmarkOpen reads a log of 100,000 entries of 128 bytes.
func BenchmarkOpen(b *testing.B) {
	dir, n := b.TempDir(), 100_000
	s, err := storage.Open(dir, storage.Options{Identity: identity})
	require.NoError(b, err)
	for at := 0; at < n; at += 1000 {
		require.NoError(b, s.Save(saveAt(1, raft.Index(at+1), entries(1, 1000, 128)...)))
	}
	require.NoError(b, s.Close())
	for b.Loop() {
		s, err := storage.Open(dir, storage.Options{Identity: identity})
		require.NoError(b, err)
		require.Len(b, load(b, s).Entries, n)
		require.NoError(b, s.Close())
	}
	b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "entries/s")
}

// BenchmarkSaveBesideSnapshot saves batches of 16 entries one after the other,
// with and without a snapshot of 100 MB being written meanwhile, and tells the
// longest Save.
func BenchmarkSaveBesideSnapshot(b *testing.B) {
	data := make([]byte, 1<<20)
	for _, megabytes := range []int{0, 100} {
		b.Run(fmt.Sprintf("snapshot=%dMB", megabytes), func(b *testing.B) {
			es := entries(1, 16, 128)
			index := raft.Index(1)
			s, err := storage.Open(b.TempDir(), storage.Options{Identity: identity})
			require.NoError(b, err)
			defer s.Close()
			var took []time.Duration
			var writing time.Duration
			for b.Loop() {
				done := make(chan error, 1)
				began := time.Now()
				go func(at raft.Index) { done <- writeSnapshot(s, at, data, megabytes) }(index)
				for n := 0; n < 200 || len(done) == 0; n++ { // at least 200 Saves
					start := time.Now()
					require.NoError(b, s.Save(saveAt(1, index, es...)))
					took = append(took, time.Since(start))
					index += 16
					if len(done) == 1 && writing == 0 {
						writing = time.Since(began)
					}
				}
				require.NoError(b, <-done)
			}
			slices.Sort(took)
			millis := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
			b.ReportMetric(millis(took[len(took)/2]), "ms/median-save")
			b.ReportMetric(millis(took[len(took)*99/100]), "ms/p99-save")
			b.ReportMetric(millis(took[len(took)-1]), "ms/longest-save")
			if megabytes > 0 {
				b.ReportMetric(float64(megabytes)/writing.Seconds(), "MB/s")
			}
		})
	}
}

func writeSnapshot(s storage.Storage, index raft.Index, data []byte, times int) error {
	if times == 0 {
		return nil
	}
	w, err := s.CreateSnapshot(raft.Snapshot{Index: index, Term: 1})
	if err != nil {
		return err
	}
	defer w.Abort()
	for range times {
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	_, err = w.Commit()
	return err
}
