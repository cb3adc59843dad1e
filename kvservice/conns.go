package kvservice

import (
	"context"
	"net"
	"sync"
)

const (
	// maxClientConns bounds the connections of clients, unless the system allows
	// the process fewer files: then it is that number less filesForItself.
	maxClientConns = 4096

	// spareConns may be open beyond that, so that who watches the server can still
	// ask how it is. Whoever asks for something else there is told Busy, and each is
	// closed after one answer. What comes then waits in the system's queue.
	spareConns = 64

	// filesForItself are the open files that the server needs for its log, its
	// snapshots and the other servers. Without one it could not go on.
	filesForItself = 256
)

// clientListener bounds the connections that are open at once.
type clientListener struct {
	net.Listener
	conns  places // as many as may be open, the spare ones included
	usual  int    // how many of them are not spare
	closed chan struct{}
	close  func() error
}

// boundConns returns a listener for clients with the usual bounds.
func boundConns(l net.Listener) *clientListener {
	return newClientListener(l, max(min(maxClientConns, maxOpenFiles()-filesForItself), spareConns), spareConns)
}

func newClientListener(l net.Listener, usual, spare int) *clientListener {
	closed := make(chan struct{})
	return &clientListener{
		Listener: l,
		conns:    make(places, usual+spare),
		usual:    usual,
		closed:   closed,
		close: sync.OnceValue(func() error {
			close(closed)
			return l.Close()
		}),
	}
}

// Accept waits for a connection, and before that for one to end if too many are
// open.
func (l *clientListener) Accept() (net.Conn, error) {
	select {
	case l.conns <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		l.conns.give()
		return nil, err
	}
	c := newClientConn(conn)
	c.spare = len(l.conns) > l.usual
	c.close = sync.OnceValue(func() error {
		defer l.conns.give()
		return conn.Close()
	})
	return c, nil
}

func (l *clientListener) Close() error { return l.close() }

// clientConn is a connection that counts until it is closed.
type clientConn struct {
	net.Conn
	spare bool
	close func() error
	deadlines
}

func (c *clientConn) Close() error { return c.close() }

// CloseWrite says that nothing more will be sent. With it net/http makes sure
// that a client which is refused in the middle of its body still gets the answer.
func (c *clientConn) CloseWrite() error {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		return tcp.CloseWrite()
	}
	return nil
}

type spareKey struct{}

// connContext is for http.Server: the requests of a spare connection show it.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	if c, ok := conn.(*clientConn); ok && c.spare {
		return context.WithValue(ctx, spareKey{}, true)
	}
	return ctx
}

func onSpareConn(ctx context.Context) bool { return ctx.Value(spareKey{}) != nil }
