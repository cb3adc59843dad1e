package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The queue against the slow and obvious way: sort everything.
func TestQueueIsInOrder(t *testing.T) {
	random := newSource(1, "test")
	var q queue
	var want []happening
	next := func() {
		slices.SortStableFunc(want, func(a, b happening) int { return int(a.at - b.at) })
		got := q.pop()
		require.Equal(t, want[0].at, got.at)
		require.Equal(t, want[0].arg, got.arg, "the first that was planned for a moment comes first")
		want = want[1:]
	}
	for i := range uint64(5000) {
		h := happening{at: time.Duration(random.below(300)), arg: i}
		q.push(h)
		want = append(want, h)
		if random.oneIn(3) {
			next()
		}
	}
	for len(want) > 0 {
		next()
	}
}

func TestSlots(t *testing.T) {
	var s slots[string]
	a, b := s.put("a"), s.put("b")
	assert.Equal(t, "a", s.take(a))
	assert.Equal(t, a, s.put("c"), "a free slot is used again")
	assert.Equal(t, "c", s.take(a))
	assert.Equal(t, "b", s.take(b))
}

func TestTail(t *testing.T) {
	tail := NewTail(3)
	assert.Empty(t, slices.Collect(tail.Lines()))
	for _, line := range []string{"1", "2", "3", "4", "5"} {
		tail.Add(line)
	}
	assert.Equal(t, []string{"3", "4", "5"}, slices.Collect(tail.Lines()))
}

func TestSource(t *testing.T) {
	s := newSource(1, "test")
	const n = 100_000
	var counts [10]int
	var sum time.Duration
	for range n {
		counts[s.below(10)]++
		d := s.span(time.Second, 3*time.Second)
		require.True(t, time.Second <= d && d < 3*time.Second)
		sum += s.around(time.Second)
	}
	for i, c := range counts {
		assert.InDelta(t, n/10, c, n/100, "of %d", i)
	}
	assert.InDelta(t, 1, (sum / n).Seconds(), 0.02, "the mean of around")
	assert.Equal(t, time.Second, s.span(time.Second, time.Second))
	assert.False(t, s.chance(0))
	assert.True(t, s.chance(1000))
	assert.Equal(t, 1, s.weighted([]int{0, 5, 0}))

	// Streams of one seed are independent, and so are seeds.
	assert.NotEqual(t, newSource(1, "a").below(1<<30), newSource(1, "b").below(1<<30))
	assert.NotEqual(t, newSource(1, "a").below(1<<30), newSource(2, "a").below(1<<30))
	assert.Equal(t, newSource(1, "a").below(1<<30), newSource(1, "a").below(1<<30))
}

// Every seed can draw a plan, and the plans differ as much as they should.
func TestPlans(t *testing.T) {
	sizes := map[int]int{}
	for seed := range uint64(2000) {
		p := drawPlan(Full, seed)
		sizes[p.nodes]++
		require.LessOrEqual(t, p.clients*p.width, 16, "more calls at once take too long to judge")
		require.GreaterOrEqual(t, p.keys, 4)
		require.Greater(t, p.heartbeat, time.Duration(0))
		require.Less(t, 2*p.heartbeat, p.electionTimeout)
	}
	for nodes := 1; nodes <= 7; nodes++ {
		require.NotZero(t, sizes[nodes], "no seed has %d servers", nodes)
	}
	require.Greater(t, sizes[3]+sizes[5], 1000, "mostly 3 and 5")
}
