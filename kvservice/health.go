package kvservice

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"raftkv/api"
	"raftkv/raft"
)

// The paths for those who watch a server. They answer GET and HEAD, in plain
// text, also before the server has its state.
const (
	pathMetrics = "/metrics"
	pathLive    = "/livez"
	pathReady   = "/readyz"
)

// stuckAfter is how long the server's loop may be at one thing. A slow disk is no
// reason to kill a process, for the next one has the same disk; only after this
// long is a new start the better bet.
const stuckAfter = 30 * time.Second

// readyLag is how many entries a server may be behind what it knows to be
// committed. A busy server is always a little behind.
const readyLag = 1024

// serveWatcher answers the paths for those who watch, and reports whether this
// was one.
func (s *KVService) serveWatcher(w http.ResponseWriter, req *http.Request, path string) bool {
	var check func() (trouble string)
	switch path {
	case pathMetrics:
	case pathLive:
		check = s.notAlive
	case pathReady:
		check = s.notReady
	default:
		return false
	}
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		writeAnswer(w, api.Refuse(api.StatusBadMethod, fmt.Sprintf("%s takes GET, not %s", path, req.Method)))
		return true
	}
	if check == nil {
		s.metrics.handler().ServeHTTP(w, req)
		return true
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if trouble := check(); trouble != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, trouble+"\n")
		return true
	}
	io.WriteString(w, "ok\n")
	return true
}

// notAlive says why this process should be ended and started anew; "" if it
// should not. What a new start does not help against is no reason: no leader, no
// majority, much to catch up with.
func (s *KVService) notAlive() string {
	if !isClosed(s.attached) {
		return "" // it has not begun yet
	}
	if busy := s.raft.Busy(); busy > stuckAfter {
		return fmt.Sprintf("the server's loop has been at one thing for %v; its disk hangs, or it is stuck", busy.Round(time.Second))
	}
	if began := time.Duration(s.applyingSince.Load()); began != 0 && time.Since(s.start)-began > stuckAfter {
		return fmt.Sprintf("one entry is being applied for %v; the store is stuck", (time.Since(s.start) - began).Round(time.Second))
	}
	return ""
}

// notReady says why clients had better ask another server now; "" if they may
// ask this one.
func (s *KVService) notReady() string {
	if !isClosed(s.attached) {
		return "starting: the log is being read"
	}
	if s.stopping.Load() || isClosed(s.stopped) {
		return "stopping"
	}
	if trouble := s.notAlive(); trouble != "" {
		return trouble
	}
	now := s.raft.Status()
	if now.LeaderID == raft.None {
		return "no leader is known: an election is under way, or too few servers can be reached"
	}
	_, committed := s.raft.Heard()
	committed = max(committed, now.CommitIndex)
	s.mu.Lock()
	applied, ready := s.machine.AppliedIndex(), s.isReady()
	s.mu.Unlock()
	if applied+readyLag < committed {
		return fmt.Sprintf("not caught up: applied %d of %d", applied, committed)
	}
	if now.LeaderID == s.config.ID && !ready {
		return "this server leads, and is still applying what earlier leaders left"
	}
	return ""
}

// isClosed reports whether what a channel announces by closing has come to pass.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
