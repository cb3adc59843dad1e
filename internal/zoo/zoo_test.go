package zoo

import (
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "let TestTable write the table into docs/zoo/README.md")

func readBugs(t *testing.T) (root string, bugs []Bug) {
	root, err := Root(".")
	require.NoError(t, err)
	bugs, err = Bugs(root)
	require.NoError(t, err)
	return root, bugs
}

// A bug that does not fit today's sources, or fits in two places, must be repaired.
func TestEveryBugApplies(t *testing.T) {
	root, bugs := readBugs(t)
	require.GreaterOrEqual(t, len(bugs), 40)
	harmless := 0
	for _, b := range bugs {
		changed, err := b.Apply(root)
		if !assert.NoError(t, err) {
			continue
		}
		for file, text := range changed {
			_, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
			assert.NoError(t, err, b.Name)
		}
		for _, p := range b.Probes {
			assert.NotEmpty(t, p.Layer(), "%s: %s: no layer has this package", b.Name, p)
		}
		if b.Harmless {
			harmless++
		}
	}
	assert.LessOrEqual(t, harmless, 2)
}

// Every page has the bug's title and the same headings.
func TestPages(t *testing.T) {
	root, bugs := readBugs(t)
	for _, b := range bugs {
		page, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(b.Page())))
		if !assert.NoError(t, err) {
			continue
		}
		headings := regexp.MustCompile(`(?m)^#.*$`).FindAllString(string(page), -1)
		assert.Equal(t, []string{"# " + b.Title, "## Why people write it", "## What breaks", "## Seen in public", "## How it is found", "## The lesson"}, headings, b.Name)
		assert.Contains(t, string(page), "zoo run "+b.Name+"\n")
	}
	folders, err := os.ReadDir(filepath.Join(root, filepath.FromSlash(Folder)))
	require.NoError(t, err)
	require.Len(t, folders, len(bugs)+1, "a folder without bug.txt")
}

// TestTable compares the table of docs/zoo/README.md with the bugs.
func TestTable(t *testing.T) {
	root, bugs := readBugs(t)
	file := filepath.Join(root, filepath.FromSlash(Folder), "README.md")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	const begin, end = "<!-- raftlab zoo list -w markdown -->\n", "<!-- end -->\n"
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	require.True(t, found && ended, "%s has no place for the table", file)
	current := before + begin + Markdown(bugs) + end + after
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(current), 0o644))
		return
	}
	require.Equal(t, current, string(text), "repair it with: go test ./internal/zoo -update")
}

// Five bugs of five layers; raftlab zoo run catches all of them.
func TestFiveAreCaught(t *testing.T) {
	root, bugs := readBugs(t)
	five, err := Named(bugs, []string{"no-dedup", "torn-tail-not-cut-off", "failed-cas-not-recorded", "first-copy-answered-only", "last-attempt-decides"})
	require.NoError(t, err)
	layers := map[string]bool{}
	results, err := Run(t.Context(), Options{Root: root, Jobs: runtime.GOMAXPROCS(0)}, five)
	require.NoError(t, err)
	for _, r := range results {
		layers[r.Bug.Layer()] = true
		assert.True(t, r.Caught, "%s: %s", r.Bug.Name, r.Problem)
		t.Logf("%s: %s after %d seeds in %v: %s", r.Bug.Name, r.Verdict(), r.Seeds, r.Time, r.Shown)
	}
	require.Len(t, layers, 5)
}

// What a run must refuse to call caught.
func TestVerdicts(t *testing.T) {
	p := Probe{Package: "raft", Test: "TestX"}
	bug := Bug{Name: "b", Property: "election safety", Probes: []Probe{p}}
	failed := fmt.Errorf("exit status 1")
	for _, tc := range []struct {
		name    string
		bug     Bug
		out     string
		err     error
		problem string
	}{
		{"caught", bug, "x\n  election safety: two leaders\n", failed, ""},
		{"escaped", bug, "PASS\n", nil, "it escapes"},
		{"failed for another reason", bug, "no space left\n", failed, "nowhere names"},
		{"harmless", Bug{Harmless: true}, "PASS\n", nil, ""},
		{"not harmless", Bug{Harmless: true}, "FAIL\n", failed, "not harmless"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := Result{Bug: tc.bug}
			r.judge(p, tc.out, tc.err)
			if tc.problem == "" {
				require.Empty(t, r.Problem)
				return
			}
			require.Contains(t, r.Problem, tc.problem)
		})
	}
	r := Result{Bug: bug}
	r.judge(Probe{Profile: "full", From: 1, To: 9}, "seed 7: election safety: two leaders\nseeds needed: 7\n", failed)
	require.EqualValues(t, 7, r.Seeds)
	require.Equal(t, "seed 7: election safety: two leaders", r.Shown)
}

func TestApply(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "a.go"), []byte("one\ntwo\n\tone\ntwo\nthree\n"), 0o644))
	parsed := func(change string) Bug {
		b, err := parse("b", "title: t\narea: a\nproperty: p\ntest: raft TestX\n\n"+change)
		require.NoError(t, err)
		return b
	}
	changed, err := parsed("--- a.go\n two\n-three\n+four\n@@\n-one\n two\n \tone\n").Apply(root)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a.go": "two\n\tone\ntwo\nfour\n"}, changed)

	for change, why := range map[string]string{
		"--- a.go\n-two\n":   "2 places",
		"--- a.go\n-five\n":  "0 places",
		"--- a.go\n-ne\n":    "0 places",
		"--- b.go\n-two\n":   "no such file",
		"--- a.go\n+three\n": "places",
	} {
		_, err := parsed(change).Apply(root)
		require.ErrorContains(t, err, why, change)
	}
}

func TestParse(t *testing.T) {
	const head = "title: t\narea: a\nproperty: p\n"
	for text, why := range map[string]string{
		"title: t\n\n--- a\n-b\n":                       "are needed",
		head + "\n--- a\n-b\n":                          "are needed",
		head + "colour: red\n\n--- a\n-b\n":             ":4: unknown field",
		head + "nonsense\n\n--- a\n-b\n":                ":4: no field",
		head + "test: raft\n\n--- a\n-b\n":              ":4: ",
		head + "seeds: full 9-1\n\n--- a\n-b\n":         ":4: ",
		head + "test: raft TestX\n\n-b\n":               ":6: no file",
		head + "test: raft TestX\n\n--- a\nb\n":         ":7: a line of a change",
		head + "test: raft TestX\n\n--- a\n-b\n+b\n":    "changes nothing",
		head + "test: raft TestX\n\n--- a\n-b\n@@\n \n": "changes nothing",
	} {
		_, err := parse("b", text)
		require.ErrorContains(t, err, why, text)
	}
}
