package kvservice

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"raftkv/api"
	"raftkv/raft"
)

// scrape returns what a monitoring system would read.
func scrape(t testing.TB, s *KVService) string {
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, pathMetrics, nil))
	require.Equal(t, 200, w.Code)
	require.Contains(t, w.Header().Get("Content-Type"), "text/plain")
	return w.Body.String()
}

// busy is a service that has been through everything that is counted.
func busy(t testing.TB) (*KVService, *instantRaft) {
	s, r := newInstant(t, nil)
	r.heardAt = time.Now()
	r.connected = 2
	for _, c := range []struct{ path, body string }{
		{api.PathPut, putX1}, {api.PathPut, putX1}, // the second is a repetition
		{api.PathPut, `{"Key":"x","Value":"1","ClientID":"nobody","RequestID":7}`}, // its session is not there
		{api.PathPut, `{"Key":""}`},
		{api.PathGet, `{"Key":"x"}`},
		{api.PathGet, `{"Key":"x","Consistency":"lease"}`},
		{api.PathGet, `{"Key":"x","Consistency":"log"}`},
		{api.PathGet, `{"Key":"x","Consistency":"stale"}`},
		{api.PathGet, `{"Key":"x","Consistency":"best"}`},
	} {
		post(s, c.path, c.body)
	}
	s.HandleForwarded(t.Context(), 2, []byte("/get r\n{}"))
	s.forward(t.Context(), 2, api.PathPut, nil)
	s.metrics.saved(time.Millisecond)
	s.metrics.snapshotSeconds.Observe(1)
	return s, r
}

// The names of the design are there, and count what they say.
func TestMetricsOfARequest(t *testing.T) {
	s, _ := busy(t)
	text := scrape(t, s)
	for _, want := range []string{
		`raft_leader_changes_total 1`,
		`dedup_session_table_size 1`,
		`dedup_commit_latency_ms_count 4`,
		`dedup_stale_read_total 1`,
		`dedup_premature_eviction_total 1`,

		`raftkv_requests_total{path="/put",status="OK"} 2`,
		`raftkv_requests_total{path="/put",status="SessionExpired"} 1`,
		`raftkv_requests_total{path="/put",status="BadRequest"} 1`,
		`raftkv_request_duration_seconds_count{path="/get"} 5`,
		`raftkv_requests_in_flight 0`,
		`raftkv_reads_total{level="linearizable"} 1`,
		`raftkv_reads_total{level="lease"} 1`,
		`raftkv_reads_total{level="log"} 1`,
		`raftkv_reads_total{level="stale"} 1`,
		`raftkv_applied_commands_total{event="duplicate_detected"} 1`,
		`raftkv_forwarded_requests_total{direction="in"} 1`,
		`raftkv_forwarded_requests_total{direction="out"} 1`,
		`raftkv_role{role="leader"} 1`,
		`raftkv_role{role="follower"} 0`,
		`raftkv_term 1`,
		`raftkv_peers 2`,
		`raftkv_peers_connected 1`,
		`raftkv_keys 1`,
		`raftkv_log_bytes 100`,
		`raftkv_storage_save_duration_seconds_count 1`,
	} {
		require.Contains(t, text, "\n"+want+"\n")
	}
}

// Prometheus' own rules for names, units and help; dedup_commit_latency_ms has
// its name from elsewhere.
func TestMetricsFollowTheRules(t *testing.T) {
	s, _ := busy(t)
	problems, err := promlint.New(strings.NewReader(scrape(t, s))).Lint()
	require.NoError(t, err)
	problems = slices.DeleteFunc(problems, func(p promlint.Problem) bool {
		return p.Metric == "dedup_commit_latency_ms" && strings.Contains(p.Text, "unit")
	})
	require.Empty(t, problems)
}

