package kvservice

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/api"
	"raftkv/kvservice/machine"
	"raftkv/raft"
)

// appliedWrite is what became of some write of a session.
func appliedWrite() machine.Applied {
	return machine.Applied{
		Identity: machine.Identity{ClientID: "a", RequestID: 1},
		Result:   machine.Result{Status: api.StatusOK, Outcome: api.OutcomeApplied},
		Event:    machine.EventCommitted,
	}
}

// logged returns the lines of a log in JSON that have a message.
func logged(t *testing.T, log *logBuffer, message string) (lines []map[string]any) {
	for line := range strings.Lines(log.String()) {
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &fields))
		if fields["msg"] == message {
			lines = append(lines, fields)
		}
	}
	return lines
}

func newLoggedInstant(t *testing.T, level slog.Level) (*KVService, *logBuffer) {
	log := &logBuffer{}
	s, _ := newInstant(t, slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: level})))
	return s, log
}

// One write can be followed from the door to the entry and back.
func TestAWriteInTheLog(t *testing.T) {
	s, log := newLoggedInstant(t, slog.LevelDebug)
	post(s, api.PathPut, putX1)
	post(s, api.PathPut, putX1)

	applied := logged(t, log, "applied")
	require.Len(t, applied, 3, "the settings, the write and its repetition")
	for i, event := range []string{"committed", "duplicate_detected"} {
		write := applied[i+1]
		require.Equal(t, event, write["event"])
		require.Equal(t, "a", write["idempotency_key"])
		require.EqualValues(t, 1, write["serial"])
		require.EqualValues(t, 1, write["raft.term"])
		require.EqualValues(t, i+3, write["raft.commit_index"])

		answered := logged(t, log, "answered")[i]
		require.Equal(t, "r7", answered["request_id"], "post gives every request this id")
		for _, field := range []string{"event", "idempotency_key", "serial", "raft.term", "raft.commit_index"} {
			require.Equal(t, write[field], answered[field], field)
		}
	}
	request := logged(t, log, "request")[0]
	require.Equal(t, "r7", request["request_id"])
	require.Equal(t, api.PathPut, request["path"])
	require.Equal(t, "OK", request["status"])
}

// Nobody's writes fill the log of a server that runs as usual. What an operator
// should see is in it.
func TestLogAtInfo(t *testing.T) {
	s, log := newLoggedInstant(t, slog.LevelInfo)
	post(s, api.PathPut, putX1)
	post(s, api.PathGet, `{"Key":"x"}`)
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	leader := logged(t, log, "leader")[0]
	require.Equal(t, "leader_changed", leader["event"])
	require.EqualValues(t, 1, leader["raft.term"])

	post(s, api.PathPut, `{"Key":"x","Value":"1","ClientID":"nobody","RequestID":7}`)
	gone := logged(t, log, "applied")
	require.Len(t, gone, 1)
	require.Equal(t, "nobody", gone[0]["idempotency_key"])
	require.Equal(t, "SessionExpired", gone[0]["status"])
}

// A batch is one entry, and each of its operations a write of somebody's. The
// byte that marks an Idempotency-Key stays out of the log.
func TestABatchInTheLog(t *testing.T) {
	s, log := newLoggedInstant(t, slog.LevelDebug)
	before := strings.Count(log.String(), "\n")
	batch := machine.Applied{Event: machine.EventCommitted, Expired: 2, Evicted: 3, Operations: []machine.Applied{appliedWrite(), appliedWrite(), appliedWrite()}}
	batch.Operations[2].Identity.ClientID = machine.NewKeyID("order-7")
	batch.Operations[2].Event = machine.EventDuplicate
	s.recordApplied(raft.CommitEntry{Index: 3, Term: 1}, batch)
	require.Equal(t, before+4, strings.Count(log.String(), "\n"), "three operations, and what had to make room")
	lines := logged(t, log, "applied")
	require.Equal(t, "a", lines[len(lines)-2]["idempotency_key"])
	require.Equal(t, "order-7", lines[len(lines)-1]["idempotency_key"])
	text := scrape(t, s)
	require.Contains(t, text, `raftkv_sessions_ended_total{reason="expired"} 2`)
	require.Contains(t, text, `raftkv_sessions_ended_total{reason="evicted"} 3`)
	require.Contains(t, text, `raftkv_applied_commands_total{event="committed"} 3`, "the settings, and two of the three")
	require.Contains(t, text, `raftkv_applied_commands_total{event="duplicate_detected"} 1`)
}

// The operations of a batch with a key are found by that key, on every server.
func TestABatchWithAKeyInTheLog(t *testing.T) {
	s, log := newLoggedInstant(t, slog.LevelDebug)
	body := `{"Operations":[{"Put":{"Key":"x","Value":"1"}},{"Delete":{"Key":"y"}}]}`
	postKeyed(s, api.PathBatch, "order-7", body)
	postKeyed(s, api.PathBatch, "order-7", body)
	lines := logged(t, log, "applied")[1:] // the first is that of the settings
	require.Len(t, lines, 4)
	for i, line := range lines {
		require.Equal(t, "order-7", line["idempotency_key"])
		require.Equal(t, []string{"committed", "duplicate_detected"}[i/2], line["event"])
	}
	for _, line := range logged(t, log, "answered") {
		require.Equal(t, "order-7", line["idempotency_key"])
	}
}

func TestRequestIDs(t *testing.T) {
	s, _ := newInstant(t, nil)
	ask := func(given string) string {
		req := httptest.NewRequest(http.MethodGet, api.PathStatus, nil)
		if given != "" {
			req.Header.Set(api.HeaderRequestID, given)
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, req)
		return w.Header().Get(api.HeaderRequestID)
	}
	for _, good := range []string{"7", "550e8400-e29b-41d4-a716-446655440000", strings.Repeat("x", api.MaxRequestIDBytes)} {
		require.Equal(t, good, ask(good))
	}
	made := map[string]bool{}
	for _, bad := range []string{"", "a b", "a\tb", "a\r\nSet-Cookie: x", "é", `"`, "\xff", strings.Repeat("x", api.MaxRequestIDBytes+1)} {
		id := ask(bad)
		require.True(t, safeRequestID(id), "%q", id)
		require.False(t, made[id], "%q twice", id)
		made[id] = true
	}
}

// The leader's lines name the request as the server does that the client asked.
func TestRequestIDGoesToTheLeader(t *testing.T) {
	leader, log := newLoggedInstant(t, slog.LevelDebug)
	s := New(Config{ID: 2})
	r := &scriptedRaft{status: raft.Status{ID: 2, State: raft.Follower, Term: 1, LeaderID: 1}}
	r.call = func(payload []byte) ([]byte, error) { return leader.HandleForwarded(t.Context(), 2, payload), nil }
	s.attach(r)
	code, body := post(s, api.PathPut, putX1)
	require.Equal(t, 200, code, body)
	answered := logged(t, log, "answered")
	require.Len(t, answered, 1)
	require.Equal(t, "r7", answered[0]["request_id"])
}
