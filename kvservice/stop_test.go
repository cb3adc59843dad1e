package kvservice

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fortytw2/leaktest"
	"github.com/stretchr/testify/require"

	"raftkv/raft"
)

// lone is one node, with clients whose connections the test counts.
type lone struct {
	*system
	disk *slowDisk
}

// newLone starts a node that is a cluster of its own, with the usual door unless
// another one is given.
func newLone(t *testing.T, patience patience, door ...*door) *lone {
	checkLeaks := leaktest.CheckTimeout(t, 10*time.Second)
	s := &system{t: t, dir: t.TempDir(), client: &http.Client{Transport: &http.Transport{}}, nodes: map[raft.ServerID]*Node{}}
	l := &lone{system: s, disk: &slowDisk{}}
	t.Cleanup(func() {
		if n := s.nodes[1]; n != nil {
			require.NoError(t, n.Stop())
		}
		s.client.CloseIdleConnections()
		checkLeaks()
	})
	l.start(patience, door...)
	return l
}

func (l *lone) start(patience patience, door ...*door) {
	l.t.Helper()
	n, err := Start(NodeConfig{
		ID: 1, Data: filepath.Join(l.dir, "1"), HTTPAddr: "127.0.0.1:0", RaftAddr: "127.0.0.1:0",
		Members:  map[raft.ServerID]string{1: "127.0.0.1:1"},
		patience: patience,
		files:    l.disk,
		door:     cmp.Or(door...),
	})
	require.NoError(l.t, err)
	l.nodes[1] = n
	l.eventually("it serves", func() bool {
		code, _ := l.post(1, "/get", `{"Key":"x","Consistency":"log"}`)
		return code == 200
	})
}

// goPost sends a request and gives its answer, or an error.
func (l *lone) goPost(path, body string) <-chan string {
	answer := make(chan string, 1)
	go func() {
		resp, err := l.client.Post("http://"+l.nodes[1].HTTPAddr()+path, "application/json", strings.NewReader(body))
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		answer <- string(data)
	}()
	return answer
}

// A write does not come to its end while the node stops: its client is told so
// before its connection is closed.
func TestSystemStopGivesEveryoneALastWord(t *testing.T) {
	patience := usualPatience
	patience.drain = 200 * time.Millisecond
	l := newLone(t, patience)
	hang := l.disk.hangOn("log-")
	answer := l.goPost("/put", `{"Key":"x","Value":"1","ClientID":"a","RequestID":1}`)
	l.eventually("the disk hangs", hang.met.Load)
	stopped := make(chan error, 1)
	go func() { stopped <- l.nodes[1].Stop() }()
	require.Contains(t, <-answer, `"Outcome":"unknown"`)
	close(hang.over)
	require.NoError(t, <-stopped)

	l.start(usualPatience)
	_, body := l.post(1, "/put", `{"Key":"x","Value":"1","ClientID":"a","RequestID":1}`)
	require.Contains(t, body, `"Outcome":"applied"`)
	require.Contains(t, body, `"Version":1`, "once")
}

// A snapshot of a large store is being written to a slow disk: the node does not
// wait for all of it, and the next start finds what was acknowledged.
func TestSystemStopEndsASnapshotUnderWay(t *testing.T) {
	l := newLone(t, usualPatience)
	for i := range 8 {
		_, body := l.post(1, "/put", fmt.Sprintf(`{"Key":"k%d","Value":"%s"}`, i, strings.Repeat("x", 1<<20)))
		require.Contains(t, body, `"RespStatus":"OK"`)
	}
	l.disk.nanosPerKiB.Store(int64(time.Millisecond)) // 1 MiB/s
	answer := l.goPost("/admin/snapshot", "{}")
	l.eventually("it is being written", func() bool {
		found, _ := filepath.Glob(filepath.Join(l.dir, "1", "*.tmp"))
		return len(found) > 0
	})
	began := time.Now()
	require.NoError(t, l.nodes[1].Stop())
	took := time.Since(began)
	t.Log("stopped within", took)
	require.Less(t, took, 4*time.Second)
	require.Contains(t, <-answer, "the server is stopping")

	l.disk.nanosPerKiB.Store(0)
	l.start(usualPatience)
	_, body := l.post(1, "/get", `{"Key":"k7"}`)
	require.Contains(t, body, strings.Repeat("x", 1<<20))
}
