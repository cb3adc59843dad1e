package machine

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// items do what a map does whose keys are sorted for each question. Copies are
// made of it all the time, and none sees what happens to another.
func TestItemsAreAMap(t *testing.T) {
	type pair struct {
		items *items
		model map[string]item
	}
	letters := rapid.StringOfN(rapid.SampledFrom([]rune("ab\xff")), 0, 6, -1)
	numbers := rapid.Custom(func(t *rapid.T) string { return fmt.Sprintf("%05d", rapid.IntRange(0, 2000).Draw(t, "n")) })
	key := rapid.OneOf(letters, numbers)
	length := rapid.OneOf(rapid.IntRange(0, 5), rapid.IntRange(0, 300), rapid.SampledFrom([]int{blockBytes / 2, blockBytes, 3 * blockBytes}))
	rapid.Check(t, func(t *rapid.T) {
		copies := []pair{{newItems(), map[string]item{}}}
		p := &copies[0]
		set := func(key string, valueBytes int) {
			i := item{strings.Repeat("v", valueBytes), rapid.Uint64().Draw(t, "version")}
			p.items.Set(key, i)
			p.model[key] = i
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { p = &copies[rapid.IntRange(0, len(copies)-1).Draw(t, "copy")] },
			"set": func(t *rapid.T) {
				set(key.Draw(t, "key"), length.Draw(t, "length"))
			},
			"set many": func(t *rapid.T) {
				from, step, bytes := rapid.IntRange(0, 2000).Draw(t, "from"), rapid.IntRange(-2, 2).Draw(t, "step"), rapid.IntRange(0, 300).Draw(t, "length")
				for n := range 200 {
					set(fmt.Sprintf("%05d", max(0, from+n*step)), bytes)
				}
			},
			"delete": func(t *rapid.T) {
				k := key.Draw(t, "key")
				_, known := p.model[k]
				require.Equal(t, known, p.items.Delete(k))
				delete(p.model, k)
			},
			"delete many": func(t *rapid.T) {
				keys := slices.Sorted(maps.Keys(p.model))
				from := rapid.IntRange(0, len(keys)).Draw(t, "from")
				for _, k := range keys[from:rapid.IntRange(from, len(keys)).Draw(t, "to")] {
					require.True(t, p.items.Delete(k))
					delete(p.model, k)
				}
			},
			"get": func(t *rapid.T) {
				k := key.Draw(t, "key")
				want, known := p.model[k]
				got, found := p.items.Get(k)
				require.Equal(t, known, found)
				require.Equal(t, want, got)
			},
			"ascend": func(t *rapid.T) {
				from, most := key.Draw(t, "from"), rapid.IntRange(1, 2000).Draw(t, "most")
				var got []string
				p.items.Ascend(from, func(e entry) bool {
					require.Equal(t, p.model[string(e.key)], item{e.text(), e.version})
					got = append(got, string(e.key))
					return len(got) < most
				})
				want := slices.DeleteFunc(slices.Sorted(maps.Keys(p.model)), func(k string) bool { return k < from })
				require.True(t, slices.Equal(want[:min(most, len(want))], got))
			},
			"copy": func(t *rapid.T) {
				copies = append(copies, pair{p.items.IsoCopy(), maps.Clone(p.model)})
			},
			"load": func(t *rapid.T) {
				loader := newItemLoader()
				p.items.Scan(func(e entry) bool {
					loader.add(string(e.key), item{e.text(), e.version})
					return true
				})
				p.items = loader.done()
			},
			"check": func(t *rapid.T) { requireItems(t, p.model, p.items) },
		})
		for _, p := range copies {
			requireItems(t, p.model, p.items)
		}
	})
}

// requireItems demands that t holds what is in want, and its invariants.
func requireItems(t require.TestingT, want map[string]item, got *items) {
	require.Equal(t, len(want), got.Len())
	var keys []string
	got.Scan(func(e entry) bool {
		require.Equal(t, want[string(e.key)], item{e.text(), e.version})
		keys = append(keys, string(e.key))
		return true
	})
	require.True(t, slices.Equal(slices.Sorted(maps.Keys(want)), keys))

	var from []string
	got.blocks.ascend("", func(key string, b block) bool {
		require.True(t, len(b.packed) > 0 || key == "", "an empty block under %q", key)
		items := 0
		for at := 0; at < len(b.packed); items++ {
			var e entry
			e, at = b.at(at)
			require.GreaterOrEqual(t, string(e.key), key)
		}
		require.True(t, items < 2 || b.size() <= blockBytes, "%d items in %d bytes", items, b.size())
		from = append(from, key)
		return true
	})
	require.Equal(t, "", from[0])
	require.IsIncreasing(t, from)
	for i, key := range from[1:] {
		var last entry
		_, b := got.blocks.floor(from[i])
		for at := 0; at < len(b.packed); {
			last, at = b.at(at)
		}
		require.Less(t, string(last.key), key)
	}
}

