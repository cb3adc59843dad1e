package load

import (
	"math/bits"
	"time"
)

// Histogram counts durations in slots that are at most 1/64 of their value wide.
// The zero value is an empty one.
type Histogram struct {
	slots [64 * 64]uint64
	count uint64
}

// slot returns where v is counted: below 64 ns each value has a slot of its own,
// and each doubling above has 64.
func slot(v uint64) int {
	if v < 64 {
		return int(v)
	}
	shift := bits.Len64(v) - 7
	return (shift+1)*64 + int(v>>shift)&63
}

// lowest returns the smallest value that is counted in a slot.
func lowest(slot int) time.Duration {
	if slot < 64 {
		return time.Duration(slot)
	}
	return time.Duration(64|slot&63) << (slot/64 - 1)
}

// Add counts d.
func (h *Histogram) Add(d time.Duration) {
	h.slots[slot(uint64(d))]++
	h.count++
}

// Merge counts all that other has counted.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range other.slots {
		h.slots[i] += n
	}
	h.count += other.count
}

// Quantile returns the duration that a share q of all, from 0 to 1, do not exceed;
// 0 if there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	want, sum := uint64(q*float64(h.count)), uint64(0)
	for i, n := range h.slots {
		if sum += n; n > 0 && sum >= max(want, 1) {
			return lowest(i)
		}
	}
	return 0
}
