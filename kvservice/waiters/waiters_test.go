package waiters

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"raftkv/api"
	"raftkv/kvservice/machine"
	"raftkv/raft"
)

func identity(client api.ClientID, request uint64, value string) machine.Identity {
	return machine.Command{Kind: machine.KindPut, ClientID: client, RequestID: request, Value: value}.Identity()
}

func leading(term raft.Term) raft.Status { return raft.Status{State: raft.Leader, Term: term} }

func following(term raft.Term) raft.Status { return raft.Status{State: raft.Follower, Term: term} }

// The entry may be applied before Submit returns (pitfall SE-03).
func TestAppliedBeforeSubmitReturns(t *testing.T) {
	var table Table
	token := table.Add(identity("c", 1, "a"))
	require.Equal(t, []Token{token}, table.Resolve(identity("c", 1, "a")))
	require.False(t, table.Submitted(token, 1), "it has its answer")
	require.Zero(t, table.Len())
}

// All copies of a request are answered by whichever entry is applied first, and
// nobody else is (pitfall SE-12).
func TestAllCopiesAreAnswered(t *testing.T) {
	var table Table
	first, second := table.Add(identity("c", 1, "a")), table.Add(identity("c", 1, "a"))
	otherBody := table.Add(identity("c", 1, "b"))
	otherNumber := table.Add(identity("c", 2, "a"))
	require.Equal(t, []Token{first, second}, table.Resolve(identity("c", 1, "a")))
	require.Empty(t, table.Resolve(identity("c", 1, "a")))
	require.Equal(t, 2, table.Len())
	require.Equal(t, []Token{otherBody}, table.Resolve(identity("c", 1, "b")))
	require.Equal(t, []Token{otherNumber}, table.Resolve(identity("c", 2, "a")))
}

// A write without a session is found by its nonce, and an entry that nobody can
// be waiting for resolves nobody.
func TestNonces(t *testing.T) {
	var table Table
	a, b := machine.Identity{Nonce: machine.Nonce{1}}, machine.Identity{Nonce: machine.Nonce{2}}
	table.Add(a)
	forB := table.Add(b)
	require.Empty(t, table.Resolve(machine.Identity{}))
	require.Equal(t, []Token{forB}, table.Resolve(b))
}

func TestLostLeadership(t *testing.T) {
	for _, tc := range []struct {
		name   string
		status raft.Status
		lost   bool // for a waiter of term 5
	}{
		{"still leading", leading(5), false},
		{"an old status", following(4), false},
		{"an older leadership", leading(4), false},
		{"still the candidate of this term", raft.Status{State: raft.Candidate, Term: 5}, false},
		{"stepped down in the same term", following(5), true},
		{"stepped down and asking for votes", raft.Status{State: raft.PreCandidate, Term: 5}, true},
		{"a newer term", following(6), true},
		{"candidate again", raft.Status{State: raft.Candidate, Term: 6}, true},
		{"lost and regained at once", leading(6), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// The loss is announced after Submit has returned ...
			var table Table
			token := table.Add(identity("c", 1, "a"))
			unsubmitted := table.Add(identity("c", 2, "a"))
			require.False(t, table.Submitted(token, 5))
			if tc.lost {
				require.Equal(t, []Token{token}, table.LeadershipLost(tc.status))
				require.Empty(t, table.LeadershipLost(tc.status), "once is enough")
			} else {
				require.Empty(t, table.LeadershipLost(tc.status))
				require.Equal(t, []Token{token}, table.Resolve(identity("c", 1, "a")))
			}
			// ... or before.
			require.Equal(t, tc.lost, table.Submitted(unsubmitted, 5))
		})
	}
}

// The waiter of a later term stays when an earlier leadership ends.
func TestOnlyTheLostLeadership(t *testing.T) {
	var table Table
	old, young := table.Add(identity("c", 1, "a")), table.Add(identity("c", 2, "a"))
	table.Submitted(old, 3)
	table.Submitted(young, 5)
	require.Equal(t, []Token{old}, table.LeadershipLost(leading(5)))
	require.Equal(t, []Token{young}, table.Drain())
	require.Zero(t, table.Len())
}

