package sim

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"raftkv/internal/lincheck"
	"raftkv/kvservice/machine"
	"raftkv/raft"
)

// searchBudget bounds the search for an explanation of what the clients saw, in
// steps of the model per key. A history that needs more fails the run.
const searchBudget = 2_000_000

// judge looks at the whole run, when it is over.
func (s *simulation) judge() {
	if !s.profile.Clients {
		return
	}
	s.judgeStates()
	executed := s.judgeLog()
	history := s.judgeCalls(executed)
	s.judgeLedgers(executed)
	if err := lincheck.Check(history, searchBudget); err != nil {
		kind := "linearizability"
		if errors.Is(err, lincheck.ErrUndecided) {
			kind = "undecided"
		}
		s.fail(kind, "%v", err)
	}
}

// judgeStates demands equal state machines. All have applied the same entries.
func (s *simulation) judgeStates() {
	nodes := s.participants()
	first := nodes[0].service.machine
	for _, n := range nodes {
		m := n.service.machine
		if m.AppliedIndex() != first.AppliedIndex() || m.Hash() != first.Hash() {
			s.fail("state", "at the end server %d has hash %x at index %d, server %d has %x at %d",
				nodes[0].id, first.Hash(), first.AppliedIndex(), n.id, m.Hash(), m.AppliedIndex())
		}
		if waiting := n.service.waiters.Len(); waiting > 0 {
			s.fail("leak", "%d waiters are left at server %d", waiting, n.id)
		}
	}
}

// spot is what a write can be found under in the log: its identity, or that of
// the command that has carried it, and where in there.
type spot struct {
	identity machine.Identity
	position int
}

// execution is a write that was carried out.
type execution struct {
	index  raft.Index
	result machine.Result
	tick   int64
	anew   bool // as if it were another write: the promise of its identity had ended
}

// judgeLog demands that no request was carried out twice while its identity was
// good for a promise, and returns where in the log each was carried out.
func (s *simulation) judgeLog() map[spot][]execution {
	executed := map[spot][]execution{}
	for i := range s.applied {
		entry := &s.applied[i]
		for position, a := range operations(&entry.result) {
			at := spot{identity: a.Identity}
			if a.Identity.RequestID == 0 {
				at = spot{entry.result.Identity, position}
			}
			if a.Event != machine.EventCommitted || at.identity == (machine.Identity{}) {
				continue
			}
			anew := entry.anew != nil && entry.anew[position]
			if before := executed[at]; len(before) > 0 && !anew {
				s.fail("exactly once", "request %d of client %s was carried out at index %d and at index %d", a.Identity.RequestID, a.Identity.ClientID, before[0].index, i)
			}
			executed[at] = append(executed[at], execution{raft.Index(i), a.Result, entry.tick, anew})
		}
	}
	return executed
}

// executions returns where a call was carried out, in the order of the log.
func (c *clientCall) executions(executed map[spot][]execution) (all []execution) {
	for _, at := range c.places {
		all = append(all, executed[at]...)
	}
	slices.SortFunc(all, func(a, b execution) int { return cmp.Compare(a.index, b.index) })
	return all
}

// judgeCalls compares what each caller was told with what became of its write:
// applied must be once in the log, not applied never. It returns the history
// for the search. There, we know what the caller of an unknown write could not:
// whether it was carried out, by when, and with what result. That narrows what
// may explain the history, so it hides nothing, and a dozen unknown writes at
// once do not make a dozen factorial orders.
//
// A write that was carried out anew after the promise of its identity had ended is
// an operation of its own there, which nobody was told of.
func (s *simulation) judgeCalls(executed map[spot][]execution) []lincheck.Operation {
	var history []lincheck.Operation
	for _, call := range s.history {
		op := call.op
		if call.level == stale {
			continue // compareRead and judgeAge have judged it
		}
		if op.Kind == lincheck.Get {
			history = append(history, op)
			continue
		}
		all := call.executions(executed)
		own := call.own(all)
		for i, e := range all {
			if !e.anew && (i > 0 || op.Outcome == lincheck.NotApplied) {
				s.fail("exactly once", "was carried out at index %d: %s", e.index, op)
			}
			if i != own {
				history = append(history, e.operation(op))
			}
		}
		switch {
		case op.Outcome == lincheck.Applied && own < 0:
			s.fail("exactly once", "was never carried out: %s", op)
		case op.Outcome == lincheck.Unknown && own >= 0:
			op = all[own].operation(op)
		case op.Outcome == lincheck.Unknown:
			op.Outcome = lincheck.NotApplied
		case op.Outcome == lincheck.NotApplied && call.refused:
			op.Outcome, op.Answered, op.Refused = lincheck.Applied, true, true // it has seen the version
		}
		history = append(history, op)
	}
	return history
}

// own returns which of the executions its caller was told of, or would have been;
// -1 if none. Who has an answer has that of the latest one before it.
func (c *clientCall) own(all []execution) int {
	switch {
	case c.op.Outcome == lincheck.NotApplied || len(all) == 0:
		return -1
	case c.op.Outcome == lincheck.Unknown:
		return 0
	}
	latest := -1
	for i, e := range all {
		if e.index <= c.settled {
			latest = i
		}
	}
	return latest
}

// operation returns the operation that op was when it was carried out.
func (e execution) operation(op lincheck.Operation) lincheck.Operation {
	op.Outcome, op.Return = lincheck.Applied, max(op.Call+1, e.tick)
	setResult(&op, e.result)
	return op
}

// judgeLedgers looks at what there is in the end. Each write has a text of its
// own, and ledgers only grow: each append stands there once if its caller was
// told so, at most once if it is unknown, and never if it was not applied; and once
// more for each time that it was carried out anew.
func (s *simulation) judgeLedgers(executed map[spot][]execution) {
	stands := map[string]map[string]int{} // by ledger and text: how often
	for i := range s.plan.ledgers {
		texts := map[string]int{}
		for text := range strings.SplitAfterSeq(s.lookUp(ledger(i)), ";") {
			texts[text]++
		}
		stands[ledger(i)] = texts
	}
	for _, call := range s.history {
		op := &call.op
		texts, isLedger := stands[op.Key]
		if !isLedger || op.Kind != lincheck.Append {
			continue
		}
		n := texts[op.Value]
		all := call.executions(executed)
		own := call.own(all)
		for i, e := range all {
			if i != own && (own >= 0 || e.anew) {
				n-- // another operation's
			}
		}
		switch {
		case n > 1:
			s.fail("exactly once", "took effect %d times: %s", n, op)
		case n == 1 && op.Outcome == lincheck.NotApplied:
			s.fail("exactly once", "took effect: %s", op)
		case n == 0 && op.Outcome == lincheck.Applied:
			s.fail("exactly once", "is lost: %s", op)
		}
	}
}

// lookUp reads a key from one state machine. All are equal.
func (s *simulation) lookUp(key string) string {
	m := s.participants()[0].service.machine.Clone()
	get := machine.Command{Kind: machine.KindGet, Key: key}
	a, err := m.Apply(raft.CommitEntry{Index: m.AppliedIndex() + 1, Command: get.Encode()})
	if err != nil {
		s.fail("state", "cannot be read: %v", err)
	}
	return a.Result.Value
}
