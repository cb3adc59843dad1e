package sim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/internal/lincheck"
	"raftkv/kvservice/machine"
	"raftkv/raft"
)

// A run that was good is spoiled in one place; the verdict must notice. Each
// spoil returns false if the run has nothing to spoil, and then the next seed
// is tried.
func TestVerdict(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(*simulation) bool
		kind  string // of the failure; "" if there must be none
	}{
		{"nothing", func(*simulation) bool { return true }, ""},
		{"a read saw what nobody wrote", func(s *simulation) bool {
			return s.spoilCall(lincheck.Get, lincheck.Applied, func(c *clientCall) { c.op.Before = "ghost" })
		}, "linearizability"},
		{"an applied write is called not applied", func(s *simulation) bool {
			return s.spoilCall(lincheck.Put, lincheck.Applied, func(c *clientCall) { c.op.Outcome = lincheck.NotApplied })
		}, "exactly once"},
		{"a write that never happened is called applied", func(s *simulation) bool {
			return s.spoilCall(lincheck.Append, lincheck.NotApplied, func(c *clientCall) { c.op.Outcome = lincheck.Applied })
		}, "exactly once"},
		{"a request was carried out at two places", func(s *simulation) bool {
			return s.spoilCall(lincheck.Put, lincheck.Applied, func(c *clientCall) {
				all := c.executions(s.judgeLog())
				s.applied = append(s.applied, s.applied[all[len(all)-1].index])
			})
		}, "exactly once"},
		{"an append stands in a ledger twice", func(s *simulation) bool {
			return s.spoilCall(lincheck.Append, lincheck.Applied, func(c *clientCall) {
				for _, n := range s.nodes {
					applyNow(t, n, machine.Command{Kind: machine.KindAppend, Key: ledger(0), Value: c.op.Value + c.op.Value})
				}
				c.op.Key = ledger(0)
			})
		}, "exactly once"},
		{"one server has applied something else", func(s *simulation) bool {
			applyNow(t, s.nodes[0], machine.Command{Kind: machine.KindPut, Key: "k0", Value: "one"})
			for _, n := range s.nodes[1:] {
				applyNow(t, n, machine.Command{Kind: machine.KindPut, Key: "k0", Value: "another"})
			}
			return len(s.nodes) > 1
		}, "state"},
		{"a waiter is left over", func(s *simulation) bool {
			s.nodes[0].service.waiters.Add(machine.Identity{Nonce: machine.Nonce{1}})
			return true
		}, "leak"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for seed := uint64(1); ; seed++ {
				s := newSimulation(Config{Profile: Full}, seed)
				s.run()
				require.Nil(t, s.failure)
				if !test.spoil(s) {
					continue
				}
				s.judge()
				if test.kind == "" {
					require.Nil(t, s.failure)
				} else {
					require.NotNil(t, s.failure)
					require.Equal(t, test.kind, s.failure.Kind, s.failure.Text)
				}
				return
			}
		})
	}
}

// spoilCall spoils the first call of a kind that had the given outcome.
func (s *simulation) spoilCall(kind lincheck.Kind, outcome lincheck.Outcome, spoil func(*clientCall)) bool {
	for _, call := range s.history {
		if call.op.Kind == kind && call.op.Outcome == outcome && call.level != stale {
			spoil(call)
			return true
		}
	}
	return false
}

func applyNow(t *testing.T, n *node, c machine.Command) {
	m := n.service.machine
	_, err := m.Apply(raft.CommitEntry{Index: m.AppliedIndex() + 1, Command: c.Encode()})
	require.NoError(t, err)
}
