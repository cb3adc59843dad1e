package edits

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"raftkv/internal/zoo"
)

// An edit that does not fit today's sources, or fits in two places, must be repaired.
func TestEveryEditApplies(t *testing.T) {
	root, err := zoo.Root(".")
	require.NoError(t, err)
	folders, err := filepath.Glob(filepath.Join(root, "labs", "[vw]*", "part*"))
	require.NoError(t, err)
	require.Len(t, folders, 10, "two of each part")
	for _, part := range []string{"part1", "part2", "part3", "part4", "part5"} {
		wrong, err := Wrong(root, part)
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(wrong), 3, part)
		variants, err := Variants(root, part)
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(variants), 3, part)
		for _, e := range slices.Concat(wrong, variants) {
			changed, err := e.Apply(root)
			if !assert.NoError(t, err) {
				continue
			}
			for file, text := range changed {
				_, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
				assert.Equal(t, e.Fields["no build"] == nil, err == nil, "%s/%s: %v", part, e.Name, err)
			}
		}
	}
}

func TestMalformed(t *testing.T) {
	for text, why := range map[string]string{
		"title: t\n":                           "no change",
		"title\n\n--- a\n-b\n":                 "no field",
		"first: x\n\n--- a\n-b\n":              "no title",
		"title: t\ncolour: red\n\n--- a\n-b\n": "unknown field",
		"title: t\n\n-b\n":                     "line 1 of the change: no file",
		"title: t\n\n--- a\n-b\n+b\n":          "changes nothing",
	} {
		_, err := parse("x", text, []string{"first"})
		require.ErrorContains(t, err, why, text)
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "e.txt"), []byte("title: t\n\n-b\n"), 0o644))
	_, err := read(dir, ".")
	require.ErrorContains(t, err, "./e.txt: line 1")
}
