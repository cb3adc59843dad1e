package kvservice

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fortytw2/leaktest"
	"github.com/stretchr/testify/require"

	"raftkv/api"
	"raftkv/raft"
	"raftkv/raft/server"
)

// system is three nodes on loopback with files of their own.
type system struct {
	t       *testing.T
	dir     string
	members map[raft.ServerID]string
	nodes   map[raft.ServerID]*Node
	logs    map[raft.ServerID]*logBuffer
	ports   map[raft.ServerID]*net.TCPListener
	client  *http.Client

	trailing int       // NodeConfig.TrailingBytes
	files    server.FS // NodeConfig's
	election time.Duration
	door     func() *door // NodeConfig's; nil means the usual one

	duplicates map[raft.ServerID]api.Duplicates // NodeConfig.Duplicates
}

func newSystem(t *testing.T) *system { return newSystemOn(t, nil, 0, nil) }

// newSystemOn is newSystem with files of another kind, an election timeout, and
// other bounds.
func newSystemOn(t *testing.T, files server.FS, election time.Duration, door func() *door) *system {
	return newSystemWith(t, func(s *system) { s.files, s.election, s.door = files, election, door })
}

// newSystemWith is newSystem with what prepare sets before the nodes start.
func newSystemWith(t *testing.T, prepare func(s *system)) *system {
	checkLeaks := leaktest.CheckTimeout(t, 10*time.Second)
	s := &system{
		t:       t,
		dir:     t.TempDir(),
		members: map[raft.ServerID]string{},
		nodes:   map[raft.ServerID]*Node{},
		logs:    map[raft.ServerID]*logBuffer{},
		ports:   map[raft.ServerID]*net.TCPListener{},
		client:  &http.Client{Transport: &http.Transport{}},

		duplicates: map[raft.ServerID]api.Duplicates{},
	}
	prepare(s)
	// The member list needs the ports before the nodes run, and a node that
	// restarts needs its port again. The test keeps them, so that nobody else can
	// take one meanwhile, and lends each node a copy.
	for id := raft.ServerID(1); id <= 3; id++ {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		require.NoError(t, err)
		s.ports[id] = l
		s.members[id] = l.Addr().String()
	}
	t.Cleanup(func() {
		for id := range s.nodes {
			s.stop(id)
		}
		for _, l := range s.ports {
			l.Close()
		}
		s.client.CloseIdleConnections()
		checkLeaks()
	})
	for id := raft.ServerID(1); id <= 3; id++ {
		s.start(id)
	}
	return s
}

func (s *system) config(id raft.ServerID) NodeConfig {
	s.logs[id] = &logBuffer{}
	return NodeConfig{
		ID:       id,
		Data:     filepath.Join(s.dir, fmt.Sprint(id)),
		HTTPAddr: "127.0.0.1:0",
		RaftAddr: s.members[id],
		Members:  s.members,
		Logger:   slog.New(slog.NewTextHandler(s.logs[id], nil)),

		TrailingBytes:   s.trailing,
		ElectionTimeout: s.election,
		files:           s.files,
		Duplicates:      s.duplicates[id],
	}
}

func (s *system) start(id raft.ServerID) {
	s.t.Helper()
	config := s.config(id)
	config.RaftListener = s.lend(id)
	if s.door != nil {
		config.door = s.door()
	}
	n, err := Start(config)
	require.NoError(s.t, err)
	s.nodes[id] = n
}

// lend returns a copy of the listener of a node's port.
func (s *system) lend(id raft.ServerID) net.Listener {
	file, err := s.ports[id].File()
	require.NoError(s.t, err)
	defer file.Close()
	l, err := net.FileListener(file)
	require.NoError(s.t, err)
	return l
}

func (s *system) stop(id raft.ServerID) {
	s.t.Helper()
	require.NoError(s.t, s.nodes[id].Stop())
	delete(s.nodes, id)
}

