//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// demoRun is a running demo and what it prints.
type demoRun struct {
	*shell
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	lines    chan string
	basePort int
	temp     string // where temporary folders go
}

// startDemo runs a demo on ports that nobody uses, and waits until it is ready.
func startDemo(t *testing.T, args ...string) *demoRun {
	t.Helper()
	d := newDemo(t, freePorts(t, 3), args...)
	d.start()
	d.await(`^ready`)
	return d
}

func newDemo(t *testing.T, basePort int, args ...string) *demoRun {
	d := &demoRun{shell: newShell(t), basePort: basePort, temp: t.TempDir(), lines: make(chan string, 1000)}
	var endpoints []string
	for n := range 3 {
		endpoints = append(endpoints, fmt.Sprintf("127.0.0.1:%d", basePort+n))
	}
	d.endpoints = strings.Join(endpoints, ",")
	d.cmd = d.command(append([]string{"demo", "--base-port", strconv.Itoa(basePort)}, args...)...)
	d.cmd.Env = append(d.cmd.Env, "TMPDIR="+d.temp)
	return d
}

func (d *demoRun) start() {
	d.t.Helper()
	var err error
	d.stdin, err = d.cmd.StdinPipe()
	require.NoError(d.t, err)
	stdout, err := d.cmd.StdoutPipe()
	require.NoError(d.t, err)
	d.cmd.Stderr = d.cmd.Stdout
	require.NoError(d.t, d.cmd.Start())
	d.t.Cleanup(func() { d.cmd.Process.Kill() })
	go func() {
		defer close(d.lines)
		for in := bufio.NewScanner(stdout); in.Scan(); {
			d.lines <- in.Text()
		}
	}()
}

func (d *demoRun) say(line string) {
	d.t.Helper()
	_, err := fmt.Fprintln(d.stdin, line)
	require.NoError(d.t, err)
}

// await reads lines until each pattern has matched one, in any order, and
// returns the submatches of the last match.
func (d *demoRun) await(patterns ...string) (match []string) {
	d.t.Helper()
	deadline := time.After(30 * time.Second)
	var seen []string
	for len(patterns) > 0 {
		select {
		case line, ok := <-d.lines:
			if !ok {
				d.t.Fatalf("the demo ended before %q; it said:\n%s", patterns, strings.Join(seen, "\n"))
			}
			seen = append(seen, line)
			patterns = slices.DeleteFunc(patterns, func(p string) bool {
				m := regexp.MustCompile(p).FindStringSubmatch(line)
				if m != nil {
					match = m
				}
				return m != nil
			})
		case <-deadline:
			d.t.Fatalf("not within 30 s: %q; the demo said:\n%s", patterns, strings.Join(seen, "\n"))
		}
	}
	return match
}

// ended waits for the end of the demo and checks that nothing is left of it.
func (d *demoRun) ended() error {
	d.t.Helper()
	for range d.lines {
	}
	err := d.cmd.Wait()
	d.portsAreFree()
	left, dirErr := os.ReadDir(d.temp)
	require.NoError(d.t, dirErr)
	require.Empty(d.t, left, "the temporary folder is removed")
	return err
}

// portsAreFree waits until no server listens any more.
func (d *demoRun) portsAreFree() {
	d.t.Helper()
	require.Eventually(d.t, func() bool { return checkPorts(3, d.basePort) == nil }, 20*time.Second, 10*time.Millisecond)
}

// freePorts returns a base port for which all ports of a demo are free. It looks
// below the range from which the system gives ports to others.
func freePorts(t *testing.T, nodes int) int {
	t.Helper()
	for range 100 {
		if base := 10000 + rand.IntN(20000); checkPorts(nodes, base) == nil {
			return base
		}
	}
	t.Fatal("no free ports")
	return 0
}

func (d *demoRun) leader() int {
	d.t.Helper()
	var status struct{ Leader int }
	got := d.run("status", "-w", "json")
	require.NoError(d.t, json.Unmarshal([]byte(got.stdout), &status), got.stderr)
	return status.Leader
}

