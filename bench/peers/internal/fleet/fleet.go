// Package fleet starts the processes of a contender, reads what they use, and ends
// them.
package fleet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Fleet is the processes of one contender, numbered from 0.
type Fleet struct {
	nodes []*node
}

type node struct {
	command []string
	log     string    // the file that its output goes to
	process *exec.Cmd // nil while it does not run
}

// Start starts a process for each command line. Their output goes to files in dir.
func Start(dir string, commands [][]string) (*Fleet, error) {
	f := &Fleet{}
	for i, c := range commands {
		f.nodes = append(f.nodes, &node{command: c, log: filepath.Join(dir, fmt.Sprintf("output-%d", i))})
	}
	if err := f.StartAll(); err != nil {
		f.KillAll()
		return nil, err
	}
	return f, nil
}

// StartAll starts the processes that do not run.
func (f *Fleet) StartAll() error {
	for i := range f.nodes {
		if err := f.StartOne(i); err != nil {
			return err
		}
	}
	return nil
}

// StartOne starts process i unless it runs.
func (f *Fleet) StartOne(i int) error {
	n := f.nodes[i]
	if n.process != nil {
		return nil
	}
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	p := exec.Command(n.command[0], n.command[1:]...)
	p.Stdout, p.Stderr = log, log
	// If the harness is killed, its processes must not stay behind.
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.Start(); err != nil {
		return err
	}
	n.process = p
	return nil
}

// KillOne ends process i with SIGKILL and waits until it is gone.
func (f *Fleet) KillOne(i int) {
	if n := f.nodes[i]; n.process != nil {
		n.process.Process.Kill()
		n.process.Wait()
		n.process = nil
	}
}

// KillAll ends all processes with SIGKILL, as nearly at once as may be.
func (f *Fleet) KillAll() {
	for _, n := range f.nodes {
		if n.process != nil {
			n.process.Process.Kill()
		}
	}
	for i := range f.nodes {
		f.KillOne(i)
	}
}

// Output returns the last words of process i, for an error that needs them.
func (f *Fleet) Output(i int) string {
	b, err := os.ReadFile(f.nodes[i].log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err.Error()
	}
	return string(b[max(0, len(b)-1000):])
}

// Pids returns the numbers of the processes that run, in order.
func (f *Fleet) Pids() []int {
	var pids []int
	for _, n := range f.nodes {
		if n.process != nil {
			pids = append(pids, n.process.Process.Pid)
		}
	}
	return pids
}
