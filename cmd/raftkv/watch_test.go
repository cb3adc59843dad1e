//go:build unix

package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// What an operator looks at, on real servers: one endpoint is enough to see all
// of them, they hold the same while writes go on, and one that is away shows.
func TestSystemWatching(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	f.begin(3)
	f.knows(2)
	var writer sync.WaitGroup
	stop := make(chan struct{})
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				if got := f.run("put", fmt.Sprint("k", i%5), fmt.Sprint(i)); got.code != 0 {
					t.Error(got.stderr)
					return
				}
			}
		}
	})
	for range 3 {
		require.Regexp(t, `^OK: servers 1, 2, 3 hold the same at index \d+: \d keys?, `, f.must("check"))
	}
	close(stop)
	writer.Wait()

	f.eventually("all see each other", func() bool {
		return strings.Count(f.must("status", "-w", "table"), "connected") == 6
	})
	table := f.must("status", "-w", "table")
	require.Contains(t, table, "AS SEEN BY")
	require.NotContains(t, table, "warning")
	for id := 1; id <= 3; id++ {
		require.Contains(t, table, f.http(id))
		for path, want := range map[string]string{"/livez": "ok\n", "/readyz": "ok\n", "/metrics": "raft_leader_changes_total"} {
			resp, err := http.Get("http://" + f.http(id) + path)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, 200, resp.StatusCode, "%s: %s", path, body)
			require.Contains(t, string(body), want)
		}
	}

	f.kill(3)
	f.knows(1, 2)
	f.leader()
	f.eventually("check names who is away", func() bool {
		got := f.run("check")
		return got.code == 4 && strings.Contains(got.stderr, "server 3 could not be asked") && strings.Contains(got.stderr, "servers 1, 2, hold the same")
	})
	f.eventually("the others see it, too", func() bool {
		table := f.must("status", "-w", "table")
		return strings.Contains(table, "no answer") && strings.Count(table, "lost") == 2
	})
}
