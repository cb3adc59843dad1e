//go:build unix

package transport

import "syscall"

// writeSome writes what the system takes of b without waiting, and returns how many
// bytes that was. An error is 0, and shows at the next write, too. So is the deadline
// of an earlier write, if it has passed; the next one has a new deadline.
func writeSome(conn syscall.RawConn, b []byte) (n int) {
	conn.Write(func(fd uintptr) (done bool) {
		n, _ = syscall.Write(int(fd), b)
		return true
	})
	return max(n, 0)
}
