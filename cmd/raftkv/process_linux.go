package main

import "syscall"

// childAttributes keeps the terminal's Ctrl-C from the child: the demo ends it.
// If the demo is killed, the kernel kills the child, even a paused one, which
// would not notice that its control input has ended.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
