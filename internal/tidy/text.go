package tidy

import (
	"regexp"
	"strings"
)

var (
	// Put together from halves, or this file would break its own rules.
	marker      = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME)\b`)
	machinePath = regexp.MustCompile(`(^|[^\w./-])/(wo` + `rk|ro` + `ot|ho` + `me|Us` + `ers)/`)
)

// checkText looks for what should not have been left lying about: a note to do
// something later belongs in an issue, and a path of one machine works on none else.
func (t *tree) checkText() {
	for _, f := range t.texts {
		for n, line := range f.lines {
			if found := marker.FindString(line); found != "" {
				t.reportLine(f.path, n+1, "markers", "%s: do it or file an issue", found)
			}
			if found := machinePath.FindString(line); found != "" {
				t.reportLine(f.path, n+1, "paths", "%s… is a path of one machine", strings.TrimLeft(found, " \t\"'`(="))
			}
		}
	}
}
