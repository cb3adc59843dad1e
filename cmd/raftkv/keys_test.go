package main

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/api"
	"raftkv/raft/storage"
)

func TestSystemKeys(t *testing.T) {
	t.Parallel()
	s := newShell(t, startNode(t).HTTPAddr())
	for _, test := range []struct {
		args   string
		stdin  string
		stdout string
		code   int
	}{
		{args: "get k", code: 2},
		{args: "get k -w json", stdout: `{"Key":"k","KeyFound":false,"Value":"","Version":0}` + "\n", code: 2},
		{args: "put k hello", stdout: "OK\n"},
		{args: "get k", stdout: "hello\n"},
		{args: "append k -you", code: 1}, // looks like a flag
		{args: "append k -- -you", stdout: "OK\n"},
		{args: "get k", stdout: "hello-you\n"},
		{args: "get k -w json", stdout: `{"Key":"k","KeyFound":true,"Value":"hello-you","Version":2}` + "\n"},
		{args: "put k - -w json", stdin: "two\nlines\n", stdout: `{"Outcome":"applied","Op":"put","Key":"k","KeyFound":true,"PrevValue":"hello-you","Version":3}` + "\n"},
		{args: "get k", stdout: "two\nlines\n\n"},
		{args: "put k -", stdin: "", stdout: "OK\n"},
		{args: "get k -w json", stdout: `{"Key":"k","KeyFound":true,"Value":"","Version":4}` + "\n"},
		{args: "cas k x y", code: 3},
		{args: "cas k x y -w json", stdout: `{"Outcome":"applied","Op":"cas","Key":"k","KeyFound":true,"PrevValue":"","Swapped":false,"Version":4}` + "\n", code: 3},
		{args: "cas k  -", stdin: "y", stdout: "OK\n"}, // compares with the empty value
		{args: "get k", stdout: "y\n"},
		{args: "get k -w table", stdout: "KEY  FOUND  VERSION  VALUE\n\"k\"  true   5        \"y\"\n"},
		{args: "cas absent x y", code: 3},
		{args: "delete k", stdout: "OK\n"},
		{args: "delete k -w json", stdout: `{"Outcome":"applied","Op":"delete","Key":"k","KeyFound":false,"PrevValue":"","Version":0}` + "\n"},
		{args: "get k", code: 2},
		{args: "put k v --if-version 3", code: 3},
		{args: "put k v --if-version 3 -w json", stdout: `{"Outcome":"not_applied","Error":"put \"k\" was not applied: the key has version 0, not 3 (0: it is absent); nothing was done; read it and decide again"}` + "\n", code: 3},
		{args: "put k v --if-version 0", stdout: "OK\n"},
		{args: "append k w --if-version 7", stdout: "OK\n"},
		{args: "delete k --if-version 7", code: 3},
		{args: "delete k --if-version 8", stdout: "OK\n"},
		{args: "cas k  v --expect-absent", stdout: "OK\n"},
		{args: "cas k  w --expect-absent", code: 3},
		{args: "get k", stdout: "v\n"},
		{args: "put k AP8= --base64 -w json", stdout: `{"Outcome":"applied","Op":"put","Key":"k","KeyFound":true,"PrevValue":"dg==","Version":11,"Encoding":"base64"}` + "\n"},
		{args: "get k", stdout: "\x00\xff\n"},
		{args: "get k --base64", stdout: "AP8=\n"},
		{args: "get k -w json", stdout: `{"Key":"k","KeyFound":true,"Value":"AP8=","Version":11,"Encoding":"base64"}` + "\n"},
		{args: "cas k AP8= - --base64", stdin: "\xfe", stdout: "OK\n"},
		{args: "get k", stdout: "\xfe\n"},
		{args: "put kk w", stdout: "OK\n"},
		{args: "scan k", stdout: "k\t\xfe\nkk\tw\n"},
		{args: "scan k --limit 1 --base64", stdout: "k\t/g==\n"},
		{args: "scan k --limit 1 -w json", stdout: `{"Items":[{"Key":"k","Value":"/g==","Version":12,"Encoding":"base64"}],"Next":"k","AppliedIndex":24,"Server":"http://` + s.endpoints + `"}` + "\n"},
		{args: "scan k --limit 1 --all", stdout: "k\t\xfe\nkk\tw\n"},
		{args: "scan k --after k --at 24", stdout: "kk\tw\n"},
		{args: "scan k --at 3", code: 4},
		{args: "scan k --after k -w table", stdout: "KEY   VERSION  VALUE\n\"kk\"  13       \"w\"\n"},
		{args: "scan none", stdout: ""},
		{args: "put k v --session none", stdout: "OK\n"},
		{args: "get k --endpoints " + s.endpoints, stdout: "v\n"},
	} {
		got := s.runWith(test.stdin, strings.Split(test.args, " ")...)
		require.Equal(t, test.stdout, got.stdout, "raftkv %s", test.args)
		require.Equal(t, test.code, got.code, "raftkv %s: %s", test.args, got.stderr)
	}
	require.Nil(t, s.section().Pending)
}

