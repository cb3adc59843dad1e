//go:build unix && !linux

package main

import "syscall"

// childAttributes keeps the terminal's Ctrl-C from the child: the demo ends it.
// If the demo is killed, the child sees its control input end.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
