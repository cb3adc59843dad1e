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
// the command says in one line that the write is done, and exits with 0. Only of a
// compare-and-set it is not known what it has done.
func TestLostAnswerInReportMode(t *testing.T) {
	t.Parallel()
	g := newGate(t, startNodeWith(t, api.DuplicatesReport).HTTPAddr())
	for _, test := range []struct {
		args, stdout, stderr string
		code                 int
	}{
		{"put k a", "OK (an earlier attempt had taken effect; the cluster has not kept its result)\n", "", 0},
		{"append k b -w json", `{"Outcome":"applied","Op":"append","Key":"k","KeyFound":false,"PrevValue":"","Version":0,"Duplicate":true,"ResultLost":true}` + "\n", "", 0},
		{"append k b --idempotency-key b", "OK (an earlier attempt had taken effect; the cluster has not kept its result)\n", "", 0},
		{"cas k abb c", "", `raftkv: cas "k" was carried out by an earlier attempt, and the cluster has not kept whether it swapped; read the key` + "\n", 5},
		{"delete k", "OK (an earlier attempt had taken effect; the cluster has not kept its result)\n", "", 0},
	} {
		s := newShell(t, g.URL)
		g.loseFirst()
		got := s.run(strings.Split(test.args, " ")...)
		require.Equal(t, test.code, got.code, "raftkv %s: %s", test.args, got.stderr)
		require.Equal(t, test.stdout, got.stdout)
		require.Equal(t, test.stderr, got.stderr)
		if !strings.Contains(test.args, "--idempotency-key") {
			require.Nil(t, s.section().Pending, "to resume would bring nothing more")
		}
	}
	require.Equal(t, 2, newShell(t, g.URL).run("get", "k").code)
}

// A write that was refused the first time is no success when it is repeated, and not
// unknown either: the outcome was recorded.
func TestLostRefusalInReportMode(t *testing.T) {
	t.Parallel()
	g := newGate(t, startNodeWith(t, api.DuplicatesReport).HTTPAddr())
	g.loseFirst()
	s := newShell(t, g.URL)
	got := s.run("put", "k", "v", "--if-version", "7")
	require.Equal(t, 1, got.code)
	require.Equal(t, `raftkv: put "k" was not applied: an earlier attempt was refused, and the cluster has not kept why; read the key and decide again`+"\n", got.stderr)
	require.Nil(t, s.section().Pending)
}

// loseFirst carries out the next write and loses its answer.
func (g *gate) loseFirst() {
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
}

// A write with a key of its own needs no session file: the same command again, from
// anywhere, changes nothing and prints the first result.
func TestIdempotencyKeyFlag(t *testing.T) {
	t.Parallel()
	g := newGate(t, startNodeWith(t, api.DuplicatesCached).HTTPAddr())
	g.loseFirst()
	first := newShell(t, g.URL)
	got := first.run("append", "k", "a", "--idempotency-key", "order 7")
	require.Equal(t, output{stdout: "OK (an earlier attempt had taken effect)\n"}, got)
	require.NoFileExists(t, first.path(".raftkv-session"))
	second := newShell(t, g.URL)
	require.Equal(t, 0, second.run("put", "k", "b").code)
	got = second.run("append", "k", "a", "--idempotency-key", "order 7", "-w", "json")
	require.Equal(t, `{"Outcome":"applied","Op":"append","Key":"k","KeyFound":false,"PrevValue":"","Version":1,"Duplicate":true}`+"\n", got.stdout)
	require.Equal(t, "b\n", second.run("get", "k").stdout)

	got = second.run("append", "k", "another", "--idempotency-key", "order 7")
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, "RequestMismatch")
	got = second.run("put", "k", "v", "--idempotency-key", "")
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, "must not be empty")

	g.set(func(w http.ResponseWriter, r request, forward func() (int, []byte)) {
		if isWrite(r.path) {
			cut(w)
			return
		}
		pass(w, forward)
	})
	got = second.run("append", "k", "a", "--idempotency-key", "order 8", "--timeout", "500ms")
	require.Equal(t, 5, got.code)
	require.Contains(t, got.stderr, "the same command with the same --idempotency-key finds out")
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
