package labs

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/internal/labs/edits"
	"raftkv/internal/labs/run"
	"raftkv/internal/zoo"
)

var all = flag.Bool("all", false, "all parts and all wrong submissions; the tests choose a few otherwise")

func load(t *testing.T, part string) Lab {
	l, err := Load(part)
	require.NoError(t, err)
	return l
}

// Of every part: the cut fits the sources, nothing of the solution is left, and
// the hints and points are in order. What is compiled costs more: part 1 here, the
// others with -all.
func TestSkeletons(t *testing.T) {
	require.Equal(t, []string{"part1", "part2", "part3", "part4", "part5"}, Parts())
	for _, part := range Parts() {
		l := load(t, part)
		m, solution, err := l.skeleton(nil)
		require.NoError(t, err, part)
		require.NoError(t, l.leak(m, solution), part)
		points := 0
		for _, c := range l.Checks {
			points += c.Points
		}
		require.Contains(t, []int{50, 100}, points, part)
		if *all || part == "part1" {
			require.NoError(t, l.Verify(t.TempDir()), part)
		}
	}
}

// The search for the solution finds it.
func TestLeakIsFound(t *testing.T) {
	l := load(t, "part2")
	m, solution, err := l.skeleton(nil)
	require.NoError(t, err)
	m["rafttest/hidden.go"] = []byte("package rafttest\n\n// \treturn index >= l.lastIndex()\n\treturn index >= l.lastIndex()\n")
	require.ErrorContains(t, l.leak(m, solution), "rafttest/hidden.go has a line of the solution: return index >= l.lastIndex()")
}

func TestOtherCuts(t *testing.T) {
	l := load(t, "part2")
	m, _, err := l.skeleton([]string{"handleAppendEntries", "newLog"})
	require.NoError(t, err)
	require.Contains(t, string(m["part2-commands/replication.go"]), `panic("write me: AE-1 to AE-5 (§5.3): the follower's side")`)
	require.Contains(t, string(m["part2-commands/log.go"]), `panic("write me: newLog")`)
	require.Contains(t, string(m["part2-commands/election.go"]), "cm.currentTerm++")
	_, _, err = l.skeleton([]string{"handleSnapshots"})
	require.ErrorContains(t, err, "no function handleSnapshots")
}

// student writes a student's folder: the published sources with changes.
func student(t *testing.T, l Lab, changed map[string]string) string {
	m, err := l.part()
	require.NoError(t, err)
	for name, text := range changed {
		m[name] = []byte(text)
	}
	dir := t.TempDir()
	require.NoError(t, m.write(dir))
	return dir
}

func TestRefusedBeforeRunning(t *testing.T) {
	l := load(t, "part1")
	text, err := os.ReadFile(filepath.FromSlash("../../part1-election/raft.go"))
	require.NoError(t, err)
	raft := strings.Replace(string(text), `"fmt"`, "\"fmt\"\n\t_ \"net\"", 1) + "\nfunc init() { go func() {}() }\n\n//go:noinline\nfunc f() {}\n"
	err = l.Assemble(student(t, l, map[string]string{"part1-election/raft.go": raft}), t.TempDir())
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	require.Len(t, refused.Lines, 4)
	require.Contains(t, err.Error(), "raft.go:5: imports net; this part may import cmp, errors, fmt, maps, slices, sort, strings")

	err = l.Assemble(t.TempDir(), t.TempDir())
	require.ErrorContains(t, err, "election.go is missing")
}

func TestCompileErrors(t *testing.T) {
	l := load(t, "part1")
	dir := student(t, l, map[string]string{"part1-election/election.go": "package raft\n\nfunc (cm *ConsensusModule) startElection() { cm.x = 1 }\n"})
	_, err := l.Judge(dir, run.Options{})
	var compile *CompileError
	require.ErrorAs(t, err, &compile)
	require.Contains(t, err.Error(), "part1-election/election.go:3:")
	require.NotContains(t, err.Error(), dir)
}

// wrong is code that must not get all points.
type wrong struct {
	name    string
	changed map[string]string
}

