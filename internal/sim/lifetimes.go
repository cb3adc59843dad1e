package sim

import (
	"fmt"
	"strings"
	"time"

	"raftkv/api"
	"raftkv/internal/lincheck"
	"raftkv/kvclient/numbering"
	"raftkv/kvservice/machine"
)

// Sessions that end while their clients still try: a retention of a second, room
// for a handful of sessions, clients that close theirs, and clocks of which none
// goes right. book.go judges what the store makes of it.

// lifetimes draws how soon things end, and what else clients may ask for: batches,
// conditions, Idempotency-Keys. A third of the seeds go without all of it.
func (d *plan) lifetimes(s *source) {
	const ms = time.Millisecond
	if s.oneIn(3) {
		return
	}
	d.settings.RetentionMillis = uint64(pick(s, 300, 1000, 3000, 6000))
	d.settings.MaxSessions = uint64(s.between(d.simple+2, d.clients+6))
	d.settings.MaxKeys = uint64(s.between(1, 6))
	d.settings.ReportDuplicates = s.oneIn(4)
	for range s.between(0, 2) {
		d.oddClients = append(d.oddClients, keyed)
	}
	d.sharedKeys = pick(s, 0, 300, 600)
	d.closing = rate(s, pick(s, 50, 300))
	d.conditions = rate(s, pick(s, 100, 400))
	if d.width > 1 && !s.oneIn(3) {
		d.batching, d.gather = true, pick(s, 0, ms, d.electionTimeout/4)
	}
	d.faults[jumpClock] = pick(s, 0, 0, 1, 2)
	if s.oneIn(2) {
		for range d.nodes + d.spares {
			d.clockSpeed = append(d.clockSpeed, pick(s, 300, 900, 1000, 1100, 3000))
		}
	}
}

// describeLifetimes is the part of String about them.
func (d *plan) describeLifetimes(b *strings.Builder) {
	if !d.sessionsEnd() {
		return
	}
	fmt.Fprintf(b, "sessions last %d ms, at most %d, and %d keys; duplicates only reported %t; of 1000 calls %d close theirs, of 1000 writes %d have a condition, of 1000 with a key %d share it; batches %t, gathered for %v; log clocks at %v/1000\n",
		d.settings.RetentionMillis, d.settings.MaxSessions, d.settings.MaxKeys, d.settings.ReportDuplicates, d.closing, d.conditions, d.sharedKeys, d.batching, d.gather, d.clockSpeed)
}

// sessionsEnd reports whether a session may end within a run.
func (d *plan) sessionsEnd() bool {
	return d.settings.RetentionMillis != machine.DefaultSettings().RetentionMillis
}

// monotonicMillis reads a server's monotonic clock, of which a leader's stamps are
// made. It goes at its own speed and may jump. When all is healed it goes right.
func (s *simulation) monotonicMillis(n *node) int64 {
	speed := 1000
	if s.plan.clockSpeed != nil {
		speed = s.plan.clockSpeed[n.index]
	}
	sick := min(s.now, s.healAt)
	return (sick*time.Duration(speed)/1000 + s.now - sick + n.jumped).Milliseconds()
}

// jumpClock moves a server's clock: ahead, as if the machine had been moved to
// another one, or back, as if it had slept and its clock had not counted that.
func (s *simulation) jumpClock(victim *node, random *source) {
	retention := time.Duration(s.plan.settings.RetentionMillis) * time.Millisecond
	by := random.span(0, 2*retention)
	if random.oneIn(3) {
		by = -by
	}
	victim.jumped += by
	s.because("server %d's clock jumps by %v", victim.id, by)
	s.note(victim, "has a clock that jumps")
	s.count(ClockJumped)
}

// drawCondition makes a write conditional now and then: on the version that the
// client has seen last, or on the key's absence.
func (s *simulation) drawCondition(c *client, op *lincheck.Operation) {
	if s.plan.conditions == 0 || op.Kind == lincheck.Get || !c.ends.chance(s.plan.conditions) {
		return
	}
	if op.Kind == lincheck.CAS {
		op.Expect, op.ExpectAbsent = "", true
		return
	}
	op.IfVersion = new(c.seen[op.Key].Version)
}

