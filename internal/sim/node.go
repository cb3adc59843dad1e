package sim

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"raftkv/internal/core"
	"raftkv/internal/trace"
	"raftkv/raft"
	"raftkv/raft/storage"
)

// node is one server: a core, and the loop of raft/server around it in virtual
// time. What is below the line is lost in a crash.
type node struct {
	index int
	id    raft.ServerID
	disk  disk
	life  uint32 // counts starts; what was planned for an earlier life is void

	pausedUntil time.Duration // a stopped process, or a machine that sleeps
	slowDisk    int           // faults that make each save slow
	clock       *source       // draws how long its timers run
	luck        *source       // draws when it crashes
	crashes     uint32        // counts the chosen moments to crash
	warp        int           // thousandths of their time that timers take now; 0: the plan's
	jumped      time.Duration // how far its clock has jumped ahead, or back

	spared bool    // it has not been needed yet; only a change of the members starts it
	damage *damage // a bit of its disk has flipped
	wiped  *disk   // its true disk, if it runs with an empty one
	out    bool    // it will not get the true one back
	wipes  int
	lost   bool // it has lost its disk, and has not been removed yet

	back func() // tells the watcher that it is up again

	// ------------------------------------------------------------------

	up     bool
	core   core.Core
	status raft.Status

	inbox  []input // waiting for the loop
	waking bool    // a loopWakes is under way
	timers [len(raft.Timers{})]timer

	// saving are the effects whose Save is being written. Until it is done the
	// loop takes nothing out of the inbox.
	busy   bool
	saving raft.Effects
	saves  uint32

	// store is the id of its disk, and met are those of the servers it has had
	// contact with, by index. Without files met is nil. since is what it announces.
	store raft.StoreID
	met   []met
	since raft.Index

	doom  phase   // where in its loop the server will crash; alive if it will not
	doomy *source // draws how

	// uncounted commits wait for the state machine.
	commits  []raft.CommitEntry
	applying bool

	asked     map[raft.RequestID]func(raft.Answer) // who waits for an answer of the core
	requests  raft.RequestID                       // the last number given to a question
	taking    *taking                              // a snapshot that is being written
	received  raft.Index                           // of the snapshot of which a part has come last
	rounds    map[raft.Round]time.Duration         // when each began that this server leads
	heard     heard
	settledIn raft.Term // a leader of that term was heard which has committed an entry of it
	known     bool      // it has heard a leader

	configuration raft.Configuration // in force

	service service
}

// input is an event that waits for the loop. A request's command becomes part of
// a Submit.
type input struct {
	event   raft.Event
	message uint64 // the number of the event's message; 0 if it is none
	sent    time.Duration
	request *request
	ask     *ask
}

// ask is a question to the core and who gets the answer. One without an event is
// a read, and shares a raft.Read with the others that wait.
type ask struct {
	event  func(raft.RequestID) raft.Event
	answer func(raft.Answer)
}

// timer is a timer of a core. It has at most one timerRuns in the queue: a timer
// that is restarted for every message only moves due, and is looked at again
// when the old time comes.
type timer struct {
	due     time.Duration // 0: not running
	number  raft.TimerNumber
	planned time.Duration // when the timerRuns in the queue comes; 0 if there is none
}

// phase is a moment in the loop at which a server may crash.
type phase uint8

const (
	alive       phase = iota
	atOnce            // nothing of what the step asks for has been done
	afterSend         // what may leave before the disk has left
	duringSave        // the disk is being written
	afterSave         // it has been written, and nothing that waited for it has left
	beforeApply       // it has left, and the state machine has not heard
	afterAll          // everything is done
	phases
)

