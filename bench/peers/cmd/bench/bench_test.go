package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/bench/peers/internal/load"
)

func at(micros int64) time.Time { return time.UnixMicro(1_790_000_000_000_000 + micros) }

const straced = `11 1790000000.000100 fdatasync(7</d/log-1>) = 0 <0.000300>
12    1790000000.000500 fdatasync(7</d/log-1> <unfinished ...>
11 1790000000.000600 fsync(9</d/snap/db>) = 0 <0.000100>
13 1790000000.000650 fsync(9</d/snap/db> <unfinished ...>
12    1790000000.000900 <... fdatasync resumed>) = 0 <0.000400>
13 1790000000.000950 <... fsync resumed>) = 0 <0.000300>
11 1790000000.001000 fdatasync(7</d/log-1>) = -1 EIO (Input/output error) <0.000010>
14 1790000000.001100 +++ exited with 0 +++
11 1790000000.001200 fdatasync(7</d/log-1> <unfinished ...>
`

func TestParseTrace(t *testing.T) {
	spans, err := parseTrace(strings.NewReader(straced), "/log")
	require.NoError(t, err)
	require.Equal(t, []span{{at(100), at(400)}, {at(500), at(900)}}, spans,
		"those of the journal that succeeded: not of other files, not failed, not without an end")
	spans, err = parseTrace(strings.NewReader(straced), "")
	require.NoError(t, err)
	require.Len(t, spans, 4)
	_, err = parseTrace(strings.NewReader("11 yesterday fsync(7</d/log-1>) = 0 <0.1>\n"), "")
	require.Error(t, err)
}

func TestCountDurable(t *testing.T) {
	put := []load.Times{{Sent: at(100).Add(900), Answered: at(500)}} // 900 ns into its microsecond
	whole, early, late := []span{{at(100), at(400)}}, []span{{at(99), at(400)}}, []span{{at(300), at(501)}}
	for name, c := range map[string]struct {
		nodes [][]span
		want  int
	}{
		"all":                         {[][]span{whole, whole, whole}, 1},
		"two":                         {[][]span{whole, nil, whole}, 1},
		"one":                         {[][]span{whole, nil, nil}, 0},
		"begun before the put":        {[][]span{whole, early, nil}, 0},
		"ended after the answer":      {[][]span{whole, late, nil}, 0},
		"another file's sync, longer": {[][]span{whole, {{at(150), at(600)}, {at(200), at(300)}}, nil}, 1},
	} {
		require.Equal(t, c.want, countDurable(put, c.nodes), name)
	}
}

func TestLongestGap(t *testing.T) {
	answered := func(micros ...int64) (all []load.Times) {
		for _, m := range micros {
			all = append(all, load.Times{Answered: at(m)})
		}
		return all
	}
	gap := func(micros ...int64) int64 {
		return longestGap(answered(micros...), at(1000), at(2000)).Microseconds()
	}
	require.EqualValues(t, 300, gap(1000, 1100, 1400, 1700, 2000))
	require.EqualValues(t, 450, gap(1800, 950, 1400, 100, 1990), "in any order; what was before the kill does not count")
	require.EqualValues(t, 900, gap(1100), "nothing more until the end")
	require.EqualValues(t, 1000, gap())
}

func TestParseKinds(t *testing.T) {
	kinds, err := parseKinds("put@1/64,shared@256")
	require.NoError(t, err)
	require.Equal(t, []kind{{"put", 1}, {"put", 64}, {"shared", 256}}, kinds)
	require.Equal(t, load.Put, kinds[2].op())
	for _, bad := range []string{"", "put", "put@", "put@many", "delete@1"} {
		_, err := parseKinds(bad)
		require.Error(t, err, bad)
	}
}

func TestMedian(t *testing.T) {
	require.Zero(t, median(nil))
	require.Equal(t, 2.0, median([]float64{3, 1, 2}))
	require.Equal(t, 2.0, median([]float64{4, 3, 1, 2}))
}

func TestTables(t *testing.T) {
	r := newResults(&options{rounds: 3, valueBytes: 100})
	for i, x := range []float64{100, 300, 200} {
		r.Rates = append(r.Rates,
			rate{Round: i + 1, Contender: "etcd", Request: "put", Clients: 64, PerSecond: x, ServerCPU: 0.4},
			rate{Round: i + 1, Contender: "raftkv", Request: "put", Clients: 64, PerSecond: 3 * x, ServerCPU: 0.1},
			rate{Round: i + 1, Contender: "raftkv", Request: "get", Clients: 1, PerSecond: 7})
	}
	r.Failovers = []failover{{Contender: "etcd", Client: shared, GapMillis: []float64{277, 1, 300}}}
	r.Syncs = []syncs{{Contender: "etcd", Puts: 5, Durable: 4, Syncs: []int{1, 2, 3}}}
	r.Recoveries = []recovery{{Contender: "etcd", Keys: 9, ReadMillis: []float64{3, 1, 2}}}
	text := r.text()
	for _, line := range []string{
		"| request | clients | etcd | raftkv |\n| --- | --- | --- | --- |\n| put | 64 | 200 | 600 |\n| get | 1 |  | 7 |",
		"| request | clients | etcd |\n| --- | --- | --- |\n| put | 64 | 3.00 |\n| get | 1 |  |",
		"| put | 64 | 0.25 |",
		"| etcd | shared | 277 | 277, 1, 300 | 0 |",
		"| etcd | 5 | 4 | 1, 2, 3 |",
	} {
		require.Contains(t, text, line)
	}
	require.Contains(t, text, r.Client)
}
