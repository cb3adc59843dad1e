package zoo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Folder is where the bugs live, in the repository.
const Folder = "docs/zoo"

// Bug is one folder of docs/zoo.
type Bug struct {
	Name  string // of the folder
	Title string // what the code does wrong, in one line
	Area  string // what it is about: votes, log, disk, sessions, …

	// Property is what the bug breaks. The output of each probe must contain it,
	// or one of Shows if there are any: then Property is for people only.
	Property string
	Shows    []string

	// Harmless bugs change nothing that anybody can see today; the page says why.
	// Their probes must stay green.
	Harmless bool

	Probes []Probe

	Change string // the change, as in bug.txt
	Hunks  []Hunk // the same, taken apart
}

// Hunk is a run of whole lines in one file before and after the change.
type Hunk struct {
	File          string // relative to the root of the repository, with slashes
	Before, After string
}

// Root returns the root of the repository that dir is in: the folder of go.mod.
func Root(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(Folder))); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no " + Folder + " here or above: the zoo needs the sources of raftkv")
		}
		dir = parent
	}
}

// Bugs reads all bugs of the repository at root, in the order of their names.
// An error names the file, and the line if there is one.
func Bugs(root string) ([]Bug, error) {
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(Folder), "*", "bug.txt"))
	if err != nil {
		return nil, err
	}
	var bugs []Bug
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name := filepath.Base(filepath.Dir(file))
		b, err := parse(name, string(text))
		if err != nil {
			return nil, fmt.Errorf("%s/%s/bug.txt%w", Folder, name, err)
		}
		bugs = append(bugs, b)
	}
	return bugs, nil
}

// Named returns the bugs with the given names, in their order; all if there are none.
func Named(bugs []Bug, names []string) ([]Bug, error) {
	if len(names) == 0 {
		return bugs, nil
	}
	var found []Bug
	for _, name := range names {
		i := slices.IndexFunc(bugs, func(b Bug) bool { return b.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("the zoo has no %q; raftlab zoo list shows what it has", name)
		}
		found = append(found, bugs[i])
	}
	return found, nil
}

// Page returns the path of the bug's page, relative to the root.
func (b Bug) Page() string { return Folder + "/" + b.Name + "/README.md" }

// Layer returns which tests find the bug: those of the first probe.
func (b Bug) Layer() string { return b.Probes[0].Layer() }

// fails returns the texts of which one must be in the output of a probe.
func (b Bug) fails() []string {
	if len(b.Shows) > 0 {
		return b.Shows
	}
	return []string{b.Property}
}

var field = regexp.MustCompile(`^([a-z]+): +(.+)$`)

// parse reads a bug.txt: fields, one a line, an empty line, and then the change,
// as in a patch but without line numbers:
//
//	--- raft/election.go
//	 a line that stays
//	-a line that goes
//	+a line that comes
//	@@
//	-another place of the same file
func parse(name, text string) (Bug, error) {
	b := Bug{Name: name}
	head, change, _ := strings.Cut(text, "\n\n")
	for n, line := range strings.Split(head, "\n") {
		m := field.FindStringSubmatch(line)
		if m == nil {
			return Bug{}, fmt.Errorf(":%d: no field: %q", n+1, line)
		}
		if err := b.set(m[1], m[2]); err != nil {
			return Bug{}, fmt.Errorf(":%d: %w", n+1, err)
		}
	}
	if b.Title == "" || b.Area == "" || b.Property == "" || len(b.Probes) == 0 {
		return Bug{}, errors.New(": title, area, property and a test or seeds are needed")
	}
	b.Change = change
	var err error
	if b.Hunks, err = ParseChange(change); err != nil {
		if bad := (*lineError)(nil); errors.As(err, &bad) {
			return Bug{}, fmt.Errorf(":%d: %w", strings.Count(head, "\n")+2+bad.line, bad.why)
		}
		return Bug{}, fmt.Errorf(": %w", err)
	}
	return b, nil
}

// ParseChange takes apart a change as it stands in a bug.txt.
func ParseChange(change string) ([]Hunk, error) {
	var b Bug
	for n, line := range strings.Split(strings.TrimSuffix(change, "\n"), "\n") {
		if err := b.addLine(line); err != nil {
			return nil, &lineError{n + 1, err}
		}
	}
	for _, h := range b.Hunks {
		if h.Before == h.After {
			return nil, fmt.Errorf("a change of %s changes nothing", h.File)
		}
	}
	return b.Hunks, nil
}

// lineError is about a line of a change.
type lineError struct {
	line int // from 1 on
	why  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d of the change: %v", e.line, e.why) }

func (b *Bug) set(key, value string) (err error) {
	switch key {
	case "title":
		b.Title = value
	case "area":
		b.Area = value
	case "property":
		b.Property = value
	case "shows":
		b.Shows = append(b.Shows, value)
	case "harmless":
		b.Harmless = value == "yes"
	case "test", "seeds":
		var p Probe
		if p, err = parseProbe(key, value); err == nil {
			b.Probes = append(b.Probes, p)
		}
	default:
		err = fmt.Errorf("unknown field %q", key)
	}
	return err
}

// addLine takes in a line of the change.
func (b *Bug) addLine(line string) error {
	if file, ok := strings.CutPrefix(line, "--- "); ok {
		b.Hunks = append(b.Hunks, Hunk{File: file})
		return nil
	}
	if len(b.Hunks) == 0 {
		return errors.New("no file is named before the change")
	}
	h := &b.Hunks[len(b.Hunks)-1]
	if line == "@@" {
		b.Hunks = append(b.Hunks, Hunk{File: h.File})
		return nil
	}
	rest := line
	if line != "" {
		rest = line[1:]
	}
	switch {
	case line == "" || line[0] == ' ':
		h.Before += rest + "\n"
		h.After += rest + "\n"
	case line[0] == '-':
		h.Before += rest + "\n"
	case line[0] == '+':
		h.After += rest + "\n"
	default:
		return fmt.Errorf("a line of a change begins with a blank, - or +, not %q", line)
	}
	return nil
}
