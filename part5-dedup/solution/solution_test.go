// Package solution checks that the exercise of this part can be solved.
package solution

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	part     = "part5-dedup"
	exercise = "original_result"
)

// The patch is applied to a copy of the part. With it the exercise's tests are
// green, and so are the part's own.
func TestSolution(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, part), os.DirFS("..")))
	patch, err := filepath.Abs(exercise + ".patch")
	require.NoError(t, err)
	run(t, dir, "git", "apply", patch)
	copied := filepath.Join(dir, part)
	require.NoError(t, os.Rename(filepath.Join(copied, "exercise", exercise+"_test.go.txt"), filepath.Join(copied, "kvservice", exercise+"_test.go")))

	// The go command takes the files of the copy for those of the part.
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	original, err := filepath.Abs("..")
	require.NoError(t, err)
	require.NoError(t, fs.WalkDir(os.DirFS(copied), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(name) == ".go" {
			overlay.Replace[filepath.Join(original, name)] = filepath.Join(copied, name)
		}
		return err
	}))
	data, err := json.Marshal(overlay)
	require.NoError(t, err)
	file := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(file, data, 0o600))
	run(t, original, "go", "test", "-count=1", "-overlay="+file, "./kvservice", "./kvclient")
	run(t, original, "go", "test", "-count=1", "-overlay="+file, "-run=TestHTTP", ".")
}

func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
