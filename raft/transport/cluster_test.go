package transport

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"raftkv/raft"
)

const patience = 10 * time.Second // for what takes milliseconds on an idle machine

// inbox is a Deliver that keeps what it gets.
type inbox chan raft.Message

func (in inbox) deliver(messages []raft.Message) {
	for _, m := range messages {
		in <- m
	}
}

func (in inbox) wait(t *testing.T) raft.Message {
	t.Helper()
	select {
	case m := <-in:
		return m
	case <-time.After(patience):
		require.FailNow(t, "no message arrived")
		return raft.Message{}
	}
}

// logbook collects log lines.
type logbook struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(b)
}

// count returns how many lines contain text.
func (l *logbook) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for line := range strings.Lines(l.lines.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.String()
}

const testCluster raft.ClusterID = 0xc1

func store(n byte) raft.StoreID { return raft.StoreID{n} }

func config(id raft.ServerID, in inbox, log *logbook) Config {
	return Config{
		Cluster:  testCluster,
		ID:       id,
		Store:    store(byte(id)),
		HTTPAddr: "http-" + string('0'+rune(id)),
		Peers:    map[raft.ServerID]string{},
		Deliver:  in.deliver,
		Logger:   slog.New(slog.NewTextHandler(log, nil)),
	}
}

// tcpNode is a TCP transport with what it received and logged.
type tcpNode struct {
	*TCP
	cfg Config
	in  inbox
	log *logbook
}

// startNodes starts servers 1 to n on free ports. change may alter a
// configuration before its server starts.
func startNodes(t testing.TB, n int, change func(*Config)) []*tcpNode {
	t.Helper()
	var listeners []net.Listener
	peers := map[raft.ServerID]string{}
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		listeners = append(listeners, l)
		peers[raft.ServerID(i+1)] = l.Addr().String()
	}
	var nodes []*tcpNode
	for i, l := range listeners {
		nodes = append(nodes, startNode(t, raft.ServerID(i+1), l, peers, change))
	}
	return nodes
}

func startNode(t testing.TB, id raft.ServerID, l net.Listener, peers map[raft.ServerID]string, change func(*Config)) *tcpNode {
	t.Helper()
	node := &tcpNode{in: make(inbox, 1024), log: &logbook{}}
	node.cfg = config(id, node.in, node.log)
	node.cfg.Addr = l.Addr().String()
	node.cfg.Peers = peers
	if change != nil {
		change(&node.cfg)
	}
	cfg := node.cfg
	cfg.Listener = l
	var err error
	node.TCP, err = ListenTCP(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	return node
}

// restart closes a node and starts it again on the same port.
func (n *tcpNode) restart(t *testing.T) {
	t.Helper()
	require.NoError(t, n.Close())
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		node, err := ListenTCP(n.cfg)
		require.NoError(c, err)
		n.TCP = node
	}, patience, 10*time.Millisecond)
	again := n.TCP
	t.Cleanup(func() { require.NoError(t, again.Close()) })
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, patience, time.Millisecond, what)
}

func heartbeat(from, to raft.ServerID, term raft.Term) raft.Message {
	return raft.Message{Cluster: testCluster, From: from, To: to, Body: raft.AppendEntriesArgs{Term: term, LeaderID: from}}
}

func entries(n, size int) []raft.LogEntry {
	es := make([]raft.LogEntry, n)
	for i := range es {
		es[i] = raft.LogEntry{Term: 1, Command: bytes.Repeat([]byte{byte(i)}, size)}
	}
	return es
}
