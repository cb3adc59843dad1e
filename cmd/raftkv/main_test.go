package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/api"
	"raftkv/kvclient"
	"raftkv/kvservice"
	"raftkv/raft"
)

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "raftkv-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "raftkv")
		if runtime.GOOS == "windows" {
			binary += ".exe"
		}
		build := exec.Command("go", "build", "-ldflags=-s -w", "-o", binary, ".") // linked twice as fast without tables for a debugger
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "go build:", err)
			return 1
		}
		return m.Run()
	}())
}

// shell runs the program in a folder of its own, against some endpoints.
type shell struct {
	t         *testing.T
	dir       string
	endpoints string
}

func newShell(t *testing.T, endpoints ...string) *shell {
	return &shell{t: t, dir: t.TempDir(), endpoints: strings.Join(endpoints, ",")}
}

type output struct {
	stdout, stderr string
	code           int
}

func (s *shell) command(args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), endpointsEnv+"="+s.endpoints)
	return cmd
}

func (s *shell) run(args ...string) output { return s.runWith("", args...) }

func (s *shell) runWith(stdin string, args ...string) output {
	s.t.Helper()
	cmd := s.command(args...)
	cmd.Stdin = strings.NewReader(stdin)
	return s.finish(cmd)
}

func (s *shell) finish(cmd *exec.Cmd) output {
	s.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	o := output{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	if o.code > 0 {
		require.Regexp(s.t, `^(raftkv: warning: [^\n]*\n|member: [^\n]*\n)*raftkv: [^\n]*\n$`, o.stderr, "an error is one line")
	}
	return o
}

func (s *shell) path(name string) string { return filepath.Join(s.dir, name) }

// sections returns what the session file holds; it must be readable.
func (s *shell) sections() sections {
	s.t.Helper()
	got, err := readSections(s.path(defaultSessionFile))
	require.NoError(s.t, err)
	return got
}

// section returns the one section of the session file.
func (s *shell) section() *section {
	s.t.Helper()
	all := s.sections()
	require.Len(s.t, all, 1)
	for _, only := range all {
		return only
	}
	return nil
}

// startNode runs a cluster of one server, in a new folder.
func startNode(t *testing.T) *kvservice.Node { return startNodeWith(t, "") }

func startNodeWith(t *testing.T, duplicates api.Duplicates) *kvservice.Node {
	t.Helper()
	n, err := kvservice.Start(kvservice.NodeConfig{
		Duplicates:      duplicates,
		ID:              1,
		Data:            filepath.Join(t.TempDir(), "data"),
		HTTPAddr:        "127.0.0.1:0",
		RaftAddr:        "127.0.0.1:0",
		ClusterName:     "test",
		Members:         map[raft.ServerID]string{1: "127.0.0.1:0"},
		ElectionTimeout: 20 * time.Millisecond,
	})
	require.NoError(t, err)
	t.Cleanup(func() { n.Stop() })
	client := kvclient.New([]string{n.HTTPAddr()})
	defer client.Close()
	_, err = client.Get(t.Context(), "k")
	require.NoError(t, err, "it leads and serves")
	return n
}

// gate stands between the program and a node, sees every request, and decides
// what becomes of it.
type gate struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	target   string // host:port of the node
	hook     hook   // nil lets everything pass
	requests []request
}

// request is one that passed the gate.
type request struct {
	path string
	body api.CASRequest // has the fields of every write
}

// hook handles a request instead of the gate. forward carries it out at the
// node and returns the answer.
type hook func(w http.ResponseWriter, r request, forward func() (int, []byte))

func newGate(t *testing.T, target string) *gate {
	g := &gate{t: t, target: target}
	g.Server = httptest.NewServer(http.HandlerFunc(g.serve))
	t.Cleanup(g.Server.Close)
	return g
}

func (g *gate) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	seen := request{path: r.URL.Path}
	if len(body) > 0 {
		json.Unmarshal(body, &seen.body)
	}
	g.mu.Lock()
	g.requests = append(g.requests, seen)
	hook, target := g.hook, g.target
	g.mu.Unlock()
	forward := func() (int, []byte) {
		req, err := http.NewRequest(r.Method, "http://"+target+r.URL.Path, bytes.NewReader(body))
		if err != nil {
			panic(err)
		}
		req.Header = r.Header
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 502, nil
		}
		defer resp.Body.Close()
		answer, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, answer
	}
	if hook != nil {
		hook(w, seen, forward)
		return
	}
	pass(w, forward)
}

func (g *gate) set(h hook) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hook = h
}

func (g *gate) setTarget(address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.target = address
}

// count returns how many requests went to path, "" meaning all.
func (g *gate) count(path string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, r := range g.requests {
		if path == "" || r.path == path {
			n++
		}
	}
	return n
}

// checkIdentities fails if one identity was given to two different writes.
func (g *gate) checkIdentities() (identities int) {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	used := map[string]string{}
	for _, r := range g.requests {
		if r.body.ClientID == "" {
			continue
		}
		id := fmt.Sprintf("%s/%d", r.body.ClientID, r.body.RequestID)
		what := fmt.Sprintf("%s %q %q %q", r.path, r.body.Key, r.body.CompareValue, r.body.Value)
		if before, ok := used[id]; ok {
			require.Equal(g.t, before, what, "number %s was used twice", id)
		}
		used[id] = what
	}
	return len(used)
}

func pass(w http.ResponseWriter, forward func() (int, []byte)) {
	code, answer := forward()
	w.WriteHeader(code)
	w.Write(answer)
}

// cut ends the connection without a word.
func cut(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	conn.Close()
}

func isWrite(path string) bool {
	return slices.Contains([]string{api.PathPut, api.PathAppend, api.PathCAS, api.PathDelete}, path)
}