// The heap is that of the bytes in it and a fifth, in whatever order they came,
// and the store lets go of what was overwritten and removed.
func TestItemsTakeLittleMoreThanTheirBytes(t *testing.T) {
	const count = 100_000
	for name, key := range map[string]func(uint64) uint64{
		"ascending":  func(i uint64) uint64 { return i },
		"descending": func(i uint64) uint64 { return count - i },
		"mixed":      func(i uint64) uint64 { return i * 387_421 % count },
	} {
		before := heapBytes()
		m := newItems()
		set := func(round uint64) {
			for i := range uint64(count) {
				m.Set(fmt.Sprintf("%016d", key(i)), item{strings.Repeat("v", 100), round*count + i + 1})
			}
		}
		set(0)
		require.Less(t, heapBytes()-before, uint64(count*(16+100)*120/100), name)
		kept := m.IsoCopy()
		set(1)
		require.Less(t, heapBytes()-before, uint64(2*count*(16+100)*120/100), "%s, with a copy", name)
		runtime.KeepAlive(kept)
		kept = nil
		require.Less(t, heapBytes()-before, uint64(count*(16+100)*120/100), "%s, overwritten", name)
		for i := range uint64(count) {
			if i%20 > 0 {
				m.Delete(fmt.Sprintf("%016d", key(i)))
			}
		}
		require.Less(t, heapBytes()-before, uint64(count/20*(16+100)*2), "%s, one of twenty left", name)
		blocks := 0
		m.blocks.ascend("", func(string, block) bool {
			blocks++
			return true
		})
		require.Less(t, blocks, count/20/4, "%s: what is left stands together", name)
		runtime.KeepAlive(m)
	}
}

// A large value is not copied when its neighbours change.
func TestALargeValueHasABlockOfItsOwn(t *testing.T) {
	m := newItems()
	large := item{strings.Repeat("v", 1<<20), 1}
	for i := range 20 {
		m.Set(fmt.Sprint("k", i), large)
	}
	require.Less(t, allocated(func() {
		for i := range 20 {
			m.Set(fmt.Sprint("k", i, "'"), item{"small", 2})
			m.Set(fmt.Sprint("j", i), item{"small", 2})
			m.Delete(fmt.Sprint("k", i, "'"))
		}
	}), uint64(1<<20))
}

// A value that keeps its length is written over the one before, unless another
// copy of the tree sees that.
func TestAWriteChangesItsBlock(t *testing.T) {
	m := newItems()
	overwrite := func(value string) {
		for i := range 1000 {
			m.Set(fmt.Sprint("k", i), item{strings.Repeat(value, 100), 1})
		}
	}
	overwrite("a")
	inPlace := allocated(func() { overwrite("b") }) // the loop's own strings, and the old values
	require.Less(t, inPlace, uint64(1000*blockBytes/4))
	kept := m.IsoCopy()
	require.Greater(t, allocated(func() { overwrite("c") }), inPlace+1000*100)
	require.Less(t, allocated(func() { overwrite("d") }), inPlace+1000*10, "what the copy has was left to it")
	i, _ := kept.Get("k500")
	require.Equal(t, strings.Repeat("b", 100), i.value)
}

// Who reads a large value shares it with the store, which does not change it.
func TestALargeValueIsShared(t *testing.T) {
	m := newItems()
	m.Set("k", item{strings.Repeat("a", 1<<20), 1})
	var read []item
	require.Less(t, allocated(func() {
		for range 20 {
			i, _ := m.Get("k")
			read = append(read, i)
			m.Scan(func(e entry) bool {
				read = append(read, item{e.text(), e.version})
				return true
			})
		}
	}), uint64(1<<20))
	m.Set("k", item{strings.Repeat("b", 1<<20), 2})
	for _, i := range read {
		require.True(t, i == item{strings.Repeat("a", 1<<20), 1})
	}
}
