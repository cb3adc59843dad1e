//go:build !unix

package prochaos

import "errors"

func (s *server) pause() error {
	return errors.New("this system cannot stop a process and continue it")
}

func (s *server) resume() error { return nil }
