package sim

import (
	"math/bits"
	"math/rand/v2"
	"time"

	"raftkv/internal/trace"
)

// source is a stream of random numbers. A seed has several, one for each
// purpose, so that a change in what the clients do does not shuffle the faults.
//
// Only integers are drawn: floating point may differ in the last bit between
// processors, and then the run would.
type source struct{ pcg rand.PCG }

func newSource(seed uint64, purpose string) *source {
	var h trace.Hash
	h.Add(&trace.Record{Number: seed, Note: purpose})
	s := &source{}
	s.pcg.Seed(seed, h.Sum())
	return s
}

// below returns a number from 0 to n-1. n must not be 0.
func (s *source) below(n int) int {
	hi, _ := bits.Mul64(s.pcg.Uint64(), uint64(n))
	return int(hi)
}

// between returns a number from lo to hi, both included.
func (s *source) between(lo, hi int) int { return lo + s.below(hi-lo+1) }

// chance says yes in so many of a thousand cases.
func (s *source) chance(perMille int) bool { return s.below(1000) < perMille }

func (s *source) oneIn(n int) bool { return s.below(n) == 0 }

// span returns a time from lo up to hi.
func (s *source) span(lo, hi time.Duration) time.Duration {
	if hi <= lo {
		return lo
	}
	n, _ := bits.Mul64(s.pcg.Uint64(), uint64(hi-lo))
	return lo + time.Duration(n)
}

// around returns a time that is mostly near mean and now and then several times
// as long: each further mean is half as likely.
func (s *source) around(mean time.Duration) time.Duration {
	further := bits.TrailingZeros64(s.pcg.Uint64() | 1<<6)
	return s.span(0, mean) + mean*time.Duration(further)/2
}

// weighted returns an index of weights, each as likely as its weight. Not all
// may be 0.
func (s *source) weighted(weights []int) int {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	n := s.below(sum)
	for i, w := range weights {
		if n < w {
			return i
		}
		n -= w
	}
	panic("sim: weighted out of range")
}

// shuffled returns the numbers from 0 to n-1 in some order.
func (s *source) shuffled(n int) []int {
	order := make([]int, n)
	for i := range order {
		j := s.below(i + 1)
		order[i] = order[j]
		order[j] = i
	}
	return order
}

// pick returns one of the choices.
func pick[T any](s *source, choices ...T) T { return choices[s.below(len(choices))] }