// The whole demo as a visitor would use it.
func TestSystemDemo(t *testing.T) {
	t.Parallel()
	d := startDemo(t)
	d.await(`put greeting hello`)
	require.Equal(t, 0, d.run("put", "greeting", "hello").code)
	require.Equal(t, "hello\n", d.run("get", "greeting").stdout)

	old := d.leader()
	d.say(fmt.Sprintf("crash %d", old))
	d.await(fmt.Sprintf(`server %d has crashed`, old))
	leads := d.await(`server (\d) leads term`)[1]
	require.NotEqual(t, strconv.Itoa(old), leads)
	require.Equal(t, 0, d.run("append", "greeting", "!").code)
	d.say(fmt.Sprintf("crash %d", old))
	d.await("is down already")
	d.say(fmt.Sprintf("pause %d", old))
	d.await("is down; try restart")
	d.say("status")
	d.await(fmt.Sprintf("server %d is down", old))

	d.say(fmt.Sprintf("restart %d", old))
	d.await(fmt.Sprintf("server %d answers", old))
	d.say(fmt.Sprintf("restart %d", old))
	d.await("is running")

	d.say("pause " + leads)
	d.await("server "+leads+" does not answer", `server \d leads term`)
	require.Equal(t, 0, d.run("append", "greeting", "?").code)
	d.say("pause " + leads)
	d.await("is paused already")
	d.say("resume " + leads)
	d.await("server " + leads + " (answers|leads no longer)")

	// The leader is cut off from both others: they elect another one.
	old = d.leader()
	other, third := old%3+1, (old+1)%3+1
	d.say(fmt.Sprintf("cut %d %d", old, other))
	d.say(fmt.Sprintf("cut %d %d", third, old))
	d.await(`server \d leads term`)
	d.say("heal")
	d.await("every connection works again")
	require.Equal(t, "hello!?\n", d.run("get", "greeting").stdout)

	for _, nonsense := range []string{"crash", "crash 9", "crash x", "cut 1 1", "dance", "heal now"} {
		d.say(nonsense)
		d.await("is no command|is no server|no connection to itself")
	}
	d.say("help")
	d.await("SIGSTOP")
	d.say("quit")
	require.NoError(t, d.ended())
}

// The demo is started again in a new folder, under the same session file.
func TestSystemDemoStartedAgain(t *testing.T) {
	t.Parallel()
	d := startDemo(t)
	require.Equal(t, 0, d.run("put", "k", "v").code)
	d.say("quit")
	require.NoError(t, d.ended())

	again := newDemo(t, d.basePort)
	again.shell = d.shell
	again.start()
	again.await("^ready")
	require.Equal(t, 2, d.run("get", "k").code, "a new folder")
	got := d.run("put", "k", "w")
	require.Equal(t, 0, got.code, got.stderr)
	require.Len(t, d.sections(), 1, "the same cluster id")
	again.say("quit")
	require.NoError(t, again.ended())
}

// With --dir the data is there again, and so is the session.
func TestSystemDemoKeepsItsFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := startDemo(t, "--dir", dir)
	require.Equal(t, 0, d.run("append", "k", "a").code)
	d.say("quit")
	require.NoError(t, d.ended())

	again := newDemo(t, d.basePort, "--dir", dir)
	again.shell = d.shell
	again.start()
	again.await("^ready")
	require.Equal(t, 0, d.run("append", "k", "b").code)
	require.Equal(t, "ab\n", d.run("get", "k").stdout)
	require.Equal(t, uint64(2), d.section().LastRequestID)
	require.NoError(t, again.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, again.ended())
}

// The end of input is not the end of the demo; SIGINT is.
func TestSystemDemoEndsOnSignal(t *testing.T) {
	t.Parallel()
	d := startDemo(t)
	require.NoError(t, d.stdin.Close())
	d.run("put", "k", "v")
	require.Equal(t, "v\n", d.run("get", "k").stdout)
	old := d.leader()
	require.NoError(t, d.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, d.ended())
	require.NotZero(t, old)
}

// The demo itself is killed: its servers die too, even a paused one.
func TestSystemDemoKilled(t *testing.T) {
	t.Parallel()
	d := startDemo(t)
	d.say("pause 2")
	d.await("server 2 has been paused")
	require.NoError(t, d.cmd.Process.Kill())
	d.cmd.Wait()
	d.portsAreFree()
}

func TestSystemDemoOnTakenPorts(t *testing.T) {
	t.Parallel()
	base := freePorts(t, 3)
	for _, port := range []int{base + 1, base + raftPortStep + 2} {
		l, err := net.Listen("tcp", local(port))
		require.NoError(t, err)
		s := newShell(t)
		got := s.run("demo", "--base-port", strconv.Itoa(base))
		l.Close()
		require.Equal(t, 1, got.code)
		require.Contains(t, got.stderr, strconv.Itoa(port))
		require.Empty(t, got.stdout)
	}
}

// A folder that the servers cannot use: one line that tells why.
func TestSystemDemoThatCannotStart(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	require.NoError(t, os.MkdirAll(s.path("d/node-2"), 0o700))
	require.NoError(t, os.WriteFile(s.path("d/node-2/notes.txt"), []byte("mine"), 0o600))
	got := s.run("demo", "--base-port", strconv.Itoa(freePorts(t, 3)), "--dir", "d")
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, "server 2")
	require.Contains(t, got.stderr, "other files")
}
