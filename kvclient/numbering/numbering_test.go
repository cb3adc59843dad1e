package numbering

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestNumbersCountFromOne(t *testing.T) {
	var n Numbers
	for want := uint64(1); want <= 3; want++ {
		got, ok := n.Next()
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	require.Zero(t, n.AckedThrough())
	require.Equal(t, 3, n.Open())
}

func TestAckedThroughStopsAtTheFirstOpenNumber(t *testing.T) {
	var n Numbers
	for range 4 {
		n.Next()
	}
	n.Settle(3)
	n.Settle(2)
	require.Zero(t, n.AckedThrough(), "1 is open")
	n.Settle(1)
	require.Equal(t, uint64(3), n.AckedThrough())
	n.Settle(4)
	require.Equal(t, uint64(4), n.AckedThrough())
	require.Zero(t, n.Open())
}

func TestOneOpenNumberHoldsTheWindow(t *testing.T) {
	var n Numbers
	for id := uint64(1); id <= Window; id++ {
		_, ok := n.Next()
		require.True(t, ok)
		if id > 1 {
			n.Settle(id)
		}
	}
	_, ok := n.Next()
	require.False(t, ok, "number 1 is still open, so %d would be too far ahead", Window+1)
	n.Settle(1)
	id, ok := n.Next()
	require.True(t, ok)
	require.Equal(t, uint64(Window+1), id)
}

func TestSettlingTwiceIsAMistake(t *testing.T) {
	var n Numbers
	n.Next()
	n.Next()
	n.Settle(2)
	require.Panics(t, func() { n.Settle(2) }, "settled, above AckedThrough")
	n.Settle(1)
	require.Panics(t, func() { n.Settle(1) }, "settled, below AckedThrough")
	require.Panics(t, func() { n.Settle(3) }, "never allotted")
}

// Numbers against the slow and obvious way: keep every number that is open.
func TestNumbersAgainstTheObviousWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var n Numbers
		var open []uint64 // ascending
		var last, ackedBefore uint64
		acked := func() uint64 {
			if len(open) > 0 {
				return open[0] - 1
			}
			return last
		}
		t.Repeat(map[string]func(*rapid.T){
			"next": func(t *rapid.T) {
				room := n.Room()
				if want := int(acked() + Window - last); room != want {
					t.Fatalf("Room says %d, want %d", room, want)
				}
				id, ok := n.Next()
				if ok != (room > 0) {
					t.Fatalf("Next said %v with %d open, last %d", ok, len(open), last)
				}
				if !ok {
					return
				}
				if id != last+1 {
					t.Fatalf("number %d follows %d", id, last)
				}
				last = id
				open = append(open, id)
			},
			"settle": func(t *rapid.T) {
				if len(open) == 0 {
					return
				}
				// Drawn from the newest half the time, so that the window fills.
				i := rapid.OneOf(rapid.IntRange(0, len(open)-1), rapid.Just(len(open)-1)).Draw(t, "which")
				n.Settle(open[i])
				open = slices.Delete(open, i, i+1)
			},
			"": func(t *rapid.T) {
				if n.AckedThrough() != acked() || n.Open() != len(open) {
					t.Fatalf("AckedThrough %d, Open %d; want %d, %d", n.AckedThrough(), n.Open(), acked(), len(open))
				}
				if n.AckedThrough() < ackedBefore {
					t.Fatalf("AckedThrough fell from %d to %d", ackedBefore, n.AckedThrough())
				}
				ackedBefore = n.AckedThrough()
			},
		})
	})
}
