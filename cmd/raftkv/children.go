package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// endPatience is how long a child may take to end by itself: a little more than
// kvservice.Node's Stop takes at most.
const endPatience = 7 * time.Second

// child is one server of the demo: the place it has, and its process while one runs.
type child struct {
	id   int
	args []string // of raftkv serve
	log  string   // the file that takes what it prints

	process *exec.Cmd      // nil while none runs
	control io.WriteCloser // its standard input; closed, it ends
	exited  chan struct{}  // closed when process has ended
	paused  bool
}

// start runs the child. ended is called, on another goroutine, when it has ended.
func (c *child) start(executable string, ended func(c *child, process *exec.Cmd)) error {
	logFile, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close() // the child has its own
	process := exec.Command(executable, c.args...)
	process.Stdout, process.Stderr = logFile, logFile
	process.SysProcAttr = childAttributes()
	control, err := process.StdinPipe()
	if err != nil {
		return err
	}
	if err := process.Start(); err != nil {
		return err
	}
	c.process, c.control, c.paused = process, control, false
	exited := make(chan struct{})
	c.exited = exited
	go func() {
		process.Wait()
		close(exited)
		ended(c, process)
	}()
	return nil
}

func (c *child) running() bool { return c.process != nil }

// order sends a line to the child's control input. One that is down gets none;
// it is told again when it starts.
func (c *child) order(format string, args ...any) {
	if c.running() {
		fmt.Fprintf(c.control, format+"\n", args...)
	}
}

// kill ends the child as a crash would, and waits for it.
func (c *child) kill() {
	c.process.Process.Kill()
	<-c.exited
}

// end lets the child finish what it does, but not for long.
func (c *child) end() {
	if !c.running() {
		return
	}
	if c.paused {
		c.process.Process.Kill() // it could not hear us
	}
	c.control.Close()
	select {
	case <-c.exited:
	case <-time.After(endPatience):
		c.kill()
	}
}

// lastWords returns the last line that the child has printed.
func (c *child) lastWords() string {
	data, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return string(bytes.TrimPrefix(lines[len(lines)-1], []byte("raftkv: ")))
}

// signal freezes the child where it stands or lets it go on, which not every
// system can do.
func (c *child) signal(pause bool) error {
	if !c.running() {
		return fmt.Errorf("server %d is down; try restart %[1]d", c.id)
	}
	if c.paused == pause {
		if pause {
			return fmt.Errorf("server %d is paused already; try resume %[1]d", c.id)
		}
		return fmt.Errorf("server %d is not paused", c.id)
	}
	if err := pauseProcess(c.process.Process, pause); err != nil {
		return err
	}
	c.paused = pause
	return nil
}

// demoFolder returns the folder that the servers keep their files in, and what
// removes it if it is a temporary one.
func demoFolder(dir string) (path string, remove func() error, err error) {
	if dir == "" {
		path, err = os.MkdirTemp("", "raftkv-demo-")
		return path, func() error { return os.RemoveAll(path) }, err
	}
	path, err = filepath.Abs(dir)
	return path, func() error { return nil }, errors.Join(err, os.MkdirAll(path, 0o700))
}
