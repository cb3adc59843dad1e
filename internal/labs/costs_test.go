package labs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/internal/labs/edits"
	"raftkv/internal/zoo"
)

var update = flag.Bool("update", false, "write the table of the checks into docs/instructor.md")

// costs is what docs/instructor.md says about each check: made of checks.txt and of
// labs/wrong.
func costs(t *testing.T, root string) string {
	var b strings.Builder
	for _, part := range Parts() {
		l := load(t, part)
		wrong, err := edits.Wrong(root, part)
		require.NoError(t, err)
		fmt.Fprintf(&b, "\n**Part %s**\n\n| check | points | behind it | what it asks | mistakes that it is the first to see |\n|---|---|---|---|---|\n", strings.TrimPrefix(part, "part"))
		for _, c := range l.Checks {
			var seen []string
			for _, e := range wrong {
				if first := e.Fields["first"]; first != nil && strings.HasPrefix(first[0], c.ID+" ") {
					seen = append(seen, e.Title)
				}
			}
			fmt.Fprintf(&b, "| %s | %d | %d | %s | %s |\n", c.ID, c.Points, l.behind(c.ID), c.Title, strings.Join(seen, "; "))
		}
	}
	return b.String()
}

// behind returns the points of the checks that wait if one is not ok.
func (l Lab) behind(id string) (points int) {
	waiting := []string{id}
	for _, c := range l.Checks {
		if slices.ContainsFunc(c.Needs, func(need string) bool { return slices.Contains(waiting, need) }) {
			waiting = append(waiting, c.ID)
			points += c.Points
		}
	}
	return points
}

// The table in docs/instructor.md is what the checks are. To write it anew:
//
//	go test ./internal/labs -run TestCostsInDocs -update
func TestCostsInDocs(t *testing.T) {
	root, err := zoo.Root(".")
	require.NoError(t, err)
	file := filepath.Join(root, "docs", "instructor.md")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), "\n**Part 1**\n")
	require.True(t, found)
	_, after, found := strings.Cut(rest, "\n## ")
	require.True(t, found)
	want := before + costs(t, root) + "\n## " + after
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(text))
}
