package grade

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// confinement is what this machine lets us do to a process.
type confinement struct {
	helper     []string // see [Confined]
	namespaces uintptr  // flags of clone(2): without network, with processes of its own
}

// newConfinement finds out what is permitted: root may give a process namespaces
// of its own; others need a namespace of users first, which not every system
// gives them.
func newConfinement(helper []string) confinement {
	const alone = syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC
	for _, flags := range []uintptr{alone, alone | syscall.CLONE_NEWUSER} {
		c := confinement{helper, flags}
		cmd := exec.Command("/proc/self/exe", "-h")
		cmd.SysProcAttr = c.attributes()
		if cmd.Start() == nil {
			cmd.Process.Kill()
			cmd.Wait()
			return c
		}
	}
	return confinement{helper: helper}
}

// String says what stands between a student's code and the network.
func (c confinement) String() string {
	if c.namespaces == 0 {
		return "limits of time, memory and output by rlimit; no namespace permitted here, so only the import gate keeps code off the network"
	}
	return "limits of time, memory and output by rlimit; no network, in namespaces of its own"
}

func (c confinement) attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Cloneflags: c.namespaces}
	if c.namespaces&syscall.CLONE_NEWUSER != 0 {
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	}
	return a
}

func (c confinement) command(ctx context.Context, l Limits, program string, args []string) *exec.Cmd {
	line := append([]string{}, c.helper...)
	line = append(line, strconv.Itoa(int(l.CPU/time.Second)), strconv.FormatInt(l.Memory, 10), program)
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append(line, args...)...)
	cmd.SysProcAttr = c.attributes()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// cleanUp ends what a process may have left behind.
func (c confinement) cleanUp(cmd *exec.Cmd) { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

func spentCPU(s *os.ProcessState) bool {
	status, ok := s.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && (status.Signal() == syscall.SIGXCPU || status.Signal() == syscall.SIGKILL)
}

// Confined is the process between ours and the student's: it takes on the limits
// and becomes the program. Its arguments are seconds of processor time, bytes of
// memory, the program and the program's arguments. It returns only if that fails.
func Confined(args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("confined: arguments are missing: %q", args)
	}
	seconds, err := strconv.ParseUint(args[0], 10, 32)
	if err != nil {
		return err
	}
	memory, err := strconv.ParseUint(args[1], 10, 63)
	if err != nil {
		return err
	}
	const files = 64 // open at the same time
	for _, limit := range []struct {
		which int
		value uint64
	}{
		{syscall.RLIMIT_CPU, seconds},
		{syscall.RLIMIT_DATA, memory},
		{syscall.RLIMIT_CORE, 0},
		{syscall.RLIMIT_FSIZE, 0},
		{syscall.RLIMIT_NOFILE, files},
	} {
		if err := syscall.Setrlimit(limit.which, &syscall.Rlimit{Cur: limit.value, Max: limit.value}); err != nil {
			return fmt.Errorf("confined: limit %d: %w", limit.which, err)
		}
	}
	return syscall.Exec(args[2], args[2:], os.Environ())
}