// wrongs returns what is in labs/wrong and in the zoo and changes what a student hands in.
func wrongs(t *testing.T, root string, l Lab) (list []wrong) {
	found, err := edits.Wrong(root, l.Part)
	require.NoError(t, err)
	for _, e := range found {
		if e.Fields["refused"] == nil && e.Fields["no build"] == nil {
			changed, err := e.Apply(root)
			require.NoError(t, err)
			list = append(list, wrong{e.Name, changed})
		}
	}
	bugs, err := zoo.Bugs(root)
	require.NoError(t, err)
	for _, b := range bugs {
		changed, err := b.Apply(root)
		require.NoError(t, err)
		maps.DeleteFunc(changed, func(name, _ string) bool {
			file, here := strings.CutPrefix(name, l.Dir+"/")
			return !here || !slices.Contains(l.Files, file)
		})
		if len(changed) > 0 {
			list = append(list, wrong{"zoo: " + b.Name, changed})
		}
	}
	return list
}

// Wrong code loses points; correct code that is written otherwise loses none. And
// whoever is judged twice is judged the same.
func TestWrongAndRight(t *testing.T) {
	root, err := zoo.Root(".")
	require.NoError(t, err)
	for _, part := range Parts() {
		l := load(t, part)
		list := wrongs(t, root, l)
		require.GreaterOrEqual(t, len(list), 6, part)
		variants, err := edits.Variants(root, part)
		require.NoError(t, err)
		if !*all {
			list, variants = list[:1], variants[:1]
			if part != "part1" {
				continue
			}
		}
		for _, w := range list {
			t.Run(part+"/wrong/"+w.name, func(t *testing.T) {
				v, err := l.Judge(student(t, l, w.changed), run.Options{})
				require.NoError(t, err)
				require.Less(t, v.Points, v.Max)
				t.Logf("%d points of %d, fails %s", v.Points, v.Max, strings.Join(failed(v), " "))
				if !*all {
					again, err := l.Judge(student(t, l, w.changed), run.Options{})
					require.NoError(t, err)
					require.Equal(t, v, again)
				}
			})
		}
		for _, e := range variants {
			t.Run(part+"/correct/"+e.Name, func(t *testing.T) {
				changed, err := e.Apply(root)
				require.NoError(t, err)
				v, err := l.Judge(student(t, l, changed), run.Options{})
				require.NoError(t, err)
				require.Equal(t, v.Max, v.Points, "%+v", v.Checks)
			})
		}
	}
}

func failed(v Verdict) (ids []string) {
	for _, r := range v.Checks {
		if r.Status == Fail {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// What a student's code can do to the program costs a check, and is said.
func TestLostPrograms(t *testing.T) {
	l := load(t, "part1")
	text, err := os.ReadFile(filepath.FromSlash("../../part1-election/replication.go"))
	require.NoError(t, err)
	const handler = "args AppendEntriesArgs) {\n"
	for body, want := range map[string]string{
		"for {}":                             "Termination: a step must return, and this one does not: it loops, or uses up the memory | handleAppendEntries does not return",
		"cm.handleAppendEntries(from, args)": "Termination: a function must not call itself without end | handleAppendEntries uses up the stack",
		"for s := []int{}; ; s = append(s, s...) { s = append(s, 1) }": "Termination: a step must return, and this one does not: it loops, or uses up the memory | handleAppendEntries does not return",
		"panic(\"no\\nidea\")": "No panic: server | server",
	} {
		if strings.Contains(body, "for ") && !*all {
			continue // until it is sure that a loop does not end, seconds pass
		}
		changed := strings.Replace(string(text), handler, handler+body+"\n", 1)
		v, err := l.Judge(student(t, l, map[string]string{"part1-election/replication.go": changed}), run.Options{Only: "election/2"})
		require.NoError(t, err, body)
		r := v.Checks[1]
		require.Equal(t, Fail, r.Status, body)
		property, event, _ := strings.Cut(want, " | ")
		require.Contains(t, r.Property, property, body)
		require.Contains(t, r.Event, event, fmt.Sprint(body, r))
	}
}
