package machine

import (
	"bytes"
	"flag"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/raft"
)

// shortSessions is how many clients come in TestMemoryIsFlatOverShortSessions. CI
// lets ten million come.
var shortSessions = flag.Int("sessions", 200_000, "how many short sessions TestMemoryIsFlatOverShortSessions opens")

// Clients come by the million, write once or twice and go: a third of them close
// their session, every fourth is a key and no session. Now there is room, and they
// expire; now they come faster than that, and are evicted. In each tenth the store
// has as much to remember as in the one before, and its heap and its snapshot are
// as large.
func TestMemoryIsFlatOverShortSessions(t *testing.T) {
	settings := DefaultSettings()
	settings.MaxSessions, settings.MaxKeys, settings.RetentionMillis = 2000, 2000, 5000
	m := New()
	applyTo(m, Command{Kind: KindSettings, Settings: settings})
	var now LogTime
	var expired, evicted, closed, refused int
	apply := func(c Command) Applied {
		a, err := m.Apply(raft.CommitEntry{Index: m.AppliedIndex() + 1, Command: c.at(now).Encode()})
		if err != nil {
			require.NoError(t, err)
		}
		expired, evicted = expired+a.Expired, evicted+a.Evicted
		return a
	}
	t.Logf("%10s %9s %9s %9s %9s %6s %5s %10s %10s", "clients", "expired", "evicted", "closed", "refused", "live", "keys", "heap KiB", "snapshot")
	n, steps := 0, 10
	var heaps, sizes []int
	for step := range steps {
		for ; n < *shortSessions*(step+1)/steps; n++ {
			// A rush of ten thousand is followed by ten thousand who come at leisure.
			if n%2 == 0 {
				now += 1 + LogTime(n/10_000%2*4)
			}
			if n%4 == 3 {
				if apply(appending(NewKeyID(text(n)), 1, "x", "")).Event == EventRefused {
					refused++
				}
				continue
			}
			c := NewIssuedID(text(n))
			apply(opening(c))
			for r := range uint64(1 + n%2) {
				if got := apply(appending(c, r+1, "x", "")); got.Event != EventCommitted {
					require.Fail(t, "refused", got)
				}
			}
			if n%3 == 0 {
				apply(closing(c))
				closed++
			}
			if m.Sessions() > int(settings.MaxSessions) || m.IdempotencyKeys() > int(settings.MaxKeys) {
				require.Fail(t, "too many", "%d sessions and %d keys", m.Sessions(), m.IdempotencyKeys())
			}
		}
		var snapshot bytes.Buffer
		require.NoError(t, m.WriteSnapshot(&snapshot))
		sizes = append(sizes, snapshot.Len())
		snapshot = bytes.Buffer{}
		heaps = append(heaps, int(heapBytes()))
		t.Logf("%10d %9d %9d %9d %9d %6d %5d %10d %10d", n, expired, evicted, closed, refused, m.Sessions(), m.IdempotencyKeys(), heaps[step]>>10, sizes[step])
	}
	for step := range steps {
		require.Less(t, heaps[step], heaps[0]+heaps[0]/4+200_000, fmt.Sprint("heap in step ", step))
		require.Less(t, sizes[step], sizes[0]+sizes[0]/4, fmt.Sprint("snapshot in step ", step))
	}
	require.NotZero(t, expired)
	require.NotZero(t, evicted)
	requireInvariants(t, m)
	runtime.KeepAlive(m)
}
