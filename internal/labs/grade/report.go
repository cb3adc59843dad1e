package grade

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"raftkv/internal/labs"
)

// WriteJSON writes a class as JSON, indented, students in the order of logins.
func (c Class) WriteJSON(w io.Writer) error { return writeJSON(w, c) }

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// ReadJSON reads what WriteJSON has written.
func ReadJSON(r io.Reader) (c Class, err error) {
	err = json.NewDecoder(r).Decode(&c)
	return c, err
}

// WriteCSV writes a class as a table: a line a student, a column a check, and
// the first failure in words.
func (c Class) WriteCSV(w io.Writer) error {
	table := csv.NewWriter(w)
	header := []string{"login", "part", "points", "max", "status"}
	if len(c.Marks) > 0 {
		for _, r := range c.Marks[0].Checks {
			header = append(header, r.ID)
		}
	}
	table.Write(append(header, "first failure", "property", "event", "seed"))
	for _, m := range c.Marks {
		row := []string{cell(m.Login), c.Part, strconv.Itoa(m.Points), strconv.Itoa(m.Max), string(m.Status)}
		for _, r := range m.Checks {
			row = append(row, strconv.Itoa(r.Points))
		}
		first, property, event, seed := "", strings.Join(m.Notes, "; "), "", ""
		if f, ok := m.FirstFailure(); ok {
			first, property, event, seed = f.ID, f.Property, f.Event, strconv.FormatUint(f.Seed, 10)
		}
		table.Write(append(row, first, cell(property), cell(event), seed))
	}
	table.Flush()
	return table.Error()
}

// cell keeps a text that a student can have chosen from being a formula where
// the table is opened.
func cell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

// FirstFailure returns the first check that has failed.
func (m Mark) FirstFailure() (labs.Result, bool) {
	for _, r := range m.Checks {
		if r.Status == labs.Fail {
			return r, true
		}
	}
	return labs.Result{}, false
}

// gradescope is a mark in the form that Gradescope reads as results.json.
type gradescope struct {
	Score  int              `json:"score"`
	Output string           `json:"output,omitempty"`
	Tests  []gradescopeTest `json:"tests"`
}

type gradescopeTest struct {
	Name     string `json:"name"`
	Number   string `json:"number"`
	Score    int    `json:"score"`
	MaxScore int    `json:"max_score"`
	Status   string `json:"status"`
	Output   string `json:"output,omitempty"`
}

// WriteGradescope writes a mark as the results.json of Gradescope's autograders.
func (m Mark) WriteGradescope(w io.Writer) error {
	g := gradescope{Score: m.Points, Output: strings.Join(m.Notes, "\n"), Tests: []gradescopeTest{}}
	for _, r := range m.Checks {
		t := gradescopeTest{Name: r.Title, Number: r.ID, Score: r.Points, MaxScore: r.Max, Status: "failed"}
		if r.Status == labs.OK {
			t.Status = "passed"
		}
		t.Output = strings.Join(words(r), "\n")
		g.Tests = append(g.Tests, t)
	}
	return writeJSON(w, g)
}

// words are what a student reads about a check that is not ok.
func words(r labs.Result) []string {
	var lines []string
	for _, line := range []struct{ before, text string }{
		{"", r.Property}, {"first bad event: ", r.Event}, {"replay: ", r.Replay}, {"hint: ", r.Hint},
	} {
		if line.text != "" {
			lines = append(lines, line.before+line.text)
		}
	}
	if len(lines) == 0 && r.Status == labs.Wait {
		return []string{"not run"}
	}
	return lines
}

// Summary is a line about a mark, for a terminal.
func (m Mark) Summary() string {
	line := fmt.Sprintf("%-28s %3d / %d", m.Login, m.Points, m.Max)
	if f, ok := m.FirstFailure(); ok {
		return line + "  " + f.ID + ": " + f.Property
	}
	if len(m.Notes) > 0 {
		return line + "  " + string(m.Status) + ": " + m.Notes[0]
	}
	return line
}

// FirstFailureText is the first failure in words; "" if there is none.
func (m Mark) FirstFailureText() string {
	if f, ok := m.FirstFailure(); ok {
		return f.ID + ": " + f.Property
	}
	return ""
}
