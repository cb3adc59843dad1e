package load

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/kvservice"
	"raftkv/raft"
)

// startNode runs a cluster of one.
func startNode(t *testing.T) string {
	node, err := kvservice.Start(kvservice.NodeConfig{
		ID: 1, Data: t.TempDir(), HTTPAddr: "127.0.0.1:0", RaftAddr: "127.0.0.1:0",
		Members: map[raft.ServerID]string{1: "127.0.0.1:0"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { node.Stop() })
	return node.HTTPAddr()
}

func TestLoad(t *testing.T) {
	addr := startNode(t)
	for name, c := range map[string]Config{
		"closed loop": {Calls: 200, Clients: 8, Writes: 0.5},
		"one client":  {Calls: 50, Clients: 8, Shared: true, Writes: 1, Distribution: Zipf},
		"open loop":   {Duration: 500 * time.Millisecond, Clients: 8, Rate: 200, Writes: 1, Distribution: Sequential},
		"checked":     {Calls: 200, Clients: 4, Check: true},
		"batches":     {Calls: 20, Clients: 4, Writes: 1, Batch: 30, Distribution: Sequential},
		"all of it":   {Calls: 20, Clients: 40, Shared: true, Check: true, Batch: 30},
	} {
		c.Endpoints = []string{addr}
		report, err := Run(t.Context(), c)
		require.NoError(t, err, name)
		require.Empty(t, report.Errors, name)
		if c.Calls > 0 {
			require.Equal(t, c.Calls*max(1, c.Batch), report.Calls[Applied], name)
		} else {
			require.InDelta(t, 100, report.Calls[Applied], 20, name)
		}
		require.Len(t, report.Latencies, report.Calls[Applied], name)
		require.Contains(t, report.String(), "latency: p50", name)
		var page strings.Builder
		require.NoError(t, report.WriteHTML(&page, "a <run>"))
		require.Contains(t, page.String(), "a &lt;run&gt;", name)
	}
}

func TestConfigThatCannotBe(t *testing.T) {
	for name, c := range map[string]Config{
		"clients":      {Clients: -1},
		"batch":        {Batch: -1},
		"share":        {Writes: 1.5},
		"distribution": {Distribution: "even"},
	} {
		_, err := Run(t.Context(), c)
		require.Error(t, err, name)
	}
}

func TestCompare(t *testing.T) {
	tokens := func(outcomes ...Outcome) (all []token) {
		for n, o := range outcomes {
			all = append(all, token{n: n, outcome: o})
		}
		return all
	}
	three := tokens(Applied, Unknown, Applied)
	for value, want := range map[string]string{
		"0;1;2;":   "",
		"0;2;":     "",
		"0;1;":     "lacks token 2",
		"1;2;":     "lacks token 0",
		"0;0;2;":   "lacks token 2",
		"0;1;2;2;": "twice",
		"0;2;1;":   "twice, or out of order",
	} {
		err := compare("k", three, value)
		if want == "" {
			require.NoError(t, err, value)
		} else {
			require.ErrorContains(t, err, want, value)
		}
	}
	require.ErrorContains(t, compare("k", tokens(NotApplied), "0;"), "said not to be applied")
}

func TestReport(t *testing.T) {
	r := newReport()
	r.Elapsed = 2 * time.Second
	for i := range 100 {
		r.samples = append(r.samples, sample{ended: time.Duration(i) * 10 * time.Millisecond, took: time.Duration(100-i) * time.Millisecond, outcome: Applied})
	}
	r.samples = append(r.samples, sample{ended: 1500 * time.Millisecond, took: time.Second, outcome: Unknown})
	r = r.finish()
	require.Equal(t, map[Outcome]int{Applied: 100, Unknown: 1}, r.Calls)
	require.Equal(t, 51*time.Millisecond, Percentile(r.Latencies, 50))
	require.Equal(t, 100*time.Millisecond, Percentile(r.Latencies, 99))
	require.Len(t, r.Timeline, 2)
	require.Equal(t, Second{Applied: 100, P50: 51 * time.Millisecond, P99: 100 * time.Millisecond, Max: 100 * time.Millisecond}, r.Timeline[0])
	require.Equal(t, Second{Failed: 1}, r.Timeline[1])
	require.Equal(t, 50.0, r.Throughput())
	require.Zero(t, Percentile(nil, 50))
}
