package shrink

import (
	"fmt"
	"slices"
	"strings"

	"raftkv/internal/core"
	"raftkv/internal/scenario"
	"raftkv/internal/sim"
	"raftkv/internal/trace"
	"raftkv/raft"
)

// Story tells a failing run in the language of testdata/scenarios, as short as it
// still fails with the same property. The error says why it cannot: the failure
// is none that stories check, or it needs what stories do not have.
func Story(config sim.Config, d *sim.Decisions) (string, error) {
	t := &teller{busy: map[raft.ServerID]bool{}, started: map[raft.ServerID]bool{}}
	config.Only = d
	config.Trace = t.line
	config.Observe = t.record
	r := sim.RunSeed(config, d.Seed)
	if r.Failure == nil || Property(r.Failure) != d.Fails {
		return "", fmt.Errorf("the decisions do not fail with %s", d.Fails)
	}
	newCore := config.New
	if newCore == nil {
		newCore = core.Raft
	}
	for id := range r.Servers { // these are there from the beginning
		t.statements = slices.DeleteFunc(t.statements, func(line string) bool {
			return line == fmt.Sprintf("join %d", id+1) || line == fmt.Sprintf("disk %d slow", id+1)
		})
	}
	s := story{newCore: newCore, head: storyHead(&r), property: d.Fails}
	if !s.try(t.statements) {
		return "", fmt.Errorf("told as a story, the run does not fail with %s", d.Fails)
	}
	s.shrink()
	text := s.head + strings.Join(s.best, "\n") + "\n"
	parsed, err := scenario.Parse("the story", text)
	if err != nil {
		return "", err
	}
	if err := parsed.Play(newCore, false); err == nil || !strings.Contains(err.Error(), d.Fails+":") {
		return "", fmt.Errorf("told as a story, the run does not fail with %s", d.Fails)
	}
	return text, nil
}

// storyHead is the opening comment and the cluster. Every disk is slow, so that
// the story says when a write is done.
func storyHead(r *sim.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Seed %d of profile %s, shrunk. It fails with %s.\n", r.Seed, r.Profile.Name, r.Failure.Kind)
	var config string
	set := func(name string, value any) { config += fmt.Sprintf(" %s=%v", name, value) }
	if r.Raft.DisablePreVote {
		set("prevote", "off")
	}
	if r.Raft.DisableQuorumCheck {
		set("quorumcheck", "off")
	}
	for _, limit := range []struct {
		name  string
		value int
	}{{"batch", r.Raft.MaxBatchBytes}, {"inflight", r.Raft.MaxInflight}, {"backlog", r.Raft.MaxBacklogBytes}, {"trailing", r.Raft.TrailingBytes}} {
		if limit.value > 0 {
			set(limit.name, limit.value)
		}
	}
	if config != "" {
		fmt.Fprintf(&b, "# config:%s\n", config)
	}
	b.WriteString("\ncluster")
	for id := range r.Servers {
		fmt.Fprintf(&b, " %d", id+1)
	}
	b.WriteString("\n")
	for id := range r.Servers {
		fmt.Fprintf(&b, "disk %d slow\n", id+1)
	}
	return b.String()
}

// teller writes down as statements what happens in a run.
type teller struct {
	statements []string
	sent       []trace.Send // by the latest statement
	flying     []trace.Send // messages in flight, oldest first, as the story has them
	busy       map[raft.ServerID]bool
	started    map[raft.ServerID]bool
	commands   int
	reads      int
}

func (t *teller) say(format string, args ...any) {
	t.statements = append(t.statements, fmt.Sprintf(format, args...))
}

// record is given the steps.
func (t *teller) record(line fmt.Stringer) {
	r, ok := line.(*trace.Record)
	if !ok {
		return
	}
	t.tellSent()
	switch ev := r.Event.(type) {
	case nil:
		t.note(r)
	case raft.ElectionTimeout:
		t.say("%d times out", r.Server)
	case raft.HeartbeatTimeout:
		t.say("%d heartbeats", r.Server)
	case raft.LeaderContactTimeout:
		t.say("%d loses contact", r.Server)
	case raft.QuorumCheckTimeout:
		t.say("%d checks quorum", r.Server)
	case raft.TransferTimeout:
		t.say("%d ends transfer", r.Server)
	case raft.TransferLeadership:
		if ev.To == raft.None {
			t.say("%d transfers", r.Server)
		} else {
			t.say("%d transfers to %d", r.Server, ev.To)
		}
	case raft.ChangeConfiguration:
		t.say("%d changes to %s expecting %d", r.Server, trace.Configuration(ev.Next), ev.Expected)
	case raft.Read:
		for range ev.Requests {
			t.reads++
			t.say("%d reads r%d", r.Server, t.reads)
		}
	case raft.SnapshotStored:
		if ev.Snapshot.Index <= r.Before.LastApplied {
			t.say("%d takes snapshot", r.Server)
		}
	case raft.Submit:
		var words []string
		for range ev.Commands {
			t.commands++
			words = append(words, fmt.Sprintf("x=%d", t.commands))
		}
		t.say("%d submits %s", r.Server, strings.Join(words, " "))
	case raft.Saved:
		t.saves(r.Server)
	}
	t.busy[r.Server] = t.busy[r.Server] || r.Effects.Save.Needed()
}

