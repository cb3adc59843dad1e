//go:build unix

package main

import (
	"io"
	"net"
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

	var first net.Conn
	for range 500 {
		conn, err := net.Dial("tcp", f.http(1))
		require.NoError(t, err)
		defer conn.Close()
		if first == nil {
			first = conn
			io.WriteString(conn, "POST /admin/snapshot HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
		}
	}
	answer := make([]byte, 15)
	_, err := io.ReadFull(first, answer)
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 200 OK", string(answer), "no file was left for a snapshot")
	// Those that say nothing are cut off, and then it is the turn of others.
	f.eventually("it takes others in", func() bool { return f.run("put", "k", "v2").code == 0 })
	require.False(t, strings.Contains(p.output.String(), "storage failed"), p.output)
}