// start is a server's start with what its disk holds.
func (s *simulation) start(n *node) {
	if n.up || n.spared {
		return
	}
	if n.damage != nil {
		s.mustRefuse(n)
		return
	}
	faulty := n.disk.files != nil && n.life > 0 && !s.healed && s.decide(failStart, int(n.id), 0, n.luck.oneIn(16))
	if faulty {
		n.disk.files.CrashAfter(n.luck.below(4)) // power fails again while it reads its log
	}
	saved, torn, err := n.disk.openAndLook()
	if faulty {
		n.disk.files.Crash()
		s.count(CrashInRecovery)
		s.note(n, "loses power while it starts")
		s.after(n.luck.around(s.plan.downTime), func() { s.start(n) })
		return
	}
	if errors.Is(err, syscall.ENOSPC) && !s.healed {
		// A first start needs room, and here the disk is a new one.
		s.note(n, "cannot start: its disk is full")
		s.after(n.luck.around(s.plan.downTime), func() { s.start(n) })
		return
	}
	if err != nil {
		s.fail("storage", "server %d cannot start: %v", n.id, err)
		return
	}
	if torn {
		s.count(TornTail)
	}
	*n = node{
		index: n.index, id: n.id, disk: n.disk, life: n.life + 1,
		pausedUntil: n.pausedUntil, slowDisk: n.slowDisk, clock: n.clock, luck: n.luck, crashes: n.crashes, back: n.back,
		warp: n.warp, jumped: n.jumped, wiped: n.wiped, out: n.out, wipes: n.wipes, lost: n.lost,
		up: true, inbox: n.inbox[:0], asked: map[raft.RequestID]func(raft.Answer){}, rounds: map[raft.Round]time.Duration{}, received: n.received,
	}
	if n.life > 1 {
		n.back()
		s.count(Restart)
	}
	if n.disk.lives++; n.disk.lives > 1 && n.wiped == nil && s.check(s.checker.Restarted(n.id, saved)) {
		return
	}
	if files, ok := n.disk.storage.(*storage.FileStorage); ok {
		n.store = files.StoreID()
		n.met = make([]met, len(s.nodes))
	}
	config := s.plan.raft
	config.Cluster, config.ID, config.AddedAfter = s.cluster, n.id, n.disk.addedAfter
	if !n.disk.joins {
		config.Configuration = s.configuration
	}
	c, effects, err := s.newCore(config, saved)
	if err != nil {
		s.fail("start", "server %d: %v", n.id, err)
		return
	}
	n.core = c
	n.status = c.Status()
	n.service = newService(config.Configuration)
	s.note(n, "starts")
	s.lookAtConfiguration(n)
	s.noteSince(n)
	s.committed(n, effects.Commit)
	s.setTimers(n, effects.Timers)
}

// stop is a crash: of the process, or of the whole machine if its power fails.
func (s *simulation) stop(n *node, power bool) {
	if !n.up {
		return
	}
	if n.status.State == raft.Leader {
		s.count(LeaderCrash)
		if n.status.LastIndex > n.status.CommitIndex {
			s.count(LeaderCrashUncommitted)
		}
		if n.configuration.Joint() {
			s.count(JointCrash)
		}
	}
	var underWay raft.Effects
	if n.busy {
		underWay = n.saving
		s.count(CrashInSave)
	}
	if n.taking != nil {
		s.count(SnapshotInterrupted)
	}
	before := n.lostSectors()
	n.disk.crash(underWay, n.taking, power)
	if n.lostSectors() > before {
		s.count(SectorsLost)
	}
	n.up = false
	n.core = nil
	n.back = s.watcher.fault(fmt.Sprintf("server %d is down", n.id), []raft.ServerID{n.id}, nil)
	if power {
		s.note(n, "loses power")
	} else {
		s.note(n, "crashes")
	}
}

func (n *node) lostSectors() int {
	if n.disk.files == nil {
		return 0
	}
	return n.disk.files.Counters().LostSectors
}

// stopAndReturn is a crash with a restart after some time.
func (s *simulation) stopAndReturn(n *node, random *source) {
	s.stop(n, random.oneIn(2))
	s.after(random.around(s.plan.downTime), func() { s.start(n) })
}

// arrive puts an event into the inbox.
func (s *simulation) arrive(n *node, in input) {
	n.inbox = append(n.inbox, in)
	s.wake(n)
}

// wake lets the loop run soon, if it has something to do and is free.
func (s *simulation) wake(n *node) {
	if n.up && !n.busy && !n.waking && len(n.inbox) > 0 {
		n.waking = true
		delay := s.plan.loopDelay
		if s.healed {
			delay = 0
		}
		s.queue.push(happening{at: max(s.now+delay, n.pausedUntil), kind: loopWakes, node: int32(n.index), arg: uint64(n.life)})
	}
}

