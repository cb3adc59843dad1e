package tidy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"raftkv/internal/tidy"
)

func TestThisRepositoryIsTidy(t *testing.T) {
	findings, err := tidy.Check("../..")
	require.NoError(t, err)
	for _, f := range findings {
		t.Error(f)
	}
}

// planted copies testdata/planted, a small repository in which every rule is
// broken, to where it is a module of its own. A line that breaks rules says so
// at its end: want, and the rules' names.
func planted(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.CopyFS(root, os.DirFS("testdata/planted")))
	// These two would be found in this file, too, if they stood here in one piece.
	leftovers := "run: cd /wo" + "rk/main && make # want paths\n# TO" + "DO: more # want markers\n"
	require.NoError(t, os.WriteFile(filepath.Join(root, "Makefile"), []byte(leftovers), 0o644))
	return root
}

func TestEveryPlantedViolationIsFound(t *testing.T) {
	root := planted(t)
	findings, err := tidy.Check(root)
	require.NoError(t, err)
	var found []string
	for _, f := range findings {
		found = append(found, fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Rule))
	}
	want := wanted(t, root)
	slices.Sort(found)
	slices.Sort(want)
	assert.Equal(t, want, found)
}

var wants = regexp.MustCompile(`\bwant ([a-z ]+)`)

func wanted(t *testing.T, root string) (want []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(name string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		for n, line := range strings.Split(string(data), "\n") {
			if m := wants.FindStringSubmatch(line); m != nil {
				for _, rule := range strings.Fields(m[1]) {
					want = append(want, fmt.Sprintf("%s:%d %s", filepath.ToSlash(rel), n+1, rule))
				}
			}
		}
		return nil
	}))
	return want
}

func TestMissingPageIsFound(t *testing.T) {
	root := planted(t)
	require.NoError(t, os.Remove(filepath.Join(root, "docs", "divergences.md")))
	findings, err := tidy.Check(root)
	require.NoError(t, err)
	assert.True(t, slices.ContainsFunc(findings, func(f tidy.Finding) bool {
		return f.File == "docs/divergences.md" && f.Rule == "ledgers"
	}), "found %v", findings)
}

func TestDeclaredTests(t *testing.T) {
	tests, err := tidy.DeclaredTests("testdata/planted")
	require.NoError(t, err)
	var names []string
	for _, test := range tests {
		names = append(names, test.Package+"."+test.Name)
	}
	assert.Equal(t, []string{
		"raftkv/raft.TestNobodySees", // in a file that only Plan 9 builds
		"raftkv/raft.TestSleeps",
		"raftkv/raft.TestSkips",
		"raftkv/raft.ExampleLog",
	}, names)
}
