package machine

import "raftkv/api"

// A batch is one entry: a hundred calls cost one place in the log, one message
// and one sync instead of a hundred. It is no transaction. Its operations are
// applied in their order, with no other command between them, but each has its
// own identity and its own result, and those behind a refused one go on. So a
// copy of an operation may also come alone, or in another batch, and is the same
// request.

// batchValueBytes is how many bytes of values the results of a batch may have
// before what is left is refused. A thousand appends to one long value would
// otherwise make a thousand long previous values. The number decides what the
// state is: changing it needs a new version of the encoding.
const batchValueBytes = 8 << 20

// applyBatch carries out the operations of a batch.
func (m *Machine) applyBatch(c *Command, entry *Applied) {
	if c.isKeyed() {
		m.applyKeyedBatch(c, entry)
		return
	}
	m.applyOperations(c, entry)
}

// applyKeyedBatch is applyBatch for one with an Idempotency-Key. That makes a
// single request of it: a repetition executes nothing, also if one of the
// operations has been refused, and a batch that differs in one operation is another
// request. Record n is that of operation n, and has the fingerprint of all.
func (m *Machine) applyKeyedBatch(c *Command, entry *Applied) {
	entry.Result, entry.Event = m.openKeyedBatch(c, entry)
	if entry.Result.Status != api.StatusOK {
		return
	}
	s, _ := m.sessions.get(c.ClientID)
	m.sessions.touch(c.ClientID, s, m.now)
	fingerprint := entry.Identity.Fingerprint
	first, recorded := s.records.Get(1)
	switch {
	case !recorded:
		m.applyOperations(c, entry)
		for i, o := range entry.Operations {
			m.record(c.ClientID, s, uint64(i+1), record{fingerprint: fingerprint, result: o.Result})
		}
	case first.fingerprint != fingerprint:
		entry.Result, entry.Event = mismatch(), EventRefused
	default:
		entry.Result.Duplicate, entry.Event = true, EventDuplicate
		for i := range c.Operations {
			r, _ := s.records.Get(uint64(i + 1)) // the same fingerprint, so as many operations
			entry.Operations = append(entry.Operations, Applied{Result: r.again(), Event: EventDuplicate})
		}
	}
}

// openKeyedBatch sees to it that the key of a batch has a session. A result that is
// not OK refuses the batch.
func (m *Machine) openKeyedBatch(c *Command, entry *Applied) (Result, Event) {
	n := uint64(len(c.Operations))
	_, known := m.sessions.get(c.ClientID)
	switch {
	case !m.settings.complete():
		return beforeSettings(c), EventRefused
	case n > m.settings.Window, m.settings.hasLifetimes() && n > m.settings.MaxKeys:
		return refuse(api.StatusTooLarge, api.OutcomeNotApplied, "the batch has more operations than can be remembered under one key; nothing was done; send it in parts"), EventRefused
	case !known && !m.makeRoom(c, entry):
		return noRoom(api.OutcomeUnknown), EventRefused
	case !known:
		m.sessions.open(c.ClientID, m.now)
	}
	return Result{Status: api.StatusOK, Outcome: api.OutcomeApplied}, EventCommitted
}

// applyOperations carries out the operations of a batch, each as if it were alone.
func (m *Machine) applyOperations(c *Command, entry *Applied) {
	entry.Result = Result{Status: api.StatusOK, Outcome: api.OutcomeApplied}
	entry.Event = EventCommitted
	entry.Operations = make([]Applied, len(c.Operations))
	valueBytes := 0
	for i := range c.Operations {
		o, a := &c.Operations[i], &entry.Operations[i]
		a.Identity = o.Identity()
		if valueBytes >= batchValueBytes {
			a.Result, a.Event = batchFull(o), EventRefused
			continue
		}
		a.Result, a.Event = m.applyCommand(o, a.Identity, entry)
		valueBytes += len(a.Result.Value)
	}
}

// batchFull refuses an operation whose result has no room in the batch's. A copy
// of it that comes in another batch may be executed; without a session there is
// no other.
func batchFull(o *Command) Result {
	outcome := api.OutcomeNotApplied
	if o.RequestID > 0 {
		outcome = api.OutcomeUnknown
	}
	return refuse(api.StatusBusy, outcome, "the results of this batch are too large; this operation was not carried out now, send it in another batch")
}
