package labs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"raftkv"
	"raftkv/internal/labs/run"
)

// goMod is the go.mod of a student's module. It has our name, so that the code
// can go from here to there and back, and no requirements.
const goMod = "module raftkv\n\ngo 1.26\n"

// testify is what the visible tests import here, and ownRequire what they import
// in a student's module.
const (
	testify    = `"github.com/stretchr/testify/require"`
	ownRequire = `"raftkv/internal/require"`
)

// module is files by their slash-separated path.
type module map[string][]byte

// base returns what every module of this lab has, apart from the part itself.
func (l Lab) base() (module, error) {
	m := module{"go.mod": []byte(goMod)}
	take := func(from, to string) error {
		entries, err := fs.ReadDir(raftkv.Sources, from)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.IsDir() || !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
				continue
			}
			if m[path.Join(to, e.Name())], err = fs.ReadFile(raftkv.Sources, path.Join(from, e.Name())); err != nil {
				return err
			}
		}
		return nil
	}
	err := errors.Join(
		take("rafttest", "rafttest"),
		take("internal/labs/plain/lincheck", "internal/lincheck"),
		take("internal/labs/plain/require", "internal/require"),
	)
	for _, ship := range l.ships { // a folder, or one file
		if !strings.HasSuffix(ship, ".go") {
			err = errors.Join(err, take(ship, ship))
			continue
		}
		text, e := fs.ReadFile(raftkv.Sources, ship)
		m[ship], err = text, errors.Join(err, e)
	}
	return m, err
}

// part returns the part's own sources, as published.
func (l Lab) part() (module, error) {
	m := module{}
	err := fs.WalkDir(raftkv.Sources, l.Dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		m[name], err = fs.ReadFile(raftkv.Sources, name)
		return err
	})
	for _, test := range l.tests {
		text, e := fs.ReadFile(raftkv.Sources, path.Join(l.Dir, test))
		m[path.Join(l.Dir, test)] = bytes.ReplaceAll(text, []byte(testify), []byte(ownRequire))
		err = errors.Join(err, e)
	}
	return m, err
}

// judge returns what the runner has that a student's module has not.
func (l Lab) judge() (module, error) {
	m := module{}
	var err error
	for _, dir := range []string{"internal/labs/run", "internal/labs/checks/web", "internal/labs/checks/" + l.Part, "internal/cores"} {
		entries, e := fs.ReadDir(raftkv.Sources, dir)
		err = errors.Join(err, e)
		for _, entry := range entries {
			name := entry.Name()
			other := dir == "internal/cores" && !slices.Contains([]string{"doc.go", l.Part + ".go"}, name)
			if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || other {
				continue
			}
			text, e := fs.ReadFile(raftkv.Sources, path.Join(dir, name))
			m[path.Join(dir, name)], err = text, errors.Join(err, e)
		}
	}
	checks, e := fs.ReadFile(raftkv.Sources, "labs/"+l.Part+"/checks.txt")
	m["runner/checks.txt"] = checks
	m["runner/main.go"] = fmt.Appendf(nil, `package main

import (
	_ "embed"

	checks "raftkv/internal/labs/checks/%[1]s"
	"raftkv/internal/labs/run"
)

//go:embed checks.txt
var text string

func main() { run.Main(%[1]q, text, checks.Funcs) }
`, l.Part)
	return m, errors.Join(err, e)
}

// write puts the files into dir.
func (m module) write(dir string) error {
	for name, text := range m {
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Assemble writes into outDir, which must be empty or absent, the module to be
// judged: of studentDir only the named Files, which may stand there or in Dir
// below it; all else is ours. The error is a *RefusedError if the files are not
// there or use what they may not.
func (l Lab) Assemble(studentDir, outDir string) error {
	home := studentDir
	if _, err := os.Stat(filepath.Join(home, filepath.FromSlash(l.Dir))); err == nil {
		home = filepath.Join(home, filepath.FromSlash(l.Dir))
	}
	m, err := l.base()
	if err != nil {
		return err
	}
	for _, more := range []func() (module, error){l.part, l.judge} {
		files, err := more()
		if err != nil {
			return err
		}
		for name, text := range files {
			m[name] = text
		}
	}
	var refused RefusedError
	for _, name := range l.Files {
		text, err := os.ReadFile(filepath.Join(home, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) {
			refused.Lines = append(refused.Lines, fmt.Sprintf("%s is missing", name))
			continue
		}
		if err != nil {
			return err
		}
		refused.Lines = append(refused.Lines, l.inspect(name, text)...)
		m[path.Join(l.Dir, name)] = text
	}
	if len(refused.Lines) > 0 {
		return &refused
	}
	return m.write(outDir)
}

// Build compiles what Assemble has written into one binary, without a network.
// The error is a *CompileError if the student's code is at fault.
//
// The binary runs the checks and writes a Verdict as JSON to file descriptor 3,
// in one write, before it exits 0. It starts itself once more as a child, so that
// code which exhausts the stack or the memory costs a check and not the verdict;
// what the child prints is thrown away. If descriptor 3 holds nothing at the end,
// the code was killed from outside. With -seeds N,N,… it uses these seeds instead
// of its own; with -only ID it runs one check and those that it needs.
func (l Lab) Build(outDir, binary string) error {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	// As little as possible that is not in the cache: with -trimpath our files are
	// compiled once, and not for each folder that they are written to. Nobody debugs
	// the binary, and without tables for that the linker has half the work.
	cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", binary, "./runner")
	cmd.Dir = outDir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off", "GOTOOLCHAIN=local", "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	var lines []string
	for line := range strings.SplitSeq(string(out), "\n") {
		if line = strings.TrimRight(line, "\r "); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimPrefix(filepath.ToSlash(line), "./"))
		}
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return fmt.Errorf("go build: %w", err)
	}
	return &CompileError{lines}
}

// Run runs a built runner.
func (l Lab) Run(binary string, o run.Options) (Verdict, error) {
	return run.Supervise(binary, l.Part, l.Checks, o)
}

// Show runs one check of a built runner with one seed, and writes to w all that
// happens and what comes of it. What is printed beyond some megabytes is cut off.
func (l Lab) Show(binary, check string, seed uint64, w io.Writer) error {
	return run.Show(binary, check, seed, w)
}

// Judge assembles, builds and runs what stands in studentDir.
func (l Lab) Judge(studentDir string, o run.Options) (v Verdict, err error) {
	err = l.WithRunner(studentDir, func(binary string) error {
		v, err = l.Run(binary, o)
		return err
	})
	return v, err
}

// WithRunner assembles and builds what stands in studentDir, hands the binary to
// do, and cleans up.
func (l Lab) WithRunner(studentDir string, do func(binary string) error) error {
	dir, err := os.MkdirTemp("", "raftlab-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	source := filepath.Join(dir, "module")
	if err := l.Assemble(studentDir, source); err != nil {
		return err
	}
	binary := filepath.Join(dir, "runner.exe") // Windows wants the ending; no one else minds
	if err := l.Build(source, binary); err != nil {
		return err
	}
	return do(binary)
}
