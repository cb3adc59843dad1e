package machine

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestScan(t *testing.T) {
	l := newLog(t)
	for _, key := range []string{"b", "a/2", "a/1", "a", "a0", "c", "a/\xff"} {
		l.set(key, "value of "+key)
	}
	keys := func(items []Item) (keys []string) {
		for _, i := range items {
			got := l.a.Get(i.Key)
			require.Equal(t, Item{i.Key, got.Value, got.Version}, i)
			keys = append(keys, i.Key)
		}
		return keys
	}
	for _, tc := range []struct {
		prefix, after string
		limit, bytes  int
		want          []string
		more          bool
	}{
		{"", "", 10, 1000, []string{"a", "a/1", "a/2", "a/\xff", "a0", "b", "c"}, false},
		{"a/", "", 10, 1000, []string{"a/1", "a/2", "a/\xff"}, false},
		{"a/", "", 2, 1000, []string{"a/1", "a/2"}, true},
		{"a/", "a/2", 1, 1000, []string{"a/\xff"}, false},
		{"a/", "a/15", 1, 1000, []string{"a/2"}, true},
		{"a/", "a/\xff", 1, 1000, nil, false},
		{"a/", "", 3, 1000, []string{"a/1", "a/2", "a/\xff"}, false},
		{"a/", "", 10, 1, []string{"a/1"}, true},
		{"a/", "", 10, 16, []string{"a/1", "a/2"}, true},
		{"a/", "a", 10, 1000, []string{"a/1", "a/2", "a/\xff"}, false},
		{"a/", "b", 10, 1000, nil, false},
		{"", "b", 10, 1000, []string{"c"}, false},
		{"d", "", 10, 1000, nil, false},
	} {
		items, more := l.a.View().Scan(tc.prefix, tc.after, tc.limit, tc.bytes)
		require.Equal(t, tc.want, keys(items), "%+v", tc)
		require.Equal(t, tc.more, more, "%+v", tc)
	}
}

// Page by page a scan of a view sees what there was when it was taken, all
// of it and nothing twice, whatever is written meanwhile.
func TestScanOfAView(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.StringOfN(rapid.SampledFrom([]rune("ab")), 1, 4, -1)
		l := newLog(t)
		write := func() {
			l.a.store.put(key.Draw(t, "key"), rapid.SampledFrom([]string{"", "v", "long value"}).Draw(t, "value"))
		}
		for range rapid.IntRange(0, 30).Draw(t, "keys") {
			write()
		}
		prefix := rapid.SampledFrom([]string{"", "a", "ab", "b", "c"}).Draw(t, "prefix")
		var want []Item
		l.a.store.items.Scan(func(e entry) bool {
			if strings.HasPrefix(string(e.key), prefix) {
				want = append(want, Item{string(e.key), e.text(), e.version})
			}
			return true
		})
		c := l.a.View()
		var got []Item
		after, more := "", true
		for more {
			limit, bytes := rapid.IntRange(1, 5).Draw(t, "limit"), rapid.IntRange(0, 20).Draw(t, "bytes")
			var page []Item
			page, more = c.Scan(prefix, after, limit, bytes)
			require.LessOrEqual(t, len(page), limit)
			require.True(t, len(page) > 0 || !more)
			got = append(got, page...)
			if more {
				after = page[len(page)-1].Key
			}
			write()
			l.a.store.delete(key.Draw(t, "deleted"))
		}
		require.True(t, slices.Equal(want, got))
	})
}
