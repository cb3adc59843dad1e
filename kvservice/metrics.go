package kvservice

import (
	"net/http"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"raftkv/api"
	"raftkv/kvservice/machine"
	"raftkv/raft"
)

// metrics counts what happens. docs/operations.md explains each name. Every
// service has a registry of its own, so that two in one process do not mix.
//
// What can be looked up when somebody asks is not counted here but collected
// then (see state). The values of every label come from a fixed list.
type metrics struct {
	registry *prometheus.Registry

	requests       *prometheus.CounterVec   // by path and RespStatus
	requestSeconds *prometheus.HistogramVec // by path
	inFlight       prometheus.Gauge
	forwarded      *prometheus.CounterVec // by direction
	ended          *prometheus.CounterVec // sessions, by reason

	// What is counted for each request or entry is found once, from the start on: to look
	// for a counter by its labels takes longer than to count. So the first of a kind
	// shows as an increase, too.
	usual   map[string]usual
	reads   map[api.Consistency]prometheus.Counter
	applied map[machine.Event]prometheus.Counter

	commitLatency   prometheus.Histogram // in milliseconds; the name is given
	staleReads      prometheus.Counter
	premature       prometheus.Counter
	leaderChanges   prometheus.Counter
	snapshotSeconds prometheus.Histogram
	saveSeconds     prometheus.Histogram
}

// usual is what a request to a path adds to.
type usual struct {
	ok      prometheus.Counter // if its RespStatus is OK
	seconds prometheus.Observer
}

// The values of the label direction.
const (
	forwardedOut = "out" // to the leader
	forwardedIn  = "in"  // from another server
)

// The values of the label reason.
const (
	endedExpired = "expired"
	endedEvicted = "evicted"
)

// knownPath returns the path itself if there is such a one. A client must not be
// able to make new series, or long lines in a log.
func knownPath(path string) string {
	if _, known := operations[path]; known || isAdmin(path) || path == api.PathStatus {
		return path
	}
	return "other"
}

var (
	// From what memory answers to what the longest request may take.
	secondsBuckets = []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}

	millisBuckets = []float64{.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000}
)

// newMetrics returns the metrics of a service.
func newMetrics(s *KVService) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		usual:    map[string]usual{},
		reads:    map[api.Consistency]prometheus.Counter{},
		applied:  map[machine.Event]prometheus.Counter{},

		requests:       newCounterVec("raftkv_requests_total", "Requests of clients that were answered, by path and RespStatus.", "path", "status"),
		requestSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "raftkv_request_duration_seconds", Help: "Time from a client's request to its answer.", Buckets: secondsBuckets}, []string{"path"}),
		inFlight:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "raftkv_requests_in_flight", Help: "Requests of clients that are not answered yet."}),
		forwarded:      newCounterVec("raftkv_forwarded_requests_total", "Requests passed on to the leader (out) or taken from another server (in).", "direction"),
		ended:          newCounterVec("raftkv_sessions_ended_total", "Sessions and Idempotency-Keys forgotten since the start: unused for the retention (expired), or for room (evicted).", "reason"),

		commitLatency:   newHistogram("dedup_commit_latency_ms", "Milliseconds from handing a command to Raft until it was applied, on the server that did so.", millisBuckets),
		staleReads:      newCounter("dedup_stale_read_total", "Reads that were answered from this server's state without asking the leader."),
		premature:       newCounter("dedup_premature_eviction_total", "Writes that came for a session that was not there (any more), as applied here since the start."),
		leaderChanges:   newCounter("raft_leader_changes_total", "Leaderships that this server has learned of since its start."),
		snapshotSeconds: newHistogram("raftkv_snapshot_duration_seconds", "Time to write a snapshot of the state.", secondsBuckets),
		saveSeconds:     newHistogram("raftkv_storage_save_duration_seconds", "Time of a write to the log on disk, its sync included.", secondsBuckets),
	}
	for path := range operations {
		m.usual[path] = usual{m.requests.WithLabelValues(path, string(api.StatusOK)), m.requestSeconds.WithLabelValues(path)}
	}
	reads := newCounterVec("raftkv_reads_total", "Reads of clients by the level that they asked for.", "level")
	for _, level := range []api.Consistency{api.ConsistencyLinearizable, api.ConsistencyLease, api.ConsistencyLog, api.ConsistencyStale} {
		m.reads[level] = reads.WithLabelValues(string(level))
	}
	applied := newCounterVec("raftkv_applied_commands_total", "Commands applied since the start, those read again from the log included, by what became of them.", "event")
	for _, event := range []machine.Event{machine.EventCommitted, machine.EventDuplicate, machine.EventRefused, machine.EventMark} {
		m.applied[event] = applied.WithLabelValues(string(event))
	}
	// From the start on, for the same reason.
	for _, reason := range []string{endedExpired, endedEvicted} {
		m.ended.WithLabelValues(reason)
	}
	m.registry.MustRegister(
		m.requests, m.requestSeconds, m.inFlight, reads, m.forwarded, applied, m.ended,
		m.commitLatency, m.staleReads, m.premature, m.leaderChanges, m.snapshotSeconds, m.saveSeconds,
		state{s}, buildInfo(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

func newCounter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func newCounterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func newHistogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

// handler answers a scrape.
func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// saved notes how long a write to the disk took.
func (m *metrics) saved(took time.Duration) { m.saveSeconds.Observe(took.Seconds()) }

// answered counts a request of a client.
func (m *metrics) answered(path string, status api.Status, took time.Duration) {
	usual, known := m.usual[path]
	if !known {
		usual.seconds = m.requestSeconds.WithLabelValues(path)
	}
	usual.seconds.Observe(took.Seconds())
	if known && status == api.StatusOK {
		usual.ok.Inc()
	} else {
		m.requests.WithLabelValues(path, string(status)).Inc()
	}
}

// buildInfo says which program this is.
func buildInfo() prometheus.Collector {
	version, revision, goVersion := "unknown", "unknown", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version, goVersion = info.Main.Version, info.GoVersion
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				revision = setting.Value
			}
		}
	}
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "raftkv_build_info",
		Help:        "Always 1; the labels say which program runs.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision, "goversion": goVersion},
	})
	g.Set(1)
	return g
}

