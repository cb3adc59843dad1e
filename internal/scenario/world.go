package scenario

import (
	"fmt"
	"slices"
	"strings"

	"raftkv/internal/core"
	"raftkv/internal/invariant"
	"raftkv/internal/trace"
	"raftkv/raft"
)

// world is a cluster in which nothing happens unless the story says so.
type world struct {
	newCore core.New
	config  config
	checker *invariant.Checker

	servers []*server // in the order of the cluster statement
	flying  []*flight // messages in flight, oldest first
	isCut   map[link]bool
	disks   map[raft.ServerID]raft.PersistentState // given before the cluster begins

	records []*trace.Record
	current int // how many records there were when the current statement began

	sent  int             // how many messages were sent
	watch func(Happening) // may be nil
}

// flight is a message that was sent and has not arrived.
type flight struct {
	message raft.Message
	number  int
	held    bool // by "hold": nothing touches it until it is released
}

// server is a core with what the loop of a real server keeps for it. Like that
// loop it takes all events that are waiting, carries out their merged effects,
// and takes no event while its disk is being written.
type server struct {
	id   raft.ServerID
	core core.Core // nil while the server is down

	disk    raft.PersistentState
	slow    bool         // writes take until "saves"
	writing bool         // a write is under way
	effects raft.Effects // what is left to do, beginning with that write

	inbox   []raft.Event // events that wait for the disk
	timers  raft.Timers
	applied []string // the commands that reached the state machine in this life
}

func newWorld(newCore core.New, c config, volatile bool) *world {
	w := &world{newCore: newCore, config: c, checker: invariant.New(), isCut: map[link]bool{}, disks: map[raft.ServerID]raft.PersistentState{}}
	w.checker.Volatile = volatile
	return w
}

// perform carries out one statement. A core that panics has failed it.
func (w *world) perform(st statement) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	if !strings.HasPrefix(st.text, "?") {
		w.current = len(w.records)
	}
	return st.do(w)
}

// lastSteps returns the end of the trace, indented.
func (w *world) lastSteps(n int) string {
	var b strings.Builder
	for _, r := range w.records[max(0, len(w.records)-n):] {
		fmt.Fprintf(&b, "\t%s\n", r)
	}
	return b.String()
}

func (w *world) server(id raft.ServerID) (*server, error) {
	for _, s := range w.servers {
		if s.id == id {
			return s, nil
		}
	}
	return nil, fmt.Errorf("server %d is not in the cluster", id)
}

// running returns a server that is not down.
func (w *world) running(id raft.ServerID) (*server, error) {
	s, err := w.server(id)
	if err == nil && s.core == nil {
		err = fmt.Errorf("server %d is down", id)
	}
	return s, err
}

// Servers and disks.

