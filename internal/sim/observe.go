package sim

import (
	"fmt"
	"strings"

	"raftkv/api"
	"raftkv/internal/lincheck"
	"raftkv/internal/trace"
	"raftkv/kvservice/machine"
	"raftkv/raft"
)

// watcher writes the run down as lines of a trace file. It is nil if nobody
// reads them; all its methods may be called then, and the run is the same.
type watcher struct {
	s    *simulation
	take func(trace.Line)

	logs    map[raft.ServerID][]raft.LogEntry // as the lines have told them
	calls   map[spot]part                     // which carries it, the latest attempt
	count   int                               // of calls
	faults  int
	lasting []func() // ends the faults that last until all is healed
}

func newWatcher(s *simulation) *watcher {
	if s.config.Trace == nil {
		return nil
	}
	return &watcher{
		s: s, take: s.config.Trace,
		logs: map[raft.ServerID][]raft.LogEntry{}, calls: map[spot]part{},
	}
}

func (w *watcher) begins() {
	if w == nil {
		return
	}
	run := trace.Run{
		Format: trace.FormatVersion,
		Title:  fmt.Sprintf("seed %d, profile %s", w.s.seed, w.s.profile.Name),
		Plan:   w.s.plan.String(),
	}
	if only := w.s.config.Only; only != nil {
		faults, calls := Count(only.List)
		run.Title += fmt.Sprintf(", with %d faults and %d calls", faults, calls)
	} else {
		run.Repeat = w.s.report().RepeatLine()
	}
	for i := range w.s.nodes {
		run.Servers = append(run.Servers, id(i))
	}
	w.take(run)
}

// stepped tells the latest record, and what it has changed in the server's log.
func (w *watcher) stepped(n *node, message uint64) {
	if w == nil {
		return
	}
	line := trace.NewStep(&w.s.record, message, DescribeCommand)
	line.Down = !n.up
	w.take(line)
	if n.up {
		w.compareLog(n)
	}
}

// compareLog tells what is new in a log. It asks the core and not the Save of
// its effects, which is what a broken core may get wrong.
func (w *watcher) compareLog(n *node) {
	known := w.logs[n.id]
	now := n.core.Status()
	last, first := int(now.LastIndex), max(1, int(now.FirstIndex))
	from := min(len(known), last)
	if reset := w.s.record.Effects.Save.Reset; reset.Index != 0 {
		from = 0
	} else if saved := int(w.s.record.Effects.Save.FirstIndex); saved != 0 {
		from = min(from, saved-1)
	} else if w.s.record.Event == nil {
		from = 0 // it has just started, with whatever its disk holds
	} else if len(known) == last && (last == 0 || known[last-1].Term == n.status.LastTerm) {
		return
	}
	same := func(i int) bool {
		if i+1 < first { // where a snapshot stands for it
			return w.s.record.Effects.Save.Reset.Index == 0
		}
		e, ok := n.core.Entry(raft.Index(i + 1))
		return ok && e.Term == known[i].Term && string(e.Command) == string(known[i].Command)
	}
	for from < min(len(known), last) && same(from) {
		from++
	}
	for from > 0 && !same(from-1) {
		from--
	}
	if from == len(known) && from == last {
		return
	}
	line := trace.Log{Server: n.id, From: raft.Index(from + 1), Entries: []trace.Entry{}}
	known = known[:from]
	for i := from; i < last; i++ {
		e, ok := n.core.Entry(raft.Index(i + 1))
		if !ok && i+1 >= first {
			break // it cannot be shown
		}
		known = append(known, e)
		text := ""
		switch {
		case !ok:
			text = "in the snapshot"
		case e.Kind == raft.EntryConfiguration:
			text = describeConfiguration(e.Command)
		case e.Kind != raft.EntryEmpty:
			text = DescribeCommand(e.Command)
		}
		line.Entries = append(line.Entries, trace.Entry{Term: e.Term, Text: text})
	}
	w.logs[n.id] = known
	w.take(line)
}

func (w *watcher) sent(id uint64, m raft.Message, f *fate) {
	if w == nil {
		return
	}
	line := trace.NewSend(m)
	line.At, line.Message, line.Lost, line.Copies, line.Late = w.s.now, id, f.lost, f.copies, f.late
	w.take(line)
}

func (w *watcher) arrived(id uint64, n *node, heard bool) {
	if w != nil {
		w.take(trace.Arrive{At: w.s.now, Message: id, Server: n.id, Down: !heard})
	}
}

func (w *watcher) called(call *clientCall) {
	if w == nil {
		return
	}
	w.count++
	call.number = w.count
	w.take(trace.Call{At: w.s.now, Client: call.client.index, Call: call.number, Text: describe(call.command)})
}

func (w *watcher) tried(r *request, server *node) {
	if w == nil || r.parts[0].call.op.Call == 0 { // it opens or closes a session
		return
	}
	for _, p := range r.parts {
		w.calls[p.call.places[len(p.call.places)-1]] = p
		w.take(trace.Attempt{At: w.s.now, Client: r.client.index, Call: p.call.number, Server: server.id})
	}
}

// tookEffect is called for each operation when the first state machine applies it.
// Of a read that was tried again, what an earlier attempt has read interests nobody.
func (w *watcher) tookEffect(n *node, index raft.Index, a *machine.Applied, at spot) {
	if w == nil || a.Event != machine.EventCommitted {
		return
	}
	p, known := w.calls[at]
	if !known || p.call.op.Kind == lincheck.Get && p.attempt != p.call.attempt {
		return
	}
	w.take(trace.Effect{At: w.s.now, Client: p.call.client.index, Call: p.call.number, Server: n.id, Index: index})
}