// round is one turn of the server's loop: take the events that are waiting,
// step each, merge what they ask for, and carry it out.
func (s *simulation) round(n *node) {
	n.waking = false
	if n.busy || len(n.inbox) == 0 {
		return
	}
	if n.pausedUntil > s.now {
		s.wake(n)
		return
	}
	count := len(n.inbox)
	if s.plan.loopBatch > 0 && !s.healed {
		count = min(count, s.plan.loopBatch)
	}
	batch := n.inbox[:count]
	var merged merged
	var commands [][]byte
	var requests []*request
	reading := false
	for i := range batch {
		event, message := batch[i].event, batch[i].message
		switch ask := batch[i].ask; {
		case batch[i].request != nil:
			if len(commands) > 0 {
				continue // already stepped, with the first
			}
			for _, in := range batch[i:] {
				if in.request != nil {
					requests = append(requests, in.request)
					commands = append(commands, in.request.encoded)
				}
			}
			event = raft.Submit{Commands: commands}
		case ask == nil:
		case ask.event != nil:
			event = ask.event(n.remember(ask.answer))
		case reading:
			continue // already stepped, with the first
		default:
			reading = true
			event = s.gatherReads(n, batch[i:])
		}
		s.arriving = batch[i].sent
		if !s.step(n, &merged, event, message) {
			return
		}
	}
	n.inbox = append(n.inbox[:0], n.inbox[count:]...)
	effects := merged.effects
	if merged.steps > 1 && effects.Save.Needed() {
		s.count(SaveMerged)
	}
	if s.crashes(n, atOnce) {
		return
	}
	s.submitted(n, requests, effects.Submitted)
	s.carryOut(n, effects)
	s.wake(n)
}

// merged are the effects of the steps of one round.
type merged struct {
	effects raft.Effects
	steps   int
}

// add merges the effects of one more step. The first are taken as they are,
// which saves a copy in the many rounds that have only one.
func (m *merged) add(next raft.Effects) {
	if m.steps == 0 {
		m.effects = next
	} else {
		m.effects.Merge(next)
	}
	m.steps++
}

// step gives the core one event, adds what it asks for to m, and looks whether
// all invariants still hold. It returns false if one does not.
func (s *simulation) step(n *node, m *merged, event raft.Event, message uint64) bool {
	s.steps++
	before := n.status
	next := n.core.Step(event)
	n.status = n.core.Status()
	s.record = trace.Record{
		Number: s.nextRecord(), At: s.now, Server: n.id,
		Before: before, After: n.status, Event: event, Effects: next,
	}
	s.observe(n, message)
	// What a server promises that runs with another disk counts for nothing, because
	// nobody hears it. The checker goes on to see the true disk.
	if n.wiped == nil && s.check(s.checker.AfterStep(n.id, n.core, next)) {
		return false
	}
	s.countStep(n, &before)
	if before.State != n.status.State || before.Term != n.status.Term || before.LeaderID != n.status.LeaderID {
		s.roleChanged(n)
	}
	s.considerCrash(n, &before)
	s.freshen(n, &before, event)
	m.add(next)
	return true
}

// remember gives a number to somebody's question.
func (n *node) remember(answer func(raft.Answer)) raft.RequestID {
	n.requests++
	n.asked[n.requests] = answer
	return n.requests
}

// carryOut does what raft.Effects lists, in its order, up to the writing.
func (s *simulation) carryOut(n *node, effects raft.Effects) {
	for _, a := range effects.Answers {
		answer := n.asked[a.Request]
		delete(n.asked, a.Request)
		answer(a)
	}
	s.sendAll(s.fillIn(n, effects.Send))
	if s.crashes(n, afterSend) {
		return
	}
	if !effects.Save.Needed() && len(effects.Receive) == 0 {
		s.release(n, effects)
		return
	}
	n.busy, n.saving = true, effects
	n.saves++
	end := s.now + s.saveTime(n)
	s.queue.push(happening{at: end, kind: saveEnds, node: int32(n.index), arg: uint64(n.life)<<32 | uint64(n.saves)})
	if n.doom == duringSave {
		n.doom = alive
		life, random := n.life, n.doomy
		s.after(random.span(0, end-s.now), func() {
			if n.life == life {
				s.stopAndReturn(n, random)
			}
		})
	}
}

// saveTime draws how long the disk takes for one write and sync.
func (s *simulation) saveTime(n *node) time.Duration {
	if s.healed {
		return min(s.plan.saveTime, time.Millisecond)
	}
	t := n.disk.random.around(s.plan.saveTime)
	slow, more := n.disk.random.chance(s.plan.slowSave), n.disk.random.span(0, s.plan.slowSaveTime)
	if n.slowDisk > 0 || s.decide(slowSave, int(n.id), 0, slow) {
		t += more
		if more > s.plan.electionTimeout {
			s.count(SaveHung)
		}
	}
	return t
}

