// Nothing here is compiled or run: the lines that say "want" are what the checks
// must find (internal/tidy's tests).
package raft

import (
	"testing"
	"time"

	_ "github.com/spf13/cobra"
)

func TestSleeps(t *testing.T) {
	time.Sleep(time.Second) // want sleeps
}

func TestSkips(t *testing.T) {
	t.Skip("not today") // want skips
}

func ExampleLog() {
	// Output:
}

func Testify() {} // no test: a small letter follows