// A command line that makes no sense is one line and exit 1. It asks no server
// and touches no session file.
func TestWrongCommandLines(t *testing.T) {
	t.Parallel()
	g := newGate(t, "127.0.0.1:1")
	s := newShell(t, g.URL)
	for _, args := range [][]string{
		{"nonsense"},
		{"session", "nonsense"},
		{"log", "nonsense"},
		{"put", "k"},
		{"put", "k", "v", "w"},
		{"put", "k", "v", "--nonsense"},
		{"put", "", "v"},
		{"put", "\xff", "v"},
		{"put", "k", "!", "--base64"},
		{"scan"},
		{"scan", "k", "--limit", "0"},
		{"scan", "k", "--limit", "1001"},
		{"scan", "k", "--consistency", "log"},
		{"cas", "k", "AP8=", "AP8", "--base64"},
		{"put", "k", "v", "--if-version", "-1"},
		{"put", "k", "v", "--expect-absent"},
		{"cas", "k", "x", "v", "--expect-absent"},
		{"cas", "k", "x", "v", "--if-version", "1"},
		{"get"},
		{"get", "k", "-w", "xml"},
		{"put", "k", "v", "-w", "xml"},
		{"get", "k", "--timeout", "0s"},
		{"get", "k", "--timeout", "soon"},
		{"get", "k", "--endpoints", "ftp://a"},
		{"get", "k", "--endpoints", ","},
		{"get", "k", "--endpoints", "http://a/b"},
		{"get", "k", "--endpoints", "http://"},
		{"session", "resume"},
		{"session", "drop"},
		{"session", "drop", "--session", "none"},
		{"session", "show", "-w", "xml"},
		{"put", "k", "v", "--session", "missing/file"},
		{"log", "dump", "missing"},
		{"log", "dump"},
		{"demo", "--nodes", "0"},
		{"demo", "--base-port", "65000"},
		{"demo", "extra"},
		{"serve"},
		{"serve", "--id", "1", "--data", "d"},
		{"serve", "--id", "2", "--data", "d", "--cluster", "1=127.0.0.1:0"},
		{"serve", "--id", "0", "--data", "d", "--cluster", "0=127.0.0.1:0"},
		{"serve", "--id", "1", "--data", "", "--cluster", "1=127.0.0.1:0"},
		{"serve", "--id", "1", "--data", "d", "--cluster", "127.0.0.1:0"},
		{"serve", "--id", "1", "--data", "d", "--cluster", "1=127.0.0.1:0,1=127.0.0.1:1"},
		{"serve", "--id", "1", "--data", "d", "--cluster", "1=127.0.0.1:1,2=127.0.0.1:1"},
		{"serve", "--id", "1", "--data", "d", "--cluster", "1=127.0.0.1"},
		{"serve", "--id", "1", "--data", "d", "--cluster", "1=127.0.0.1:99999"},
		{"serve", "--id", "1", "--data", "d", "--cluster", "1=127.0.0.1:0", "--http", "x"},
		{"serve", "--id", "1", "--data", "d", "--cluster", "1=127.0.0.1:0", "--raft", "x"},
		{"serve", "--id", "1", "--data", "d", "--cluster", "1=127.0.0.1:0", "--election-timeout", "0s"},
		{"serve", "--id", "1", "--data", "d", "--cluster", "1=127.0.0.1:0", "--duplicates", "reported"},
		{"demo", "--duplicates", "yes"},
	} {
		got := s.run(args...)
		require.Equal(t, 1, got.code, "raftkv %q: %s", args, got.stderr)
		require.Empty(t, got.stdout, "raftkv %q", args)
	}
	require.Zero(t, g.count(""))
	require.NoFileExists(t, s.path(defaultSessionFile))
	require.NoDirExists(t, s.path("d"))
}

