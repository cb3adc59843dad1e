package rafttest

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// tail is how many of the last lines a failure prints.
const tail = 20

// trace keeps the last things that have happened. They become words only when
// somebody reads them.
type trace struct {
	lines   []*line
	total   int
	printed int
}

// line is one thing that has happened.
type line struct {
	at            time.Duration
	server        *Server // nil: to the cluster
	what          string
	body          any // of a message
	before, after Status
	first, last   int // the length of the log before and after
}

// Happened is something that has happened, in words.
type Happened struct {
	At      time.Duration
	Server  *Server // to whom; nil if to the network or a client
	What    string
	Body    any    // of the message that What is about; nil if it is about none
	Changes string // what is different now, "" if nothing
}

func (t *trace) add(at time.Duration, s *Server, what string, body any) *line {
	l := &line{at: at, server: s, what: what, body: body}
	if s != nil {
		l.before, l.after, l.first, l.last = s.status, s.status, len(s.log), len(s.log)
	}
	if len(t.lines) < 2*tail {
		t.lines = append(t.lines, l)
	} else {
		t.lines[t.total%len(t.lines)] = l
	}
	t.total++
	return l
}

// note adds something that happens to no server, or ends its step.
func (c *Cluster) note(format string, args ...any) {
	c.t.Helper()
	c.trace.add(c.now, nil, fmt.Sprintf(format, args...), nil)
	if !c.stepping {
		c.trace.print(c.t)
	}
}

func (t *trace) lost(at time.Duration, from *Server, m Message) {
	t.add(at, nil, fmt.Sprintf("lost on the way from %v to server %d:", from, m.To), m.Body)
}

// print prints what has happened since the last time, if the user wants that.
func (t *trace) print(tb TB) {
	tb.Helper()
	for ; *traceFlag && t.printed < t.total; t.printed++ {
		tb.Logf("%v", t.lines[t.printed%len(t.lines)].words())
	}
}

// Happened returns the last things that have happened, at most n of them and at
// most forty.
func (c *Cluster) Happened(n int) []Happened {
	t := &c.trace
	var happened []Happened
	for i := max(0, t.total-min(n, len(t.lines))); i < t.total; i++ {
		happened = append(happened, t.lines[i%len(t.lines)].words())
	}
	return happened
}

// Trace returns what Happened returns, as lines of text.
func (c *Cluster) Trace(n int) []string {
	return Map(c.Happened(n), Happened.String)
}

func (l *line) words() Happened {
	return Happened{l.at, l.server, l.what, l.body, strings.Join(l.changes(), ", ")}
}

func (h Happened) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%7.3f s  ", h.At.Seconds())
	if h.Server != nil {
		fmt.Fprintf(&b, "%v: ", h.Server)
	}
	b.WriteString(h.What)
	if h.Body != nil {
		b.WriteString(" " + Describe(h.Body))
	}
	if h.Changes != "" {
		b.WriteString("; now " + h.Changes)
	}
	return b.String()
}

// changes says what is different after a step.
func (l *line) changes() (changes []string) {
	add := func(format string, args ...any) { changes = append(changes, fmt.Sprintf(format, args...)) }
	if l.after.State != l.before.State {
		add("%s of term %d", l.after.State, l.after.Term)
	} else if l.after.Term != l.before.Term {
		add("in term %d", l.after.Term)
	}
	if (l.after.VotedFor != l.before.VotedFor || l.after.Term != l.before.Term) && l.after.VotedFor != 0 {
		add("votedFor %d", l.after.VotedFor)
	}
	if l.last != l.first {
		add("log up to %d", l.last)
	}
	if l.after.CommitIndex != l.before.CommitIndex {
		add("commitIndex %d", l.after.CommitIndex)
	}
	return changes
}

// Describe shows a message: the name of its type and its fields, without the
// numbers that are 0. A type with a
// String method shows itself, and an envelope, a struct whose field Body can
// hold anything, what is in it.
func Describe(body any) string {
	if s, ok := body.(fmt.Stringer); ok {
		return s.String()
	}
	v := reflect.ValueOf(body)
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return fmt.Sprint(body)
	}
	if inner := v.FieldByName("Body"); inner.Kind() == reflect.Interface {
		return Describe(inner.Interface())
	}
	words := []string{v.Type().Name()}
	for i := range v.NumField() {
		if v.Field(i).IsZero() && v.Field(i).Kind() != reflect.Bool {
			continue
		}
		words = append(words, v.Type().Field(i).Name+"="+describeValue(v.Field(i)))
	}
	return strings.Join(words, " ")
}

// describeValue shows bytes as text and entries by their commands.
func describeValue(v reflect.Value) string {
	switch {
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8:
		if v.IsNil() {
			return "-"
		}
		return string(v.Bytes())
	case v.Kind() == reflect.Slice:
		var words []string
		for i := range v.Len() {
			words = append(words, describeValue(v.Index(i)))
		}
		return "[" + strings.Join(words, " ") + "]"
	case v.Kind() == reflect.Struct && v.FieldByName("Command").IsValid():
		return describeValue(v.FieldByName("Command"))
	}
	return fmt.Sprint(v)
}

// fail ends the test: what is wrong, the last steps, and how to see them again.
func (c *Cluster) fail(format string, args ...any) {
	c.t.Helper()
	c.failed = true
	var b strings.Builder
	fmt.Fprintf(&b, format, args...)
	b.WriteString("\n\nThe last steps:\n")
	for _, words := range c.Trace(tail) {
		b.WriteString("  " + words + "\n")
	}
	fmt.Fprintf(&b, "\nSeed %d. To see the same run again:\n  %s\n", c.seed, repeat(c.t, c.seed))
	c.t.Fatalf("%s", b.String())
}
