package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"raftkv/internal/cores"
	"raftkv/rafttest"
)

// screen shows a game: a column for each server, with the paper's names, then
// what is under way and what has just happened.
type screen struct {
	out     io.Writer
	size    func() (width, height int)
	colored bool
	clear   bool // each screen takes the place of the one before

	before map[string]string // the cells of the screen before, to mark what is new
}

// Colours, as a terminal takes them.
const (
	plain  = "\x1b[0m"
	bold   = "\x1b[1m"
	dim    = "\x1b[2m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
)

// labelWidth is the width of the first column: "lastRequestID" and a blank.
const labelWidth = 14

// row is a line of the table: what it is called, and a cell for each server.
type row struct {
	label string
	cells []string
}

func (s *screen) show(g *game) {
	width, height := s.size()
	width, height = max(width, 60), max(height, 20)
	if s.clear {
		fmt.Fprint(s.out, "\x1b[H\x1b[2J")
	}
	var lines []string
	add := func(color, format string, args ...any) {
		lines = append(lines, s.paint(color, fit(fmt.Sprintf(format, args...), width)))
	}

	add(bold, "%s   seed %d   %s s", g.part.name, g.seed, clock(g.c.Now()))
	rows := s.table(g, logRows(g, height))
	lines = append(lines, s.draw(g, rows, width)...)
	if len(g.clients) > 0 {
		add("", "%s%s", pad("clients", labelWidth+1), clients(g))
	}

	// What remains is for what comes and what was. A line is the prompt's.
	var said []string
	if g.said != "" {
		said = strings.Split(g.said, "\n")
	}
	if g.broken != "" {
		said = []string{`A rule is broken ("back" undoes it):`, g.broken}
	}
	if len(said) > 1 && g.broken == "" { // help takes what it needs
		for _, line := range said {
			add("", "%s", line)
		}
		s.print(lines)
		return
	}
	left := height - len(lines) - len(said) - 1
	past := min(3, left/3)
	waiting := g.c.Waiting()
	add(dim, "%s", rule("next"+cuts(g), width))
	for i, w := range waiting {
		if room := left - past - 2; i == room-1 && len(waiting) > room {
			add(dim, "  … and %d more", len(waiting)-i)
			break
		}
		if i == 0 {
			add(bold, "%s", coming(g, w))
		} else {
			add("", "%s", coming(g, w))
		}
	}
	add(dim, "%s", rule("happened", width))
	for _, h := range g.c.Happened(past) {
		add("", "%s", happened(h))
	}
	for _, line := range said {
		color := yellow
		if g.broken != "" {
			color = red
		}
		add(color, "%s", line)
	}
	s.print(lines)
}

func (s *screen) print(lines []string) {
	for _, line := range lines {
		fmt.Fprintln(s.out, strings.TrimRight(line, " "))
	}
}

func rule(title string, width int) string {
	return "── " + title + " " + strings.Repeat("─", max(0, width-4-utf8.RuneCountInString(title)))
}

// logRows is how many lines the logs take: as many as the longest needs, as long
// as enough remains for what comes.
func logRows(g *game, height int) int {
	rows, room := 1, height-18
	if g.kv != nil {
		room = height - 20
	}
	for _, s := range g.c.Servers() {
		rows = max(rows, len(s.Log()))
	}
	return min(rows, room)
}

