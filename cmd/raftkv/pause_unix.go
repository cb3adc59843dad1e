//go:build unix

package main

import (
	"os"
	"syscall"
)

// pauseProcess stops a process where it stands, or lets it go on.
func pauseProcess(p *os.Process, pause bool) error {
	if pause {
		return p.Signal(syscall.SIGSTOP)
	}
	return p.Signal(syscall.SIGCONT)
}
