package kvservice

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/raft"
)

// probe asks as a supervisor does, and returns the code and the line.
func probe(s *KVService, method, path string) (int, string) {
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Code, strings.TrimSuffix(w.Body.String(), "\n")
}

func TestHealth(t *testing.T) {
	healthy := func(t *testing.T, s *KVService, path string) {
		t.Helper()
		code, line := probe(s, http.MethodGet, path)
		require.Equal(t, 200, code, line)
		require.Equal(t, "ok", line)
	}
	ill := func(t *testing.T, s *KVService, path, why string) {
		t.Helper()
		code, line := probe(s, http.MethodGet, path)
		require.Equal(t, 503, code)
		require.Contains(t, line, why)
		require.NotContains(t, line, "\n")
		code, _ = probe(s, http.MethodHead, path)
		require.Equal(t, 503, code)
	}
	for name, c := range map[string]struct {
		trouble            func(s *KVService, r *scriptedRaft)
		notReady, notAlive string // "" if it is
	}{
		"it leads":   {func(*KVService, *scriptedRaft) {}, "", ""},
		"it follows": {func(s *KVService, r *scriptedRaft) { s.follow(r, 2, 2) }, "", ""},
		// A new start brings no leader.
		"nobody leads": {func(s *KVService, r *scriptedRaft) { s.follow(r, 2, raft.None) }, "no leader is known", ""},
		"it is behind": {func(s *KVService, r *scriptedRaft) {
			s.follow(r, 2, 2)
			r.readIndex = 5000
		}, "not caught up: applied 2 of 5000", ""},
		"a little behind": {func(s *KVService, r *scriptedRaft) {
			s.follow(r, 2, 2)
			r.readIndex = 1000
		}, "", ""},
		"it has just been elected": {func(s *KVService, r *scriptedRaft) {
			s.follow(r, 2, raft.None)
			r.status.State, r.status.LeaderID = raft.Leader, 1
			s.Observe(r.status)
		}, "still applying", ""},
		"it stops":            {func(s *KVService, _ *scriptedRaft) { s.stopping.Store(true) }, "stopping", ""},
		"its disk is slow":    {func(_ *KVService, r *scriptedRaft) { r.busy = 5 * time.Second }, "", ""},
		"its disk hangs":      {func(_ *KVService, r *scriptedRaft) { r.busy = time.Minute }, "at one thing for 1m0s", "at one thing for 1m0s"},
		"it applies for ever": {func(s *KVService, _ *scriptedRaft) { s.applyingSince.Store(1); <-time.After(time.Minute) }, "being applied for 1m0s", "being applied for 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r := serve(t)
				c.trouble(s, r)
				for path, why := range map[string]string{pathReady: c.notReady, pathLive + "/": c.notAlive} {
					if why == "" {
						healthy(t, s, path)
					} else {
						ill(t, s, path, why)
					}
				}
			})
		})
	}
	t.Run("it has not begun", func(t *testing.T) {
		s := New(Config{ID: 1})
		healthy(t, s, pathLive)
		ill(t, s, pathReady, "starting")
	})
	t.Run("wrong method", func(t *testing.T) {
		s, _ := newInstant(t, nil)
		for _, path := range []string{pathLive, pathReady, pathMetrics} {
			code, body := probe(s, http.MethodPost, path)
			require.Equal(t, 405, code)
			require.Contains(t, body, `"RespStatus":"BadMethod"`)
		}
	})
}
