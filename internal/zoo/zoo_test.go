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

var update = flag.Bool("update", false, "let TestTable and TestParts write their tables into docs/zoo")

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
	require.Len(t, folders, len(bugs)+len([]string{"README.md", "parts.md", "parts.txt"}), "a folder without bug.txt")
}

// TestTable compares the table of docs/zoo/README.md with the bugs.
func TestTable(t *testing.T) {
	root, bugs := readBugs(t)
	requireWritten(t, root, "README.md", "<!-- raftlab zoo list -w markdown -->\n", Markdown(bugs))
}

// TestParts compares docs/zoo/parts.md with the bugs and the reasons.
func TestParts(t *testing.T) {
	root, bugs := readBugs(t)
	reasons, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(PartReasons)))
	require.NoError(t, err)
	table, err := PartsMarkdown(bugs, string(reasons))
	require.NoError(t, err)
	requireWritten(t, root, "parts.md", "<!-- parts of the tutorial -->\n", table)
}

// requireWritten demands that text stands behind begin in a file of docs/zoo, or
// writes it there.
func requireWritten(t *testing.T, root, name, begin, text string) {
	t.Helper()
	file := filepath.Join(root, filepath.FromSlash(Folder), name)
	old, err := os.ReadFile(file)
	require.NoError(t, err)
	const end = "<!-- end -->\n"
	before, rest, found := strings.Cut(string(old), begin)
	_, after, ended := strings.Cut(rest, end)
	require.True(t, found && ended, "%s has no place for the table", file)
	current := before + begin + text + end + after
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(current), 0o644))
		return
	}
	require.Equal(t, current, string(old), "repair it with: go test ./internal/zoo -update")
}

// What the table of the parts must not hide.
func TestPartsRefuses(t *testing.T) {
	bug := Bug{
		Name: "b", Area: "a",
		Probes: []Probe{{Package: "part2-commands", Test: "TestX"}},
		Hunks:  []Hunk{{File: "part2-commands/log.go"}},
	}
	const rest = "area:a 1 cannot: no log\nb 3-5 missed: nobody looks\n"
	table, err := PartsMarkdown([]Bug{bug}, "# comment\n\narea:a 1-2 cannot: no log\nb 3-5 missed: nobody looks\n")
	require.NoError(t, err)
	require.Contains(t, table, "| part 3 | 0 | 0 | 1 |\n")
	require.Contains(t, table, "| cannot occur: no log | caught by `TestX` | **missed**: nobody looks |")

	for reasons, why := range map[string]string{
		"area:a 1 cannot: no log\n":         "b in part 3: neither a proof nor a reason",
		rest + "b 2 missed: nobody looks\n": "b in part 2: it has a proof",
		rest + "c 1 cannot: no log\n":       ":3: no cell needs this",
		rest + "b 1 harmless\n":             ":3: not BUG PARTS",
	} {
		_, err := PartsMarkdown([]Bug{bug}, reasons)
		require.ErrorContains(t, err, why)
	}
	bug.Hunks = nil
	_, err = PartsMarkdown([]Bug{bug}, rest)
	require.ErrorContains(t, err, "b in part 2: a change needs a test")
}

// Five bugs of five layers, each by its first test; raftlab zoo run catches all of
// them by all their tests.
func TestFiveAreCaught(t *testing.T) {
	root, bugs := readBugs(t)
	five, err := Named(bugs, []string{"no-dedup", "torn-tail-not-cut-off", "failed-cas-not-recorded", "first-copy-answered-only", "last-attempt-decides"})
	require.NoError(t, err)
	for i := range five {
		five[i].Probes = five[i].Probes[:1]
		if p := &five[i].Probes[0]; p.Package == "" {
			p.To = p.From + 9 // which must hold without the bug, and show it: sooner than in zoo run
		}
	}
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
