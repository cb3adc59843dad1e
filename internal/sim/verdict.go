package sim

import (
	"errors"
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
	s.judgeLedgers()
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

// judgeLog demands that no request was carried out twice, and returns where in
// the log each was.
func (s *simulation) judgeLog() map[machine.Identity]raft.Index {
	executed := map[machine.Identity]raft.Index{}
	for i, a := range s.applied {
		id := a.result.Identity
		if a.result.Event != machine.EventCommitted || id == (machine.Identity{}) {
			continue
		}
		if first, twice := executed[id]; twice {
			s.fail("exactly once", "request %d of client %s was carried out at index %d and at index %d", id.RequestID, id.ClientID, first, i)
		}
		executed[id] = raft.Index(i)
	}
	return executed
}

// judgeCalls compares what each caller was told with what became of its write:
// applied must be once in the log, not applied never. It returns the history
// for the search. There, we know what the caller of an unknown write could not:
// whether it was carried out, by when, and with what result. That narrows what
// may explain the history, so it hides nothing, and a dozen unknown writes at
// once do not make a dozen factorial orders.
func (s *simulation) judgeCalls(executed map[machine.Identity]raft.Index) []lincheck.Operation {
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
		index := executed[call.command.Identity()]
		for _, nonce := range call.nonces {
			index = max(index, executed[machine.Identity{Nonce: nonce}])
		}
		switch {
		case op.Outcome == lincheck.Applied && index == 0:
			s.fail("exactly once", "was never carried out: %s", op)
		case op.Outcome == lincheck.NotApplied && index != 0:
			s.fail("exactly once", "was carried out at index %d: %s", index, op)
		case op.Outcome == lincheck.Unknown && index != 0:
			a := &s.applied[index]
			op.Outcome, op.Return = lincheck.Applied, max(op.Call+1, a.tick)
			setResult(&op, a.result.Result)
		case op.Outcome == lincheck.Unknown:
			op.Outcome = lincheck.NotApplied
		}
		history = append(history, op)
	}
	return history
}

// judgeLedgers looks at what there is in the end. Each write has a text of its
// own, and ledgers only grow: each append stands there once if its caller was
// told so, at most once if it is unknown, and never if it was not applied.
func (s *simulation) judgeLedgers() {
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
		switch n := texts[op.Value]; {
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
