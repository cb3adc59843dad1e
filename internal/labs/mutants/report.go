package mutants

import (
	"encoding/json"
	"fmt"
	"io"
)

// WriteJSON writes the result as JSON.
func (r Result) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// WriteText writes the result for people.
func (r Result) WriteText(w io.Writer) {
	fmt.Fprintf(w, "%s: %d tests, %d of %d bugs killed, false alarms on %d of %d correct variants\n",
		r.Part, len(r.Tests), len(r.Killed), len(r.Killed)+len(r.Missed), len(r.Alarms), r.Variants)
	section := func(title, sign string, targets []Target) {
		if len(targets) > 0 {
			fmt.Fprintf(w, "\n%s\n", title)
		}
		for _, t := range targets {
			fmt.Fprintf(w, "  %s %s: %s\n", sign, t.Name, t.Title)
			for _, f := range t.Failed {
				fmt.Fprintf(w, "      %s: %s\n", f.Test, f.Says)
			}
		}
	}
	section("false alarms: tests that fail on correct code, and count for nothing", "!", r.Alarms)
	section("missed", "-", r.Missed)
	section("killed", "+", r.Killed)
}