// state is what a scrape finds by looking. It costs nothing in between.
type state struct{ s *KVService }

func figure(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	figureRole   = figure("raftkv_role", "1 for the role that this server has, 0 for the others.", "role")
	figureTerm   = figure("raftkv_term", "The term that this server is in.")
	figureLeader = figure("raftkv_leader_id", "The server that leads as far as this one knows; 0 if it knows of none.")

	figureCommit   = figure("raftkv_commit_index", "The last index that is known to be committed.")
	figureApplied  = figure("raftkv_applied_index", "The last index that the store has taken in.")
	figureFirst    = figure("raftkv_first_index", "Where the log begins.")
	figureLast     = figure("raftkv_last_index", "Where the log ends.")
	figureSnapshot = figure("raftkv_snapshot_index", "What the newest snapshot covers; 0 if there is none.")
	figureConfig   = figure("raftkv_configuration_index", "Where the configuration in force stands in the log.")

	figureLogBytes      = figure("raftkv_log_bytes", "What the log takes on the disk.")
	figureSnapshotBytes = figure("raftkv_snapshot_bytes", "What the snapshots take on the disk.")

	figureSessions        = figure("dedup_session_table_size", "Sessions in the table that tells new writes from repetitions.")
	figureIdempotencyKeys = figure("raftkv_idempotency_keys", "Idempotency-Keys that are remembered.")
	figureKeys            = figure("raftkv_keys", "Keys in the store.")
	figureWaiters         = figure("raftkv_waiters", "Requests that wait for an entry to be applied.")
	figureWaitingReads    = figure("raftkv_waiting_reads", "Reads that wait for the store to come to an index.")
	figureBusy            = figure("raftkv_loop_busy_seconds", "How long the server's loop has been at what it does now; 0 while it waits.")
	figureHeard           = figure("raftkv_leader_contact_age_seconds", "Time since this server last knew what is committed; absent if it never did.")
	figurePeers           = figure("raftkv_peers", "Other servers in the configuration.")
	figurePeersConnected  = figure("raftkv_peers_connected", "Other servers in the configuration that this one has a connection to.")

	figures = []*prometheus.Desc{
		figureRole, figureTerm, figureLeader,
		figureCommit, figureApplied, figureFirst, figureLast, figureSnapshot, figureConfig,
		figureLogBytes, figureSnapshotBytes,
		figureSessions, figureIdempotencyKeys, figureKeys, figureWaiters, figureWaitingReads, figureBusy, figureHeard, figurePeers, figurePeersConnected,
	}

	roles = []raft.CMState{raft.Follower, raft.PreCandidate, raft.Candidate, raft.Leader}
)

// Describe implements prometheus.Collector.
func (c state) Describe(descriptions chan<- *prometheus.Desc) {
	for _, f := range figures {
		descriptions <- f
	}
}

// Collect implements prometheus.Collector. Before Run there is nothing to see.
func (c state) Collect(out chan<- prometheus.Metric) {
	s := c.s
	if !isClosed(s.attached) {
		return
	}
	put := func(f *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(f, prometheus.GaugeValue, value, labels...)
	}
	now := s.raft.Status()
	for _, role := range roles {
		put(figureRole, oneIf(role == now.State), role.String())
	}
	put(figureTerm, float64(now.Term))
	put(figureLeader, float64(now.LeaderID))
	put(figureCommit, float64(now.CommitIndex))
	put(figureFirst, float64(now.FirstIndex))
	put(figureLast, float64(now.LastIndex))
	put(figureSnapshot, float64(now.SnapshotIndex))
	put(figureConfig, float64(now.ConfigurationIndex))
	put(figureBusy, s.raft.Busy().Seconds())
	if at, _ := s.raft.Heard(); !at.IsZero() {
		put(figureHeard, time.Since(at).Seconds())
	}
	log, snapshots := s.raft.DiskBytes()
	put(figureLogBytes, float64(log))
	put(figureSnapshotBytes, float64(snapshots))

	configuration, _ := s.raft.Configuration()
	others, connected := 0, 0
	for _, id := range configuration.Members() {
		if id != s.config.ID {
			others++
			connected += int(oneIf(s.raft.Connected(id)))
		}
	}
	put(figurePeers, float64(others))
	put(figurePeersConnected, float64(connected))

	s.mu.Lock()
	applied, keys := s.machine.AppliedIndex(), s.machine.Keys()
	sessions, idempotencyKeys := s.machine.Sessions(), s.machine.IdempotencyKeys()
	waiting, reads := s.waiters.Len(), len(s.readers)
	s.mu.Unlock()
	put(figureApplied, float64(applied))
	put(figureKeys, float64(keys))
	put(figureSessions, float64(sessions))
	put(figureIdempotencyKeys, float64(idempotencyKeys))
	put(figureWaiters, float64(waiting))
	put(figureWaitingReads, float64(reads))
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
