package machine

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A node finds the place of a key as if it looked at one after the other, whatever
// its keys begin with, and however much more they have in common.
func TestIndexBesideASlowOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("ab\x00ÿ")), 0, 7, -1)
		prefix := text.Draw(t, "prefix")
		key := rapid.OneOf(text, rapid.Map(text, func(s string) string { return prefix + s }))
		n := &node{keys: rapid.SliceOfNDistinct(key, 1, 20, rapid.ID).Draw(t, "keys")}
		slices.Sort(n.keys)
		n.noteHeads()
		for _, k := range append(rapid.SliceOf(key).Draw(t, "other keys"), n.keys...) {
			want := 0
			for i, other := range n.keys {
				if other <= k {
					want = i
				}
			}
			require.Equal(t, want, n.index(k), "%q in %q", k, n.keys)
		}
	})
}
