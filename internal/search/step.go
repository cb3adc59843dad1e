package search

import (
	"fmt"
	"slices"

	"raftkv/raft"
)

type (
	serverID  int32 // a distinct state of a server
	outcomeID int32 // what an event does to a server; 0 is not known yet
	form      int32 // a distinct packed state of a server, under some renaming
)

// serverState is a state of one server, and what it takes to step on from it.
type serverState struct {
	module   module
	status   raft.Status
	log      []raft.LogEntry
	saved    raft.PersistentState // what a crash leaves
	election raft.TimerNumber     // the run of the timer that fires next
	beat     raft.TimerNumber
	forms    []form // under each renaming

	own      [receives]outcomeID // what its own events do
	received []outcomeID         // what each message to it does, by slot

	// For spent.go: the states that this one was seen to become, without and with
	// a crash, and what was judged about messages, by crashes left.
	leads, falls []serverID
	ledgers      []ledger
}

// module is a *raft.ConsensusModule, or in tests a broken one.
type module interface {
	Step(raft.Event) raft.Effects
	Status() raft.Status
	Entry(raft.Index) (e raft.LogEntry, ok bool)
	Progress(peer raft.ServerID) (next, match raft.Index, ok bool)
	AppendState(b []byte, name func(raft.ServerID) raft.ServerID) []byte
	clone() module
}

type newModuleFunc func(raft.Config, raft.PersistentState) (module, raft.Effects, error)

type soundModule struct{ *raft.ConsensusModule }

func (m soundModule) clone() module { return soundModule{m.Clone()} }

func newModule(config raft.Config, saved raft.PersistentState) (module, raft.Effects, error) {
	cm, effects, err := raft.NewConsensusModule(config, saved)
	return soundModule{cm}, effects, err
}

// event is what may happen to one server next.
type event struct {
	kind    eventKind
	message messageID
}

type eventKind uint8

const (
	timesOut eventKind = iota
	beats
	submits
	crashes
	receives
)

// outcome is what an event does to a server.
type outcome struct {
	next   serverID
	sent   []messageID
	commit []raft.CommitEntry
	broken string // what the step itself has broken; the rest is then unknown
	cuts   []cut
}

// cut is a crash in the middle of an event, before something was saved: the
// server that comes back, and what had left already.
type cut struct {
	next serverID
	sent []messageID
}

// idle reports whether the event leaves the server as it was, so that all it
// can do is to send something.
func (o *outcome) idle(server serverID) bool {
	return o.broken == "" && o.next == server && len(o.commit) == 0
}

// outcome returns what an event does to a server, stepping the core the first
// time that the pair comes up. The result is good until the next call.
func (s *search) outcome(server serverID, ev event) *outcome {
	if id := *s.outcomeOf(server, ev); id != 0 {
		return &s.outcomes[id]
	}
	out := s.step(server, ev)
	id := outcomeID(len(s.outcomes))
	s.outcomes = append(s.outcomes, out)
	*s.outcomeOf(server, ev) = id // looked up again: the step may have moved it
	s.noteEdges(server, ev, out)
	return &s.outcomes[id]
}

func (s *search) outcomeOf(server serverID, ev event) *outcomeID {
	st := &s.servers[server]
	if ev.kind != receives {
		return &st.own[ev.kind]
	}
	if slot := s.messages[ev.message].slot; slot >= len(st.received) {
		st.received = append(st.received, make([]outcomeID, slot+64-len(st.received))...)
	}
	return &st.received[s.messages[ev.message].slot]
}

// step runs the core. A panic is the core's own finding, not the search's end.
func (s *search) step(server serverID, ev event) (out outcome) {
	s.report.Steps++
	out.next = server
	defer func() {
		if p := recover(); p != nil {
			out.broken = fmt.Sprint(p)
		}
	}()
	before := s.servers[server]
	if ev.kind == crashes {
		out.next = s.born(before.status.ID, before.saved)
		return out
	}
	after := before
	after.module = before.module.clone()
	var core raft.Event
	switch ev.kind {
	case timesOut:
		core = raft.ElectionTimeout{Number: before.election}
	case beats:
		core = raft.HeartbeatTimeout{Number: before.beat}
	case submits:
		// A command tells its index: one that is moved or lost is noticed, and runs
		// that submit at different moments do not differ for ever.
		core = raft.Submit{Commands: [][]byte{{byte(before.status.LastIndex + 1)}}}
	case receives:
		core = s.messages[ev.message].Message
	}
	s.carryOut(&after, after.module.Step(core), &out)
	out.next = s.internServer(after)
	out.broken = appendOnly(&before, &s.servers[out.next])
	return out
}