// Each status has its exit code (design §5), and a write that is refused for
// good leaves nothing pending.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	node := startNode(t)
	for _, test := range []struct {
		status  api.Status
		outcome api.Outcome
		code    int
		says    string
		pending bool
	}{
		{api.StatusBadRequest, api.OutcomeNotApplied, 1, "was not applied", false},
		{api.StatusTooLarge, api.OutcomeNotApplied, 1, "was not applied", false},
		{api.StatusNotFound, api.OutcomeNotApplied, 1, "was not applied", false},
		{api.StatusBadMethod, api.OutcomeNotApplied, 1, "was not applied", false},
		{api.StatusUnsupportedMedia, api.OutcomeNotApplied, 1, "was not applied", false},
		{api.StatusRequestMismatch, api.OutcomeNotApplied, 1, "was not applied", false},
		{api.StatusNotLeader, api.OutcomeNotApplied, 4, "was not applied", false},
		{api.StatusBusy, api.OutcomeNotApplied, 4, "was not applied", false},
		{api.StatusSessionExpired, api.OutcomeNotApplied, 4, "was not applied", false},
		{api.StatusSessionExpired, api.OutcomeUnknown, 5, "session resume", true},
		{api.StatusStaleRequest, api.OutcomeUnknown, 5, "session resume", true},
		{api.StatusWindowExceeded, api.OutcomeUnknown, 5, "session resume", true},
		{api.StatusFailedCommit, api.OutcomeUnknown, 5, "session resume", true},
		{api.StatusTimeout, api.OutcomeUnknown, 5, "session resume", true},
		{api.StatusDuplicateRequest, api.OutcomeApplied, 0, "", false},
		{api.StatusDuplicateRequest, api.OutcomeNotApplied, 1, "was not applied: an earlier attempt was refused", false},
	} {
		t.Run(string(test.status)+" "+string(test.outcome), func(t *testing.T) {
			t.Parallel()
			put := func(more ...string) (*shell, output) {
				g := newGate(t, node.HTTPAddr())
				g.set(func(w http.ResponseWriter, r request, forward func() (int, []byte)) {
					if !isWrite(r.path) {
						pass(w, forward)
						return
					}
					if test.status == api.StatusNotLeader || test.status == api.StatusBusy {
						// An attempt that the timeout cuts off would be unknown, and rightly
						// so. The next ones find nobody, which is not applied for certain.
						w.Header().Set("Connection", "close")
						g.Listener.Close()
					}
					body, err := api.Encode(&api.ErrorResponse{RespStatus: test.status, Outcome: test.outcome})
					require.NoError(t, err)
					w.WriteHeader(api.HTTPStatus(test.status))
					w.Write(body)
				})
				timeout := "30s" // this answer ends the call
				if test.code >= api.ExitUnavailable {
					timeout = "1s" // after it the client asks on to the end
				}
				s := newShell(t, g.URL)
				return s, s.run(append([]string{"put", "k", "v", "--timeout", timeout}, more...)...)
			}
			s, got := put()
			require.Equal(t, test.code, got.code, got.stderr)
			require.Contains(t, got.stderr, test.says)
			require.Equal(t, test.pending, s.section().Pending != nil)

			// For programs the same is said in an object.
			if test.code != 0 {
				_, got = put("-w", "json")
				var answer struct {
					Outcome api.Outcome
					Error   string
				}
				require.NoError(t, json.Unmarshal([]byte(got.stdout), &answer))
				want := api.OutcomeNotApplied
				if test.pending {
					want = api.OutcomeUnknown
				}
				require.Equal(t, want, answer.Outcome)
				require.NotEmpty(t, answer.Error)
			}
		})
	}
}

func TestNoEndpointReachable(t *testing.T) {
	t.Parallel()
	s := newShell(t, "127.0.0.1:1", "127.0.0.1:2")
	for _, args := range [][]string{{"get", "k"}, {"put", "k", "v"}, {"put", "k", "v", "--session", "none"}, {"status"}} {
		got := s.run(append(args, "--timeout", "200ms")...)
		require.Equal(t, 4, got.code, "raftkv %q: %s", args, got.stderr)
	}
	require.NoFileExists(t, s.path(defaultSessionFile))
}

func TestSessionNoneSaysThatItIsUnprotected(t *testing.T) {
	t.Parallel()
	g := newGate(t, startNode(t).HTTPAddr())
	s := newShell(t, g.URL)
	got := s.run("append", "k", "x", "--session", "none")
	require.Equal(t, 0, got.code)
	require.Contains(t, got.stderr, "unprotected")
	require.NoFileExists(t, s.path(defaultSessionFile))

	g.set(func(w http.ResponseWriter, r request, forward func() (int, []byte)) {
		forward()
		cut(w)
	})
	got = s.run("append", "k", "y", "--session", "none")
	require.Equal(t, 5, got.code)
	require.Equal(t, 2, g.count(api.PathAppend), "sent once each")
	g.set(nil)
	require.Equal(t, "xy\n", s.run("get", "k").stdout)
}

