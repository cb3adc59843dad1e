package main

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/api"
)

// The answer to the first attempt is lost. In a cluster that only reports duplicates
// the command says in one line that the write is done, and exits with 0.
func TestLostAnswerInReportMode(t *testing.T) {
	t.Parallel()
	g := newGate(t, startNodeWith(t, api.DuplicatesReport).HTTPAddr())
	for _, test := range []struct{ args, stdout string }{
		{"put k a", "OK (an earlier attempt had taken effect; the cluster has not kept its result)\n"},
		{"append k b -w json", `{"Outcome":"applied","Op":"append","Key":"k","KeyFound":false,"PrevValue":"","Version":0,"Duplicate":true,"ResultLost":true}` + "\n"},
		{"delete k", "OK (an earlier attempt had taken effect; the cluster has not kept its result)\n"},
	} {
		s := newShell(t, g.URL)
		lost := 0
		g.set(func(w http.ResponseWriter, r request, forward func() (int, []byte)) {
			if isWrite(r.path) && lost == 0 {
				lost++
				forward()
				cut(w)
				return
			}
			pass(w, forward)
		})
		got := s.run(strings.Split(test.args, " ")...)
		require.Equal(t, 0, got.code, "raftkv %s: %s", test.args, got.stderr)
		require.Equal(t, test.stdout, got.stdout)
		require.Empty(t, got.stderr)
		require.Nil(t, s.section().Pending)
	}
	require.Equal(t, 2, newShell(t, g.URL).run("get", "k").code)
}

// A server that is started with another setting than its cluster has ends with one
// line that says what to do, and the line is right.
func TestSystemServeWithOtherDuplicates(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	address := []string{"serve", "--id", "1", "--data", "d", "--http", "127.0.0.1:0", "--raft", "127.0.0.1:0", "--cluster", "1=127.0.0.1:0", "--log-level", "error"}
	s.serveUntil(append(address, "--duplicates", "report"), api.DuplicatesReport)
	got := s.run(append(address, "--duplicates", "cached")...)
	require.Equal(t, 1, got.code)
	require.Equal(t, `raftkv: server 1 has stopped: the store cannot go on: entry 2: this cluster answers duplicates with "report", not "cached", and that is for good; start this server with --duplicates report or without the flag`+"\n", got.stderr)
	s.serveUntil(append(address, "--duplicates", "report"), api.DuplicatesReport)
	s.serveUntil(address, api.DuplicatesReport)
}

// serveUntil runs a server until it says how it answers duplicates, and ends it.
func (s *shell) serveUntil(args []string, want api.Duplicates) {
	s.t.Helper()
	cmd := s.command(args...)
	stdout, err := cmd.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, cmd.Start())
	line := make([]byte, 256)
	n, err := stdout.Read(line)
	require.NoError(s.t, err)
	address := strings.TrimSuffix(strings.Fields(string(line[:n]))[5], ",")
	require.Eventually(s.t, func() bool {
		resp, err := http.Get(address + api.PathStatus)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var status api.StatusResponse
		body, err := io.ReadAll(resp.Body)
		return err == nil && api.DecodeResponse(body, &status) == nil && status.Duplicates == want
	}, 20*time.Second, 10*time.Millisecond)
	require.NoError(s.t, cmd.Process.Signal(os.Interrupt))
	require.NoError(s.t, cmd.Wait())
}
