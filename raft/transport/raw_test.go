package transport

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/raft"
)

// rawPeer is a connection on which a test writes what it likes.
type rawPeer struct {
	net.Conn
	r *bufio.Reader
}

func dialRaw(t *testing.T, to *tcpNode) *rawPeer {
	t.Helper()
	conn, err := net.Dial("tcp", to.Addr().String())
	require.NoError(t, err)
	return newRawPeer(t, conn)
}

func newRawPeer(t *testing.T, conn net.Conn) *rawPeer {
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return &rawPeer{conn, bufio.NewReader(conn)}
}

func (p *rawPeer) write(t *testing.T, b []byte) {
	t.Helper()
	_, err := p.Write(b)
	require.NoError(t, err)
}

// greeting is the hello that server 2 sends to server 1, changed as asked.
func greeting(change func(*hello)) []byte {
	h := hello{Cluster: testCluster, From: 2, To: 1, Store: store(2), Run: 1, HTTPAddr: "http-2"}
	if change != nil {
		change(&h)
	}
	return appendHello(appendPreamble(nil, protocolVersion), helloFrame, h)
}

// answer reads the preamble and one frame.
func (p *rawPeer) answer(t *testing.T) (frameKind, []byte) {
	t.Helper()
	_, err := readPreamble(p.r)
	require.NoError(t, err)
	payload, err := readFrame(p.r, maxHandshakeFrame)
	require.NoError(t, err)
	return frameKind(payload[0]), payload[1:]
}

// shakeHands makes the raw peer server 2, accepted by server 1.
func (p *rawPeer) shakeHands(t *testing.T) {
	t.Helper()
	p.write(t, greeting(nil))
	kind, _ := p.answer(t)
	require.Equal(t, acceptFrame, kind)
}

// closed waits for the other side to close the connection. It may do so with
// bytes unread, and then TCP reports a reset.
func (p *rawPeer) closed(t *testing.T) {
	t.Helper()
	n, err := io.Copy(io.Discard, p.r)
	require.Zero(t, n)
	if err != nil {
		require.ErrorContains(t, err, "reset")
	}
}

// listenRaw opens a port for server 2 and tells server 1 of it, which is
// started with the configuration changed as asked.
func listenRaw(t *testing.T, change func(*Config)) (net.Listener, *tcpNode) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	own, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l, startNode(t, 1, own, map[raft.ServerID]string{2: l.Addr().String()}, change)
}

// accept takes a connection of server 1 and answers its hello as server 2.
func accept(t *testing.T, l net.Listener, run uint64) *rawPeer {
	t.Helper()
	return answerHello(t, acceptConn(t, l), run)
}

func acceptConn(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	require.NoError(t, l.(*net.TCPListener).SetDeadline(time.Now().Add(patience)))
	conn, err := l.Accept()
	require.NoError(t, err)
	return conn
}

func answerHello(t *testing.T, conn net.Conn, run uint64) *rawPeer {
	t.Helper()
	p := newRawPeer(t, conn)
	kind, _ := p.answer(t)
	require.Equal(t, helloFrame, kind)
	h := hello{Cluster: testCluster, From: 2, To: 1, Store: store(2), Run: run, HTTPAddr: "http-2"}
	p.write(t, appendHello(appendPreamble(nil, protocolVersion), acceptFrame, h))
	return p
}

// next reads a frame after the handshake.
func (p *rawPeer) next(t *testing.T) (frameKind, []byte) {
	t.Helper()
	payload, err := readFrame(p.r, 16<<20)
	require.NoError(t, err)
	return frameKind(payload[0]), payload[1:]
}
