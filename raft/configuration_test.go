package raft

import (
	"math/bits"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNewConfiguration(t *testing.T) {
	c := NewConfiguration(3, 1, 2, 1)
	assert.Equal(t, []ServerID{1, 2, 3}, c.Voters)
	assert.True(t, c.Has(2))
	assert.False(t, c.Has(4))
	assert.False(t, c.Has(None))
}

// TestQuorum tries every set of servers that say yes (EL-10).
func TestQuorum(t *testing.T) {
	for n := 1; n <= 7; n++ {
		c := plain(1, n).Configuration
		for set := uint(0); set < 1<<n; set++ {
			got := c.quorum(func(id ServerID) bool { return set>>(id-1)&1 == 1 })
			require.Equal(t, bits.OnesCount(set) >= n/2+1, got, "%d of %d servers", bits.OnesCount(set), n)
		}
		assert.False(t, c.quorum(func(id ServerID) bool { return false }))
	}
	assert.False(t, NewConfiguration(1, 2, 3, 4).quorum(func(id ServerID) bool { return id > 2 }), "two of four")
}

// TestQuorumIndexTwin tries all match vectors: the largest index stored on a
// majority is found by going through the indexes (EL-10).
func TestQuorumIndexTwin(t *testing.T) {
	const highest = 3
	for n := 1; n <= 7; n++ {
		c := plain(1, n).Configuration
		reached := make([]Index, n)
		for {
			var want Index
			for i := Index(1); i <= highest; i++ {
				copies := 0
				for _, r := range reached {
					if r >= i {
						copies++
					}
				}
				if copies > n/2 {
					want = i
				}
			}
			require.Equal(t, want, quorumReached(c, func(id ServerID) Index { return reached[id-1] }), "%v", reached)

			at := 0
			for at < n && reached[at] == highest {
				reached[at] = 0
				at++
			}
			if at == n {
				break
			}
			reached[at]++
		}
	}
}

// TestCommitIndexTwin: a leader commits the largest index that a majority has
// and that carries its own term, whatever the order of the answers (EL-10, LM-01).
func TestCommitIndexTwin(t *testing.T) {
	rng := seeded()
	for range 3_000 {
		n := 1 + rng.IntN(7)
		old := rng.IntN(4)
		cm := lead(t, plain(1, n), PersistentState{CurrentTerm: 1, Entries: entries(slices.Repeat([]Term{1}, old)...)})
		stepSaved(cm, Submit{Commands: [][]byte{{1}, {2}}})
		reached := map[ServerID]Index{1: cm.log.lastIndex()}
		for range 2 * n {
			if len(cm.peerIDs) > 0 {
				from := cm.peerIDs[rng.IntN(len(cm.peerIDs))]
				match := Index(rng.IntN(int(cm.log.lastIndex()) + 1))
				reached[from] = max(reached[from], match)
				stepSaved(cm, matched(cm, from, match))
			}
			var want Index
			for i := Index(1); i <= cm.log.lastIndex(); i++ {
				copies := 0
				for _, r := range reached {
					if r >= i {
						copies++
					}
				}
				if copies > n/2 && cm.log.entry(i).Term == cm.currentTerm {
					want = i
				}
			}
			require.Equal(t, want, cm.commitIndex, "%v of %d servers", reached, n)
		}
	}
}