// table is what the servers are now.
func (s *screen) table(g *game, entries int) []row {
	servers := g.c.Servers()
	make1 := func(label string, cell func(*rafttest.Server) string) row {
		return row{label, rafttest.Map(servers, cell)}
	}
	number := func(of func(rafttest.Status) int) func(*rafttest.Server) string {
		return func(s *rafttest.Server) string {
			if !s.Running() && !g.part.hasDisk {
				return "-"
			}
			return fmt.Sprint(of(s.Status()))
		}
	}
	volatile := func(of func(*rafttest.Server) string) func(*rafttest.Server) string {
		return func(s *rafttest.Server) string {
			if !s.Running() {
				return "-"
			}
			return of(s)
		}
	}
	rows := []row{
		make1("", (*rafttest.Server).String),
		make1("state", func(s *rafttest.Server) string {
			switch {
			case s.Running():
				return s.Status().State
			case g.part.hasDisk:
				return "crashed; its disk:"
			}
			return "crashed"
		}),
		make1("currentTerm", number(func(s rafttest.Status) int { return s.Term })),
		make1("votedFor", number(func(s rafttest.Status) int { return s.VotedFor })),
	}
	for i, cell := range rows[3].cells {
		if cell == "0" {
			rows[3].cells[i] = "none"
		}
	}
	if !g.part.hasLog {
		return rows
	}
	for n := range entries {
		label := ""
		if n == 0 {
			label = "log"
		}
		rows = append(rows, make1(label, func(s *rafttest.Server) string { return logCell(g, s, n, entries) }))
	}
	rows = append(rows,
		make1("commitIndex", volatile(func(s *rafttest.Server) string { return fmt.Sprint(s.Status().CommitIndex) })),
		make1("nextIndex", volatile(func(s *rafttest.Server) string {
			return progress(g, s, func(next, _ int) int { return next })
		})),
		make1("matchIndex", volatile(func(s *rafttest.Server) string {
			return progress(g, s, func(_, match int) int { return match })
		})))
	if g.kv == nil {
		return rows
	}
	rows = append(rows, make1("data", volatile(func(s *rafttest.Server) string {
		data := s.Node().(rafttest.Service).Data()
		var words []string
		for _, key := range slices.Sorted(maps.Keys(data)) {
			words = append(words, key+"="+data[key])
		}
		return strings.Join(words, " ")
	})))
	if _, notes := servers[0].Node().(cores.Part5); notes || g.part.name == "part5" {
		rows = append(rows, make1("lastRequestID", volatile(func(s *rafttest.Server) string {
			last := s.Node().(cores.Part5).LastRequestIDs()
			var words []string
			for _, client := range slices.Sorted(maps.Keys(last)) {
				words = append(words, fmt.Sprintf("%c:%d", 'A'+rune(client-1), last[client]))
			}
			return strings.Join(words, " ")
		})))
	}
	return rows
}

// logCell is a line of a server's log: index, term, command, and whether this
// server knows that it is committed. A line is one index on all servers; if the
// logs are long, their beginnings are left out.
func logCell(g *game, s *rafttest.Server, n, room int) string {
	if !s.Running() && !g.part.hasDisk {
		return "-"
	}
	longest := 0
	for _, other := range g.c.Servers() {
		longest = max(longest, len(other.Log()))
	}
	log, i := s.Log(), max(0, longest-room)+n
	if i >= len(log) {
		return ""
	}
	e := log[i]
	committed := " "
	if s.Running() && e.Index <= s.Status().CommitIndex {
		committed = "✓"
	}
	return fmt.Sprintf("%d%s t%d %s", e.Index, committed, e.Term, command(e.Command))
}

// progress is what a leader knows of each follower.
func progress(g *game, s *rafttest.Server, which func(next, match int) int) string {
	var words []string
	for _, peer := range g.c.Servers() {
		if next, match, ok := s.Node().(cores.Leading).Progress(peer.ID()); ok && peer != s {
			words = append(words, fmt.Sprintf("s%d=%d", peer.ID(), which(next, match)))
		}
	}
	return strings.Join(words, " ")
}

// draw draws the table. What is not as it was on the screen before has a star.
func (s *screen) draw(g *game, rows []row, width int) []string {
	column := (width - labelWidth) / len(g.c.Servers())
	now := map[string]string{}
	var lines []string
	label, nth := "", 0 // a log has several rows, of which the first says so
	for n, r := range rows {
		if nth++; r.label != "" {
			label, nth = r.label, 0
		}
		line := s.paint(dim, pad(r.label, labelWidth))
		for i, cell := range r.cells {
			key := fmt.Sprint(label, nth, " ", i)
			now[key] = cell
			mark := " "
			if s.before != nil && s.before[key] != cell && cell != "" {
				mark = "*"
			}
			text := pad(mark+fit(cell, column-1), column)
			color := ""
			switch {
			case !g.c.Servers()[i].Running():
				color = dim
			case n == 0:
				color = bold
			case cell == "leader":
				color = green
			case cell == "candidate":
				color = yellow
			case mark == "*":
				color = bold
			}
			line += s.paint(color, text)
		}
		lines = append(lines, line)
	}
	s.before = now
	return lines
}

// clients says what came of the clients' latest calls.
func clients(g *game) string {
	var words []string
	for _, p := range g.clients {
		switch call := p.call; {
		case call == nil:
		case !call.Done():
			words = append(words, fmt.Sprintf("%v waits for %v", p, call))
		case call.Duplicate():
			words = append(words, fmt.Sprintf("%v, %v: was done before", p, call))
		case strings.HasPrefix(call.String(), "get "):
			words = append(words, fmt.Sprintf("%v, %v: %q", p, call, call.Value()))
		default:
			words = append(words, fmt.Sprintf("%v, %v: OK", p, call))
		}
	}
	return strings.ReplaceAll(strings.Join(words, "; "), "client ", "")
}

