// Package scenario plays the stories in testdata/scenarios: small text files in
// which servers time out, messages are delivered or lost, and lines with a
// question mark state the point. docs/scenarios.md describes the language.
//
// A story is the test of a rule, and the same file is told to every
// implementation that has the rule: package raft and the parts of the tutorial.
// After every step all of internal/invariant is checked too.
//
// Reading order: scenario.go (files and how they are run), parse.go (lines
// become actions), world.go (servers and what happens to them), network.go,
// disk.go and machine.go (what they are connected to), requests.go (reads,
// changes of the configuration and transfers), assert.go (the lines with a
// question mark).
package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"raftkv/internal/core"
)

// Stages are the implementations that a story can begin with (its "from:"), in
// the order in which the tutorial builds them.
var Stages = []string{"part1", "part2", "part3", "raft"}

// Story is one file.
type Story struct {
	File  string // for messages
	Title string // the comment that the file begins with: what the story shows

	Rules    []string // the rules of Figure 2 that it proves, such as AE-3
	Pitfalls []string // the known faults that it would find, such as LM-02
	Paper    string   // where to read on
	From     string   // the first of Stages that has what the story needs

	config     config
	statements []statement
}

// statement is one line that does or asks something.
type statement struct {
	line int
	text string
	do   func(*world) error
}

// Play tells the story to servers made by newCore. The error of a story that
// fails names file, line and statement, what was expected and what is, and ends
// with the last steps. A core that panics fails the story; Play does not panic.
//
// volatile is for cores without a disk (see [invariant.Checker]).
func (s *Story) Play(newCore core.New, volatile bool) error {
	w := newWorld(newCore, s.config, volatile)
	for _, st := range s.statements {
		if err := w.perform(st); err != nil {
			return fmt.Errorf("%s:%d: %s\n\t%w\n%s", s.File, st.line, st.text, err, w.lastSteps(12))
		}
	}
	return nil
}

// Run plays one file to servers made by newCore and fails t if it fails. file
// is relative to testdata/scenarios.
func Run(t testing.TB, newCore core.New, file string) {
	t.Helper()
	run(t, newCore, filepath.Join(folder(t), file), false)
}

// RunAll plays all files in testdata/scenarios whose "from:" is at or before
// stage, each as a subtest. The parts before part3 have no disk; whatever they
// know counts as durable.
func RunAll(t *testing.T, newCore core.New, stage string) {
	t.Helper()
	at := slices.Index(Stages, stage)
	if at < 0 {
		t.Fatalf("no stage %q; there are %v", stage, Stages)
	}
	files, err := filepath.Glob(filepath.Join(folder(t), "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories in %s (%v)", folder(t), err)
	}
	ran := 0
	for _, file := range files {
		story := read(t, file)
		if slices.Index(Stages, story.From) > at {
			continue
		}
		ran++
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			run(t, newCore, file, at < slices.Index(Stages, "part3"))
		})
	}
	if ran == 0 {
		t.Fatalf("no story begins at or before %s", stage)
	}
}

func run(t testing.TB, newCore core.New, file string, volatile bool) {
	t.Helper()
	if err := read(t, file).Play(newCore, volatile); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, file string) *Story {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// The name that a reader can open from the root of the repository.
	story, err := Parse("testdata/scenarios/"+filepath.Base(file), string(text))
	if err != nil {
		t.Fatal(err)
	}
	return story
}

// folder finds testdata/scenarios at or above the working directory, which for
// a test is the directory of its package.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		stories := filepath.Join(dir, "testdata", "scenarios")
		if info, err := os.Stat(stories); err == nil && info.IsDir() {
			return stories
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no testdata/scenarios at or above the working directory")
		}
		dir = parent
	}
}
