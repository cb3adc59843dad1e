package part5

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fortytw2/leaktest"
	"github.com/stretchr/testify/require"

	raft "raftkv/part3-persistence"
	"raftkv/part5-dedup/kvclient"
	"raftkv/part5-dedup/kvservice"
)

// system is real servers: Raft over loopback TCP, and HTTP for the clients.
type system struct {
	t       *testing.T
	rafts   map[raft.ServerID]string // addresses of Raft
	https   map[raft.ServerID]string // addresses of the services
	storage map[raft.ServerID]*raft.MapStorage
	running map[raft.ServerID]server
}

type server struct {
	rs  *raft.Server
	kvs *kvservice.KVService
}

func newSystem(t *testing.T, n int) *system {
	t.Cleanup(leaktest.Check(t)) // after all servers are shut down
	s := &system{
		t, map[raft.ServerID]string{}, map[raft.ServerID]string{},
		map[raft.ServerID]*raft.MapStorage{}, map[raft.ServerID]server{},
	}
	listeners := map[raft.ServerID]net.Listener{}
	for id := raft.ServerID(1); int(id) <= n; id++ {
		listeners[id] = s.listen("127.0.0.1:0")
		s.rafts[id], s.storage[id] = listeners[id].Addr().String(), raft.NewMapStorage()
	}
	for id, listener := range listeners {
		http := s.listen("127.0.0.1:0")
		s.https[id] = http.Addr().String()
		s.start(id, listener, http)
	}
	t.Cleanup(func() {
		for id := range s.running {
			s.crash(id)
		}
	})
	return s
}

// start starts a server over its storage: first its Raft, then its service.
func (s *system) start(id raft.ServerID, listener, http net.Listener) {
	peers := map[raft.ServerID]string{}
	for peerID, addr := range s.rafts {
		if peerID != id {
			peers[peerID] = addr
		}
	}
	commitChan := make(chan raft.CommitEntry)
	rs, err := raft.NewServer(id, listener, peers, s.storage[id], commitChan)
	require.NoError(s.t, err)
	rs.ElectionTimeout = 50 * time.Millisecond
	kvs := kvservice.New(id, rs, commitChan)
	rs.Serve()
	kvs.ServeHTTP(http)
	s.running[id] = server{rs, kvs}
}

// crash ends a server and everything that it knew but for its storage.
func (s *system) crash(id raft.ServerID) {
	s.running[id].kvs.Shutdown()
	require.NoError(s.t, s.running[id].rs.Shutdown())
	delete(s.running, id)
}

func (s *system) restart(id raft.ServerID) {
	s.start(id, s.listen(s.rafts[id]), s.listen(s.https[id]))
}

// listen takes a port, which may be one that a crashed server has just left.
func (s *system) listen(addr string) (listener net.Listener) {
	require.Eventually(s.t, func() bool {
		l, err := net.Listen("tcp", addr)
		if err == nil {
			listener = l
		}
		return err == nil
	}, 10*time.Second, time.Millisecond)
	return listener
}

// client returns a client with connections of its own.
func (s *system) client() *kvclient.KVClient {
	var addrs []string
	for _, addr := range s.https {
		addrs = append(addrs, addr)
	}
	c := kvclient.New(addrs)
	transport := &http.Transport{}
	s.t.Cleanup(transport.CloseIdleConnections)
	c.HTTPClient = &http.Client{Transport: transport}
	return c
}

// leader returns a server that leads, when there is one.
func (s *system) leader() (leader raft.ServerID) {
	require.Eventually(s.t, func() bool {
		for id, server := range s.running {
			if server.rs.IsLeader() {
				leader = id
			}
		}
		return leader != raft.None
	}, 10*time.Second, time.Millisecond)
	return leader
}

// Three clients append to one key at the same time. Each word is there once.
func TestSystemThreeClientsInParallel(t *testing.T) {
	s := newSystem(t, 3)
	var wg sync.WaitGroup
	for _, name := range []string{"A", "B", "C"} {
		wg.Go(func() {
			c := s.client()
			for i := range 5 {
				_, _, err := c.Append(t.Context(), "x", fmt.Sprint(name, i, " "))
				requireDone(t, err)
			}
		})
	}
	wg.Wait()
	value, _, err := s.client().Get(t.Context(), "x")
	require.NoError(t, err)
	words := strings.Fields(value)
	slices.Sort(words)
	require.Equal(t, "A0 A1 A2 A3 A4 B0 B1 B2 B3 B4 C0 C1 C2 C3 C4", strings.Join(words, " "))
}

