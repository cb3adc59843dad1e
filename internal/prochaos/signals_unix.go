//go:build unix

package prochaos

import "syscall"

func (s *server) pause() error { return s.process.Process.Signal(syscall.SIGSTOP) }

func (s *server) resume() error {
	if !s.running() {
		return nil
	}
	return s.process.Process.Signal(syscall.SIGCONT)
}