func (w *world) begin(ids []raft.ServerID) error {
	volatile := w.checker.Volatile
	w.checker = invariant.New(ids...)
	w.checker.Volatile = volatile
	for _, id := range ids {
		w.servers = append(w.servers, &server{id: id, disk: w.disks[id]})
	}
	for _, s := range w.servers {
		if err := w.start(s); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) start(s *server) error {
	var ids []raft.ServerID
	for _, o := range w.servers {
		ids = append(ids, o.id)
	}
	// The core gets a copy: what it does to the slice must not reach the disk.
	saved := s.disk
	saved.Entries = slices.Clone(saved.Entries)
	if err := w.checker.Restarted(s.id, saved); err != nil {
		return err
	}
	c, effects, err := w.newCore(raft.Config{
		ID:                 s.id,
		Configuration:      raft.NewConfiguration(ids...),
		MaxBatchBytes:      w.config.batch,
		MaxInflight:        w.config.inflight,
		MaxBacklogBytes:    w.config.backlog,
		DisablePreVote:     !w.config.preVote,
		DisableQuorumCheck: !w.config.quorumCheck,
	}, saved)
	if err != nil {
		return err
	}
	*s = server{id: s.id, core: c, disk: s.disk, slow: s.slow, effects: effects}
	return w.carryOut(s)
}

func (w *world) crash(id raft.ServerID) error {
	s, err := w.running(id)
	if err != nil {
		return err
	}
	w.note(s, "crash")
	*s = server{id: id, disk: s.disk, slow: s.slow} // a write under way is lost
	return nil
}

func (w *world) restart(id raft.ServerID) error {
	s, err := w.server(id)
	if err != nil {
		return err
	}
	if s.core != nil {
		return fmt.Errorf("server %d is running", id)
	}
	if err := w.start(s); err != nil {
		return err
	}
	w.note(s, "restart")
	return nil
}

func (w *world) note(s *server, what string) {
	status := s.core.Status()
	r := &trace.Record{Number: uint64(len(w.records) + 1), Server: s.id, Before: status, After: status, Note: what}
	w.records = append(w.records, r)
	w.tellOfStep(s, r)
}

// fillDisk says what a server finds when it starts for the first time.
func (w *world) fillDisk(id raft.ServerID, saved raft.PersistentState) error {
	if len(w.servers) > 0 {
		return fmt.Errorf("what disk %d holds at the start is said before the cluster begins", id)
	}
	w.disks[id] = saved
	return nil
}

func (w *world) setSlow(id raft.ServerID, slow bool) error {
	s, err := w.server(id)
	if err != nil {
		return err
	}
	if s.writing {
		return fmt.Errorf("disk %d is being written", id)
	}
	s.slow = slow
	return nil
}

// saves lets the write that is under way on a slow disk end.
func (w *world) saves(id raft.ServerID) error {
	s, err := w.running(id)
	if err != nil {
		return err
	}
	if !s.writing {
		return fmt.Errorf("disk %d has nothing to write", id)
	}
	s.writing = false
	if err := w.afterWrite(s); err != nil {
		return err
	}
	return w.work(s)
}

// What happens to a server.

// happens gives a server an event, to be taken now or when its disk is done.
func (w *world) happens(s *server, event raft.Event) error {
	s.inbox = append(s.inbox, event)
	return w.work(s)
}

// work is the loop of a server: take all events that wait, then carry out what
// they ask for together.
func (w *world) work(s *server) error {
	for !s.writing && len(s.inbox) > 0 {
		waiting := s.inbox
		s.inbox = nil
		for _, event := range waiting {
			if err := w.step(s, event); err != nil {
				return err
			}
		}
		if err := w.carryOut(s); err != nil {
			return err
		}
	}
	return nil
}

// step is one Step, recorded and checked.
func (w *world) step(s *server, event raft.Event) error {
	r := &trace.Record{Number: uint64(len(w.records) + 1), Server: s.id, Before: s.core.Status(), Event: event}
	r.After = r.Before // if the Step panics, the trace still shows it
	w.records = append(w.records, r)
	r.Effects = s.core.Step(event)
	r.After = s.core.Status()
	w.tellOfStep(s, r)
	if err := w.checker.AfterStep(s.id, s.core, r.Effects); err != nil {
		return err
	}
	s.effects.Merge(r.Effects)
	return nil
}

// carryOut does what s.effects asks for, in the order that raft.Effects tells,
// until nothing is left or a slow disk makes it wait.
func (w *world) carryOut(s *server) error {
	for _, m := range s.effects.Send {
		w.send(m)
	}
	s.effects.Send = nil
	if s.effects.Save.Needed() && s.slow {
		s.writing = true
		return nil
	}
	return w.afterWrite(s)
}

// afterWrite does what may happen once the Save, if there is one, is durable.
func (w *world) afterWrite(s *server) error {
	effects := s.effects
	s.effects = raft.Effects{}
	more := false
	if save := effects.Save; save.Needed() {
		s.disk.CurrentTerm, s.disk.VotedFor = save.CurrentTerm, save.VotedFor
		if first := save.FirstIndex; first != 0 {
			s.disk.Entries = append(s.disk.Entries[:first-1:first-1], save.Entries...)
		}
		if err := w.checker.AfterSave(s.id, save); err != nil {
			return err
		}
		if err := w.step(s, raft.Saved{Index: raft.Index(len(s.disk.Entries)), Term: s.disk.CurrentTerm}); err != nil {
			return err
		}
		more = true
	}
	for _, m := range effects.SendAfter {
		w.send(m)
	}
	for _, e := range effects.Commit {
		if err := w.checker.Applied(s.id, e); err != nil {
			return err
		}
		if e.Kind == raft.EntryCommand {
			s.applied = append(s.applied, string(e.Command))
		}
	}
	for kind, change := range effects.Timers {
		if change.Action != raft.LeaveTimer {
			s.timers[kind] = change
		}
	}
	if n := len(effects.Commit); n > 0 {
		if err := w.step(s, raft.Applied{Index: effects.Commit[n-1].Index}); err != nil {
			return err
		}
		more = true
	}
	if more {
		return w.carryOut(s)
	}
	return nil
}

// timesOut says that a server has heard no leader for its election timeout. The
// shorter leader-contact timer, where it runs, fires before.
func (w *world) timesOut(id raft.ServerID) error {
	s, err := w.running(id)
	if err != nil {
		return err
	}
	if s.timers[raft.LeaderContactTimer].Action == raft.RestartTimer {
		if err := w.fire(id, raft.LeaderContactTimer); err != nil {
			return err
		}
	}
	return w.fire(id, raft.ElectionTimer)
}

func (w *world) fire(id raft.ServerID, kind raft.TimerKind) error {
	s, err := w.running(id)
	if err != nil {
		return err
	}
	if s.timers[kind].Action != raft.RestartTimer {
		names := [...]string{raft.ElectionTimer: "election", raft.HeartbeatTimer: "heartbeat", raft.LeaderContactTimer: "leader-contact", raft.QuorumCheckTimer: "quorum-check"}
		return fmt.Errorf("the %s timer of server %d is not running", names[kind], id)
	}
	number := s.timers[kind].Number
	s.timers[kind] = raft.TimerChange{Action: raft.StopTimer}
	return w.happens(s, raft.Timeout(kind, number))
}

// submit gives commands to a server that must take them.
func (w *world) submit(id raft.ServerID, commands [][]byte) error {
	refusal, err := w.trySubmit(id, commands)
	if err == nil && refusal != nil {
		err = fmt.Errorf("server %d refuses: %w", id, refusal)
	}
	return err
}

// trySubmit returns the server's refusal, or nil if it has taken the commands
// or will answer when its disk is done.
func (w *world) trySubmit(id raft.ServerID, commands [][]byte) (refusal, err error) {
	s, err := w.running(id)
	if err != nil {
		return nil, err
	}
	before := len(w.records)
	if err := w.happens(s, raft.Submit{Commands: commands}); err != nil {
		return nil, err
	}
	for _, r := range w.records[before:] {
		for _, answer := range r.Effects.Submitted {
			refusal = answer.Err
		}
	}
	return refusal, nil
}

// What happens to messages.

// nothingInFlight is the error of a line about messages that are not there.
type nothingInFlight struct{ link }

func (e nothingInFlight) Error() string {
	return fmt.Sprintf("nothing is in flight from %d to %d", e.from, e.to)
}

func (w *world) send(m raft.Message) {
	f := w.fly(Sent, m)
	if w.isCut[link{m.From, m.To}] {
		w.lose(f)
	}
}

// inFlight returns what of a link is meant, oldest first.
func (w *world) inFlight(l link, what which) ([]*flight, error) {
	var found []*flight
	for _, f := range w.flying {
		if !f.held && f.message.From == l.from && f.message.To == l.to {
			found = append(found, f)
		}
	}
	switch {
	case len(found) == 0:
		return nil, nothingInFlight{l}
	case what == oldest:
		found = found[:1]
	case what == newest:
		found = found[len(found)-1:]
	}
	return found, nil
}

// land takes a message out of flight and gives it to its receiver. A server
// that is down never sees it.
func (w *world) land(f *flight) error {
	w.remove(f)
	s, err := w.server(f.message.To)
	if err != nil || s.core == nil {
		w.tellOf(Lost, f)
		return err
	}
	w.tellOf(Arrived, f)
	return w.happens(s, f.message)
}

func (w *world) remove(f *flight) {
	w.flying = slices.DeleteFunc(w.flying, func(o *flight) bool { return o == f })
}

func (w *world) lose(f *flight) {
	w.remove(f)
	w.tellOf(Lost, f)
}

func (w *world) deliver(l link, what which) error {
	flights, err := w.inFlight(l, what)
	for _, f := range flights {
		if err := w.land(f); err != nil {
			return err
		}
	}
	return err
}

// deliverAll delivers, oldest first, until nothing is in flight but what is held.
func (w *world) deliverAll() error {
	const enough = 10_000
	for range enough {
		at := slices.IndexFunc(w.flying, func(f *flight) bool { return !f.held })
		if at < 0 {
			return nil
		}
		if err := w.land(w.flying[at]); err != nil {
			return err
		}
	}
	return fmt.Errorf("after %d messages the servers still send more", enough)
}

func (w *world) drop(l link, what which) error {
	flights, err := w.inFlight(l, what)
	for _, f := range flights {
		w.lose(f)
	}
	return err
}

func (w *world) duplicate(l link, what which) error {
	flights, err := w.inFlight(l, what)
	for _, f := range flights {
		w.fly(Copied, f.message)
	}
	return err
}

func (w *world) hold(l link, what which) error {
	flights, err := w.inFlight(l, what)
	for _, f := range flights {
		f.held = true
	}
	return err
}

func (w *world) release(l link) error {
	released := false
	for _, f := range w.flying {
		if f.held && f.message.From == l.from && f.message.To == l.to {
			f.held, released = false, true
		}
	}
	if !released {
		return nothingInFlight{l}
	}
	return nil
}

// cut loses everything on a link, what is in flight included, until it is healed.
func (w *world) cut(l link) error {
	w.isCut[l] = true
	for _, f := range slices.Clone(w.flying) {
		if !f.held && f.message.From == l.from && f.message.To == l.to {
			w.lose(f)
		}
	}
	return nil
}

func (w *world) heal(l link) error {
	w.isCut[l] = false
	return nil
}