// The leader crashes, and comes back. What was written is there, and more can be.
func TestSystemLeaderCrashes(t *testing.T) {
	s := newSystem(t, 3)
	c := s.client()
	_, _, err := c.Put(t.Context(), "x", "1")
	requireDone(t, err)
	old := s.leader()
	s.crash(old)
	requireValue(t, c, "x", "1")
	_, _, err = c.Put(t.Context(), "x", "2")
	requireDone(t, err)
	s.restart(old)
	s.crash(s.leader()) // the server that has come back is needed now
	requireValue(t, c, "x", "2")
}

// requireDone checks that a call was carried out. If an answer got lost on the
// way, the client knows that and no more.
func requireDone(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, kvclient.ErrDuplicate) {
		require.NoError(t, err)
	}
}

func requireValue(t *testing.T, c *kvclient.KVClient, key, value string) {
	t.Helper()
	got, found, err := c.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, value != "", found)
	require.Equal(t, value, got)
}

// pipes is a network inside a synctest bubble: Dial on one end is Accept on the other.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	p <- there
	return here, nil
}

// alone runs a cluster of one and a client of it in virtual time, with real HTTP.
func alone(t *testing.T, story func(t *testing.T, c *kvclient.KVClient, lose *losing)) {
	synctest.Test(t, func(t *testing.T) {
		commitChan := make(chan raft.CommitEntry)
		rs, err := raft.NewServer(1, make(pipes), nil, raft.NewMapStorage(), commitChan)
		require.NoError(t, err)
		kvs := kvservice.New(1, rs, commitChan)
		rs.Serve()
		network := make(pipes)
		kvs.ServeHTTP(network)
		transport := &http.Transport{DialContext: network.dial}
		c := kvclient.New([]string{"kv"})
		lose := &losing{RoundTripper: transport}
		c.HTTPClient = &http.Client{Transport: lose}
		story(t, c, lose)
		transport.CloseIdleConnections()
		kvs.Shutdown()
		require.NoError(t, rs.Shutdown())
	})
}

// losing loses answers: the request arrives and is carried out, and its answer
// never comes.
type losing struct {
	http.RoundTripper
	answers int // how many are to be lost
}

func (l *losing) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := l.RoundTripper.RoundTrip(req)
	if err == nil && l.answers > 0 && answer.StatusCode == http.StatusOK {
		l.answers--
		answer.Body.Close()
		return nil, errors.New("connection reset by peer")
	}
	return answer, err
}

// The whole way from a call to its result.
func TestHTTPAllCalls(t *testing.T) {
	alone(t, func(t *testing.T, c *kvclient.KVClient, _ *losing) {
		requireValue(t, c, "x", "")
		prev, found, err := c.Append(t.Context(), "x", "foo")
		require.NoError(t, err)
		require.Equal(t, `"" false`, fmt.Sprintf("%q %v", prev, found))
		prev, found, err = c.Put(t.Context(), "x", "bar")
		require.NoError(t, err)
		require.Equal(t, `"foo" true`, fmt.Sprintf("%q %v", prev, found))
		prev, found, err = c.CAS(t.Context(), "x", "foo", "no")
		require.NoError(t, err)
		require.Equal(t, `"bar" true`, fmt.Sprintf("%q %v", prev, found))
		requireValue(t, c, "x", "bar")
	})
}

// An answer is lost, and over real HTTP, too, x is foobar. The client knows that
// its command was carried out, but not what it found.
func TestHTTPAnswerIsLost(t *testing.T) {
	alone(t, func(t *testing.T, c *kvclient.KVClient, lose *losing) {
		_, _, err := c.Put(t.Context(), "x", "foo")
		require.NoError(t, err)
		lose.answers = 1
		_, _, err = c.Append(t.Context(), "x", "bar")
		require.ErrorIs(t, err, kvclient.ErrDuplicate)
		requireValue(t, c, "x", "foobar")
	})
}
