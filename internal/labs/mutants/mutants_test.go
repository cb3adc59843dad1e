package mutants

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/internal/zoo"
)

// Every part has bugs that apply to it, and the solution with three variants. If
// it has stories, three of them are true to the letter of Figure 2.
func TestTargets(t *testing.T) {
	root, err := zoo.Root(".")
	require.NoError(t, err)
	bugs, err := zoo.Bugs(root)
	require.NoError(t, err)
	_, err = zoo.Named(bugs, unseenBugs)
	require.NoError(t, err, "who is left out by name must have that name")
	for name := range parts {
		targets, err := Targets(root, name)
		require.NoError(t, err)
		right := 0
		for _, target := range targets {
			if target.right && (target.letter || parts[name].adapter == "") {
				right++
			}
		}
		require.GreaterOrEqual(t, right, 4, name)
		require.GreaterOrEqual(t, len(targets), 4+6, name)
	}
}

func TestRead(t *testing.T) {
	p := parts["part1"]
	p.ownTests = []string{"chaos_test.go"}
	for text, why := range map[string]string{
		"package raft\nimport \"testing\"\nfunc TestX(t *testing.T) {}": "",
		"package raft\nimport \"os\"":                                   "os may not be imported",
		"package raft\nfunc helper() {}":                                "has no tests of its own",
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "my_test.go"), []byte(text), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "chaos_test.go"), []byte("ours"), 0o644))
		s, err := read(dir, p)
		if why != "" {
			require.ErrorContains(t, err, why)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []string{"TestX"}, s.tests)
	}
}

func TestOutcome(t *testing.T) {
	const out = "=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n=== RUN   TestB/seed=1\n    b_test.go:7: two leaders\n--- FAIL: TestB (0.00s)\n=== RUN   TestC\npanic: boom\n"
	for test, want := range map[string]string{"TestA": "", "TestB": "two leaders", "TestC": "panic: boom", "TestD": ""} {
		passed, says := outcome(out, test)
		require.Equal(t, test == "TestA", passed, test)
		require.Equal(t, want, says, test)
	}
}

func TestNext(t *testing.T) {
	require.Equal(t, "^(TestA|TestB)$", next([]string{"TestA", storyTest + "/one", "TestB"}))
	require.Equal(t, "^TestStudentStory$/^(one|two)$", next([]string{storyTest + "/one", storyTest + "/two"}))
}

// A test that fails on correct code kills nothing.
func TestSum(t *testing.T) {
	r := sum("part1", []string{"TestA", "TestB"}, []Target{
		{Name: Solution, right: true},
		{Name: "variant", right: true, Failed: []Failure{{Test: "TestB"}}},
		{Name: "one", Failed: []Failure{{Test: "TestA"}, {Test: "TestB"}}},
		{Name: "two", Failed: []Failure{{Test: "TestB"}}},
	})
	require.Equal(t, 2, r.Variants)
	require.Equal(t, "variant", r.Alarms[0].Name)
	require.Equal(t, []Failure{{Test: "TestA"}}, r.Killed[0].Failed)
	require.Equal(t, "two", r.Missed[0].Name)
}