// saved is called when the disk has written and synced, or has failed to.
func (s *simulation) saved(n *node) {
	if n.pausedUntil > s.now {
		s.queue.push(happening{at: n.pausedUntil, kind: saveEnds, node: int32(n.index), arg: uint64(n.life)<<32 | uint64(n.saves)})
		return
	}
	effects := n.saving
	if err := n.disk.save(effects.Save); err != nil {
		s.diskFailed(n, err)
		return
	}
	if n.wiped == nil && s.check(s.checker.AfterSave(n.id, effects.Save)) {
		return
	}
	var next []raft.Event
	if effects.Save.Needed() {
		next = append(next, raft.Saved{Index: n.status.LastIndex, Term: n.status.Term})
	}
	for _, chunk := range effects.Receive {
		event, err := s.receive(n, chunk)
		if err != nil {
			s.diskFailed(n, err)
			return
		}
		if event != nil {
			next = append(next, event)
		}
	}
	n.busy = false
	n.saving = raft.Effects{}
	if s.failure != nil || s.crashes(n, afterSave) {
		return
	}
	s.release(n, effects)
	if !n.up {
		return
	}
	var more merged
	for _, event := range next {
		if !s.step(n, &more, event, 0) {
			return
		}
	}
	if len(next) == 0 || !s.crashes(n, atOnce) {
		s.carryOut(n, more.effects)
		s.wake(n)
	}
}

// diskFailed stops a server whose disk has failed. It sends nothing that waits.
func (s *simulation) diskFailed(n *node, err error) {
	if n.disk.files == nil {
		s.fail("storage", "server %d: %v", n.id, err)
		return
	}
	s.count(SaveFailed)
	n.busy = false
	if errors.Is(err, syscall.ENOSPC) {
		s.count(StoppedByFullDisk)
		s.note(n, "stops: its disk is full")
	} else {
		s.note(n, "stops: its disk failed")
	}
	s.stopAndReturn(n, n.luck)
}

// release carries out what had to wait for the save.
func (s *simulation) release(n *node, effects raft.Effects) {
	s.noteSince(n)
	s.sendAll(effects.SendAfter)
	if s.crashes(n, beforeApply) {
		return
	}
	s.committed(n, effects.Commit)
	s.setTimers(n, effects.Timers)
	if effects.Compact != 0 {
		if err := n.disk.storage.Compact(effects.Compact); err != nil {
			s.diskFailed(n, err)
			return
		}
	}
	s.crashes(n, afterAll)
}

func (s *simulation) setTimers(n *node, changes raft.Timers) {
	for kind, change := range changes {
		t := &n.timers[kind]
		switch change.Action {
		case raft.RestartTimer:
			t.due = s.now + s.timeout(n, raft.TimerKind(kind))
			t.number = change.Number
			if t.planned == 0 || t.due < t.planned {
				t.planned = t.due
				s.planTimer(n, kind)
			}
		case raft.StopTimer:
			t.due = 0
		}
	}
}

func (s *simulation) planTimer(n *node, kind int) {
	s.queue.push(happening{at: n.timers[kind].planned, kind: timerRuns, node: int32(n.index), arg: uint64(n.life)<<8 | uint64(kind)})
}

// timeout draws how long a timer runs, by the server's own clock.
func (s *simulation) timeout(n *node, kind raft.TimerKind) time.Duration {
	t := s.plan.electionTimeout
	switch kind {
	case raft.ElectionTimer:
		t += n.clock.span(0, t)
	case raft.HeartbeatTimer:
		t = s.plan.heartbeat
	}
	if s.healed {
		return t
	}
	if n.warp != 0 {
		return t * time.Duration(n.warp) / 1000
	}
	return t * time.Duration(s.plan.clockRate[n.index]) / 1000
}

// timerRan is called when a timer may be due. Its event waits in the inbox like
// any other, and may be stale when its turn comes.
func (s *simulation) timerRan(n *node, kind int) {
	t := &n.timers[kind]
	if t.planned != s.now {
		return // another run was planned earlier than this one
	}
	t.planned = 0
	switch {
	case t.due == 0:
	case t.due > s.now:
		t.planned = t.due
		s.planTimer(n, kind)
	default:
		t.due = 0
		s.arrive(n, input{event: raft.Timeout(raft.TimerKind(kind), t.number)})
	}
}
