package sim

import "iter"

// Tail keeps the last lines of a trace.
type Tail struct {
	lines []string
	next  int // where the next line goes, once lines is full
}

// NewTail returns a Tail of at most n lines. n must be at least 1.
func NewTail(n int) *Tail { return &Tail{lines: make([]string, 0, n)} }

// Add adds a line, and drops the first one if there are too many.
func (t *Tail) Add(line string) {
	if len(t.lines) < cap(t.lines) {
		t.lines = append(t.lines, line)
		return
	}
	t.lines[t.next] = line
	t.next = (t.next + 1) % len(t.lines)
}

// Lines returns the lines kept, the oldest first.
func (t *Tail) Lines() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range t.lines {
			if !yield(t.lines[(t.next+i)%len(t.lines)]) {
				return
			}
		}
	}
}
