//go:build unix

package main

import (
	"fmt"
	"regexp"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The servers are stopped and started again in the order of docs/upgrades.md, each when
// the one before lacks nothing any more, and the leader last. Somebody writes all the
// time and notices nothing.
func TestSystemUpgradeOrder(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	f.begin(3)
	stop := make(chan struct{})
	written := make(chan string)
	go func() {
		text := ""
		for n := 0; ; n++ {
			select {
			case <-stop:
				written <- text
				return
			default:
			}
			token := fmt.Sprintf("%d.", n)
			if got := f.run("append", "log", token); got.code != 0 {
				t.Errorf("a write has failed: %s", got.stderr)
			}
			text += token
		}
	}()
	replace := func(id int) {
		t.Helper()
		p := f.running[id]
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		<-p.exited
		require.Zero(t, p.cmd.ProcessState.ExitCode(), p.output)
		f.start(id, "--cluster", f.members(3))
		lag := regexp.MustCompile(fmt.Sprintf(`(?m)^127\.0\.0\.1:\d+ +%d +(?:follower|leader) .* 0 +\d+-\d+ `, id))
		f.eventually("it lacks nothing", func() bool { return lag.MatchString(f.run("status", "-w", "table").stdout) })
	}
	leader := f.leader()
	for id := 1; id <= 3; id++ {
		if id != leader {
			replace(id)
		}
	}
	f.must("leader", "transfer")
	replace(leader)
	close(stop)
	require.Equal(t, <-written+"\n", f.must("get", "log"))
	require.Contains(t, f.must("check"), "OK: servers 1, 2, 3 hold the same")
}
