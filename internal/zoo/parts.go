package zoo

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// PartReasons is the file that says why a part of the tutorial has no proof for a bug.
const PartReasons = Folder + "/parts.txt"

// partFolders are the steps of the tutorial, part 1 first.
var partFolders = []string{"part1-election", "part2-commands", "part3-persistence", "part4-kvservice", "part5-dedup"}

// reason is a line of PartReasons: why the parts from first to last have no proof.
type reason struct {
	line        int
	who         string // a bug, or area: and an area
	first, last int
	verdict     string // cannot or missed
	why         string
	used        bool
}

var reasonLine = regexp.MustCompile(`^(\S+) ([1-5])(?:-([1-5]))? (cannot|missed): (.+)$`)

func parseReasons(text string) ([]reason, error) {
	var reasons []reason
	for n, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		m := reasonLine.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("%s:%d: not BUG PARTS cannot|missed: REASON: %q", PartReasons, n+1, line)
		}
		r := reason{line: n + 1, who: m[1], verdict: m[4], why: m[5]}
		r.first, _ = strconv.Atoi(m[2]) // a digit, says reasonLine
		if r.last = r.first; m[3] != "" {
			r.last, _ = strconv.Atoi(m[3])
		}
		reasons = append(reasons, r)
	}
	return reasons, nil
}

// PartsMarkdown returns the table of docs/zoo/parts.md: what becomes of each bug
// in each part of the tutorial, and before it the sums. reasons is the text of
// PartReasons. The error names every cell that has neither a proof nor a reason,
// every one that has a proof and yet a reason of its own, and every line that is
// about nothing.
func PartsMarkdown(bugs []Bug, reasons string) (string, error) {
	lines, err := parseReasons(reasons)
	if err != nil {
		return "", err
	}
	var errs []error
	sums := make([]map[string]int, len(partFolders))
	var table strings.Builder
	table.WriteString("| bug | part 1 | part 2 | part 3 | part 4 | part 5 |\n|---|---|---|---|---|---|\n")
	for _, b := range bugs {
		fmt.Fprintf(&table, "| [%s](%s/README.md) |", b.Name, b.Name)
		for i := range partFolders {
			verdict, text, err := b.inPart(i+1, lines)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s in part %d: %w", b.Name, i+1, err))
			}
			if sums[i] == nil {
				sums[i] = map[string]int{}
			}
			sums[i][verdict]++
			fmt.Fprintf(&table, " %s |", text)
		}
		table.WriteString("\n")
	}
	for _, r := range lines {
		if !r.used {
			errs = append(errs, fmt.Errorf("%s:%d: no cell needs this", PartReasons, r.line))
		}
	}
	var b strings.Builder
	b.WriteString("| | caught | cannot occur | missed |\n|---|---|---|---|\n")
	for i, sum := range sums {
		fmt.Fprintf(&b, "| part %d | %d | %d | %d |\n", i+1, sum["caught"], sum["cannot"], sum["missed"])
	}
	return b.String() + "\n" + table.String(), errors.Join(errs...)
}

// inPart returns what becomes of the bug in a part, in a word (caught, cannot or
// missed) and as a cell of the table. It marks the reason that it has taken.
func (b Bug) inPart(part int, reasons []reason) (verdict, text string, err error) {
	folder := partFolders[part-1]
	var own, ofArea *reason
	for i := range reasons {
		r := &reasons[i]
		switch {
		case part < r.first || part > r.last:
		case r.who == b.Name:
			own = r
		case r.who == "area:"+b.Area:
			ofArea = r
		}
	}
	proof := slices.IndexFunc(b.Probes, func(p Probe) bool { return p.Package == folder || strings.HasPrefix(p.Package, folder+"/") })
	planted := slices.ContainsFunc(b.Hunks, func(h Hunk) bool { return strings.HasPrefix(h.File, folder+"/") })
	switch {
	case planted != (proof >= 0):
		return "", "", errors.New("a change needs a test of the part, and a test a change")
	case planted && own != nil:
		return "", "", fmt.Errorf("it has a proof; what is line %d for?", own.line)
	case planted && b.Harmless:
		return "cannot", "cannot occur: does no harm, `" + b.Probes[proof].Test + "` stays green", nil
	case planted:
		return "caught", "caught by `" + b.Probes[proof].Test + "`", nil
	case own == nil && ofArea == nil:
		return "", "", errors.New("neither a proof nor a reason")
	case own == nil:
		own = ofArea
	}
	own.used = true
	return own.verdict, map[string]string{"cannot": "cannot occur: ", "missed": "**missed**: "}[own.verdict] + own.why, nil
}
