package sim

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"raftkv/internal/core"
)

// The seeds of raftlab chaos are many more; these show in a few seconds that
// each profile runs.
func TestSwarm(t *testing.T) {
	for _, p := range Profiles() {
		t.Run(p.Name, func(t *testing.T) { Swarm(t, core.Raft, p, 30) })
	}
}

// What a run must be at least, or it proves too little.
func TestSizeOfARun(t *testing.T) {
	for seed := range uint64(20) {
		r := RunSeed(Config{Profile: Full}, seed)
		assert.GreaterOrEqual(t, r.Duration.Seconds(), 20.0, "seed %d", seed)
		assert.GreaterOrEqual(t, r.Operations, 200, "seed %d", seed)
	}
}

// The same seed gives the same run: twice, with one processor and with two, and
// while other seeds run beside it.
func TestSameSeedSameRun(t *testing.T) {
	const seeds = 8
	run := func() (hashes [seeds]uint64) {
		var running sync.WaitGroup
		for seed := range hashes {
			running.Go(func() { hashes[seed] = RunSeed(Config{Profile: Full}, uint64(seed)).Hash })
		}
		running.Wait()
		return hashes
	}
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	one := run()
	runtime.GOMAXPROCS(2)
	assert.Equal(t, one, run())

	seen := map[uint64]bool{}
	for seed, hash := range one {
		assert.False(t, seen[hash], "seed %d ran like another", seed)
		seen[hash] = true
	}
}

// Whoever reads along changes nothing, and reads the same each time.
func TestObservingChangesNothing(t *testing.T) {
	read := func() (lines []string, r Report) {
		r = RunSeed(Config{Profile: Full, Observe: func(line fmt.Stringer) { lines = append(lines, line.String()) }}, 3)
		return lines, r
	}
	lines, observed := read()
	again, _ := read()
	require.Equal(t, lines, again)
	require.Greater(t, len(lines), int(observed.Steps))
	require.Equal(t, RunSeed(Config{Profile: Full}, 3), observed)
}

func TestRepeatLine(t *testing.T) {
	assert.Equal(t, "go run ./cmd/raftlab replay --seed 7", Report{Seed: 7, Profile: Full}.RepeatLine())
	assert.Equal(t, "go run ./cmd/raftlab replay --seed 7 --profile commands", Report{Seed: 7, Profile: Commands}.RepeatLine())
}

func TestProfileNamed(t *testing.T) {
	for _, p := range Profiles() {
		got, err := ProfileNamed(p.Name)
		require.NoError(t, err)
		require.Equal(t, p, got)
	}
	_, err := ProfileNamed("part9")
	require.EqualError(t, err, `there is no profile "part9"; there are elections, commands, persistence, full`)
}

// BenchmarkSeeds runs one seed after the other, with everything on.
func BenchmarkSeeds(b *testing.B) {
	var steps int64
	seed := uint64(0)
	for b.Loop() {
		seed++
		steps += RunSeed(Config{Profile: Full}, seed).Steps
	}
	b.ReportMetric(float64(steps)/b.Elapsed().Seconds(), "events/s")
}

// Seeds that were called failures and were none of Raft's: each asked for what no
// cluster can do. None of the many others of a test run meets it again soon.
func TestSeedsThatAskedForTooMuch(t *testing.T) {
	for seed, what := range map[uint64]string{
		1205352: "a leader that hangs is asked for voters {1,5}, and then 1 loses its disk",
	} {
		require.Nil(t, RunSeed(Config{Profile: Full}, seed).Failure, what)
	}
}
