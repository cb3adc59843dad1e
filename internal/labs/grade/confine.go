package grade

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync/atomic"
	"time"
)

// Limits bound a process that runs a student's code, and all that it starts.
// They are part of what is graded: other limits, other marks.
type Limits struct {
	CPU    time.Duration // processor time, in whole seconds
	Memory int64         // bytes of data in memory, per process
	Output int           // bytes printed, to both outputs together
}

// DefaultLimits are many times what the published solutions need. The runner
// itself puts up with a quarter of the memory, and says better who uses it; the
// limit is for what grows too fast for it.
func DefaultLimits() Limits {
	return Limits{CPU: 30 * time.Second, Memory: 2 << 30, Output: 1 << 20}
}

// wall is when a process is ended that neither works nor ends. It is far behind
// the limit of processor time, so that a busy machine changes no marks.
func (l Limits) wall() time.Duration { return 10 * l.CPU }

// Ending says how a process that was confined has ended.
type Ending string

// How a process can end.
const (
	Ended     Ending = "ended"      // by itself, whatever its exit status
	OutOfTime Ending = "time"       // Limits.CPU, or the bound on the time of day behind it
	OutOfRoom Ending = "memory"     // Limits.Memory
	Talkative Ending = "output"     // Limits.Output
	Crashed   Ending = "crashed"    // panicked, deadlocked, or was killed by a signal
	Unstarted Ending = "no process" // the machine's fault
)

// outcome is what became of a process that was confined.
type outcome struct {
	ending  Ending
	channel []byte // what came over file descriptor 3
	printed []byte // the beginning of what it printed
}

// keptOutput is how much of the output of a process is kept for people.
const keptOutput = 256 << 10

// maxChannel bounds what may come over file descriptor 3.
const maxChannel = 4 << 20

// run runs a program in an empty folder with an environment of ours and within
// the limits, and waits until it and what it has started is gone. helper is the
// start of a command line that comes back to [Confined].
func (c confinement) run(ctx context.Context, l Limits, env []string, program string, args ...string) (outcome, error) {
	dir, err := os.MkdirTemp("", "raftlab-run-")
	if err != nil {
		return outcome{}, err
	}
	defer os.RemoveAll(dir)
	readEnd, writeEnd, err := os.Pipe()
	if err != nil {
		return outcome{}, err
	}
	defer readEnd.Close()

	ctx, cancel := context.WithTimeout(ctx, l.wall())
	defer cancel()
	if program, err = filepath.Abs(program); err != nil {
		return outcome{}, err
	}
	cmd := c.command(ctx, l, program, args)
	cmd.Dir = dir
	cmd.Env = env
	cmd.ExtraFiles = []*os.File{writeEnd}
	cmd.WaitDelay = time.Second
	out := &bounded{limit: int64(l.Output), full: cancel}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		writeEnd.Close()
		return outcome{}, fmt.Errorf("%s: %w", filepath.Base(program), err)
	}
	writeEnd.Close()
	channel := make(chan []byte, 1)
	go func() { // ends when the last process that has the pipe does
		data, _ := io.ReadAll(io.LimitReader(readEnd, maxChannel))
		channel <- data
	}()
	err = cmd.Wait()
	c.cleanUp(cmd)
	o := outcome{channel: <-channel, printed: out.kept.Bytes()}
	o.ending = ending(cmd, ctx, out, err)
	return o, nil
}

// Confine runs a program that may be anybody's within limits, in an empty folder
// and without a network where the machine permits it. It returns the beginning of
// what the program prints. helper is as in [Options].
func Confine(ctx context.Context, helper []string, l Limits, env []string, program string, args ...string) (string, Ending, error) {
	o, err := newConfinement(helper).run(ctx, l, env, program, args...)
	return string(o.printed), o.ending, err
}

func ending(cmd *exec.Cmd, ctx context.Context, out *bounded, err error) Ending {
	var exit *exec.ExitError
	switch {
	case out.seen.Load() > out.limit:
		return Talkative
	case errors.Is(ctx.Err(), context.DeadlineExceeded), spentCPU(cmd.ProcessState):
		return OutOfTime
	case outOfMemory.Match(out.kept.Bytes()):
		return OutOfRoom
	case errors.As(err, &exit):
		return Crashed
	}
	return Ended
}

// outOfMemory is what a Go program says that gets no more memory. The last is
// the garbage collector's way to say it.
var outOfMemory = regexp.MustCompile(`out of memory|cannot allocate memory|SIGSEGV: segmentation violation\nPC=`)

// bounded takes in what a process prints. It keeps the beginning, and ends the
// process when it is too much.
type bounded struct {
	kept  bytes.Buffer
	seen  atomic.Int64
	limit int64
	full  func()
}

func (b *bounded) Write(p []byte) (int, error) {
	b.kept.Write(p[:min(len(p), keptOutput-b.kept.Len())])
	if b.seen.Add(int64(len(p))) > b.limit {
		b.full()
	}
	return len(p), nil
}
