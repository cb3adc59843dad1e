package storage_test

import (
	"fmt"
	"testing"

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
