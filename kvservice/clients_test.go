package kvservice

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/api"
)

// dial opens a connection to the node and says something.
func (l *lone) dial(said string) net.Conn {
	l.t.Helper()
	conn, err := net.Dial("tcp", l.nodes[1].HTTPAddr())
	require.NoError(l.t, err)
	l.t.Cleanup(func() { conn.Close() })
	_, err = io.WriteString(conn, said)
	require.NoError(l.t, err)
	return conn
}

// request is a whole request as it goes over the wire.
func request(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

// Clients that stand still or are slow are cut off in a time that is written down,
// and meanwhile nobody else notices: a hundred of each kind are there.
func TestSystemSlowClientsAreCutOff(t *testing.T) {
	short := usualPatience
	short.header, short.body, short.answer, short.idle = 500*time.Millisecond, time.Second, time.Second, 1500*time.Millisecond
	l := newLone(t, short)
	l.client.Transport.(*http.Transport).DisableKeepAlives = true // or it would itself be cut off
	code, _ := l.post(1, "/put", `{"Key":"big","Value":"`+strings.Repeat("x", 1<<20-10)+`"}`)
	require.Equal(t, 200, code)

	const each = 80
	body := `{"Key":"x","Value":"` + strings.Repeat("x", 4000) + `"}`
	for name, c := range map[string]struct {
		says    string
		trickle string // then, a byte at a time
		reads   bool   // what it is answered
		within  time.Duration
	}{
		"says nothing":            {"", "", true, short.header},
		"sends a slow head":       {"POST /put HTTP/1.1\r\nHost: x\r\nX-Slow: ", strings.Repeat("x", 1000), true, short.header},
		"stops within its head":   {"POST /put HTTP/1.1\r\nHo", "", true, short.header},
		"sends a slow body":       {request("/put", body)[:200], body, true, short.body},
		"stops within its body":   {request("/put", body)[:200], "", true, short.body},
		"is gone after a request": {request("/get", `{"Key":"x"}`), "", true, short.idle},
		// It takes in nothing, so the system's buffers fill and the server has to wait.
		"reads no answer": {strings.Repeat(request("/get", `{"Key":"big"}`), 16), "", false, short.body + short.answer},
	} {
		t.Run(name, func(t *testing.T) {
			var clients sync.WaitGroup
			ended := make(chan time.Duration, each)
			used := watched(func() {
				for range each {
					conn := l.dial(c.says)
					began := time.Now()
					clients.Go(func() {
						for i := range c.trickle {
							if _, err := io.WriteString(conn, c.trickle[i:i+1]); err != nil {
								break
							}
							<-time.After(10 * time.Millisecond)
						}
						if c.reads {
							io.Copy(io.Discard, conn) // until the server ends it
							ended <- time.Since(began)
						}
					})
				}
				began := time.Now()
				for i := range 20 {
					code, body := l.post(1, "/put", fmt.Sprintf(`{"Key":"other","Value":"%d"}`, i))
					require.Equal(t, 200, code, body)
				}
				require.Less(t, time.Since(began), 5*time.Second, "others are kept waiting")
				l.eventually("all are cut off", func() bool { return l.open() == 0 })
				require.Less(t, time.Since(began), c.within+5*time.Second)
			})
			clients.Wait()
			close(ended)
			slowest := time.Duration(0)
			for d := range ended {
				slowest = max(slowest, d)
			}
			t.Log(used, slowest)
			require.Less(t, used.heap, uint64(64<<20))
			require.Less(t, slowest, c.within+5*time.Second)
		})
	}
}

// open returns how many connections of clients are open.
func (l *lone) open() int {
	return len(l.nodes[1].listener.conns) - 1 // one place is kept for who comes next
}

// Five hundred clients write at the same time, each over a connection of its own.
func TestSystemFiveHundredConnections(t *testing.T) {
	l := newLone(t, usualPatience)
	var clients sync.WaitGroup
	for c := range 500 {
		clients.Go(func() {
			conn, err := net.Dial("tcp", l.nodes[1].HTTPAddr())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			in := bufio.NewReader(conn)
			for i := range 5 {
				io.WriteString(conn, request("/append", fmt.Sprintf(`{"Key":"k%d","Value":"%d."}`, c, i)))
				resp, err := http.ReadResponse(in, nil)
				if err != nil || resp.StatusCode != 200 {
					t.Error(resp, err)
					return
				}
				io.Copy(io.Discard, resp.Body)
			}
		})
	}
	clients.Wait()
	for c := range 500 {
		_, body := l.post(1, "/get", fmt.Sprintf(`{"Key":"k%d","Consistency":"stale"}`, c))
		require.Contains(t, body, `"Value":"0.1.2.3.4."`)
	}
}

// More connections than the cap: those beyond it are told so, the health checks
// are answered there, and what comes after them waits until there is room.
func TestSystemMoreConnectionsThanTheCap(t *testing.T) {
	short := usualPatience
	short.header = time.Second
	l := newLone(t, short)
	l.eventually("none is open", func() bool {
		l.client.CloseIdleConnections()
		return l.open() == 0
	})
	usual := l.nodes[1].listener.usual
	// Each has been served once, so that it may stay for as long as short.idle.
	var idle []net.Conn
	for range usual {
		conn := l.dial("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
		_, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		idle = append(idle, conn)
	}
	ask := func(what string) (int, string, bool) {
		conn := l.dial(what)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		if resp.StatusCode == 503 {
			require.Equal(t, "1", resp.Header.Get("Retry-After"))
		}
		return resp.StatusCode, string(body), resp.Close
	}
	for range 3 {
		code, body, last := ask(request("/put", `{"Key":"x","Value":"1"}`))
		require.Equal(t, 503, code)
		require.Contains(t, body, `"RespStatus":"Busy","Outcome":"not_applied"`)
		require.True(t, last, "the connection stays open")
		code, body, last = ask("GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
		require.Equal(t, 200, code, body)
		require.True(t, last)
	}
	// Spare ones that say nothing are cut off soon, so that the next one gets its turn.
	for range spareConns {
		l.dial("")
	}
	code, body, _ := ask("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
	require.Equal(t, 200, code, body)

	for _, conn := range idle {
		conn.Close()
	}
	l.eventually("there is room", func() bool {
		code, _, _ := ask(request("/put", `{"Key":"x","Value":"1"}`))
		return code == 200
	})
}

// A few downloads of the store may run at once, and the operators' places are not
// those of clients.
func TestPlacesOfOperators(t *testing.T) {
	s, _ := newInstant(t, nil)
	for range maxRequests {
		require.True(t, s.door.requests.take())
	}
	code, body := post(s, "/put", putX1)
	require.Equal(t, 503, code)
	require.Contains(t, body, `"RespStatus":"Busy","Outcome":"not_applied"`)
	require.Contains(t, body, "2048 requests are under way here")
	code, body = post(s, api.PathAdminHash, "{}")
	require.Equal(t, 200, code, body)

	for range maxDownloads {
		require.True(t, s.door.downloads.take())
	}
	code, body = probe(s, http.MethodGet, api.PathAdminSnapshot)
	require.Equal(t, 503, code)
	require.Contains(t, body, "2 snapshots are being sent already")
	<-s.door.downloads
	code, _ = probe(s, http.MethodGet, api.PathAdminSnapshot)
	require.Equal(t, 200, code)
	require.Len(t, s.door.downloads, 1, "the place was not given back")
	require.Empty(t, s.door.admin)
}
