//go:build unix

package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var realCurl = flag.Bool("curl", false, "play docs/runbook.md with this machine's curl instead of one in Go")

// The page is played by whoever has Go, and not everybody has curl: the test
// program itself stands in for it, see curl.
func init() {
	if filepath.Base(os.Args[0]) == "curl" {
		os.Exit(curl(os.Args[1:]))
	}
}

// onlyLooks matches the commands that change nothing, neither in the store nor in
// what is counted. Those are repeated until they show what the page says.
var onlyLooks = regexp.MustCompile(`^(raftkv (status|check)\b|raftkv get \S+ --consistency stale|curl -s \S+/(metrics|readyz)\b|five |grep |tail )`)

// Every command of docs/runbook.md, in the order of the page and in one shell, on
// three servers.
func TestSystemRunbook(t *testing.T) {
	t.Parallel()
	base := (freePorts(t, 13) + 9) / 10 // without its last digit: the page goes on behind it with $(($1 - 1))
	here := strings.NewReplacer("127.0.0.1:808", fmt.Sprint("127.0.0.1:", base), "127.0.0.1:908", fmt.Sprint("127.0.0.1:", base+raftPortStep/10))
	var addresses []string
	for n := range 3 {
		addresses = append(addresses, here.Replace(fmt.Sprint("127.0.0.1:808", n)))
	}
	term := openTerminal(t, strings.Join(addresses, ","))
	counted := counters{}
	for _, c := range commandsOf(t, "runbook.md") {
		t.Logf("## %s", c.heading)
		if c.heading == "The servers differ" { // real ones do not
			term.do("real=$RAFTKV_ENDPOINTS RAFTKV_ENDPOINTS=" + pretenders(t, "a", "a", "b").endpoints)
		}
		for _, step := range c.steps {
			command, output := here.Replace(step.command), strings.Join(step.output, "\n")
			want := regexp.MustCompile(printed(here.Replace(output)))
			got := term.do(command)
			if onlyLooks.MatchString(command) {
				require.Eventually(t, func() bool {
					if want.MatchString(got) {
						return true
					}
					got = term.do(command)
					return false
				}, 30*time.Second, 20*time.Millisecond, "$ %s\nshall print\n%s\nand prints\n%s", command, output, &got)
			}
			t.Logf("$ %s\n%s", command, got)
			require.Regexp(t, want, got, "$ %s", command)
			counted.haveGrown(t, step, got)
		}
		if c.heading == "The servers differ" {
			term.do("RAFTKV_ENDPOINTS=$real")
		}
	}
}

// counters are the values of metrics as they were shown last, by command and name.
type counters map[string]float64

// haveGrown looks at the numbers for which the page has … behind the name of a
// metric: each must be greater than when the same command showed it before.
func (c counters) haveGrown(t *testing.T, step pageStep, got string) {
	t.Helper()
	lines := strings.Split(got, "\n")
	for i, line := range step.output {
		name, ok := strings.CutSuffix(line, "_total …")
		if !ok {
			name, ok = strings.CutSuffix(line, "_count …")
		}
		if !ok {
			continue
		}
		_, number, _ := strings.Cut(lines[i], " ")
		value, err := strconv.ParseFloat(number, 64)
		require.NoError(t, err, lines[i])
		key := step.command + " " + name
		before, seen := c[key]
		require.True(t, !seen || value > before, "%s was %v and is %v", name, before, value)
		c[key] = value
	}
}

// terminal is a shell in which somebody types.
type terminal struct {
	t      *testing.T
	stdin  io.Writer
	output chan string // lines
}

// openTerminal runs sh in a folder of its own. Nothing that is started in it
// outlives the test.
func openTerminal(t *testing.T, endpoints string) *terminal {
	dir, bin := t.TempDir(), filepath.Dir(binary)
	if !*realCurl {
		itself, err := os.Executable()
		require.NoError(t, err)
		more := t.TempDir()
		require.NoError(t, os.Symlink(itself, filepath.Join(more, "curl")))
		bin += ":" + more
	}
	cmd := exec.Command("sh")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), endpointsEnv+"="+endpoints, "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = cmd.Stdout
	// The shell and all that it starts hold the end of this one, so whoever reads
	// it knows when the last has gone.
	alive, held, err := os.Pipe()
	require.NoError(t, err)
	// And if the test itself is killed, this one ends, which somebody waits for.
	watched, watch, err := os.Pipe()
	require.NoError(t, err)
	cmd.ExtraFiles = []*os.File{held, watched} // its descriptors 3 and 4
	require.NoError(t, cmd.Start())
	held.Close()
	watched.Close()
	term := &terminal{t, stdin, make(chan string)}
	quit := make(chan struct{})
	go func() {
		defer close(term.output)
		for in := bufio.NewReader(stdout); ; {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			select {
			case term.output <- strings.TrimRight(line, "\r\n"):
			case <-quit:
				return
			}
		}
	}()
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		io.Copy(io.Discard, alive)
		alive.Close()
		watch.Close()
		close(quit)
		cmd.Wait()
	})
	term.do("( { cat; kill -9 0; } <&4 >/dev/null & )") // 0 is the group of all
	return term
}

// do types a command and returns what it prints until it has ended.
func (term *terminal) do(command string) string {
	term.t.Helper()
	const end = "-- the command has ended --"
	_, err := fmt.Fprintf(term.stdin, "%s\necho; echo '%s'\n", command, end)
	require.NoError(term.t, err)
	var lines []string
	deadline := time.After(time.Minute)
	for {
		select {
		case line, open := <-term.output:
			if !open {
				term.t.Fatalf("the shell has ended; %s has printed\n%s", command, strings.Join(lines, "\n"))
			}
			if line != end {
				lines = append(lines, line)
				continue
			}
			lines = lines[:len(lines)-1] // the empty line is echo's, or ends one of the command's
			if len(lines) == 0 {
				return ""
			}
			return strings.Join(lines, "\n") + "\n"
		case <-deadline:
			term.t.Fatalf("%s has not ended after a minute; it has printed\n%s", command, strings.Join(lines, "\n"))
		}
	}
}

// Each alert leads to a section of the runbook, and the table at its beginning
// from the alert to the same one.
func TestAlertsLeadToTheRunbook(t *testing.T) {
	rules, err := os.ReadFile("../../deploy/prometheus-alerts.yml")
	require.NoError(t, err)
	page, err := os.ReadFile("../../docs/runbook.md")
	require.NoError(t, err)
	anchors := map[string]bool{}
	for _, c := range commandsOf(t, "runbook.md") {
		anchors[strings.ToLower(strings.ReplaceAll(c.heading, " ", "-"))] = true
	}
	alerts := regexp.MustCompile(`(?s)- alert: (\w+)\n.*?(?:\n\n|$)`).FindAllStringSubmatch(string(rules), -1)
	require.Equal(t, strings.Count(string(rules), "alert:"), len(alerts))
	for _, alert := range alerts {
		runbook := regexp.MustCompile(`\n +runbook: "docs/runbook\.md#(.*)"\n`).FindStringSubmatch(alert[0])
		require.NotNil(t, runbook, "%s does not say what to do", alert[1])
		require.True(t, anchors[runbook[1]], "%s: docs/runbook.md has no section %s", alert[1], runbook[1])
		require.Regexp(t, `(?m)^\|.*`+"`"+alert[1]+"`"+`.*\(#`+runbook[1]+`\) \|$`, string(page))
	}
}
