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

// recipeStep is a command of docs/recipes.md and what it prints.
type recipeStep struct {
	args   []string
	output []string
}

// recipes returns the commands of docs/recipes.md by heading.
func recipes(t *testing.T) map[string][]recipeStep {
	page, err := os.ReadFile("../../docs/recipes.md")
	require.NoError(t, err)
	all := map[string][]recipeStep{}
	heading := ""
	for line := range strings.Lines(string(page)) {
		line = strings.TrimRight(line, "\n")
		if name, ok := strings.CutPrefix(line, "## "); ok {
			heading = name
		}
		text, ok := strings.CutPrefix(line, "    ")
		if !ok {
			continue
		}
		steps := all[heading]
		if command, ok := strings.CutPrefix(text, "$ raftkv "); ok {
			all[heading] = append(steps, recipeStep{args: strings.Fields(command)})
			continue
		}
		require.NotEmpty(t, steps, line)
		last := &steps[len(steps)-1]
		last.output = append(last.output, text)
	}
	return all
}

// play runs the commands of a recipe as they stand there, but for the ports.
func (f *fleet) play(steps []recipeStep) {
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
		args := strings.Fields(here(strings.Join(step.args, " ")))
		var got string
		if args[0] == "serve" {
			id, err := strconv.Atoi(args[2])
			require.NoError(f.t, err)
			f.serve(id, append(args, "--election-timeout", "200ms"))
			got, _, _ = strings.Cut(f.running[id].output.String(), "time=") // then it logs
		} else {
			got = f.must(args...)
		}
		want := regexp.QuoteMeta(here(strings.Join(step.output, "\n")))
		want = strings.ReplaceAll(strings.ReplaceAll(want, `\n…\n`, `\n(?:.*\n)*`), "…", ".*")
		require.Regexp(f.t, `^`+want+`\n`, got, "raftkv %s", strings.Join(args, " "))
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
	all := recipes(t)
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
