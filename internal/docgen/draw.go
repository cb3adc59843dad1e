package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"raftkv/internal/core"
	"raftkv/internal/scenario"
	"raftkv/internal/trace"
	"raftkv/raft"
)

// drawing is a story in rows, time going down. What a server does stands in its
// column; a message is an arrow from the row in which it was sent to the one in
// which it arrives.
type drawing struct {
	figure *figure
	rows   int
	notes  []note
	arrows []*arrow
	spans  []span // how a server's line looks, from row to row
}

// note is what happens to one server in one row.
type note struct {
	column, row int
	lines       []string
	entries     []entry // its log, if it changed
	role        string  // "" if the role stays
	up          bool
}

type entry struct {
	above     string // the small word in the upper half: its term
	command   string
	committed bool
}

type arrow struct {
	from, to       int // columns
	sent, ended    int // rows
	text           string
	lost, inFlight bool
	call           bool // a client's
}

// moment is a server's state at some time.
type moment struct {
	status  raft.Status
	entries []entry
}

// span is a stretch of a server's line.
type span struct {
	column, from, to int // rows
	role             string
}

// artist plays the story and draws what it is told.
type artist struct {
	f *figure
	d *drawing

	line      int // of the story, the one that is being drawn
	lineRow   int // where it begins
	nextRow   []int
	flying    map[int]*arrow
	role      map[int]string // by column; "down" if so
	since     map[int]int
	callsDone int
	saysDone  int
	landed    int

	began bool
	acted map[int]int    // by column: the line of its last step
	last  map[int]moment // by column: the state after its last step
}

func (f *figure) draw(root string) (*drawing, error) {
	file := "testdata/scenarios/" + f.story
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		return nil, err
	}
	story, err := scenario.Parse(file, string(text))
	if err != nil {
		return nil, err
	}
	a := &artist{
		f: f, d: &drawing{figure: f},
		nextRow: make([]int, len(f.servers)), flying: map[int]*arrow{},
		role: map[int]string{}, since: map[int]int{}, last: map[int]moment{}, acted: map[int]int{},
	}
	for c := range f.servers {
		if !a.isClient(c) {
			a.role[c] = "follower"
		}
	}
	if err := story.Watch(core.Raft, a.happens); err != nil {
		return nil, err
	}
	a.toLine(f.last + 1)
	a.finish()
	if n := len(a.d.arrows); n == 0 || n > maxArrows {
		return nil, fmt.Errorf("it has %d arrows; a figure makes one point, with at most %d", n, maxArrows)
	}
	return a.d, nil
}

func (a *artist) isClient(column int) bool { return a.f.servers[column] >= "A" }

func (a *artist) shown() bool {
	return a.f.first <= a.line && a.line <= a.f.last && !a.f.skipped[a.line]
}

func (a *artist) columnOf(id raft.ServerID) int {
	return a.f.column(strconv.FormatUint(uint64(id), 10))
}

// toLine goes on to a line of the story. What it does stands below all before.
func (a *artist) toLine(line int) {
	if line == a.line && a.began {
		return
	}
	if !a.began {
		a.began = true
		a.begin()
	}
	a.drawCalls(line)
	a.line = line
	a.lineRow = a.bottom()
	if line > a.f.last {
		return
	}
	for ; a.callsDone < len(a.f.calls); a.callsDone++ {
		c := a.f.calls[a.callsDone]
		if c.line != line || c.after {
			break
		}
		a.drawCall(c, a.lineRow)
	}
}

// begin notes what the lines that are not shown have left behind.
func (a *artist) begin() {
	for c := range a.f.servers {
		n := note{column: c}
		last, ok := a.last[c]
		if !ok {
			continue
		}
		s := last.status
		if s.Term == 0 && s.LastIndex == 0 && a.role[c] == "follower" {
			continue
		}
		n.lines = []string{fmt.Sprintf("%s, term %d", a.role[c], s.Term)}
		if a.f.logs {
			n.entries = last.entries
		}
		a.use(c, 0)
		a.add(n)
	}
}

// drawCalls draws what clients hear or say before a line, and puts down what is
// to be said there.
func (a *artist) drawCalls(before int) {
	for {
		says, calls := a.f.says[a.saysDone:], a.f.calls[a.callsDone:]
		switch {
		case len(says) > 0 && says[0].line < before && (len(calls) == 0 || says[0].line <= calls[0].line):
			a.saysDone++
			c, row := a.f.column(says[0].server), a.bottom()
			a.use(c, row)
			a.add(note{column: c, row: row, lines: []string{says[0].text}})
		case len(calls) > 0 && calls[0].line < before:
			a.callsDone++
			row := a.bottom()
			a.drawCall(calls[0], row)
			a.use(a.f.column(calls[0].from), row)
		default:
			return
		}
	}
}

func (a *artist) drawCall(c call, row int) {
	a.d.arrows = append(a.d.arrows, &arrow{
		from: a.f.column(c.from), to: a.f.column(c.to),
		sent: row, ended: row, text: c.text, lost: c.lost, call: true,
	})
}

