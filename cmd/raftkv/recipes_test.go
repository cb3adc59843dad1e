//go:build unix

package main

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pageStep is a command of a page and the lines that it prints.
type pageStep struct {
	command string // may have several lines
	output  []string
}

// chapter is what stands below one heading of a page.
type chapter struct {
	heading string
	steps   []pageStep
}

// commandsOf returns the commands of a page in their order. A command is a line
// that begins with "$ ", and those behind it with "> "; its output follows.
func commandsOf(t *testing.T, page string) (chapters []chapter) {
	text, err := os.ReadFile("../../docs/" + page)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			chapters = append(chapters, chapter{heading: heading})
		}
		text, ok := strings.CutPrefix(line, "    ")
		if !ok {
			continue
		}
		now := &chapters[len(chapters)-1]
		if command, ok := strings.CutPrefix(text, "$ "); ok {
			now.steps = append(now.steps, pageStep{command: command})
			continue
		}
		require.NotEmpty(t, now.steps, line)
		last := &now.steps[len(now.steps)-1]
		if more, ok := strings.CutPrefix(text, "> "); ok && len(last.output) == 0 {
			last.command += "\n" + more
			continue
		}
		last.output = append(last.output, text)
	}
	return chapters
}

// printed is a pattern for what a page says that a command prints. … stands for
// anything in a line, and alone on a line for any lines.
func printed(lines string) string {
	if lines == "" {
		return `^$`
	}
	want := regexp.QuoteMeta(lines + "\n")
	return "^" + strings.ReplaceAll(strings.ReplaceAll(want, "\n…\n", "\n(?:.*\n)*"), "…", ".*") + "$"
}

// withoutLog leaves out the lines of the log, which stand before, between and behind
// the others as it happens.
func withoutLog(output string) string {
	var b strings.Builder
	for line := range strings.Lines(output) {
		if !strings.HasPrefix(line, "time=") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// play runs the commands of a recipe as they stand there, but for the ports.
func (f *fleet) play(steps []pageStep) {
	f.t.Helper()
	require.NotEmpty(f.t, steps)
	here := func(s string) string {
		return regexp.MustCompile(`127\.0\.0\.1:([89])08(\d)`).ReplaceAllStringFunc(s, func(a string) string {
			n, _ := strconv.Atoi(a[len(a)-1:])
			if strings.Contains(a, ":9") {
				return f.raft(n + 1)
			}
			return f.http(n + 1)
		})
	}
	for _, step := range steps {
		command, ok := strings.CutPrefix(here(step.command), "raftkv ")
		require.True(f.t, ok, step.command)
		args := strings.Fields(command)
		var got string
		if args[0] == "serve" {
			id, err := strconv.Atoi(args[2])
			require.NoError(f.t, err)
			f.serve(id, append(args, "--election-timeout", "200ms"))
			got = withoutLog(f.running[id].output.String())
		} else {
			got = f.must(args...)
		}
		require.Regexp(f.t, printed(here(strings.Join(step.output, "\n"))), got, "raftkv %s", command)
	}
}

// awaitLeader waits until one of the servers that are left leads: status would warn
// that none does, which the page does not show.
func (f *fleet) awaitLeader() {
	f.t.Helper()
	f.eventually("one of the others leads", func() bool {
		return strings.Contains(f.run("status").stdout, " is leader in term ")
	})
}

// Every command of docs/recipes.md, on servers to which that has happened.
func TestSystemRecipes(t *testing.T) {
	all := map[string][]pageStep{}
	for _, c := range commandsOf(t, "recipes.md") {
		all[c.heading] = c.steps
	}
	played := 0
	for heading, prepare := range map[string]func(f *fleet){
		"One server has lost its disk": func(f *fleet) {
			f.kill(2)
			f.wipe(2)
			// As the page says: on an empty directory it gets nowhere.
			f.start(2, "--cluster", f.members(3))
			f.eventually("the others refuse it", func() bool {
				return strings.Contains(f.running[1].output.String()+f.running[3].output.String(), "lost its disk: remove it and add it again")
			})
			f.kill(2)
			f.wipe(2)
			f.awaitLeader()
		},
		"A new machine takes its place": func(f *fleet) {
			f.kill(2)
			f.awaitLeader()
		},
		"Most servers have lost their disks": func(f *fleet) {
			f.kill(1, 2, 3)
			f.wipe(2)
			f.wipe(3)
		},
		"A backup": func(*fleet) {},
	} {
		require.Contains(t, all, heading)
		played++
		t.Run(heading, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, 4)
			f.begin(3)
			f.must("put", "k", "v")
			f.eventually("server 1 has it", func() bool {
				return f.run("get", "k", "--consistency", "stale", "--endpoints", f.http(1)).stdout == "v\n"
			})
			prepare(f)
			f.play(all[heading])
		})
	}
	require.Len(t, all, played, "a recipe that nobody plays")
}
