package scenario

import (
	"fmt"
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

	requests []*request // the first has id 1

	records []*trace.Record
	current int // how many records there were when the current statement began

	sent  int             // how many messages were sent
	watch func(Happening) // may be nil
}

// server is a core with what the loop of a real server keeps for it. Like that
// loop it takes all events that are waiting, carries out their merged effects,
// and takes no event while its disk is being written.
type server struct {
	id    raft.ServerID
	joins bool      // it began with an empty configuration
	core  core.Core // nil while the server is down

	replaces   bool       // it has not started yet, in the place of one that has lost its disk
	addedAfter raft.Index // as in raft.Config

	disk    disk
	writing bool         // a write is under way on a slow disk
	effects raft.Effects // what is left to do, beginning with that write

	inbox  []raft.Event // events that wait for the disk
	timers raft.Timers

	machine machine
	lazy    bool               // the state machine takes entries at "applies"
	waiting []raft.CommitEntry // for a lazy state machine
	copied  *image             // of the state machine, being written in the background
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
		w.servers = append(w.servers, &server{id: id, disk: disk{PersistentState: w.disks[id]}})
	}
	for _, s := range w.servers {
		if err := w.start(s); err != nil {
			return err
		}
	}
	return nil
}

// join starts a server that waits to be added to the cluster.
func (w *world) join(id raft.ServerID) error {
	w.checker.Joined(id)
	s := &server{id: id, joins: true}
	w.servers = append(w.servers, s)
	return w.start(s)
}

func (w *world) start(s *server) error {
	var configuration raft.Configuration
	if !s.joins {
		configuration = w.configuration()
	}
	if s.replaces {
		s.addedAfter = w.latestConfiguration()
		w.checker.Replaced(s.id, s.addedAfter)
	}
	saved := s.disk.load()
	if err := w.checker.Restarted(s.id, saved); err != nil {
		return err
	}
	c, effects, err := w.newCore(raft.Config{
		ID:                 s.id,
		Configuration:      configuration,
		AddedAfter:         s.addedAfter,
		MaxBatchBytes:      w.config.batch,
		MaxInflight:        w.config.inflight,
		MaxBacklogBytes:    w.config.backlog,
		TrailingBytes:      w.config.trailing,
		DisablePreVote:     !w.config.preVote,
		DisableQuorumCheck: !w.config.quorumCheck,
	}, saved)
	if err != nil {
		return err
	}
	*s = server{id: s.id, joins: s.joins, addedAfter: s.addedAfter, core: c, disk: s.disk, lazy: s.lazy, effects: effects}
	s.machine.configuration = configuration
	return w.carryOut(s)
}

// latestConfiguration returns where the latest configuration stands that a
// running server has.
func (w *world) latestConfiguration() (index raft.Index) {
	for _, s := range w.servers {
		if s.core != nil {
			index = max(index, s.core.Status().ConfigurationIndex)
		}
	}
	return index
}

// configuration returns what the cluster began with.
func (w *world) configuration() raft.Configuration {
	var ids []raft.ServerID
	for _, s := range w.servers {
		if !s.joins {
			ids = append(ids, s.id)
		}
	}
	return raft.NewConfiguration(ids...)
}

func (w *world) crash(id raft.ServerID) error {
	s, err := w.running(id)
	if err != nil {
		return err
	}
	w.note(s, "crash")
	s.disk.incoming = nil
	*s = server{id: id, joins: s.joins, addedAfter: s.addedAfter, disk: s.disk, lazy: s.lazy} // a write under way is lost
	w.loseRequests(id)
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
	if read, ok := event.(raft.Read); ok {
		w.checker.BeforeRead(s.id, read.Requests)
	}
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
	for _, answer := range s.effects.Answers {
		if err := w.answered(s, answer); err != nil {
			return err
		}
	}
	w.serveReads(s)
	for _, m := range s.effects.Send {
		if s.disk.fillIn(&m) {
			w.send(m)
		}
	}
	s.effects.Answers, s.effects.Send = nil, nil
	if s.disk.slow && (s.effects.Save.Needed() || len(s.effects.Receive) > 0) {
		s.writing = true
		return nil
	}
	return w.afterWrite(s)
}

// afterWrite does what may happen once the Save, if there is one, is durable.
func (w *world) afterWrite(s *server) error {
	effects := s.effects
	s.effects = raft.Effects{}
	records := len(w.records)
	if save := effects.Save; save.Needed() {
		s.disk.save(save)
		if err := w.checker.AfterSave(s.id, save); err != nil {
			return err
		}
		if err := w.step(s, raft.Saved{Index: s.disk.lastIndex(), Term: s.disk.CurrentTerm}); err != nil {
			return err
		}
	}
	for _, c := range effects.Receive {
		event, err := s.disk.receive(c)
		if stored, ok := event.(raft.SnapshotStored); ok {
			err = w.checker.SnapshotStored(s.id, stored.Snapshot)
		}
		if err == nil && event != nil {
			err = w.step(s, event)
		}
		if err != nil {
			return err
		}
	}
	for _, m := range effects.SendAfter {
		w.send(m)
	}
	s.waiting = append(s.waiting, effects.Commit...)
	for kind, change := range effects.Timers {
		if change.Action != raft.LeaveTimer {
			s.timers[kind] = change
		}
	}
	if !s.lazy && len(s.waiting) > 0 {
		if err := w.apply(s); err != nil {
			return err
		}
		if err := w.step(s, raft.Applied{Index: s.machine.at.Index}); err != nil {
			return err
		}
	}
	s.disk.compact(effects.Compact)
	if len(w.records) > records {
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
		names := [...]string{raft.ElectionTimer: "election", raft.HeartbeatTimer: "heartbeat", raft.LeaderContactTimer: "leader-contact", raft.QuorumCheckTimer: "quorum-check", raft.TransferTimer: "transfer"}
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