// cuts names the links that are cut.
func cuts(g *game) string {
	var words []string
	servers := g.c.Servers()
	for i, a := range servers {
		for _, b := range servers[i+1:] {
			if !g.c.Connected(a, b) {
				words = append(words, fmt.Sprintf("%d-%d", a.ID(), b.ID()))
			}
		}
	}
	if len(words) == 0 {
		return ""
	}
	return "; cut: " + strings.Join(words, " ")
}

// coming says what will happen: when, and what.
func coming(g *game, w rafttest.Waiting) string {
	at := clock(w.At)
	switch w.Kind {
	case "message":
		from, to := g.c.Server(w.From), g.c.Server(w.To)
		if !to.Running() || !g.c.Connected(from, to) {
			return fmt.Sprintf("%s %d→%d (to be lost) %s", at, w.From, w.To, message(w.Body))
		}
		return fmt.Sprintf("%s %d→%d %s", at, w.From, w.To, message(w.Body))
	case "timer":
		return fmt.Sprintf("%s %d   its %s fires", at, w.From, w.Text)
	}
	return fmt.Sprintf("%s     %s", at, w.Text)
}

// happened says what has happened. What a message held was to be seen when it
// was under way.
func happened(h rafttest.Happened) string {
	what := h.What
	if h.Body != nil {
		what = name(h.Body) + " " + strings.TrimSuffix(strings.TrimPrefix(what, "hears "), ":")
	}
	if h.Server != nil {
		what = h.Server.String() + ": " + what
	}
	if h.Changes != "" {
		what += "; now " + h.Changes
	}
	return clock(h.At) + " " + what
}

// clock shows a time in seconds.
func clock(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

// body takes a message out of its envelope.
func body(m any) reflect.Value {
	return reflect.ValueOf(m).FieldByName("Body").Elem()
}

// name is the name of a message in the paper.
func name(m any) string { return strings.TrimSuffix(body(m).Type().Name(), "Args") }

// message shows a message in little room: without what is 0, what follows from
// the sender, and whose term was asked if it is the term of the reply.
func message(m any) string {
	v := body(m)
	words := []string{name(m)}
	for i := range v.NumField() {
		field, value := v.Type().Field(i).Name, v.Field(i)
		switch {
		case field == "LeaderID" || field == "CandidateID":
		case strings.HasSuffix(field, "LogTerm"): // goes with its index
		case strings.HasSuffix(field, "LogIndex"):
			if value.Uint() > 0 {
				log := strings.TrimSuffix(field, "Index")
				term := v.FieldByName(log + "Term")
				words = append(words, fmt.Sprintf("%s=%v", log, value))
				if term.IsValid() {
					words[len(words)-1] += fmt.Sprintf("/t%v", term)
				}
			}
		case field == "AskedTerm" && value.Uint() == v.FieldByName("Term").Uint():
		case field == "Entries":
			if value.Len() > 0 {
				var commands []string
				for n := range value.Len() {
					commands = append(commands, command(value.Index(n).FieldByName("Command").Bytes()))
				}
				words = append(words, "Entries=["+strings.Join(commands, ", ")+"]")
			}
		case value.IsZero() && value.Kind() != reflect.Bool:
		default:
			words = append(words, fmt.Sprintf("%s=%v", field, value))
		}
	}
	return strings.Join(words, " ")
}

// command shows a command: "-" for a new leader's own entry, and what parts 4 and
// 5 write as JSON in short.
func command(data []byte) string {
	if data == nil {
		return "-"
	}
	var kv struct {
		Kind, Key, Value    string
		ClientID, RequestID int64
	}
	if json.Unmarshal(data, &kv) != nil || kv.Kind == "" {
		return string(data)
	}
	text := kv.Kind + " " + kv.Key
	if kv.Kind != "get" {
		text += " " + kv.Value
	}
	if kv.ClientID != 0 {
		text = fmt.Sprintf("%c%d %s", 'A'+rune(kv.ClientID-1), kv.RequestID, text)
	}
	return text
}

func (s *screen) paint(color, text string) string {
	if !s.colored || color == "" {
		return text
	}
	return color + text + plain
}

// fit shortens a text to a width.
func fit(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}
