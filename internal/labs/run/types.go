// Package run runs the checks of a lab and says what came of them. It is
// compiled twice: into raftlab, which supervises, and, beside a student's code,
// into the runner, which does the work and can be lost.
package run

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Check is one question that the code has to answer.
type Check struct {
	ID     string // "replication/3"
	Title  string
	Points int
	Needs  []string // the checks that must be ok before this one is run
	Seeds  int      // it runs with the seeds 1 to Seeds
	Hints  []string // three, each telling more than the one before
}

// Status is what became of a check.
type Status string

// What can become of a check.
const (
	OK   Status = "ok"
	Fail Status = "fail"
	Wait Status = "wait" // not run: one that it needs is not ok
)

// Verdict is what the checks say about a student's code. The same code has the
// same verdict, byte for byte, on every machine.
type Verdict struct {
	Part   string   `json:"part"`
	Points int      `json:"points"`
	Max    int      `json:"max"`
	Checks []Result `json:"checks"`
}

// Result is what one check says.
type Result struct {
	ID     string `json:"id"`
	Title  string `json:"title"`
	Points int    `json:"points"`
	Max    int    `json:"max"`
	Status Status `json:"status"`

	// Of one that fails: what is broken, the first bad event in a sentence, and
	// with which seed. Of one that waits, Property says for which other.
	Property string `json:"property,omitempty"`
	Event    string `json:"event,omitempty"`
	Seed     uint64 `json:"seed,omitempty"`
	Replay   string `json:"replay,omitempty"` // the command that shows the failing run
	Hint     string `json:"hint,omitempty"`   // the command that shows a hint
}

// ParseChecks reads a checks.txt: paragraphs of lines that begin with check,
// title, needs, seeds or hint. A line that begins with two spaces goes on with
// the one before; # begins a comment.
func ParseChecks(text string) ([]Check, error) {
	var checks []Check
	var field *string // what a line that goes on belongs to
	for n, line := range strings.Split(text, "\n") {
		bad := func(why string) error { return fmt.Errorf("line %d: %s: %q", n+1, why, line) }
		if strings.HasPrefix(line, "  ") && field != nil {
			*field += " " + strings.TrimSpace(line)
			continue
		}
		field = nil
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		value = strings.TrimSpace(value)
		if key == "" || key[0] == '#' {
			continue
		}
		if key == "check" {
			id, points, _ := strings.Cut(value, " ")
			p, err := strconv.Atoi(strings.TrimSpace(points))
			if err != nil || p <= 0 || slices.ContainsFunc(checks, func(c Check) bool { return c.ID == id }) {
				return nil, bad("wants check ID POINTS, with a new ID")
			}
			checks = append(checks, Check{ID: id, Points: p, Seeds: 1})
			continue
		}
		if len(checks) == 0 {
			return nil, bad("stands before the first check")
		}
		c := &checks[len(checks)-1]
		switch key {
		case "title":
			c.Title, field = value, &c.Title
		case "needs":
			for _, id := range strings.Fields(value) {
				if !slices.ContainsFunc(checks[:len(checks)-1], func(c Check) bool { return c.ID == id }) {
					return nil, bad("needs a check that does not stand before it")
				}
				c.Needs = append(c.Needs, id)
			}
		case "seeds":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 {
				return nil, bad("wants a number of seeds")
			}
			c.Seeds = n
		case "hint":
			c.Hints = append(c.Hints, value)
			field = &c.Hints[len(c.Hints)-1]
		default:
			return nil, bad("unknown key")
		}
	}
	for _, c := range checks {
		if c.Title == "" || len(c.Hints) != 3 {
			return nil, fmt.Errorf("%s: wants a title and three hints", c.ID)
		}
	}
	return checks, nil
}

// blank returns the verdict before anything has run.
func blank(part string, checks []Check) Verdict {
	v := Verdict{Part: part}
	for _, c := range checks {
		v.Max += c.Points
		v.Checks = append(v.Checks, Result{ID: c.ID, Title: c.Title, Max: c.Points})
	}
	return v
}

// waitsFor returns the first check that check i needs and that is not ok; "" if
// there is none.
func (v *Verdict) waitsFor(needs []string) string {
	for _, id := range needs {
		i := slices.IndexFunc(v.Checks, func(r Result) bool { return r.ID == id })
		if v.Checks[i].Status == OK {
			continue
		}
		return id
	}
	return ""
}
