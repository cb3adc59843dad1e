package rafttest

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
)

var (
	seedFlag  = flag.Uint64("rafttest.seed", 0, "run with this seed only; 0 leaves the choice to the test")
	traceFlag = flag.Bool("rafttest.trace", false, "with -v, print every step of every server")
)

// TB is what rafttest needs of a [testing.TB]. Fatalf must not return.
type TB interface {
	Helper()
	Name() string
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// EachSeed runs a test with the seeds 1 to n, each as a subtest. With
// -rafttest.seed it runs that one seed.
func EachSeed[T interface {
	TB
	Run(name string, f func(T)) bool
}](t T, n int, test func(T)) {
	first, last := uint64(1), uint64(n)
	if *seedFlag != 0 {
		first, last = *seedFlag, *seedFlag
	}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprint(seedName, seed), test)
	}
}

// seedName begins the name of a subtest that runs one seed.
const seedName = "seed="

// seedOf returns the seed of a test: that of the flag, that of EachSeed, or 1. A
// test is the same every time it is run.
func seedOf(t TB) uint64 {
	if *seedFlag != 0 {
		return *seedFlag
	}
	for part := range strings.SplitSeq(t.Name(), "/") {
		if digits, ok := strings.CutPrefix(part, seedName); ok {
			if seed, err := strconv.ParseUint(digits, 10, 64); err == nil {
				return seed
			}
		}
	}
	return 1
}

// repeat returns the command that runs a test again with the same seed.
func repeat(t TB, seed uint64) string {
	var path []string
	for part := range strings.SplitSeq(t.Name(), "/") {
		if !strings.HasPrefix(part, seedName) {
			path = append(path, "^"+part+"$")
		}
	}
	return fmt.Sprintf("go test -run '%s' -rafttest.seed=%d", strings.Join(path, "/"), seed)
}
