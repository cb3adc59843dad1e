package kvservice

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// longAgo is what net/http sets to end a read.
var longAgo = time.Unix(1, 0)

// connected returns a client's connection and the client's end of it. Run it in a bubble.
func connected(t *testing.T) (server *clientConn, client net.Conn) {
	in, client := net.Pipe()
	server = newClientConn(in)
	t.Cleanup(func() {
		server.Close()
		client.Close()
	})
	return server, client
}

// readOne begins the read of net/http in the background, and sends how it ended.
func readOne(c *clientConn) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		ended <- err
	}()
	return ended
}

func TestClientThatHasGoneIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := connected(t)
		began := time.Now()
		for range 3 { // so that the alarm is one of an earlier request
			ended := readOne(server)
			synctest.Wait()
			server.SetReadDeadline(longAgo)
			require.ErrorIs(t, <-ended, os.ErrDeadlineExceeded)
			server.SetReadDeadline(time.Time{})
		}
		require.Zero(t, time.Since(began), "a call ends the read at once")
		<-time.After(goneAfter / 2)
		ended := readOne(server)
		client.Close()
		began = time.Now()
		require.ErrorIs(t, <-ended, io.EOF)
		require.LessOrEqual(t, time.Since(began), 2*goneAfter)
	})
}

func TestReadThatIsCalledOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := connected(t)
		server.SetReadDeadline(longAgo) // before it begins
		require.ErrorIs(t, <-readOne(server), os.ErrDeadlineExceeded)

		server.SetReadDeadline(time.Time{})
		ended := readOne(server)
		<-time.After(3 * goneAfter) // it has begun
		server.SetReadDeadline(longAgo)
		require.ErrorIs(t, <-ended, os.ErrDeadlineExceeded)

		server.SetReadDeadline(time.Time{})
		go client.Write([]byte("next"))
		next := make([]byte, 4)
		_, err := io.ReadFull(server, next)
		require.NoError(t, err)
		require.Equal(t, "next", string(next), "nothing is lost")
	})
}

func TestDeadlinesOfAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, _ := connected(t)
		began := time.Now()
		server.SetReadDeadline(began.Add(time.Second))
		time.AfterFunc(time.Second/2, func() { server.SetReadDeadline(began.Add(2 * time.Second)) })
		_, err := server.Read(make([]byte, 10))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, 2*time.Second, time.Since(began), "the second counts at once")

		began = time.Now()
		server.SetWriteDeadline(began.Add(time.Second))
		time.AfterFunc(time.Second/2, func() { server.SetWriteDeadline(began.Add(2 * time.Second)) })
		_, err = server.Write([]byte("nobody reads"))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, 2*time.Second, time.Since(began))

		server.SetDeadline(time.Now())
		_, err = server.Read(make([]byte, 10))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		_, err = server.Write([]byte("nobody reads"))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	})
}

// countingListener counts the deadlines that reach the system.
type countingListener struct {
	net.Listener
	set *atomic.Int64
}

func (l countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return countingConn{conn, l.set}, err
}

type countingConn struct {
	net.Conn
	set *atomic.Int64
}

func (c countingConn) SetReadDeadline(t time.Time) error {
	c.set.Add(1)
	return c.Conn.SetReadDeadline(t)
}

func (c countingConn) SetWriteDeadline(t time.Time) error {
	c.set.Add(1)
	return c.Conn.SetWriteDeadline(t)
}

// One is for the time between requests, one for the answer, and the rest for
// requests that happen to last.
func TestTwoDeadlinesARequest(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var set atomic.Int64
	server := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { io.Copy(w, req.Body) }),
		ReadHeaderTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
	}
	go server.Serve(boundConns(countingListener{listener, &set}))
	t.Cleanup(func() { server.Close() })
	conn, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	in := bufio.NewReader(conn)
	const requests = 200
	for range requests {
		io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi")
		answer, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		var body strings.Builder
		io.Copy(&body, answer.Body)
		require.Equal(t, "hi", body.String())
	}
	require.Less(t, set.Load(), int64(3*requests))
}
