package rafttest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page's examples are tests that run: each block of Go stands below the
// name of the file that it is from.
func TestExamplesOfThePage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "rafttest.md"))
	require.NoError(t, err)
	text := strings.ReplaceAll(string(page), "\r\n", "\n")
	examples := regexp.MustCompile("`([\\w/.-]+\\.go)#(\\w+)`:\n\n```go\n((?s).*?)```\n").FindAllStringSubmatch(text, -1)
	require.Len(t, examples, 3)
	require.Equal(t, 3, strings.Count(text, "```go\n"))
	for _, example := range examples {
		source, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(example[1])))
		require.NoError(t, err)
		require.Contains(t, strings.ReplaceAll(string(source), "\r\n", "\n"), example[3])
		require.Contains(t, example[3], "func "+example[2]+"(")
	}
}
