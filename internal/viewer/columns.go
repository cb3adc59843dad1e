package viewer

import (
	"fmt"
	"strings"

	"raftkv/internal/trace"
	"raftkv/raft"
)

// Columns shows a run in a terminal: a column for each server, a line for each
// step, and between them what clients and faults do.
//
//	1.234s │ F t3  6/4   ┃             │            n2 heartbeat timeout
//
// A step's cell has the role (F follower, P pre-candidate, C candidate, L leader,
// x down), the term, the end of the log and the commit index. In the other
// columns a line says what the server is: │ follower, ┊ candidate, ┃ leader, and
// nothing where it is down.
type Columns struct {
	servers []raft.ServerID
	marks   map[raft.ServerID]string
	calls   map[int]trace.Call
	faults  map[int]string
}

// NewColumns returns a Columns that has seen nothing.
func NewColumns() *Columns {
	return &Columns{marks: map[raft.ServerID]string{}, calls: map[int]trace.Call{}, faults: map[int]string{}}
}

const cellWidth = 15

// Line returns the lines to print for a line of the trace; none for most.
func (c *Columns) Line(line trace.Line) []string {
	switch l := line.(type) {
	case trace.Run:
		return c.begin(l)
	case trace.Step:
		return []string{c.step(l)}
	case trace.Send:
		switch {
		case l.Lost != "":
			return []string{c.between(l.At, fmt.Sprintf("n%d→n%d lost (%s): %s", l.From, l.To, l.Lost, l.Text))}
		case l.Copies > 1:
			return []string{c.between(l.At, fmt.Sprintf("n%d→n%d doubled: %s", l.From, l.To, l.Text))}
		}
	case trace.Call:
		c.calls[l.Call] = l
		return []string{c.between(l.At, fmt.Sprintf("client %d calls: %s", l.Client, l.Text))}
	case trace.Attempt:
		return []string{c.between(l.At, fmt.Sprintf("client %d asks n%d: %s", l.Client, l.Server, c.calls[l.Call].Text))}
	case trace.Effect:
		return []string{c.between(l.At, fmt.Sprintf("client %d's call takes effect at index %d: %s", l.Client, l.Index, c.calls[l.Call].Text))}
	case trace.Answer:
		return []string{c.between(l.At, fmt.Sprintf("client %d is told %s: %s", l.Client, l.Outcome, l.Text))}
	case trace.Fault:
		c.faults[l.Fault] = l.Text
		return []string{c.between(l.At, "FAULT "+l.Text+links(l.Links))}
	case trace.FaultEnd:
		return []string{c.between(l.At, "over: "+c.faults[l.Fault])}
	case trace.Verdict:
		return c.verdict(l)
	}
	return nil
}

func (c *Columns) begin(l trace.Run) []string {
	c.servers = l.Servers
	lines := []string{l.Title}
	if l.Plan != "" {
		lines = append(lines, strings.Split(l.Plan, "\n")...)
	}
	head := strings.Repeat(" ", 11)
	for _, id := range l.Servers {
		head += fmt.Sprintf("%-*s", cellWidth, fmt.Sprintf("n%d", id))
	}
	return append(lines, strings.TrimRight(head, " "))
}

func (c *Columns) verdict(l trace.Verdict) []string {
	sum := fmt.Sprintf("hash %s, %d events, %d operations, %v", l.Hash, l.Steps, l.Operations, l.At)
	if l.Failure == "" {
		return []string{sum, "ok"}
	}
	return []string{sum, fmt.Sprintf("FAILED %s: %s", l.Failure, l.Text)}
}

var (
	letters = map[string]string{"follower": "F", "precandidate": "P", "candidate": "C", "leader": "L"}
	lines   = map[string]string{"follower": "│", "precandidate": "┊", "candidate": "┊", "leader": "┃"}
)

func (c *Columns) step(l trace.Step) string {
	letter, mark := letters[l.State], lines[l.State]
	if l.Down {
		letter, mark = "x", " "
	}
	c.marks[l.Server] = mark
	var b strings.Builder
	fmt.Fprintf(&b, "%9.3fs ", l.At.Seconds())
	for _, id := range c.servers {
		if id == l.Server {
			fmt.Fprintf(&b, "%-*s", cellWidth, fmt.Sprintf("%s t%d %d/%d", letter, l.Term, l.Last, l.Commit))
		} else {
			b.WriteString(c.cell(id))
		}
	}
	b.WriteString(l.What)
	for _, more := range []string{l.Changes, l.Todo} {
		if more != "" {
			b.WriteString(" | " + more)
		}
	}
	return b.String()
}

// cell is the column of a server that does nothing now.
func (c *Columns) cell(id raft.ServerID) string {
	mark := c.marks[id]
	if mark == "" {
		mark = " "
	}
	return mark + strings.Repeat(" ", cellWidth-1)
}

// between is a line that belongs to no server.
func (c *Columns) between(at interface{ Seconds() float64 }, text string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%9.3fs ", at.Seconds())
	for _, id := range c.servers {
		b.WriteString(c.cell(id))
	}
	return b.String() + "· " + text
}

func links(links [][2]raft.ServerID) string {
	if len(links) == 0 {
		return ""
	}
	var words []string
	for _, l := range links {
		words = append(words, fmt.Sprintf("%d→%d", l[0], l[1]))
	}
	return " (" + strings.Join(words, " ") + ")"
}
