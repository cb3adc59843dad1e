//go:build unix

package kvservice

import (
	"math"
	"syscall"
)

// maxOpenFiles returns how many files the system lets this process open. Go has
// raised the number as far as the process may by itself.
func maxOpenFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxInt32
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}
