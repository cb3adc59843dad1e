package numbering

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"raftkv/api"
)

func TestOutcomeOfACall(t *testing.T) {
	const applied, not, unknown = api.OutcomeApplied, api.OutcomeNotApplied, api.OutcomeUnknown
	for _, test := range []struct {
		attempts []api.Outcome
		want     api.Outcome
	}{
		{nil, not},
		{[]api.Outcome{not}, not},
		{[]api.Outcome{not, not, not}, not},
		{[]api.Outcome{unknown}, unknown},
		{[]api.Outcome{unknown, not}, unknown}, // timed out, then refused: the first may still commit
		{[]api.Outcome{not, unknown}, unknown},
		{[]api.Outcome{not, unknown, not, not}, unknown},
		{[]api.Outcome{unknown, not, applied}, applied}, // the retry found the result
		{[]api.Outcome{applied}, applied},
		{[]api.Outcome{applied, unknown, not}, applied}, // a doubled request's later answers
		{[]api.Outcome{""}, unknown},                    // an answer that says nothing
		{[]api.Outcome{"maybe", not}, unknown},
	} {
		t.Run(fmt.Sprint(test.attempts), func(t *testing.T) {
			var c Call
			for _, o := range test.attempts {
				c.Add(o)
			}
			require.Equal(t, test.want, c.Outcome())
		})
	}
}

// A server that keeps the session table's rules for one session, as docs/sessions.md
// has them, and counts how often each number took effect.
type table struct {
	acked   uint64
	effects map[uint64]int
}

// request is one copy of a write under way to the server.
type request struct{ id, acked uint64 }

func (s *table) apply(r request) api.Outcome {
	s.acked = max(s.acked, r.acked)
	switch {
	case r.id <= s.acked:
		return api.OutcomeUnknown // StaleRequest
	case s.effects[r.id] > 0:
		return api.OutcomeApplied // the recorded result
	}
	s.effects[r.id]++
	return api.OutcomeApplied
}

// Many calls on one session, over a network that keeps copies and delivers them
// when it likes, even after the call has ended: nothing takes effect twice, a
// call that is told "not applied" has no effect, ever, and a write that was
// given up has none after a later one of the same client was applied.
func TestNoCallIsLiedTo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		server := table{effects: map[uint64]int{}}
		var numbers Numbers
		var network []request // copies whose sender hears no answer any more
		var open []request
		calls := map[uint64]*Call{}
		settled := map[uint64]api.Outcome{}
		var barrier uint64 // numbers up to here that had no effect by now must not get one
		frozen := map[uint64]int{}

		pick := func(t *rapid.T, n int) int { return rapid.IntRange(0, n-1).Draw(t, "which") }
		deliver := func(r request) api.Outcome {
			o := server.apply(r)
			if r.acked > barrier {
				for id := barrier + 1; id <= r.acked; id++ {
					frozen[id] = server.effects[id]
				}
				barrier = r.acked
			}
			return o
		}
		t.Repeat(map[string]func(*rapid.T){
			"call": func(t *rapid.T) {
				if id, ok := numbers.Next(); ok {
					open = append(open, request{id, numbers.AckedThrough()})
					calls[id] = &Call{}
				}
			},
			"attempt": func(t *rapid.T) {
				if len(open) == 0 {
					return
				}
				r := open[pick(t, len(open))]
				switch rapid.SampledFrom([]string{"refused", "lost", "late", "answered"}).Draw(t, "fate") {
				case "refused":
					calls[r.id].Add(api.OutcomeNotApplied)
				case "lost": // the answer is lost, not the request
					deliver(r)
					calls[r.id].Add(api.OutcomeUnknown)
				case "late":
					network = append(network, r)
					calls[r.id].Add(api.OutcomeUnknown)
				case "answered":
					calls[r.id].Add(deliver(r))
				}
			},
			"end": func(t *rapid.T) {
				if len(open) == 0 {
					return
				}
				i := pick(t, len(open))
				id := open[i].id
				settled[id] = calls[id].Outcome()
				numbers.Settle(id)
				open = slices.Delete(open, i, i+1)
			},
			"late copy": func(t *rapid.T) {
				if len(network) == 0 {
					return
				}
				deliver(network[pick(t, len(network))]) // and it stays: copies may be doubled
			},
			"": func(t *rapid.T) {
				for id, n := range server.effects {
					if n > 1 {
						t.Fatalf("request %d took effect %d times", id, n)
					}
					if before, ok := frozen[id]; ok && n != before {
						t.Fatalf("request %d took effect after it was given up and a later one was applied", id)
					}
				}
				for id, outcome := range settled {
					if outcome == api.OutcomeNotApplied && server.effects[id] != 0 {
						t.Fatalf("request %d was called not applied, and took effect", id)
					}
					if outcome == api.OutcomeApplied && server.effects[id] != 1 {
						t.Fatalf("request %d was called applied, and took effect %d times", id, server.effects[id])
					}
				}
			},
		})
	})
}
