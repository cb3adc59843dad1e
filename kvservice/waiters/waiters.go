// Package waiters keeps the list of those who wait for an answer from the log.
//
// A waiter waits for a request, not for a place in the log: the entry at the
// index that Submit returned may have been overwritten by another client's, and
// this request may be committed through another leader. So waiters are found by
// the identity that the applied entry carries. (The posts' commitSubs go by
// index, and tell a client "done" for a write that was truncated.)
//
// [Table] is a plain value without goroutine and lock; the same calls give the
// same answers in the same order.
package waiters

import (
	"maps"
	"slices"

	"raftkv/kvservice/machine"
	"raftkv/raft"
)

// Token stands for one waiter in one table. 0 is none.
type Token uint64

// Table holds the waiters of one server. The zero Table is empty and ready. It
// is not safe for concurrent use.
//
// The life of a waiter: Add, then Submit the command, then Submitted with what
// Submit returned. It ends with the first of these that names its token:
// Resolve, LeadershipLost, Submitted, Drain, or Remove. All but Remove hand the token
// back to be answered.
type Table struct {
	waiters    map[Token]waiter
	byIdentity map[machine.Identity][]Token // in the order of Add; no empty lists
	last       Token

	// over: this server's leaderships of this term and earlier ones have ended.
	over raft.Term
}

type waiter struct {
	identity machine.Identity
	term     raft.Term // the leadership that took the command; 0 before Submitted
}

// Add makes a waiter for the entry that will carry id. Call it before Submit:
// the entry may be applied before Submit returns.
func (t *Table) Add(id machine.Identity) Token {
	if t.waiters == nil {
		t.waiters = map[Token]waiter{}
		t.byIdentity = map[machine.Identity][]Token{}
	}
	t.last++
	t.waiters[t.last] = waiter{identity: id}
	t.byIdentity[id] = append(t.byIdentity[id], t.last)
	return t.last
}

// Submitted notes that the command was appended in the given term. It returns
// true if that leadership is known to be over: then the waiter is gone and must
// be answered "unknown". For a waiter that has been answered it does nothing.
func (t *Table) Submitted(token Token, term raft.Term) (unknown bool) {
	w, waits := t.waiters[token]
	if !waits {
		return false
	}
	if term <= t.over {
		t.Remove(token)
		return true
	}
	w.term = term
	t.waiters[token] = w
	return false
}

// Resolve ends the waiters for id and returns them. Give each the result of the
// entry that carried id, whoever proposed it.
func (t *Table) Resolve(id machine.Identity) []Token {
	tokens := t.byIdentity[id]
	for _, token := range tokens {
		delete(t.waiters, token)
	}
	delete(t.byIdentity, id)
	return tokens
}

// LeadershipLost takes in a status of this server's consensus module, any and
// all of them, and ends and returns the waiters whose leadership is over by
// then. Each must be answered "unknown": its entry may be overwritten, or
// committed by another leader. A leadership that is lost and regained between
// two statuses shows in the term.
func (t *Table) LeadershipLost(s raft.Status) []Token {
	over := endedBy(s)
	if over <= t.over {
		return nil
	}
	t.over = over
	return t.end(func(w waiter) bool { return w.term != 0 && w.term <= over })
}

// endedBy returns the last term in which the server can no longer lead. Nobody
// leads a term twice, and only who stands for election in a term may yet lead it.
func endedBy(s raft.Status) raft.Term {
	if s.Term > 0 && (s.State == raft.Leader || s.State == raft.Candidate) {
		return s.Term - 1
	}
	return s.Term
}

// Drain ends all waiters and returns them, because the server stops. Each must be
// answered "unknown".
func (t *Table) Drain() []Token {
	return t.end(func(waiter) bool { return true })
}

// Remove ends a waiter that nobody needs to answer: Submit refused its command,
// or its client has gone. A token that has ended already is ignored.
func (t *Table) Remove(token Token) {
	w, waits := t.waiters[token]
	if !waits {
		return
	}
	delete(t.waiters, token)
	left := slices.DeleteFunc(t.byIdentity[w.identity], func(other Token) bool { return other == token })
	if len(left) == 0 {
		delete(t.byIdentity, w.identity)
	} else {
		t.byIdentity[w.identity] = left
	}
}

// Len returns how many are waiting.
func (t *Table) Len() int { return len(t.waiters) }

// end removes the waiters for which ended answers true and returns them, oldest
// first: the order of a map must not show.
func (t *Table) end(ended func(waiter) bool) []Token {
	var tokens []Token
	for _, token := range slices.Sorted(maps.Keys(t.waiters)) {
		if ended(t.waiters[token]) {
			tokens = append(tokens, token)
			t.Remove(token)
		}
	}
	return tokens
}
