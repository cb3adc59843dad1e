package load

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHistogram(t *testing.T) {
	var low, high Histogram
	for i := range 1000 {
		low.Add(time.Duration(i) * time.Microsecond)
		high.Add(time.Duration(1000+i) * time.Microsecond)
	}
	low.Merge(&high)
	for q, want := range map[float64]time.Duration{0.5: time.Millisecond, 0.25: 500 * time.Microsecond, 0.99: 1980 * time.Microsecond, 1: 1999 * time.Microsecond} {
		require.InEpsilon(t, want, low.Quantile(q), 1.0/50, q)
	}
	require.Zero(t, new(Histogram).Quantile(0.5))
}

func TestSlotsAreInOrder(t *testing.T) {
	last := 0
	for v := uint64(0); v < 1<<40; v += 1 + v/100 {
		s := slot(v)
		require.GreaterOrEqual(t, s, last)
		require.LessOrEqual(t, uint64(lowest(s)), v)
		require.Greater(t, uint64(lowest(s+1)), v)
		last = s
	}
}

func TestKey(t *testing.T) {
	require.Equal(t, "key-000000000000", Key(0))
	require.Equal(t, "key-000000123456", Key(123456))
}

// recorder fails the first try of every third request.
type recorder struct {
	mu   sync.Mutex
	done map[int][]uint64 // the numbers of each client's requests that were done
	keys []int
	bad  map[[2]uint64]bool
}

var errFirst = errors.New("not at the first try")

func (s *recorder) Do(client int, r Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id := [2]uint64{uint64(client), r.Number}; r.Number%3 == 0 && !s.bad[id] {
		s.bad[id] = true
		return errFirst
	}
	s.done[client] = append(s.done[client], r.Number)
	s.keys = append(s.keys, r.Key)
	return nil
}

func (s *recorder) Close() {}

func TestRunOfEachKey(t *testing.T) {
	s := &recorder{done: map[int][]uint64{}, bad: map[[2]uint64]bool{}}
	r := Run(t.Context(), s, Plan{Op: Put, Clients: 4, ValueBytes: 10, Each: 100, Keep: true})
	require.EqualValues(t, 100, r.Done)
	require.EqualValues(t, len(s.bad), r.Errors)
	if r.Errors > 0 {
		require.ErrorIs(t, r.LastError, errFirst)
	}
	require.Len(t, r.Times, 100)
	slices.Sort(s.keys)
	for i, key := range s.keys {
		require.Equal(t, i, key)
	}
	for _, numbers := range s.done {
		for i, n := range numbers {
			require.EqualValues(t, i+1, n, "a client counts from 1, and a repetition has the same number")
		}
	}
}

func TestBatchesCountTheirPuts(t *testing.T) {
	s := &recorder{done: map[int][]uint64{}, bad: map[[2]uint64]bool{}}
	r := Run(t.Context(), s, Plan{Op: Batch, Clients: 1, Each: 5})
	require.EqualValues(t, 5*BatchSize, r.Done)
	require.Equal(t, []int{0, 100, 200, 300, 400}, s.keys)
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &recorder{done: map[int][]uint64{}, bad: map[[2]uint64]bool{}}
	Run(ctx, s, Plan{Op: Get, Clients: 4, Keys: 10, Warm: time.Hour})
}