// bottom is the first row below everything so far.
func (a *artist) bottom() int {
	row := 0
	for _, next := range a.nextRow {
		row = max(row, next)
	}
	return row
}

func (a *artist) use(column, row int) {
	a.nextRow[column] = max(a.nextRow[column], row+1)
	a.d.rows = max(a.d.rows, row+1)
}

func (a *artist) happens(h scenario.Happening) {
	if h.Line > a.f.last || a.f.stop > 0 && a.landed > a.f.stop {
		return
	}
	if h.Line >= a.f.first && !a.f.skipped[h.Line] {
		a.toLine(h.Line)
	}
	a.line = h.Line
	if h.What == scenario.Stepped {
		a.step(h)
		return
	}
	from, to := a.columnOf(h.Message.From), a.columnOf(h.Message.To)
	if from < 0 || to < 0 {
		return
	}
	switch h.What {
	case scenario.Sent:
		if a.f.hides(h.Message.From, h.Message.To, h.Line) {
			return
		}
		a.flying[h.Number] = &arrow{from: from, to: to, sent: max(0, a.nextRow[from]-1), text: a.f.describe(h.Message), inFlight: true}
		if !a.shown() {
			a.flying[h.Number].sent = -1
		}
	case scenario.Copied:
		if a.f.hides(h.Message.From, h.Message.To, h.Line) {
			return
		}
		a.flying[h.Number] = &arrow{from: from, to: to, sent: a.lineRow, text: a.f.describe(h.Message) + " (copy)", inFlight: true}
		if a.shown() {
			a.use(from, a.lineRow)
		}
	case scenario.Arrived, scenario.Lost:
		arrow := a.flying[h.Number]
		delete(a.flying, h.Number)
		if !a.shown() || arrow == nil {
			return
		}
		arrow.inFlight = false
		if a.landed++; a.f.stop > 0 && a.landed > a.f.stop {
			return
		}
		if h.What == scenario.Lost {
			arrow.lost = true
			arrow.ended = arrow.sent + 1
		} else {
			far := 2*max(from-to, to-from) - 1 // rows; an arrow over a column crosses it above what ends there
			arrow.ended = max(a.lineRow, arrow.sent+far, a.nextRow[to])
			a.use(to, arrow.ended)
		}
		a.d.rows = max(a.d.rows, arrow.ended+1)
		a.d.arrows = append(a.d.arrows, arrow)
	}
}

// step notes what an event has changed in a server.
func (a *artist) step(h scenario.Happening) {
	r := h.Step
	c := a.columnOf(r.Server)
	if c < 0 {
		return
	}
	role := r.After.State.String()
	if h.Step.Note == "crash" {
		role = "down"
	}
	before := a.last[c]
	a.last[c] = moment{r.After, logOf(h.Core, r.After)}
	later := a.acted[c] < h.Line
	a.acted[c] = h.Line
	if !a.shown() {
		if a.began && role != a.role[c] {
			a.endSpan(c, a.bottom())
		}
		a.role[c] = role
		return
	}
	n := note{column: c}
	var happened bool
	switch ev := r.Event.(type) {
	case raft.ElectionTimeout:
		n.lines, happened = append(n.lines, "times out"), true
	case raft.HeartbeatTimeout:
		happened = true
	case raft.Submit:
		happened = true
	case raft.Read:
		n.lines, happened = append(n.lines, "a read comes"), true
	case raft.ChangeConfiguration:
		n.lines, happened = append(n.lines, fmt.Sprintf("shall change to {%s}", trace.Configuration(ev.Next))), true
	case raft.TransferLeadership:
		n.lines, happened = append(n.lines, fmt.Sprintf("shall hand over to %d", ev.To)), true
	case raft.TransferTimeout:
		n.lines, happened = append(n.lines, "waits no longer"), true
	case raft.LeaderContactTimeout:
		n.lines, happened = append(n.lines, "has heard no leader for T"), true
	case raft.SnapshotStored:
		n.lines, happened = append(n.lines, fmt.Sprintf("has snapshot %d", ev.Snapshot.Index)), true
	case raft.Saved:
		if later { // on a line of its own: the disk was slow
			n.lines, happened = append(n.lines, "has saved"), true
		}
	case nil:
		n.lines, happened = append(n.lines, strings.Replace(r.Note+"s", "crashs", "crashes", 1)), true
	}
	if role != a.role[c] {
		n.role = role
		if role != "down" && r.Event != nil {
			n.lines = append(n.lines, fmt.Sprintf("%s, term %d", role, r.After.Term))
		}
	} else if r.After.Term != r.Before.Term {
		n.lines = append(n.lines, fmt.Sprintf("term %d", r.After.Term))
	}
	if v := r.After.VotedFor; v != raft.None && v != r.Before.VotedFor && v != r.Server {
		n.lines = append(n.lines, fmt.Sprintf("votes for %d", v))
	}
	if a.f.logs && role != "down" && !slices.Equal(before.entries, a.last[c].entries) {
		n.entries = a.last[c].entries
	}
	if happened {
		n.row = max(a.lineRow, a.nextRow[c])
	} else {
		n.row = max(a.lineRow, a.nextRow[c]-1) // the row of the arrow's end
	}
	if happened || len(n.lines) > 0 || n.entries != nil || n.role != "" {
		a.use(c, n.row)
		a.add(n)
	}
	if n.role != "" {
		a.endSpan(c, n.row)
		a.role[c] = role
	}
}

