package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/internal/labs/mutants"
)

// The test binary is also raftlab itself, for whoever calls it with a command. A
// submission runs in a process that begins as raftlab, and a verdict goes through
// an open file, so some things need a process of their own.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		main()
		return
	}
	os.Exit(m.Run())
}

// raftlab runs the program and returns what it prints and whether it exits with 0.
func raftlab(t *testing.T, args ...string) (string, bool) {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	out, err := exec.Command(program, args...).Output()
	if err != nil {
		require.ErrorAs(t, err, new(*exec.ExitError), "%v: %s", args, out)
	}
	return string(out), err == nil
}

// solve puts the published sources of a part into a student's folder, with a change.
func solve(t *testing.T, dir, part, file, old, changed string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, part), 0o755))
	for _, name := range []string{"election.go", "replication.go", "raft.go"} {
		text, err := os.ReadFile(filepath.Join("..", "..", part, name))
		require.NoError(t, err)
		if name == file {
			require.Contains(t, string(text), old)
			text = []byte(strings.Replace(string(text), old, changed, 1))
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, part, name), text, 0o644))
	}
}

const (
	counted = "reply.AskedTerm == cm.currentTerm && reply.VoteGranted"
	late    = "reply.VoteGranted"
)

// The session of docs/labs.md, typed again: a skeleton, a red check, a hint, a
// replay, a green check. What the page shows is what comes; … stands for more.
func TestFirstTenMinutes(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "labs.md"))
	require.NoError(t, err)
	_, session, found := strings.Cut(string(text), "## The first ten minutes")
	require.True(t, found)
	session, _, _ = strings.Cut(session, "\n## ")
	var commands []string
	var shown [][]string
	for line := range strings.Lines(session) {
		line, code := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		if command, ok := strings.CutPrefix(line, "$ "); ok && code {
			commands, shown = append(commands, command), append(shown, nil)
		} else if code && len(shown) > 0 {
			shown[len(shown)-1] = append(shown[len(shown)-1], line)
		}
	}
	program, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	checks := 0
	for n, command := range commands {
		words := strings.Fields(command)
		if words[0] == "cd" {
			dir = filepath.Join(dir, words[1])
			continue
		}
		if command == "raftlab check" {
			switch checks++; checks {
			case 2:
				solve(t, dir, "part1-election", "election.go", "cm.state = Follower\n", "cm.state = Follower\n\tcm.votedFor = None\n")
			case 3:
				solve(t, dir, "part1-election", "", "", "")
			}
		}
		require.Equal(t, "raftlab", words[0])
		c := exec.Command(program, words[1:]...)
		c.Dir = dir
		out, err := c.Output()
		if command == "raftlab check" {
			require.Equal(t, checks == 3, err == nil, "%s", out)
		}
		printed := strings.Split(strings.TrimSpace(string(out)), "\n")
		for _, want := range shown[n] {
			if strings.TrimSpace(want) == "" || strings.TrimSpace(want) == "…" {
				continue
			}
			at := slices.Index(printed, want)
			require.GreaterOrEqual(t, at, 0, "%s: %q comes no more in\n%s", command, want, strings.Join(printed, "\n"))
			printed = printed[at+1:]
		}
	}
	require.Equal(t, 3, checks)
}

// A failing check gives a line that shows its run, and each check has three hints.
func TestReplayAndHints(t *testing.T) {
	mine := t.TempDir()
	for level, want := range map[string]string{"1": "Nothing happens by itself", "2": "startElection: a new term", "3": "In a cluster of one"} {
		out, ok := raftlab(t, "hint", "election/1", "--part", "part1", "--level", level)
		require.True(t, ok)
		require.Contains(t, out, want)
	}
	solve(t, mine, "part1-election", "election.go", counted, late)
	out, ok := raftlab(t, "check", mine)
	require.False(t, ok)
	require.Contains(t, out, "36 / 50")
	again, _ := raftlab(t, "check", mine)
	require.Equal(t, out, again)
	replay := "check --only votes/2 --seed 1"
	require.Contains(t, out, "raftlab "+replay+" --trace    (or --html FILE)")
	told, ok := raftlab(t, append(strings.Fields(replay), "--trace", mine)...)
	require.True(t, ok)
	require.Contains(t, told, "server 1: it receives from server 3 RequestVoteReply Term=1 VoteGranted=true AskedTerm=1")
	require.Contains(t, told, "the votes that it has received were given in an earlier term")
}

// The page has the verdict and the run of what has failed, also if only one check
// is asked for; if nothing could be run it says why.
func TestCheckAsPage(t *testing.T) {
	mine, file := t.TempDir(), filepath.Join(t.TempDir(), "run.html")
	read := func(args ...string) string {
		raftlab(t, append([]string{"check", "--html", file, mine}, args...)...)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		return string(text)
	}
	solve(t, mine, "part1-election", "election.go", counted, late)
	text := read()
	require.Contains(t, text, "part1: 36 of 50 points")
	require.Contains(t, text, "votes/2  votes are counted once, and for their own election, seed 1</h2>")
	require.Contains(t, text, "it receives from server 3 RequestVoteReply Term=1 VoteGranted=true AskedTerm=1")
	require.Equal(t, 1, strings.Count(text, "<h2"))
	require.Equal(t, text, read())

	text = read("--only", "votes/1") // which is ok
	require.Contains(t, text, "This run is ok.")
	require.Contains(t, text, "it receives from server 2 RequestVoteArgs")

	solve(t, mine, "part1-election", "election.go", counted, "no such thing")
	require.Contains(t, read(), "nothing was run")
}

