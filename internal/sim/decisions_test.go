package sim

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"raftkv/internal/trace"
)

// A run is its decisions: with all of them it is the same, with none of them
// nothing goes wrong and nobody calls.
func TestDecisionsAreTheRun(t *testing.T) {
	for seed := uint64(1); seed <= 6; seed++ {
		r := RunSeed(Config{Profile: Full, Record: true}, seed)
		require.Nil(t, r.Failure)
		require.NotEmpty(t, r.Decisions)
		require.Equal(t, RunSeed(Config{Profile: Full}, seed).Hash, r.Hash, "writing down changes the run")

		all := Decisions{Seed: seed, Profile: Full.Name, List: r.Decisions}
		var file bytes.Buffer
		require.NoError(t, all.Write(&file))
		read, err := ReadDecisions(&file)
		require.NoError(t, err)
		require.Equal(t, &all, read)
		again := RunSeed(Config{Profile: Full, Only: read}, seed)
		assert.Equal(t, r.Hash, again.Hash, "seed %d", seed)
		assert.Equal(t, r.Decisions, again.Decisions)

		none := RunSeed(Config{Profile: Full, Only: &Decisions{}}, seed)
		assert.Nil(t, none.Failure)
		assert.Empty(t, none.Decisions)
		assert.Zero(t, none.Coverage[LeaderCrash])
	}
}

// A decision that does not happen leaves those that follow on other links,
// servers and clients what they were, as far as they are not its consequences: of
// two runs that differ in the last decision, everything before it is the same.
func TestWithoutTheLastDecision(t *testing.T) {
	r := RunSeed(Config{Profile: Full, Record: true}, 4)
	last := len(r.Decisions) - 1
	one := RunSeed(Config{Profile: Full, Only: &Decisions{List: r.Decisions[:last]}}, 4)
	assert.Equal(t, r.Decisions[:last], one.Decisions)
}

func TestReadDecisionsRefuses(t *testing.T) {
	for _, text := range []string{"", "[]", `{"Seed":1,"Profile":"part9"}`, `{"Sed":1,"Profile":"full"}`} {
		_, err := ReadDecisions(strings.NewReader(text))
		assert.Error(t, err, text)
	}
}

// Whoever watches changes nothing, and what is seen fits together: each message
// that arrives was sent, each call has at most one answer, what a log has become
// is what the server says of it, and only faults that began end.
func TestTraceIsWhole(t *testing.T) {
	var lines []trace.Line
	r := RunSeed(Config{Profile: Full, Trace: func(l trace.Line) { lines = append(lines, l) }}, 3)
	require.Equal(t, RunSeed(Config{Profile: Full}, 3).Hash, r.Hash)

	copies := map[uint64]int{}
	open := map[string]bool{}
	logs := map[int]int{}
	steps := map[int]trace.Step{}
	effects := map[int]int{}
	reads := map[int]bool{}
	for _, line := range lines {
		switch l := line.(type) {
		case trace.Step:
			steps[int(l.Server)] = l
			if l.Message != 0 {
				assert.Contains(t, copies, l.Message, "a step takes a message that was never sent")
			}
		case trace.Log:
			logs[int(l.Server)] = int(l.From) - 1 + len(l.Entries)
			if s := steps[int(l.Server)]; !s.Down {
				assert.EqualValues(t, s.Last, logs[int(l.Server)], "the log of server %d after step %d", l.Server, s.Number)
			}
		case trace.Send:
			copies[l.Message] = l.Copies
		case trace.Arrive:
			copies[l.Message]--
			assert.GreaterOrEqual(t, copies[l.Message], 0)
		case trace.Call:
			open[fmt.Sprint("call ", l.Call)] = true
			reads[l.Call] = strings.HasPrefix(l.Text, "get ")
		case trace.Effect:
			effects[l.Call]++
			if !reads[l.Call] { // a read is a new one at each attempt
				assert.Equal(t, 1, effects[l.Call], "a call takes effect once")
			}
		case trace.Answer:
			assert.True(t, open[fmt.Sprint("call ", l.Call)])
			delete(open, fmt.Sprint("call ", l.Call))
			if l.Outcome == "applied" {
				assert.NotZero(t, effects[l.Call], "%+v", l)
			}
		case trace.Fault:
			open[fmt.Sprint("fault ", l.Fault)] = true
		case trace.FaultEnd:
			assert.True(t, open[fmt.Sprint("fault ", l.Fault)])
			delete(open, fmt.Sprint("fault ", l.Fault))
		}
	}
	for id, s := range steps {
		assert.EqualValues(t, s.Last, logs[id], "server %d", id)
	}
	assert.Empty(t, open, "all calls are answered and all faults are over in the end")
	assert.IsType(t, trace.Run{}, lines[0])
	assert.IsType(t, trace.Verdict{}, lines[len(lines)-1])
}
