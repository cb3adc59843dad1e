// Package edits reads files that change a few lines of a part: the wrong
// submissions in labs/wrong, which the grader must mark down, and the correct
// variants in labs/variants, on which no test may fail.
//
// A file is fields, one a line, an empty line, and a change as in docs/zoo: the
// lines of each place before and after, which must fit in exactly one place.
package edits

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"raftkv/internal/zoo"
)

// Edit is one file.
type Edit struct {
	Name   string // of the file, without .txt
	Title  string // in one line
	Fields map[string][]string

	bug zoo.Bug
}

// Wrong reads a part's wrong submissions, in the order of their names. A field says
// what one gets: its points, the first failure, or why it is refused or not built.
func Wrong(root, part string) ([]Edit, error) {
	return read(root, "labs/wrong/"+part, "points", "first", "refused", "no build")
}

// Variants reads a part's correct variants. One that has the field stories leaves the
// letter of Figure 2, so that no story can be told to it.
func Variants(root, part string) ([]Edit, error) {
	return read(root, "labs/variants/"+part, "stories")
}

// read reads the edits of a folder relative to the root of the repository. Fields
// other than title must be among known.
func read(root, folder string, known ...string) ([]Edit, error) {
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*.txt"))
	if err != nil {
		return nil, err
	}
	var edits []Edit
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		e, err := parse(strings.TrimSuffix(filepath.Base(file), ".txt"), string(text), known)
		if err != nil {
			return nil, fmt.Errorf("%s/%s: %w", folder, filepath.Base(file), err)
		}
		edits = append(edits, e)
	}
	return edits, nil
}

func parse(name, text string, known []string) (Edit, error) {
	e := Edit{Name: name, Fields: map[string][]string{}}
	head, change, found := strings.Cut(text, "\n\n")
	if !found {
		return Edit{}, fmt.Errorf("there is no change behind an empty line")
	}
	for line := range strings.SplitSeq(head, "\n") {
		key, value, ok := strings.Cut(line, ": ")
		value = strings.TrimSpace(value)
		switch {
		case !ok || value == "":
			return Edit{}, fmt.Errorf("no field: %q", line)
		case key == "title":
			e.Title = value
		case !slices.Contains(known, key):
			return Edit{}, fmt.Errorf("unknown field %q", key)
		default:
			e.Fields[key] = append(e.Fields[key], value)
		}
	}
	if e.Title == "" {
		return Edit{}, fmt.Errorf("it has no title")
	}
	hunks, err := zoo.ParseChange(change)
	if err != nil {
		return Edit{}, err
	}
	e.bug = zoo.Bug{Name: name, Hunks: hunks}
	return e, nil
}

// Apply returns the files that the edit changes, by path relative to root.
func (e Edit) Apply(root string) (map[string]string, error) { return e.bug.Apply(root) }
