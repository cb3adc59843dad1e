// Package exercise checks the exercises of the tutorial's parts: that one begins
// red, and that its solution makes it green and breaks nothing.
package exercise

import (
	"encoding/json"
	"flag"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var all = flag.Bool("all", false, "run the tests of every exercise; else of those of parts 1 and 4, and the others' patches must apply")

// Exercise is one exercise of a part. Its red tests are NAME_test.go.txt in the
// part's folder exercise; their names begin with TestExercise. Its solution is
// NAME.patch in the folder solution.
type Exercise struct {
	Name   string
	Folder string // of the part, where a reader copies the tests; "." is the part itself

	// Green has the arguments of one go test each: what the patch must leave
	// green. The exercise's tests are in Folder then.
	Green [][]string

	// OnlyAll has the tests run with -all only: what they need is built for them
	// alone, and takes seconds.
	OnlyAll bool
}

// Check runs the exercise's tests without the patch, to see them fail, and then
// Green with it. It is called in the folder solution and changes no file there:
// the go command is told to take the files of a copy for those of the part.
func (e Exercise) Check(t *testing.T) {
	part, err := filepath.Abs("..")
	check(t, err)
	patch, err := filepath.Abs(e.Name + ".patch")
	check(t, err)
	copied := filepath.Join(t.TempDir(), filepath.Base(part))
	check(t, os.CopyFS(copied, os.DirFS(part)))
	check(t, os.Rename(filepath.Join(copied, "exercise", e.Name+"_test.go.txt"), filepath.Join(copied, e.Folder, e.Name+"_test.go")))

	run := *all || !e.OnlyAll
	if run {
		out, err := goTest(t, part, copied, []string{"-run=^TestExercise", "./" + e.Folder})
		if err == nil || !strings.Contains(out, "--- FAIL: TestExercise") {
			t.Fatalf("without the patch no test fails that can be seen failing:\n%s", out)
		}
	}

	apply := exec.Command("git", "apply", patch)
	apply.Dir = filepath.Dir(copied)
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !run {
		return
	}
	for _, args := range e.Green {
		if out, err := goTest(t, part, copied, args); err != nil {
			t.Fatalf("with the patch, go test %v: %v\n%s", args, err, out)
		}
	}
}

// goTest runs go test in part, as if its Go files were those of copied.
func goTest(t *testing.T, part, copied string, args []string) (string, error) {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for _, name := range slices.Concat(goFiles(t, part), goFiles(t, copied)) {
		overlay.Replace[filepath.Join(part, name)] = filepath.Join(copied, name)
	}
	data, err := json.Marshal(overlay)
	check(t, err)
	file := filepath.Join(filepath.Dir(copied), "overlay.json")
	check(t, os.WriteFile(file, data, 0o600))

	cmd := exec.Command("go", append([]string{"test", "-count=1", "-vet=off", "-overlay=" + file}, args...)...)
	cmd.Dir = part
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func goFiles(t *testing.T, dir string) []string {
	names := map[string]bool{}
	check(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, _ fs.DirEntry, err error) error {
		if filepath.Ext(name) == ".go" {
			names[name] = true
		}
		return err
	}))
	return slices.Sorted(maps.Keys(names))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
