package kvservice

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"raftkv/api"
	"raftkv/kvservice/machine"
	"raftkv/raft"
)

// What stands in the log of the program about requests and entries. A write has
// one line on each server when it is applied, and one on the server that answers
// it, both at debug; who looks for one request greps for its request_id, and with
// the idempotency_key and serial found there, for all copies of the write.

// requestIDs makes ids for requests that have none: the server's run and a
// number.
type requestIDs struct {
	prefix string
	last   atomic.Uint64
}

func newRequestIDs() *requestIDs { return &requestIDs{prefix: rand.Text()[:10] + "-"} }

// of returns the id of a request: the client's, if it is short and has no
// character that could break a line or a header.
func (r *requestIDs) of(given string) string {
	if safeRequestID(given) {
		return given
	}
	return r.prefix + strconv.FormatUint(r.last.Add(1), 10)
}

func safeRequestID(id string) bool {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/+=@"
	return id != "" && len(id) <= api.MaxRequestIDBytes && strings.Trim(id, safe) == ""
}

// recordRequest writes the line of a request at the server that the client asked.
func (s *KVService) recordRequest(ctx context.Context, id, path string, status api.Status, took time.Duration) {
	if !s.config.Logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	s.config.Logger.LogAttrs(ctx, slog.LevelDebug, "request", slog.String("request_id", id),
		slog.String("path", path), slog.String("status", string(status)), slog.Duration("took", took))
}

// recordApplied counts an entry that was applied and writes its line; of a batch,
// those of its operations. The lock is held.
func (s *KVService) recordApplied(entry raft.CommitEntry, applied machine.Applied) {
	if applied.Event == machine.EventNone {
		return
	}
	if applied.Expired > 0 {
		s.metrics.ended.WithLabelValues(endedExpired).Add(float64(applied.Expired))
	}
	if applied.Evicted > 0 {
		s.metrics.ended.WithLabelValues(endedEvicted).Add(float64(applied.Evicted))
		s.config.Logger.Info("sessions were forgotten to make room, before their time", "event", "evicted", "sessions", applied.Evicted,
			"raft.commit_index", uint64(entry.Index), "raft.term", uint64(entry.Term))
	}
	if len(applied.Operations) == 0 {
		s.metrics.applied[applied.Event].Inc()
		s.recordOperation(entry, &applied)
	}
	counted := 0
	for i := range applied.Operations {
		operation := &applied.Operations[i]
		if next := i + 1; next == len(applied.Operations) || applied.Operations[next].Event != operation.Event {
			s.metrics.applied[operation.Event].Add(float64(next - counted)) // mostly all come to the same
			counted = next
		}
		if applied.Identity.RequestID != 0 {
			keyed := *operation
			keyed.Identity = applied.Identity // the key is that of all of them
			operation = &keyed
		}
		s.recordOperation(entry, operation)
	}
}

// recordOperation counts a write that came too late and writes the line of a command.
func (s *KVService) recordOperation(entry raft.CommitEntry, applied *machine.Applied) {
	level := slog.LevelDebug
	if applied.Premature() {
		s.metrics.premature.Inc()
		level = slog.LevelInfo
	}
	if s.config.Logger.Enabled(context.Background(), level) {
		s.config.Logger.LogAttrs(context.Background(), level, "applied", entryAttrs(entry.Index, entry.Term, *applied)...)
	}
}

// recordAnswered writes the line of a command whose client gets its result here.
func (s *KVService) recordAnswered(ctx context.Context, a answer) {
	if a.lost || !s.config.Logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	attrs := entryAttrs(a.at.Index, a.at.Term, a.applied)
	s.config.Logger.LogAttrs(ctx, slog.LevelDebug, "answered", append(attrs, slog.String("request_id", requestOf(ctx).id))...)
}

// entryAttrs are the fields by which an entry is found again. Only a write of a
// session has a key and a serial.
func entryAttrs(index raft.Index, term raft.Term, applied machine.Applied) []slog.Attr {
	attrs := []slog.Attr{
		slog.String("event", string(applied.Event)),
		slog.Uint64("raft.commit_index", uint64(index)),
		slog.Uint64("raft.term", uint64(term)),
		slog.String("status", string(applied.Result.Status)),
	}
	if id := applied.Identity; id.RequestID != 0 {
		// The machine marks an Idempotency-Key with a byte that is no text.
		key := strings.ToValidUTF8(string(id.ClientID), "")
		attrs = append(attrs, slog.String("idempotency_key", key), slog.Uint64("serial", id.RequestID))
	}
	return attrs
}

// recordRole counts leaderships and tells of those of this server. The lock is held.
func (s *KVService) recordRole(now raft.Status) {
	if now.LeaderID != raft.None && (now.LeaderID != s.lastLeader.id || now.Term != s.lastLeader.term) {
		s.metrics.leaderChanges.Inc()
		s.config.Logger.Info("leader", "event", "leader_changed", "leader", uint64(now.LeaderID), "raft.term", uint64(now.Term), "raft.commit_index", uint64(now.CommitIndex))
		s.lastLeader = leader{now.LeaderID, now.Term}
	}
}

// leader is a leadership that this server has learned of.
type leader struct {
	id   raft.ServerID
	term raft.Term
}
