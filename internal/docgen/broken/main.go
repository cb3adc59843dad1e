// Command broken lets a bug of docs/zoo loose and shows what the tests say. Like
// raftlab zoo run it lays the changed lines over the sources when it builds; it
// writes nothing to them.
//
//	go run ./internal/docgen/broken double-vote                   # the bug's first test
//	go run ./internal/docgen/broken double-vote part1-election    # the one of this folder, or of this name
//
// It exits 1 if the test does not fail.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"raftkv/internal/zoo"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 || len(os.Args) > 3 {
		log.Fatal("usage: broken BUG [FOLDER | TEST]")
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		log.Fatal(err)
	}
}

func run(name string, which []string) error {
	root, err := zoo.Root(".")
	if err != nil {
		return err
	}
	bugs, err := zoo.Bugs(root)
	if err != nil {
		return err
	}
	if bugs, err = zoo.Named(bugs, []string{name}); err != nil {
		return err
	}
	for _, p := range bugs[0].Probes {
		if p.Package == "" || len(which) > 0 && p.Package != which[0] && p.Test != which[0] {
			continue
		}
		overlay, remove, err := lay(root, bugs[0])
		if err != nil {
			return err
		}
		defer remove()
		fmt.Printf("%s\n\n", changeOf(bugs[0], p.Package))
		cmd := exec.Command("go", "test", "-count=1", "-vet=off", "-overlay", overlay, "-run", pattern(p.Test), "./"+p.Package)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		fmt.Print(string(regexp.MustCompile(`\d+\.\d+s`).ReplaceAll(out, []byte("…s"))))
		if err == nil {
			return fmt.Errorf("the test does not notice")
		}
		return nil
	}
	return fmt.Errorf("%s has no such test; see docs/zoo/%s/bug.txt", name, name)
}

// changeOf returns what the bug changes for the tests of a package: its own folder
// or, outside the parts, everything but the parts.
func changeOf(b zoo.Bug, pkg string) string {
	var change strings.Builder
	for _, file := range strings.SplitAfter("\n"+b.Change, "\n--- ") {
		name, _, _ := strings.Cut(file, "/")
		isPart := strings.HasPrefix(name, "part")
		if name != "\n--- " && (name == pkg || !isPart && !strings.HasPrefix(pkg, "part")) {
			change.WriteString("--- " + strings.TrimSuffix(file, "--- "))
		}
	}
	return strings.TrimSpace(change.String())
}

// pattern makes TestScenarios/one-vote what go test -run wants.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// lay puts the changed sources into a folder of their own, which remove removes,
// and returns the list that go build's -overlay wants.
func lay(root string, b zoo.Bug) (list string, remove func(), err error) {
	changed, err := b.Apply(root)
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "raftkv-broken-")
	if err != nil {
		return "", nil, err
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for file, text := range changed {
		copied := filepath.Join(dir, strings.ReplaceAll(file, "/", "+"))
		if err := os.WriteFile(copied, []byte(text), 0o644); err != nil {
			return "", nil, err
		}
		overlay.Replace[filepath.Join(root, filepath.FromSlash(file))] = copied
	}
	data, err := json.Marshal(overlay)
	if err != nil {
		return "", nil, err
	}
	list = filepath.Join(dir, "overlay.json")
	return list, func() { os.RemoveAll(dir) }, os.WriteFile(list, data, 0o644)
}
