package prochaos

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/fortytw2/leaktest"
	"github.com/stretchr/testify/require"

	"raftkv/internal/lincheck"
)

var duration = flag.Duration("chaos", 3*time.Second, "how long the chaos on real processes lasts")

// Three processes, eight clients, and a leader that is killed again and again:
// every acknowledged token once, none twice, the history linearizable.
func TestSystemLeadersKilledUnderLoad(t *testing.T) {
	chaos(t, KillLeader)
}

func TestSystemAllKindsOfHarm(t *testing.T) {
	chaos(t, AllFaults...)
}

// One server becomes three and five, three are replaced at once, the leader is
// removed again and again until one is left: under load, and with leaders killed
// in between.
func TestSystemMembersComeAndGo(t *testing.T) {
	defer leaktest.CheckTimeout(t, 10*time.Second)()
	report, err := Journey(t.Context(), Config{
		Binary: program(t),
		Dir:    t.TempDir(),
		Seed:   uint64(time.Now().UnixNano()),
		Log:    t.Output(),
	})
	t.Log(report)
	require.NoError(t, err)
	require.NotZero(t, report.Applied)
	require.Equal(t, 3, report.Kills)
}

// program returns the program under test, which is built once.
func program(t *testing.T) string {
	binary, err := build()
	require.NoError(t, err)
	return binary
}

var build = sync.OnceValues(func() (string, error) {
	var err error
	if built, err = os.MkdirTemp("", "prochaos-"); err != nil {
		return "", err
	}
	binary := filepath.Join(built, "raftkv")
	// Linked twice as fast without tables for a debugger.
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", binary, "raftkv/cmd/raftkv").CombinedOutput()
	os.Stderr.Write(out)
	return binary, err
})

var built string // the folder of the program; "" if no test has wanted it

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		os.RemoveAll(built)
	}
	os.Exit(code)
}

// One client is shared by 64 goroutines while leaders are killed: nobody sees an
// error, nothing is lost, nothing is there twice. `raftlab chaos --processes
// --shared-client --faults kill-leader --kills 100` is the long version.
func TestSystemSharedClientThroughLeaderKills(t *testing.T) {
	defer leaktest.CheckTimeout(t, 10*time.Second)()
	report, err := Run(t.Context(), Config{
		Binary:       program(t),
		Dir:          t.TempDir(),
		Seed:         uint64(time.Now().UnixNano()),
		Faults:       []Fault{KillLeader},
		SharedClient: true,
		Kills:        5,
		Log:          t.Output(),
	})
	t.Log(report)
	require.NoError(t, err)
	require.Equal(t, 5, report.Kills)
	require.Equal(t, report.Operations, report.Applied)
}

func TestKillsNeedAFaultThatKills(t *testing.T) {
	_, err := Run(t.Context(), Config{Faults: []Fault{Pause, Members}, Kills: 5})
	require.ErrorContains(t, err, "none of the faults [pause members] kills a process")
}

func chaos(t *testing.T, faults ...Fault) {
	if runtime.GOOS == "windows" {
		t.Log("without the faults that need signals")
	}
	defer leaktest.CheckTimeout(t, 10*time.Second)()
	binary := program(t)
	dir := t.TempDir()
	report, err := Run(t.Context(), Config{
		Binary:   binary,
		Dir:      dir,
		Duration: *duration,
		Seed:     uint64(time.Now().UnixNano()),
		Faults:   faults,
		Log:      t.Output(),
	})
	t.Log(report)
	require.NoError(t, err)
	require.NotZero(t, report.Applied)
}

func TestTokens(t *testing.T) {
	op := func(outcome lincheck.Outcome) lincheck.Operation {
		return lincheck.Operation{Kind: lincheck.Append, Key: "x", Value: "1.1;", Outcome: outcome}
	}
	cas := func(swapped, answered bool) lincheck.Operation {
		return lincheck.Operation{Kind: lincheck.CAS, Key: "x", Expect: "1.0;", Value: "1.0;1.1;", Outcome: lincheck.Applied, Swapped: swapped, Answered: answered}
	}
	for name, c := range map[string]struct {
		op    lincheck.Operation
		store string
		want  string
	}{
		"acknowledged and there":             {op(lincheck.Applied), "1.0;1.1;", ""},
		"acknowledged and lost":              {op(lincheck.Applied), "1.0;", "lost"},
		"there twice":                        {op(lincheck.Unknown), "1.1;1.0;1.1;", "applied 2 times"},
		"unknown and there":                  {op(lincheck.Unknown), "1.1;", ""},
		"unknown and not there":              {op(lincheck.Unknown), "", ""},
		"refused and not there":              {op(lincheck.NotApplied), "11.1;", ""},
		"refused, and there all the same":    {op(lincheck.NotApplied), "1.1;", "is there"},
		"swapped and there":                  {cas(true, true), "1.0;1.1;", ""},
		"swapped and lost":                   {cas(true, true), "1.0;", "lost"},
		"not swapped, and there":             {cas(false, true), "1.0;1.1;", "is there"},
		"nobody knows whether it swapped":    {cas(false, false), "1.0;1.1;", ""},
		"it may have swapped, but not twice": {cas(false, false), "1.0;1.1;1.1;", "applied 2 times"},
	} {
		err := checkTokens([]lincheck.Operation{c.op}, map[string]string{"x": c.store})
		if c.want == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.want, name)
		}
	}
}
