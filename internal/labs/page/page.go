// Package page shows a verdict and the runs that failed as one HTML file, which
// needs no other file and no network.
package page

import (
	_ "embed"
	"html/template"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"raftkv/internal/labs/run"
)

//go:embed page.html
var text string

var page = template.Must(template.New("").Parse(text))

// Page is what stands on it.
type Page struct {
	Part    string
	Notes   []string     // why nothing was run; nil if it was
	Verdict *run.Verdict // nil: one run, without a verdict
	Stories []Story
}

// Story is one run, step by step.
type Story struct {
	Check   string // its id
	Title   string // as the run calls itself: the check and the seed
	Servers []int
	Rows    []Row
	Left    int      // how many rows at the beginning are left out
	End     []string // what came of it
}

// Row is one thing that has happened.
type Row struct {
	At     string // the cluster's time; "" where there is no cluster
	Server int    // to whom; 0 if to the network or a client
	Text   string
}

// Write writes the page.
func (p Page) Write(w io.Writer) error { return page.Execute(w, p) }

// maxRows is how much of a run a browser is asked to show. What matters is at
// the end.
const maxRows = 1000

// line is what a run prints of one step: perhaps the time, perhaps the server.
var line = regexp.MustCompile(`^ *(?:(\d+\.\d{3}) s +)?(?:server (\d+): )?(.*)$`)

// NewStory reads what a run of a check has printed: its title, an empty line,
// its steps, an empty line, and how it has ended.
func NewStory(check, printed string) Story {
	title, rest, _ := strings.Cut(strings.TrimSpace(printed), "\n\n")
	steps, end := "", rest
	if i := strings.LastIndex(rest, "\n\n"); i >= 0 {
		steps, end = rest[:i], rest[i+2:]
	}
	s := Story{Check: check, Title: title}
	seen := map[int]bool{}
	for text := range strings.Lines(steps) {
		m := line.FindStringSubmatch(strings.TrimRight(text, "\n"))
		server, _ := strconv.Atoi(m[2]) // nobody is 0
		if server > 0 {
			seen[server] = true
		}
		s.Rows = append(s.Rows, Row{At: m[1], Server: server, Text: m[3]})
	}
	s.Servers = slices.Sorted(maps.Keys(seen))
	s.Left = max(0, len(s.Rows)-maxRows)
	s.Rows = s.Rows[s.Left:]
	for text := range strings.Lines(end) {
		s.End = append(s.End, strings.TrimSpace(text))
	}
	return s
}