// Programs get the verdict as JSON, on standard output or through a file of theirs.
func TestVerdictForPrograms(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // os/exec hands no files over there
	}
	mine := t.TempDir()
	solve(t, mine, "part1-election", "election.go", counted, late)
	program, err := os.Executable()
	require.NoError(t, err)
	ours, theirs, err := os.Pipe()
	require.NoError(t, err)
	c := exec.Command(program, "check", "-w", "json", "--verdict-fd", "3", mine)
	c.ExtraFiles = []*os.File{theirs}
	printed, err := c.Output()
	require.Error(t, err, "not all is ok")
	require.NoError(t, theirs.Close())
	handed, err := io.ReadAll(ours)
	require.NoError(t, err)
	require.Equal(t, string(printed), string(handed))
	var v struct {
		Points, Max int
		Checks      []struct{ ID, Status, Property, Event, Replay, Hint string }
	}
	require.NoError(t, json.Unmarshal(handed, &v))
	require.Equal(t, []int{36, 50, 8}, []int{v.Points, v.Max, len(v.Checks)})
}

// --watch checks again whenever a file is saved.
func TestWatch(t *testing.T) {
	mine := t.TempDir()
	solve(t, mine, "part1-election", "election.go", counted, late)
	program, err := os.Executable()
	require.NoError(t, err)
	c := exec.CommandContext(t.Context(), program, "check", "--watch", mine)
	stdout, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	lines := bufio.NewScanner(stdout)
	wait := func(want string) {
		for lines.Scan() {
			if strings.Contains(lines.Text(), want) {
				return
			}
		}
		t.Fatalf("%q does not come", want)
	}
	wait("36 / 50")
	wait("chaos/1") // the last line of a verdict
	solve(t, mine, "part1-election", "election.go", counted, "no such thing")
	wait("nothing was run")
	solve(t, mine, "part1-election", "", "", "")
	wait("50 / 50")
	require.NoError(t, c.Process.Kill())
	require.Error(t, c.Wait())
}

// grade marks with hidden seeds, keeps what has not changed, and says in its files
// which seeds they were.
func TestGradeWithSeeds(t *testing.T) {
	dir := t.TempDir()
	class := filepath.Join(dir, "class")
	solve(t, filepath.Join(class, "ada"), "part1-election", "", "", "")
	solve(t, filepath.Join(class, "bob"), "part1-election", "election.go", counted, late)
	seeds := filepath.Join(dir, "seeds.txt")
	require.NoError(t, os.WriteFile(seeds, []byte("901 902 # of this year\n903\n"), 0o644))
	grade := func(name string, more ...string) (string, map[string]string) {
		args := []string{"grade", class, "--part", "part1"}
		files := map[string]string{}
		for _, kind := range []string{"csv", "json"} {
			args = append(args, "--"+kind, filepath.Join(dir, name+"."+kind))
		}
		out, ok := raftlab(t, append(args, more...)...)
		require.True(t, ok, out)
		for _, kind := range []string{"csv", "json"} {
			text, err := os.ReadFile(filepath.Join(dir, name+"."+kind))
			require.NoError(t, err)
			files[kind] = string(text)
		}
		return out, files
	}
	out, hidden := grade("hidden", "--seeds", seeds)
	require.Regexp(t, `ada +50 / 50\nbob +36 / 50  votes/2: Election safety`, out)
	require.Contains(t, strings.Join(strings.Fields(hidden["json"]), ""), `"seeds":[901,902,903]`)
	_, again := grade("hidden", "--seeds", seeds, "--again", "--jobs", "1")
	require.Equal(t, hidden, again)
	_, published := grade("published")
	require.NotContains(t, published["json"], `"seeds"`)
	require.Equal(t, hidden["csv"], published["csv"], "these two do not depend on the seeds")

	_, ok := raftlab(t, "grade", class, "--part", "part1", "--seeds", filepath.Join(dir, "none"))
	require.False(t, ok)
	require.NoError(t, os.WriteFile(seeds, []byte("0"), 0o644))
	_, ok = raftlab(t, "grade", class, "--part", "part1", "--seeds", seeds)
	require.False(t, ok)
}

// A student's story and test are told to bugs and to correct variants.
func TestMutants(t *testing.T) {
	dir := t.TempDir()
	story, err := os.ReadFile(filepath.Join("..", "..", "testdata", "scenarios", "late-vote.txt"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "my story.txt"), story, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "my_test.go"), []byte(`package raft

import (
	"testing"

	"raftkv/rafttest"
)

func TestTermsAreCountedOneByOne(t *testing.T) { // which nobody has promised
	c := rafttest.New(t, 3, NewNode)
	if l := c.WaitForLeader(); l.Status().Term > 1 {
		t.Fatal("the first term is not 1")
	}
}
`), 0o644))
	out, ok := raftlab(t, "mutants", dir, "--part", "part1", "--bug", "stale-vote-counted,half-is-a-majority", "-w", "json")
	require.True(t, ok, out)
	var r mutants.Result
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	names := func(targets []mutants.Target) (names []string) {
		for _, t := range targets {
			names = append(names, t.Name)
		}
		return names
	}
	require.Equal(t, []string{"TestStudentStory/my_story", "TestTermsAreCountedOneByOne"}, r.Tests)
	require.Equal(t, []string{"stale-vote-counted"}, names(r.Killed))
	require.Equal(t, []string{"half-is-a-majority"}, names(r.Missed))
	require.Equal(t, []string{"terms-skip-numbers"}, names(r.Alarms))
	require.Equal(t, "TestStudentStory/my_story", r.Killed[0].Failed[0].Test)

	_, ok = raftlab(t, "mutants", dir, "--part", "part1", "--bug", "no-such-bug")
	require.False(t, ok)
}