func TestSystemStatus(t *testing.T) {
	t.Parallel()
	node := startNode(t)
	s := newShell(t, node.HTTPAddr(), "127.0.0.1:1")
	got := s.run("status", "-w", "json")
	require.Equal(t, 0, got.code, got.stderr)
	var status struct {
		Leader uint64
		Nodes  []struct {
			Endpoint string
			Status   *api.StatusResponse
			Error    string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &status))
	require.Equal(t, uint64(1), status.Leader)
	require.Len(t, status.Nodes, 2)
	require.Equal(t, "leader", status.Nodes[0].Status.Role)
	require.Nil(t, status.Nodes[1].Status)
	require.Contains(t, status.Nodes[1].Error, "refused")
	for _, form := range []string{"simple", "table"} {
		got = s.run("status", "-w", form)
		require.Equal(t, 0, got.code)
		require.Contains(t, got.stdout, "leader")
		require.Contains(t, got.stdout, "refused")
	}
}

func TestLeaderOf(t *testing.T) {
	view := func(id uint64, role string, term uint64) nodeView {
		return nodeView{Status: &api.StatusResponse{ID: id, Role: role, Term: term}}
	}
	require.Equal(t, uint64(2), leaderOf([]nodeView{view(1, "leader", 3), view(2, "leader", 4), view(3, "follower", 5), {}}), "the highest term that is led")
	require.Zero(t, leaderOf([]nodeView{view(1, "follower", 3), {}}))
}

func TestVersion(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	require.Regexp(t, `^raftkv \S+ go1\.\S+ \S+/\S+\n$`, s.run("version").stdout)
	require.True(t, json.Valid([]byte(s.run("version", "-w", "json").stdout)))
	require.Contains(t, s.run("version", "-w", "table").stdout, "VERSION")
}

func TestSystemServeRefusals(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	node := startNode(t) // holds a port
	require.NoError(t, os.WriteFile(s.path("notes.txt"), []byte("mine"), 0o600))
	serve := func(data string, more ...string) output {
		return s.run(append([]string{"serve", "--id", "1", "--data", data, "--http", "127.0.0.1:0", "--raft", "127.0.0.1:0", "--cluster", "1=127.0.0.1:0"}, more...)...)
	}
	for name, got := range map[string]output{
		"taken http port":  serve("a", "--http", node.HTTPAddr()),
		"taken raft port":  serve("b", "--raft", node.HTTPAddr()),
		"no data folder":   serve("/dev/null/x"),
		"other files here": serve("."),
	} {
		require.Equal(t, 1, got.code, "%s: %s", name, got.stderr)
	}
	require.NoDirExists(t, s.path("a"))
	require.NoDirExists(t, s.path("b"))

	// A directory of another server, or of another list, is refused and unchanged.
	files, err := storage.Open(s.path("c"), storage.Options{Identity: storage.NewIdentity(defaultClusterName, 2, []storage.Member{{ID: 1, Addr: "127.0.0.1:1"}, {ID: 2, Addr: "127.0.0.1:2"}})})
	require.NoError(t, err)
	require.NoError(t, files.Close())
	before := contents(t, s.path("c"))
	got := serve("c")
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, "belongs to another")
	require.Equal(t, before, contents(t, s.path("c")))

	got = s.run("log", "dump", s.path("c"))
	require.Equal(t, 0, got.code, got.stderr)
	require.Contains(t, got.stdout, "term 0")
}

// contents returns every file of a folder.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	all := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(dir + "/" + e.Name())
		require.NoError(t, err)
		all[e.Name()] = string(data)
	}
	return all
}

// A signal ends serve well: exit 0, and the port is free. The member list stands
// in the directory then and need not be given again.
func TestSystemServeEndsOnSignal(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	address := []string{"serve", "--id", "1", "--data", "d", "--http", "127.0.0.1:0", "--raft", "127.0.0.1:0"}
	members := []string{"--cluster", "1=127.0.0.1:0", "--cluster-name", "mine"}
	got := s.run(address...)
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, "--cluster is needed at the first start")
	require.NoDirExists(t, s.path("d"))
	for _, args := range [][]string{append(address, members...), address} {
		cmd := s.command(args...)
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		line := make([]byte, 256)
		n, err := stdout.Read(line)
		require.NoError(t, err)
		require.Regexp(t, `^serving: server 1, clients at http://127\.0\.0\.1:\d+, servers at 127\.0\.0\.1:\d+\n$`, string(line[:n]))
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		watchdog := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
		require.NoError(t, cmd.Wait())
		watchdog.Stop()
	}
	got = s.run(append(address, "--cluster-name", "another")...)
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, `its cluster is "mine", not "another"`)
}