// carryOut does what a server does with effects, all at once: what another
// event at another server does meanwhile, it can as well do before or after.
// Only a crash in between is something else, and each is noted as a cut. A crash
// before the first save, with nothing sent, is as one before the event.
func (s *search) carryOut(st *serverState, effects raft.Effects, out *outcome) {
	for saves := 0; saves < 100; {
		s.send(out, effects.Send)
		if effects.Save.Needed() {
			if saves > 0 || len(out.sent) > 0 {
				out.cuts = append(out.cuts, cut{s.born(st.status.ID, st.saved), slices.Clone(out.sent)})
			}
			st.save(effects.Save)
			saves++
		}
		s.send(out, effects.SendAfter)
		out.commit = append(out.commit, effects.Commit...)
		st.setTimers(effects.Timers)
		if !effects.Save.Needed() && len(effects.Commit) == 0 {
			return
		}
		var next raft.Effects
		if effects.Save.Needed() {
			now := st.module.Status()
			next.Merge(st.module.Step(raft.Saved{Index: now.LastIndex, Term: now.Term}))
		}
		if n := len(effects.Commit); n > 0 {
			next.Merge(st.module.Step(raft.Applied{Index: effects.Commit[n-1].Index}))
		}
		effects = next
	}
	panic(fmt.Sprintf("server %d wants to save over and over", st.status.ID))
}

func (s *search) send(out *outcome, messages []raft.Message) {
	for _, m := range messages {
		out.sent = append(out.sent, s.internMessage(m))
	}
}

// save makes what is saved the state that a crash leaves.
func (st *serverState) save(save raft.Save) {
	st.saved.CurrentTerm, st.saved.VotedFor = save.CurrentTerm, save.VotedFor
	if save.FirstIndex != 0 {
		keep := save.FirstIndex - 1
		st.saved.Entries = append(st.saved.Entries[:keep:keep], save.Entries...)
	}
}

func (st *serverState) setTimers(timers raft.Timers) {
	if change := timers[raft.ElectionTimer]; change.Action == raft.RestartTimer {
		st.election = change.Number
	}
	if change := timers[raft.HeartbeatTimer]; change.Action == raft.RestartTimer {
		st.beat = change.Number
	}
}

// born returns the state of a server that starts with what was saved. Pre-vote
// and quorum check are off, as in the paper's Figure 2: what they prevent is
// commotion, and here there shall be any.
func (s *search) born(id raft.ServerID, saved raft.PersistentState) serverID {
	voters := make([]raft.ServerID, s.config.Nodes)
	for i := range voters {
		voters[i] = raft.ServerID(i + 1)
	}
	config := raft.Config{
		ID:                 id,
		Configuration:      raft.NewConfiguration(voters...),
		DisablePreVote:     true,
		DisableQuorumCheck: true,
	}
	if s.config.Single {
		config.MaxBatchBytes = 1 // a larger entry travels alone
	}
	m, effects, err := s.start(config, saved)
	if err != nil {
		panic(err)
	}
	st := serverState{module: m, saved: saved}
	st.setTimers(effects.Timers)
	return s.internServer(st)
}

// internServer gives equal states of a server one number. What is saved is part
// of the state, and in a sound core says nothing new.
func (s *search) internServer(st serverState) serverID {
	st.forms = make([]form, len(s.renamings))
	for r := range s.renamings {
		st.forms[r] = s.packServer(&st, s.renamings[r])
		if id, known := s.serverOf[st.forms[0]]; r == 0 && known {
			return id
		}
	}
	st.status = st.module.Status()
	st.log = nil
	for i := raft.Index(1); i <= st.status.LastIndex; i++ {
		e, _ := st.module.Entry(i)
		st.log = append(st.log, e)
	}
	st.own, st.received = [receives]outcomeID{}, nil
	st.leads, st.falls, st.ledgers = nil, nil, nil
	id := serverID(len(s.servers))
	s.serverOf[st.forms[0]] = id
	s.servers = append(s.servers, st)
	return id
}

func (s *search) packServer(st *serverState, r renaming) form {
	b := st.module.AppendState(s.pack[:0], r.of)
	b = append(b, byte(st.saved.CurrentTerm), byte(r.of(st.saved.VotedFor)))
	for _, e := range st.saved.Entries {
		b = append(b, byte(e.Term))
	}
	s.pack = b
	f, known := s.forms[string(b)]
	if !known {
		f = form(len(s.forms))
		s.forms[string(b)] = f
	}
	return f
}