// Whatever clients send, there are no more series than before.
func TestClientsMakeNoSeries(t *testing.T) {
	s, _ := busy(t)
	series := func() int { return strings.Count(scrape(t, s), "\nraftkv_") }
	post(s, "/nothing", "{}")
	before := series()
	for _, path := range []string{"/a", "/b", "/get/x", "/admin", "/put//", "/\n", "/" + strings.Repeat("x", 1000)} {
		req := httptest.NewRequest("BREW", "/", strings.NewReader(`{"Key":"x","Consistency":"`+path+`"}`))
		req.URL.Path = path
		s.Handler().ServeHTTP(httptest.NewRecorder(), req)
	}
	post(s, api.PathGet, `{"Key":"x","Consistency":"whatever"}`)
	require.Equal(t, before, series())
	require.Contains(t, scrape(t, s), `raftkv_requests_total{path="other",status="NotFound"} 8`)
}

// Two services in one process do not share a number; a service that has not
// begun can be scraped.
func TestEveryServiceCountsForItself(t *testing.T) {
	s, _ := busy(t)
	other := New(Config{ID: 2})
	text := scrape(t, other)
	require.Contains(t, text, "dedup_stale_read_total 0")
	require.NotContains(t, text, "raftkv_term")
	require.Contains(t, scrape(t, s), "dedup_stale_read_total 1")
}

// names returns the metrics that a registry has, with the suffixes that
// histograms have.
func names(t *testing.T) map[string]bool {
	s, _ := busy(t)
	families, err := s.metrics.registry.Gather()
	require.NoError(t, err)
	all := map[string]bool{}
	for _, f := range families {
		all[f.GetName()] = true
		if f.GetType().String() == "HISTOGRAM" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				all[f.GetName()+suffix] = true
			}
		}
	}
	return all
}

var metricName = regexp.MustCompile(`\b(?:raftkv|raft|dedup|go|process)_[a-z_]+\b`)

// The dashboard, the alerts and the pages for operators name no metric that there
// is not; and operations.md names all of ours.
func TestMetricsInFiles(t *testing.T) {
	known := names(t)
	files, err := filepath.Glob("../deploy/*")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 2)
	page := "../docs/operations.md"
	for _, file := range append(files, page, "../docs/runbook.md") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		used := metricName.FindAllString(string(text), -1)
		require.NotEmpty(t, used, file)
		for _, name := range used {
			require.True(t, known[name], "%s: there is no metric %s", file, name)
		}
	}
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for name := range known {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		if !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			require.True(t, strings.Contains(string(text), "`"+base+"`"), "docs/operations.md does not explain %s", base)
		}
	}
}

// BenchmarkWrite is a write through the door with a log that commits at once:
// with all that is counted and logged around a request, and without.
func BenchmarkWrite(b *testing.B) {
	run := func(b *testing.B, serve func(*KVService, http.ResponseWriter, *http.Request)) {
		s, _ := newInstant(b, nil)
		b.ReportAllocs()
		for b.Loop() {
			req := httptest.NewRequest(http.MethodPost, api.PathPut, strings.NewReader(`{"Key":"x","Value":"1"}`))
			req.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			serve(s, w, req)
			if w.Code != 200 {
				b.Fatal(w.Body)
			}
		}
	}
	b.Run("with", func(b *testing.B) {
		run(b, func(s *KVService, w http.ResponseWriter, req *http.Request) { s.serveHTTP(w, req) })
	})
	b.Run("without", func(b *testing.B) {
		run(b, func(s *KVService, w http.ResponseWriter, req *http.Request) {
			s.route(&doorway{ResponseWriter: w}, req, api.PathPut)
		})
	})
}

// BenchmarkScrape is what a look at everything costs.
func BenchmarkScrape(b *testing.B) {
	s, _ := busy(b)
	for b.Loop() {
		scrape(b, s)
	}
}

// What is counted of an entry allocates nothing: every server pays it for every
// entry of the log, also when it reads the log again at its start.
func TestCountingAnEntryAllocatesNothing(t *testing.T) {
	s, _ := newInstant(t, nil)
	entry := raft.CommitEntry{Index: 3, Term: 1}
	applied := appliedWrite()
	require.Zero(t, testing.AllocsPerRun(100, func() { s.recordApplied(entry, applied) }))
}
