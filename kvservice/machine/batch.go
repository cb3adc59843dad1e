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
func (m *Machine) applyBatch(c Command, entry *Applied) {
	entry.Result = Result{Status: api.StatusOK, Outcome: api.OutcomeApplied}
	entry.Event = EventCommitted
	entry.Operations = make([]Applied, len(c.Operations))
	valueBytes := 0
	for i, o := range c.Operations {
		a := &entry.Operations[i]
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
func batchFull(o Command) Result {
	outcome := api.OutcomeNotApplied
	if o.RequestID > 0 {
		outcome = api.OutcomeUnknown
	}
	return refuse(api.StatusBusy, outcome, "the results of this batch are too large; this operation was not carried out now, send it in another batch")
}