// add puts a note down, or on to the one that is there already: a step and the
// steps that follow it at once are one moment.
func (a *artist) add(n note) {
	for i := range a.d.notes {
		if old := &a.d.notes[i]; old.column == n.column && old.row == n.row {
			old.lines = append(old.lines, n.lines...)
			if n.entries != nil {
				old.entries = n.entries
			}
			if n.role != "" {
				old.role = n.role
			}
			return
		}
	}
	a.d.notes = append(a.d.notes, n)
}

func (a *artist) endSpan(column, row int) {
	a.d.spans = append(a.d.spans, span{column, a.since[column], row, a.role[column]})
	a.since[column] = row
}

func (a *artist) finish() {
	for _, n := range slices.Sorted(maps.Keys(a.flying)) {
		if arrow := a.flying[n]; arrow.sent >= 0 && !a.f.landed {
			arrow.ended = arrow.sent + 1
			a.d.rows = max(a.d.rows, arrow.ended+1)
			a.d.arrows = append(a.d.arrows, arrow)
		}
	}
	for c := range a.f.servers {
		if a.isClient(c) {
			a.role[c] = "client"
		}
		a.endSpan(c, a.d.rows)
	}
}

func logOf(c core.Core, s raft.Status) []entry {
	var log []entry
	if s.FirstIndex > 1 {
		log = append(log, entry{"snapshot", fmt.Sprintf("of 1 to %d", s.FirstIndex-1), true})
	}
	for i := max(1, s.FirstIndex); i <= s.LastIndex; i++ {
		e, _ := c.Entry(i)
		log = append(log, entry{fmt.Sprintf("t%d", e.Term), trace.Content(e), i <= s.CommitIndex})
	}
	return log
}

// describe says what a message is about, with its round if the figure is about that.
func (f *figure) describe(m raft.Message) string {
	text := describe(m)
	if !f.rounds {
		return text
	}
	switch b := m.Body.(type) {
	case raft.AppendEntriesArgs:
		text += fmt.Sprintf(", round %d", b.Round)
	case raft.AppendEntriesReply:
		text += fmt.Sprintf(", round %d", b.Round)
	case raft.TimeoutNowArgs:
		text += fmt.Sprintf(", round %d", b.Round)
	}
	return text
}

// describe says in two or three words what a message is about.
func describe(m raft.Message) string {
	switch b := m.Body.(type) {
	case raft.RequestVoteArgs:
		return fmt.Sprintf("RequestVote t%d", b.Term)
	case raft.PreVoteArgs:
		return fmt.Sprintf("PreVote t%d", b.Term)
	case raft.RequestVoteReply:
		if b.VoteGranted {
			return fmt.Sprintf("vote t%d", b.AskedTerm)
		}
		return fmt.Sprintf("no vote, t%d", b.Term)
	case raft.PreVoteReply:
		if b.VoteGranted {
			return "would vote"
		}
		return "would not"
	case raft.AppendEntriesArgs:
		if len(b.Entries) == 0 {
			return fmt.Sprintf("heartbeat t%d", b.Term)
		}
		var words []string
		for _, e := range b.Entries {
			words = append(words, fmt.Sprintf("%d:%s", e.Term, trace.Content(e)))
		}
		return fmt.Sprintf("after %d/t%d: %s", b.PrevLogIndex, b.PrevLogTerm, strings.Join(words, " "))
	case raft.AppendEntriesReply:
		if b.Success {
			return fmt.Sprintf("ok up to %d", b.MatchIndex)
		}
		return "no"
	case raft.InstallSnapshotArgs:
		if b.Length == 0 {
			return fmt.Sprintf("snapshot %d: how much?", b.Snapshot.Index)
		}
		return fmt.Sprintf("snapshot %d: bytes %d to %d of %d", b.Snapshot.Index, b.Offset, b.Offset+b.Length, b.Snapshot.Size)
	case raft.InstallSnapshotReply:
		if b.MatchIndex != 0 {
			return fmt.Sprintf("ok up to %d", b.MatchIndex)
		}
		return fmt.Sprintf("from byte %d on", b.NextOffset)
	case raft.TimeoutNowArgs:
		return fmt.Sprintf("TimeoutNow t%d", b.Term)
	}
	return fmt.Sprintf("%T", m.Body)
}
