package main

import (
	"errors"
	"os"
	"syscall"
)

// childAttributes keeps the terminal's Ctrl-C from the child: the demo ends it.
// If the demo is killed, the child sees its control input end.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// pauseProcess reports that there is no such signal here.
func pauseProcess(*os.Process, bool) error {
	return errors.New("Windows cannot pause a process; try crash")
}