// note is given what happens to a server from outside.
func (t *teller) note(r *trace.Record) {
	switch r.Note {
	case "starts":
		if t.started[r.Server] {
			t.say("restart %d", r.Server)
		} else {
			t.say("join %d", r.Server)
			t.say("disk %d slow", r.Server)
		}
		t.started[r.Server] = true
	case "crashes", "loses power", "stops: its disk failed":
		t.say("crash %d", r.Server)
		t.busy[r.Server] = false
	}
}

func (t *teller) saves(id raft.ServerID) {
	if t.busy[id] {
		t.tellSent()
		t.busy[id] = false
		t.say("%d saves", id)
	}
}

// line is given the messages.
func (t *teller) line(line trace.Line) {
	switch l := line.(type) {
	case trace.Send:
		if l.Type != "AppendEntriesArgs" {
			t.saves(l.From) // all but these leave when the disk is done
		}
		t.sent = append(t.sent, l)
	case trace.Arrive:
		t.tellSent()
		t.arrive(l.Message)
	}
}

// tellSent tells what the network does with the messages of the latest statement,
// when all of them are known: those behind a message on its link are held meanwhile.
func (t *teller) tellSent() {
	sent := t.sent
	t.sent = nil
	for i, f := range sent {
		verb := ""
		switch {
		case f.Lost != "":
			verb = "drop"
		case f.Copies > 1:
			verb = "duplicate"
		}
		if verb == "" {
			t.flying = append(t.flying, f)
			continue
		}
		behind := 0
		for _, o := range sent[i+1:] {
			if o.From == f.From && o.To == f.To {
				behind++
				t.say("hold last %d->%d", f.From, f.To)
			}
		}
		t.say("%s last %d->%d", verb, f.From, f.To)
		if behind > 0 {
			t.say("release %d->%d", f.From, f.To)
		}
		if f.Copies > 1 {
			t.flying = append(t.flying, f)
			defer func() { t.flying = append(t.flying, f) }() // the copy, behind all others
		}
	}
}

// arrive delivers one message. Those of its link that it overtakes are held meanwhile.
func (t *teller) arrive(message uint64) {
	at := slices.IndexFunc(t.flying, func(f trace.Send) bool { return f.Message == message })
	if at < 0 {
		return
	}
	f := t.flying[at]
	overtaken := 0
	for _, o := range t.flying[:at] {
		if o.From == f.From && o.To == f.To {
			overtaken++
			t.say("hold one %d->%d", f.From, f.To)
		}
	}
	t.say("deliver one %d->%d", f.From, f.To)
	if overtaken > 0 {
		t.say("release %d->%d", f.From, f.To)
	}
	t.flying = slices.Delete(t.flying, at, at+1)
}

// story is the search for the shortest one.
type story struct {
	newCore  core.New
	head     string
	property string
	best     []string
	plays    int
}

// maxPlays bounds the search. A play takes about a millisecond.
const maxPlays = 3000

func (s *story) try(statements []string) bool {
	s.plays++
	played, broken, err := scenario.Retell(s.newCore, s.head, statements)
	if err != nil || broken == nil || broken.Invariant != s.property {
		return false
	}
	s.best = played
	return true
}

// shrink leaves out halves, quarters and single lines while the story still fails.
func (s *story) shrink() {
	for size := len(s.best); size > 0 && s.plays < maxPlays; {
		size = (size + 1) / 2
		shorter := false
		for at := 0; at < len(s.best) && s.plays < maxPlays; {
			before := len(s.best)
			rest := slices.Delete(slices.Clone(s.best), at, min(at+size, len(s.best)))
			if s.try(rest) && len(s.best) < before {
				shorter = true
			} else {
				at += size
			}
		}
		if size == 1 && !shorter {
			return
		}
	}
}
