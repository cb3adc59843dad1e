package sim

import (
	"fmt"
	"testing"

	"raftkv/internal/core"
)

// Swarm runs seeds 1 to the given number on a core, each as a subtest of its
// own. A seed that fails tells what went wrong, the last lines of its trace, and
// how to run it alone.
func Swarm(t *testing.T, newCore core.New, profile Profile, seeds int) {
	t.Helper()
	for seed := uint64(1); seed <= uint64(seeds); seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			config := Config{New: newCore, Profile: profile}
			report := RunSeed(config, seed)
			if report.Failure == nil {
				return
			}
			tail := NewTail(40)
			config.Observe = func(line fmt.Stringer) { tail.Add(line.String()) }
			RunSeed(config, seed)
			for line := range tail.Lines() {
				t.Log(line)
			}
			t.Log(report.Plan)
			t.Errorf("%s at %v: %s\n%s\nrepeat: go test -run '^%s$'",
				report.Failure.Kind, report.Failure.At, report.Failure.Text, report.Failure.Stack, t.Name())
		})
	}
}
