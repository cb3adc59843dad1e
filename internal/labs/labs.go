// Package labs turns the tutorial's parts into exercises and judges what
// students make of them. A part's cut (which functions a student writes) and its
// checks are files in labs/; raftlab skeleton, check, hint and grade are made of
// this package.
//
// A verdict depends on nothing but the code: the checks run in virtual time, with
// fixed seeds and a fixed budget of events.
//
//	labs.go      what a lab is; labs/partN/cut.txt
//	engine.go    a student's files and ours, compiled into a runner
//	skeleton.go  a part with holes, and the proof that it is one
//	source.go    Go text: bodies out, imports off
//	run/         the runner: checks, verdicts, and what stands between them
//	checks/      the checks of each part
//	plain/       stand-ins for libraries, so that a student's module needs none
package labs

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"raftkv"
	"raftkv/internal/labs/run"
)

// Lab is one part as an exercise.
type Lab struct {
	Part string // "part1" to "part5"
	Dir  string // the part's folder, slash-separated: "part2-commands"

	// Files are the source files that a student hands in, relative to Dir. All
	// others of the module are ours.
	Files []string

	// Allowed are the packages that these files may import.
	Allowed []string

	// Goroutines tells whether these files may start goroutines. In virtual time
	// there are none: what they do would depend on luck.
	Goroutines bool

	Checks []Check // in the order in which they run

	tests []string // the visible tests, relative to Dir
	ships []string // what stands beside the part in a student's module
	drops []drop   // the standard cut
}

// drop is a function whose body a student writes.
type drop struct {
	name string // "startElection"; "log.matches" if two have one name
	rule string // what to write
}

// What a lab has in common with the runner that judges it.
type (
	Check   = run.Check
	Status  = run.Status
	Verdict = run.Verdict
	Result  = run.Result
)

// What can become of a check.
const (
	OK   = run.OK
	Fail = run.Fail
	Wait = run.Wait
)

// Parts returns the parts that are labs.
func Parts() []string {
	entries, err := fs.ReadDir(raftkv.Sources, "labs")
	if err != nil {
		panic(err) // it is embedded
	}
	var parts []string
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), "part") {
			parts = append(parts, e.Name())
		}
	}
	return parts
}

// Load returns the lab of a part, "part1" to "part5".
func Load(part string) (Lab, error) {
	if !slices.Contains(Parts(), part) {
		return Lab{}, fmt.Errorf("there is no lab %q; there are %s", part, strings.Join(Parts(), ", "))
	}
	l := Lab{Part: part}
	text, err := fs.ReadFile(raftkv.Sources, "labs/"+part+"/checks.txt")
	if err != nil {
		return l, err
	}
	if l.Checks, err = run.ParseChecks(string(text)); err != nil {
		return l, fmt.Errorf("labs/%s/checks.txt: %w", part, err)
	}
	if text, err = fs.ReadFile(raftkv.Sources, "labs/"+part+"/cut.txt"); err != nil {
		return l, err
	}
	if err := l.parseCut(string(text)); err != nil {
		return l, fmt.Errorf("labs/%s/cut.txt: %w", part, err)
	}
	return l, nil
}

// parseCut reads a cut.txt: lines of a key and what it says.
func (l *Lab) parseCut(text string) error {
	for n, line := range strings.Split(text, "\n") {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		words := strings.Fields(value)
		switch key {
		case "":
		case "dir":
			l.Dir = strings.TrimSpace(value)
		case "files":
			l.Files = append(l.Files, words...)
		case "allow":
			l.Allowed = append(l.Allowed, words...)
		case "goroutines":
			l.Goroutines = true
		case "tests":
			l.tests = append(l.tests, words...)
		case "ships":
			l.ships = append(l.ships, words...)
		case "drop":
			name, rule, _ := strings.Cut(strings.TrimSpace(value), " ")
			l.drops = append(l.drops, drop{name, strings.TrimSpace(rule)})
		default:
			if key[0] != '#' {
				return fmt.Errorf("line %d: unknown key %q", n+1, key)
			}
		}
	}
	if l.Dir == "" || len(l.Files) == 0 || len(l.drops) == 0 {
		return fmt.Errorf("wants dir, files and drop")
	}
	return nil
}

// CompileError reports that the assembled module does not compile.
type CompileError struct {
	Lines []string // the compiler's, paths relative to the module
}

func (e *CompileError) Error() string { return strings.Join(e.Lines, "\n") }

// RefusedError reports that a student's files use what they may not, or that one
// of them is missing. Nothing was run.
type RefusedError struct {
	Lines []string // one sentence each, with file and line
}

func (e *RefusedError) Error() string { return strings.Join(e.Lines, "\n") }
