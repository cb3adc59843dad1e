//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The system lets the server open few files, and clients open more connections
// than that: the server keeps the files that it needs for itself, and goes on.
func TestSystemConnectionsLeaveFilesForTheLog(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	args := f.serveArgs(1, "--cluster", f.members(1))
	p := &serverProcess{output: &lockedBuffer{}, exited: make(chan struct{})}
	p.cmd = exec.Command("sh", append([]string{"-c", `ulimit -n 400 && exec "$0" "$@"`, binary}, args...)...)
	p.cmd.Dir = f.dir
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	require.NoError(t, p.cmd.Start())
	f.running[1] = p
	go func() {
		p.cmd.Wait()
		close(p.exited)
	}()
	f.knows(1)
	f.eventually("it serves", func() bool { return f.run("put", "k", "v").code == 0 })

	var open []net.Conn
	for range 500 {
		conn, err := net.Dial("tcp", f.http(1))
		require.NoError(t, err)
		defer conn.Close()
		open = append(open, conn)
	}
	in := bufio.NewReader(open[0])
	for range 30 {
		for _, request := range []string{"POST /put HTTP/1.1\r\nContent-Length: 23\r\n%s{\"Key\":\"k\",\"Value\":\"v\"}", "POST /admin/snapshot HTTP/1.1\r\nContent-Length: 2\r\n%s{}"} {
			fmt.Fprintf(open[0], request, "Host: x\r\nContent-Type: application/json\r\n\r\n")
			resp, err := http.ReadResponse(in, nil)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode, "no file was left: %s", body)
		}
	}
	// Those that say nothing are cut off, and then it is the turn of others.
	f.eventually("it takes others in", func() bool { return f.run("put", "k", "v2").code == 0 })
	require.False(t, strings.Contains(p.output.String(), "storage failed"), p.output)
}