// hasRead is called when a server reads its state for a client.
func (w *watcher) hasRead(n *node, r *request) {
	if w != nil {
		w.take(trace.Effect{At: w.s.now, Client: r.client.index, Call: r.parts[0].call.number, Server: n.id, Index: n.service.machine.AppliedIndex()})
	}
}

func (w *watcher) answered(call *clientCall) {
	if w != nil {
		w.take(trace.Answer{At: w.s.now, Client: call.client.index, Call: call.number, Outcome: call.op.Outcome.String(), Text: describeAnswer(&call.op, call.level)})
	}
}

// fault tells that something goes wrong, and returns how to tell that it is over.
func (w *watcher) fault(text string, servers []raft.ServerID, links [][2]raft.ServerID) (over func()) {
	if w == nil {
		return func() {}
	}
	w.faults++
	number, open := w.faults, true
	w.take(trace.Fault{At: w.s.now, Fault: number, Text: text, Servers: servers, Links: links})
	return func() {
		if open {
			open = false
			w.take(trace.FaultEnd{At: w.s.now, Fault: number})
		}
	}
}

// network is fault for what lasts until its end or until all is healed.
func (w *watcher) network(text string, servers []raft.ServerID, links [][2]raft.ServerID) (over func()) {
	over = w.fault(text, servers, links)
	if w != nil {
		w.lasting = append(w.lasting, over)
	}
	return over
}

func (w *watcher) healed() {
	if w == nil {
		return
	}
	for _, over := range w.lasting {
		over()
	}
}

func (w *watcher) ends(r *Report) {
	if w == nil {
		return
	}
	line := trace.Verdict{At: r.Duration, Hash: fmt.Sprintf("%016x", r.Hash), Steps: r.Steps, Operations: r.Operations}
	if r.Failure != nil {
		line.Failure, line.Text = r.Failure.Kind, r.Failure.Text
	}
	w.take(line)
}

// describeOperation tells what a client asks for.
func describeOperation(op *lincheck.Operation) string {
	return describe(commandOf(op))
}

// describeAnswer tells what a client has asked for and what it has learned.
func describeAnswer(op *lincheck.Operation, l level) string {
	text := describeOperation(op)
	if l != byLog {
		text += ", " + levelNames[l]
	}
	switch {
	case op.Refused:
		return text + ", condition failed"
	case op.Outcome != lincheck.Applied:
		return text
	case !op.Answered:
		return text + ", result not told"
	case op.Kind == lincheck.CAS && op.Swapped:
		return text + " = swapped"
	case !op.KeyFound:
		return text + " = absent"
	case op.Kind == lincheck.CAS:
		return text + fmt.Sprintf(" = not swapped, it was %q", op.Before)
	case op.Kind == lincheck.Get:
		return text + fmt.Sprintf(" = %q", op.Before)
	}
	return text + fmt.Sprintf(", before %q", op.Before)
}

// DescribeCommand turns an entry's command into words, such as
//
//	append k1 "4.7;" (session s-AB12, request 3)
//
// What is no command of package machine is quoted.
func DescribeCommand(encoded []byte) string {
	c, err := machine.Decode(encoded)
	if err != nil {
		return trace.Command(encoded)
	}
	return describe(c)
}

// describeConfiguration turns an encoded configuration into words.
func describeConfiguration(encoded []byte) string {
	c, err := raft.DecodeConfiguration(encoded)
	if err != nil {
		return trace.Command(encoded)
	}
	return "members " + trace.Configuration(c)
}

func describe(c machine.Command) string {
	var text string
	switch c.Kind {
	case machine.KindSettings:
		return "settings"
	case machine.KindOpenSession:
		return "open session " + short(string(c.ClientID))
	case machine.KindCloseSession:
		return "close session " + short(string(c.ClientID))
	case machine.KindMark:
		return "mark"
	case machine.KindBatch:
		var each []string
		for _, o := range c.Operations {
			each = append(each, describe(o))
		}
		text = "batch"
		if machine.IsKey(c.ClientID) {
			text += fmt.Sprintf(" (key %s)", keyOf(c.ClientID))
		}
		return text + ": " + strings.Join(each, "; ")
	case machine.KindGet:
		return "get " + c.Key
	case machine.KindPut:
		text = fmt.Sprintf("put %s %q", c.Key, c.Value)
	case machine.KindAppend:
		text = fmt.Sprintf("append %s %q", c.Key, c.Value)
	case machine.KindCAS:
		text = fmt.Sprintf("cas %s %q to %q", c.Key, c.CompareValue, c.Value)
		if c.ExpectAbsent {
			text = fmt.Sprintf("cas %s absent to %q", c.Key, c.Value)
		}
	case machine.KindDelete:
		text = "delete " + c.Key
	default:
		return fmt.Sprintf("kind %d", c.Kind)
	}
	if c.IfVersion != nil {
		text += fmt.Sprintf(" if version %d", *c.IfVersion)
	}
	switch {
	case machine.IsKey(c.ClientID):
		text += fmt.Sprintf(" (key %s)", keyOf(c.ClientID))
	case c.RequestID != 0:
		text += fmt.Sprintf(" (%s #%d)", short(string(c.ClientID)), c.RequestID)
	}
	return text
}

// keyOf returns the Idempotency-Key of which an id was made.
func keyOf(id api.ClientID) string {
	return strings.TrimPrefix(string(id), string(machine.NewKeyID("")))
}

// short cuts an id that a server made; what is left still tells them apart.
func short(id string) string {
	if machine.IsIssued(api.ClientID(id)) {
		return id[:6]
	}
	return id
}
