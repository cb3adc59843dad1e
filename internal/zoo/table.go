package zoo

import (
	"fmt"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

// exeSuffix ends the names of programs.
var exeSuffix = map[string]string{"windows": ".exe"}[runtime.GOOS]

// Markdown returns the table of docs/zoo/README.md.
func Markdown(bugs []Bug) string {
	var b strings.Builder
	b.WriteString("| bug | area | what the code does wrong | what breaks | found by |\n|---|---|---|---|---|\n")
	for _, bug := range bugs {
		breaks := bug.Property
		if bug.Harmless {
			breaks = "nothing: " + breaks
		}
		fmt.Fprintf(&b, "| [%s](%s/README.md) | %s | %s | %s | %s |\n", bug.Name, bug.Name, bug.Area, bug.Title, breaks, bug.Layer())
	}
	return b.String()
}

// List returns the same for a terminal.
func List(bugs []Bug) string {
	return columns(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "BUG\tAREA\tFOUND BY\tWHAT THE CODE DOES WRONG")
		for _, b := range bugs {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", b.Name, b.Area, b.Layer(), b.Title)
		}
	})
}

// Table returns the results for a terminal.
func Table(results []Result) string {
	return columns(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "BUG\tPROPERTY\tFOUND BY\tSEEDS\tTIME\tVERDICT")
		for _, r := range results {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Bug.Name, r.Bug.Property, r.Bug.Layer(), r.seeds(), r.Time.Round(100*time.Millisecond), r.Verdict())
		}
	})
}

func columns(fill func(*tabwriter.Writer)) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fill(w)
	w.Flush() // a strings.Builder never fails
	return b.String()
}

func (r Result) seeds() string {
	if r.Seeds == 0 {
		return "-"
	}
	return fmt.Sprint(r.Seeds)
}

// Verdict returns the result in one word.
func (r Result) Verdict() string {
	switch {
	case !r.Caught:
		return "FAILED"
	case r.Bug.Harmless:
		return "harmless"
	}
	return "caught"
}