// giveKey gives a write its Idempotency-Key. A client with a bug now and then
// takes the last one once more; not for a delete, which might be the same as the last.
func (s *simulation) giveKey(call *clientCall) {
	c := call.client
	if taken := c.ends.oneIn(10); c.keys == 0 || !taken || call.op.Kind == lincheck.Delete {
		c.keys++
	}
	call.key = machine.NewKeyID(fmt.Sprintf("key %d of %d", c.keys, c.index))
	if c.ends.chance(s.plan.sharedKeys) {
		s.drawMembers(call)
		identity := call.keyedBatch().Identity()
		call.places = append(call.places, spot{identity, 0})
		for i, m := range call.members {
			m.places = append(m.places, spot{identity, i + 1})
		}
		return
	}
	call.command.ClientID, call.command.RequestID = call.key, 1
	call.places = append(call.places, spot{identity: call.command.Identity()})
}

// sessionEnded is called when a client is told that it has no session. If nothing
// was done, the write is sent once more as another client's, as kvclient does.
func (s *simulation) sessionEnded(call *clientCall, result machine.Result) {
	c, id := call.client, call.command.ClientID
	if call.attempt > 1 {
		s.count(ExpiredWhileRetried)
	}
	if !machine.IsIssued(id) {
		// Its first request never arrived and was given up, or it was silent for too
		// long. It begins again as somebody else; the writes of the old id are not
		// sent any more.
		s.end(call)
		c.newSimpleID()
		return
	}
	if !s.plan.sessionsEnd() {
		s.fail("session", "client %d was given %s and is told %s", c.index, id, result.Error)
		return
	}
	if call.outcome.Outcome() != api.OutcomeNotApplied || call.renewed && c.script == nil || call.doubled {
		s.end(call) // of a doubled request it would only believe that nothing was done
		return
	}
	if c.id == id {
		c.id = ""
		c.numbers = numbering.Numbers{}
	}
	s.count(RenewedSession)
	call.renewed = true
	call.command.ClientID, call.command.RequestID, call.command.AckedThrough = "", 0, 0
	call.attempt++
	c.waiting = append(c.waiting, call)
	if c.id == "" {
		s.registerClient(c)
	} else {
		s.sendWaiting(c)
	}
}

// closeIfDone lets a client close its session now and then, when nothing of it is
// under way. What it may want to resume it keeps.
func (s *simulation) closeIfDone(c *client) {
	if s.plan.closing == 0 || c.manner != registered || c.script != nil || !c.ends.chance(s.plan.closing) {
		return
	}
	if c.id == "" || c.doubtful || c.numbers.Open() > 0 || len(c.waiting) > 0 {
		return
	}
	s.tell(c, "closes the session %s", c.id)
	call := &clientCall{client: c, closes: true, patience: s.plan.patience, pause: s.plan.electionTimeout / 8}
	call.command = machine.Command{Kind: machine.KindCloseSession, ClientID: c.id}
	c.id = ""
	c.numbers = numbering.Numbers{}
	s.after(s.plan.giveUp, func() { call.ended = true })
	s.try(call)
}

// countDuplicate looks at a repetition that was given its first result.
func (s *simulation) countDuplicate(c *machine.Command, first carriage, entry machine.Identity) {
	batched := func(id machine.Identity) bool { return id.RequestID == 0 }
	switch {
	case machine.IsKey(entry.ClientID) && entry == first.entry:
		s.count(KeyReplayed)
		if c.RequestID == 0 {
			s.count(KeyedBatchReplayed)
		}
	case batched(first.entry) || batched(entry):
		s.count(BatchSplit)
	}
	if c.IfVersion != nil || c.ExpectAbsent {
		s.count(ConditionRepeated)
	}
}