func TestRemove(t *testing.T) {
	var table Table
	table.Remove(7)
	token := table.Add(identity("c", 1, "a"))
	table.Remove(token)
	table.Remove(token)
	require.Empty(t, table.Resolve(identity("c", 1, "a")))
	require.Empty(t, table.byIdentity, "nothing is left behind (pitfall LK-02)")
}

// naive is the table as a list of waiters and a list of all statuses.
type naive struct {
	waiting  []naiveWaiter
	statuses []raft.Status
}

type naiveWaiter struct {
	token    Token
	identity machine.Identity
	term     raft.Term
}

// remove takes out and returns the waiters for which gone answers true.
func (n *naive) remove(gone func(naiveWaiter) bool) (tokens []Token) {
	var left []naiveWaiter
	for _, w := range n.waiting {
		if gone(w) {
			tokens = append(tokens, w.token)
		} else {
			left = append(left, w)
		}
	}
	n.waiting = left
	return tokens
}

// lost reports whether any status ever seen shows that a leadership has ended.
func (n *naive) lost(term raft.Term) bool {
	for _, s := range n.statuses {
		switch {
		case s.Term > term:
			return true
		case s.Term == term && s.State != raft.Leader && s.State != raft.Candidate:
			return true
		}
	}
	return false
}

func TestTableBesideANaiveOne(t *testing.T) {
	identities := []machine.Identity{identity("c", 1, "a"), identity("c", 1, "b"), identity("d", 1, "a"), {Nonce: machine.Nonce{1}}}
	rapid.Check(t, func(t *rapid.T) {
		var table Table
		var model naive
		var given []Token
		drawToken := func(t *rapid.T) Token { return rapid.SampledFrom(append([]Token{0, 99}, given...)).Draw(t, "token") }
		drawIdentity := func(t *rapid.T) machine.Identity { return rapid.SampledFrom(identities).Draw(t, "identity") }
		drawTerm := func(t *rapid.T) raft.Term { return raft.Term(rapid.IntRange(1, 6).Draw(t, "term")) }
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				id := drawIdentity(t)
				token := table.Add(id)
				require.NotContains(t, given, token, "tokens are never used again")
				given = append(given, token)
				model.waiting = append(model.waiting, naiveWaiter{token: token, identity: id})
			},
			"submitted": func(t *rapid.T) {
				token, term := drawToken(t), drawTerm(t)
				gone := model.remove(func(w naiveWaiter) bool { return w.token == token && model.lost(term) })
				for i := range model.waiting {
					if model.waiting[i].token == token {
						model.waiting[i].term = term
					}
				}
				require.Equal(t, len(gone) > 0, table.Submitted(token, term))
			},
			"resolve": func(t *rapid.T) {
				id := drawIdentity(t)
				require.Equal(t, model.remove(func(w naiveWaiter) bool { return w.identity == id }), table.Resolve(id))
			},
			"status": func(t *rapid.T) {
				states := []raft.CMState{raft.Follower, raft.PreCandidate, raft.Candidate, raft.Leader}
				s := raft.Status{Term: drawTerm(t), State: rapid.SampledFrom(states).Draw(t, "state")}
				model.statuses = append(model.statuses, s)
				require.Equal(t, model.remove(func(w naiveWaiter) bool { return w.term != 0 && model.lost(w.term) }), table.LeadershipLost(s))
			},
			"remove": func(t *rapid.T) {
				token := drawToken(t)
				model.remove(func(w naiveWaiter) bool { return w.token == token })
				table.Remove(token)
			},
			"drain": func(t *rapid.T) {
				require.Equal(t, model.remove(func(naiveWaiter) bool { return true }), table.Drain())
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(model.waiting), table.Len())
				listed := 0
				for _, tokens := range table.byIdentity {
					require.NotEmpty(t, tokens)
					listed += len(tokens)
				}
				require.Equal(t, table.Len(), listed, "no token is left behind")
			},
		})
	})
}
