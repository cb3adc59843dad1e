//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/kvclient"
)

// appenders are goroutines that share a client and append tokens, each to a key
// of its own, until they are stopped.
type appenders struct {
	t       *testing.T
	client  *kvclient.KVClient
	quit    chan struct{}
	running sync.WaitGroup

	mu    sync.Mutex
	want  map[string]string // what each key must hold
	open  map[string]string // the token of a call whose outcome nobody knows; the last one of its key
	fails []error
}

func startAppenders(t *testing.T, endpoints string, patience time.Duration) *appenders {
	a := &appenders{
		t: t, client: kvclient.New(strings.Split(endpoints, ",")), quit: make(chan struct{}),
		want: map[string]string{}, open: map[string]string{},
	}
	for i := range 32 {
		a.running.Go(func() { a.run(fmt.Sprintf("key%d", i), patience) })
	}
	return a
}

func (a *appenders) run(key string, patience time.Duration) {
	for n := 0; ; n++ {
		select {
		case <-a.quit:
			return
		default:
		}
		token := fmt.Sprintf("%d.", n)
		ctx, cancel := context.WithTimeout(a.t.Context(), patience)
		_, err := a.client.Append(ctx, key, token)
		cancel()
		a.mu.Lock()
		if err == nil {
			a.want[key] += token
		} else {
			a.fails = append(a.fails, err)
			if errors.As(err, new(*kvclient.UnknownError)) {
				a.open[key] = token
			}
		}
		a.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// progress waits until every key has grown.
func (a *appenders) progress() {
	a.t.Helper()
	a.mu.Lock()
	before := map[string]string{}
	for key, value := range a.want {
		before[key] = value
	}
	a.mu.Unlock()
	require.Eventually(a.t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		require.Empty(a.t, a.fails)
		for i := range 32 {
			key := fmt.Sprintf("key%d", i)
			if a.want[key] == before[key] {
				return false
			}
		}
		return true
	}, 30*time.Second, 10*time.Millisecond)
}

// end stops the load, and returns what went wrong.
func (a *appenders) end() []error {
	close(a.quit)
	a.running.Wait()
	a.client.Close()
	return a.fails
}

// check reads what was written: every token that was acknowledged, once.
func (a *appenders) check(f *fleet) {
	a.t.Helper()
	for key, want := range a.want {
		got := strings.TrimSuffix(f.must("get", key), "\n")
		if got != want+a.open[key] {
			require.Equal(a.t, want, got, key)
		}
	}
}

// terminate sends a signal to a server, which must end well within the bound, and
// returns how long it took.
func (f *fleet) terminate(id int, sig os.Signal) time.Duration {
	f.t.Helper()
	p := f.running[id]
	began := time.Now()
	require.NoError(f.t, p.cmd.Process.Signal(sig))
	select {
	case <-p.exited:
	case <-time.After(stopBound):
		f.t.Fatalf("server %d has not ended: %s", id, p.output)
	}
	require.Zero(f.t, p.cmd.ProcessState.ExitCode(), p.output)
	delete(f.running, id)
	return time.Since(began)
}

// The leader is stopped under load, again and again, by either signal: it exits
// with 0, and those who write notice nothing.
func TestSystemTerminateUnderLoad(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	f.begin(3)
	load := startAppenders(t, f.endpoints, 30*time.Second)
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt, syscall.SIGTERM} {
		load.progress()
		leader := f.leader()
		t.Logf("server %d ended within %v", leader, f.terminate(leader, sig))
		load.progress()
		f.start(leader)
	}
	require.Empty(t, load.end())
	load.check(f)
}

// Alone, a server has nobody to hand over to. What it has acknowledged is there
// when it comes back.
func TestSystemTerminateALoneServer(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.begin(1)
	load := startAppenders(t, f.endpoints, time.Second)
	load.progress()
	t.Log("ended within", f.terminate(1, syscall.SIGTERM))
	load.running.Wait() // they have nobody to ask, and give up
	load.end()
	f.start(1)
	load.check(f)
}

// hangingClients are connections of clients that stand still: one stops in the
// body of a request, which the server has begun with by then, one in the head, one
// says nothing, one has sent a request and reads no answer.
func (f *fleet) hangingClients(id int) {
	f.t.Helper()
	for i, said := range []string{
		"POST /put HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{",
		"POST /put HTTP/1.1\r\nHost: x\r\nContent-",
		"",
		"POST /get HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{\"Key\":\"big\"}",
	} {
		conn, err := net.Dial("tcp", f.http(id))
		require.NoError(f.t, err)
		f.t.Cleanup(func() { conn.Close() })
		_, err = conn.Write([]byte(said))
		require.NoError(f.t, err)
		if i == 0 {
			f.awaitRequest(id)
		}
	}
}

// awaitRequest waits until a server is at a client's request.
func (f *fleet) awaitRequest(id int) {
	f.t.Helper()
	f.eventually("a request is under way", func() bool {
		resp, err := http.Get("http://" + f.http(id) + "/metrics")
		require.NoError(f.t, err)
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return strings.Contains(string(body), "raftkv_requests_in_flight 1")
	})
}

// Clients that stand still are waited for only so long, and with a second signal
// not at all.
func TestSystemTerminateWithHangingClients(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.begin(1)
	client := kvclient.New([]string{f.http(1)})
	defer client.Close()
	_, err := client.Put(t.Context(), "big", strings.Repeat("x", 1<<20))
	require.NoError(t, err)

	f.hangingClients(1)
	took := f.terminate(1, syscall.SIGTERM)
	t.Log("ended within", took)
	require.Greater(t, took, 4*time.Second, "the test has no client that hangs")

	f.start(1)
	f.must("get", "nothing", "absent")
	f.hangingClients(1)
	p := f.running[1]
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	f.eventually("it takes no more connections", func() bool {
		conn, err := net.Dial("tcp", f.http(1))
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	took = f.terminate(1, syscall.SIGTERM)
	t.Log("hurried, within", took)
	require.Less(t, took, 3*time.Second)
}

// The others hang: there is nobody who could take over, and what was sent before
// cannot come to its end. Whoever waits for it is told that nobody knows.
func TestSystemTerminateWithHangingPeers(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	// Long enough for the signal to come before the leader notices that it is alone.
	f.begin(3, "--election-timeout", "3s")
	leader := f.leader()
	for id := range f.running {
		if id != leader {
			f.freeze(id)
		}
	}
	answer := make(chan string)
	go func() {
		resp, err := http.Post("http://"+f.http(leader)+"/put", "application/json", strings.NewReader(`{"Key":"x","Value":"1"}`))
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		answer <- string(body)
	}()
	f.awaitRequest(leader)
	t.Log("ended within", f.terminate(leader, syscall.SIGTERM))
	require.Contains(t, <-answer, `"Outcome":"unknown"`)
}

// hangingNode stops when it is hurried, or never.
type hangingNode struct {
	hurried chan struct{}
	err     error
}

func (n hangingNode) Stop() error {
	<-n.hurried
	return n.err
}

func (n hangingNode) Hurry() { close(n.hurried) }

// A disk that hangs does not keep the process: it ends, with a line that says why.
func TestStopWithAHangingDisk(t *testing.T) {
	err := stop(1, hangingNode{hurried: make(chan struct{})}, 10*time.Millisecond)
	require.EqualError(t, err, "server 1 ends without its disk, which has not answered for 10ms; what was acknowledged is safe, look after the disk")

	n := hangingNode{hurried: make(chan struct{}), err: errors.New("the log is full")}
	n.Hurry()
	require.EqualError(t, stop(1, n, time.Minute), "server 1 did not end well: the log is full")
}