// eventually polls until ok holds; what says what was waited for.
func (s *system) eventually(what string, ok func() bool) {
	s.t.Helper()
	deadline := time.After(20 * time.Second)
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		select {
		case <-tick.C:
			if ok() {
				tick.Stop()
				return
			}
		case <-deadline:
			s.t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func (s *system) status(id raft.ServerID) (st api.StatusResponse) {
	s.t.Helper()
	resp, err := s.client.Get("http://" + s.nodes[id].HTTPAddr() + "/status")
	require.NoError(s.t, err)
	defer resp.Body.Close()
	require.NoError(s.t, json.NewDecoder(resp.Body).Decode(&st))
	return st
}

// leader waits until one of the given nodes (all, if none is given) leads and
// the others of them know it.
func (s *system) leader(among ...raft.ServerID) (leader raft.ServerID) {
	s.t.Helper()
	if len(among) == 0 {
		for id := range s.nodes {
			among = append(among, id)
		}
	}
	s.eventually("a leader that all know", func() bool {
		leader = 0
		for _, id := range among {
			if s.status(id).Role == "leader" {
				leader = id
			}
		}
		for _, id := range among {
			if leader == 0 || s.status(id).Leader != uint64(leader) {
				return false
			}
		}
		return true
	})
	return leader
}

func (s *system) post(id raft.ServerID, path, body string) (int, string) {
	s.t.Helper()
	resp, err := s.client.Post("http://"+s.nodes[id].HTTPAddr()+path, "application/json", strings.NewReader(body))
	require.NoError(s.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return resp.StatusCode, strings.TrimSpace(string(data))
}

// logBuffer collects what a node logs.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// The retried request has one answer: through every node, whichever of them
// leads, before and after all of them were stopped. In the post, only node 0
// says "duplicate"; every other leader says "failed, retry" to a command that
// was applied.
func TestSystemRetryHasOneAnswerWhoeverLeads(t *testing.T) {
	s := newSystem(t)
	s.leader()
	retried := `{"Key":"x","Value":"bar","ClientID":"a","RequestID":2}`
	_, first := s.post(1, "/put", `{"Key":"x","Value":"foo","ClientID":"a","RequestID":1}`)
	require.Contains(t, first, `"KeyFound":false`)
	code, answer := s.post(1, "/append", retried)
	require.Equal(t, 200, code)
	require.JSONEq(t, `{"RespStatus":"OK","Outcome":"applied","KeyFound":true,"PrevValue":"foo","Version":2}`, answer)
	want := strings.TrimSuffix(answer, "}") + `,"Duplicate":true}`

	retry := func() {
		t.Helper()
		for id := range s.nodes {
			code, again := s.post(id, "/append", retried)
			require.Equal(t, 200, code)
			require.Equal(t, want, again, "through node %d", id)
		}
	}
	everyoneLeads := func() {
		t.Helper()
		led := map[raft.ServerID]bool{}
		for len(led) < 3 {
			leader := s.leader()
			led[leader] = true
			retry()
			var others []raft.ServerID
			for id := range s.nodes {
				if id != leader {
					others = append(others, id)
					s.nodes[leader].Cut(id)
				}
			}
			s.leader(others...)
			// What it takes in before it knows is lost, and answered "unknown".
			s.eventually("the old leader resigns", func() bool { return s.status(leader).Role != "leader" })
			s.nodes[leader].Heal()
		}
	}
	everyoneLeads()
	for id := range s.members {
		s.stop(id)
	}
	for id := range s.members {
		s.start(id)
	}
	everyoneLeads()
	s.leader()
	_, body := s.post(1, "/get", `{"Key":"x"}`)
	require.Contains(t, body, `"Value":"foobar"`)
}

func TestSystemNothingIsLostWhenAllRestart(t *testing.T) {
	s := newSystem(t)
	s.leader()
	for i := range 50 {
		code, body := s.post(raft.ServerID(i%3+1), "/append", fmt.Sprintf(`{"Key":"x","Value":"%d,","ClientID":"a","RequestID":%d}`, i, i+1))
		require.Equal(t, 200, code, body)
	}
	_, before := s.post(1, "/get", `{"Key":"x"}`)
	for id := range s.members {
		s.stop(id)
	}
	for id := range s.members {
		s.start(id)
	}
	s.leader()
	_, after := s.post(2, "/get", `{"Key":"x"}`)
	require.Equal(t, before, after)
}

// A server whose disk was emptied may have voted and acknowledged what it no
// longer knows. The others remember its store and do not listen to the new one.
func TestSystemWipedDirectoryOfAKnownMemberIsRefused(t *testing.T) {
	s := newSystem(t)
	leader := s.leader()
	code, _ := s.post(leader, "/put", `{"Key":"x","Value":"1"}`)
	require.Equal(t, 200, code)
	wiped := leader%3 + 1
	healthy := wiped%3 + 1
	if healthy == leader {
		healthy = leader%3 + 2
	}
	s.stop(wiped)
	require.NoError(t, os.RemoveAll(filepath.Join(s.dir, fmt.Sprint(wiped))))
	s.start(wiped)
	s.eventually("the wiped server is told", func() bool {
		return strings.Contains(s.logs[wiped].String(), "lost its disk")
	})
	require.Contains(t, s.logs[wiped].String(), "remove it and add it again")
	code, _ = s.post(leader, "/put", `{"Key":"x","Value":"2"}`)
	require.Equal(t, 200, code, "the other two go on")
	require.Zero(t, s.status(wiped).LastIndex, "the wiped server was sent entries")

	// Without the leader there are a healthy and a wiped server: no majority. The
	// healthy one was handed over to, and finds out that it is alone.
	s.stop(leader)
	s.eventually("the successor resigns", func() bool { return s.status(healthy).Role != "leader" })
	term := s.status(healthy).Term
	quiet := time.After(time.Second)
	s.eventually("a second without a leader", func() bool {
		require.NotEqual(t, "leader", s.status(healthy).Role)
		require.NotEqual(t, "leader", s.status(wiped).Role)
		select {
		case <-quiet:
			return true
		default:
			return false
		}
	})
	require.Equal(t, term, s.status(healthy).Term)
}

// Somebody starts another server under an id that is taken.
func TestSystemTwoServersWithOneID(t *testing.T) {
	s := newSystem(t)
	leader := s.leader()
	code, _ := s.post(leader, "/put", `{"Key":"x","Value":"1"}`)
	require.Equal(t, 200, code)
	twin := leader%3 + 1
	config := s.config(twin)
	log := s.logs[twin]
	config.Data = filepath.Join(s.dir, "twin")
	_, err := Start(config)
	require.ErrorContains(t, err, "address already in use", "the same address is taken")
	_, err = os.Stat(config.Data)
	require.ErrorIs(t, err, os.ErrNotExist, "a start that was refused has left something")

	config.RaftAddr = "127.0.0.1:0"
	second, err := Start(config)
	require.NoError(t, err)
	s.eventually("the second one is told", func() bool { return strings.Contains(log.String(), "lost its disk") })
	term := s.status(leader).Term
	code, _ = s.post(leader, "/put", `{"Key":"x","Value":"2"}`)
	require.Equal(t, 200, code)
	require.NoError(t, second.Stop())
	require.Equal(t, term, s.status(leader).Term)
}

func TestSystemStartRefusals(t *testing.T) {
	s := newSystem(t)
	config := s.config(1)
	_, err := Start(config)
	require.ErrorContains(t, err, "cannot listen for the other servers")
	require.NotContains(t, err.Error(), "\n")

	config.RaftAddr = "127.0.0.1:0"
	_, err = Start(config)
	require.ErrorContains(t, err, "in use by another process")

	s.stop(1)
	config.Members = map[raft.ServerID]string{1: s.members[1], 2: s.members[2]}
	_, err = Start(config)
	require.ErrorContains(t, err, s.members[3])
	require.NotContains(t, err.Error(), "\n")

	config = s.config(1)
	config.ID = 4
	_, err = Start(config)
	require.Error(t, err)
	s.start(1)
	s.leader()
}

// Requests keep arriving while the node stops: each gets an answer or a closed
// connection, and nothing is left behind (newSystem's clean-up looks).
func TestSystemStopUnderLoad(t *testing.T) {
	s := newSystem(t)
	leader := s.leader()
	addr := s.nodes[leader].HTTPAddr()
	var clients sync.WaitGroup
	stopped := make(chan struct{})
	for c := range 16 {
		clients.Go(func() {
			for i := 1; ; i++ {
				select {
				case <-stopped:
					return
				default:
				}
				body := fmt.Sprintf(`{"Key":"k%d","Value":"v","ClientID":"c%d","RequestID":%d}`, c, c, i)
				resp, err := s.client.Post("http://"+addr+"/put", "application/json", strings.NewReader(body))
				if err != nil {
					return
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	s.eventually("some load", func() bool { return s.status(leader).Applied > 200 })
	s.stop(leader)
	close(stopped)
	clients.Wait()
}
