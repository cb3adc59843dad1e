package search

import (
	"math/bits"
	"slices"

	"raftkv/raft"
)

// A message is spent for a server in some state if it will never again change
// that server, whatever happens, and never be answered otherwise than now. A
// state need not hold it: whatever it could still do has been done. Most messages
// that were sent are spent, and without them most states are the same.
//
// That is not believed but proved. guess picks messages that look spent. Each of
// them is a claim, and every step from one state of a server to another that the
// search takes must keep the claim: the message is older than the new term, or
// looks spent there, too, with no new answer. As the search takes every step
// that there is, a claim which survives is true: go along any run from the moment
// at which the message was left out, and at each step it changes nothing and adds
// nothing. One that does not survive makes the search start again without leaving
// out any. With the core as it is none ever fails; with a broken one they do.
//
// A crash may make a message useful again, because a server forgets what it has
// committed. So claims are kept by the number of crashes that are left.

// ledger holds the slots of the messages to a server that were judged in one of
// its states, and of those claimed to be spent.
type ledger struct{ judged, spent set }

// dropSpent takes out the messages that are spent in a state.
func (s *search) dropSpent(st *state, messages set) {
	n, left := s.config.Nodes, s.config.Crashes-int(st.past.crashes)
	for i, server := range st.servers[:n] {
		for w := i; w < len(messages); w += n {
			for v := messages[w] &^ s.ledger(left, server).judged.word(w/n); v != 0; v &= v - 1 {
				s.isSpent(left, server, messageID(w*64+bits.TrailingZeros64(v)))
			}
			messages[w] &^= s.ledger(left, server).spent.word(w / n)
		}
	}
}

func (s *search) ledger(left int, server serverID) *ledger {
	st := &s.servers[server]
	if st.ledgers == nil {
		st.ledgers = make([]ledger, s.config.Crashes+1)
	}
	return &st.ledgers[left]
}

// isSpent judges a message once for each state of its receiver. A claim is
// passed on to all that the server was seen to become.
func (s *search) isSpent(left int, server serverID, m messageID) bool {
	slot := messageID(s.messages[m].slot)
	if l := s.ledger(left, server); l.judged.has(slot) {
		return l.spent.has(slot)
	}
	claim := s.guess(server, m)
	if claim && left > 0 {
		claim = s.keeps(left-1, server, s.outcome(server, event{kind: crashes}).next, m)
	}
	l := s.ledger(left, server)
	l.judged.add(slot)
	if !claim {
		return false
	}
	l.spent.add(slot)
	for _, next := range slices.Clone(s.servers[server].leads) {
		s.prove(left, server, next, m)
	}
	if left > 0 {
		for _, next := range slices.Clone(s.servers[server].falls) {
			s.prove(left-1, server, next, m)
		}
	}
	return true
}

// keeps reports whether a message that is spent for a server stays so when the
// server has become next.
func (s *search) keeps(left int, server, next serverID, m messageID) bool {
	if s.messages[m].Term() < s.servers[next].status.Term {
		return true // it is pruned there
	}
	if !s.guess(next, m) {
		return false
	}
	told := s.outcome(server, event{receives, m}).sent
	for _, answer := range s.outcome(next, event{receives, m}).sent {
		if !slices.Contains(told, answer) {
			return false
		}
	}
	return s.isSpent(left, next, m)
}

func (s *search) prove(left int, server, next serverID, m messageID) {
	if !s.keeps(left, server, next, m) {
		s.refuted = true
	}
}

// noteEdges makes the claims about a server hold for what it was just seen to become.
func (s *search) noteEdges(server serverID, ev event, out outcome) {
	if s.keepSpent || !s.config.Prune || out.broken != "" {
		return
	}
	if out.next != server {
		s.noteEdge(server, out.next, ev.kind == crashes)
	}
	for _, c := range out.cuts {
		s.noteEdge(server, c.next, true)
	}
}

func (s *search) noteEdge(server, next serverID, crash bool) {
	st := &s.servers[server]
	i, fewer := int(st.status.ID)-1, 0
	if crash {
		st.falls, fewer = append(st.falls, next), 1
	} else {
		st.leads = append(st.leads, next)
	}
	for left := fewer; left < len(st.ledgers); left++ {
		for w, v := range slices.Clone(st.ledgers[left].spent) {
			for ; v != 0; v &= v - 1 {
				s.prove(left-fewer, server, next, s.messageAt(i, w*64+bits.TrailingZeros64(v)))
			}
		}
	}
}

// guess picks the messages that a sound server will not look at again.
func (s *search) guess(server serverID, m messageID) bool {
	st, term := &s.servers[server], s.messages[m].Term()
	out := s.outcome(server, event{receives, m})
	if term < st.status.Term || !out.idle(server) {
		return false
	}
	st = &s.servers[server]
	switch body := s.messages[m].Body.(type) {
	case raft.RequestVoteArgs:
		// Refused for the rest of the term. A vote that was given is given again,
		// but only until the log has grown beyond the candidate's.
		return st.status.VotedFor != raft.None && st.status.VotedFor != body.CandidateID
	case raft.RequestVoteReply:
		return true // counted, or not a yes, or not a candidate any more
	case raft.AppendEntriesArgs:
		// All its entries are here and stay here, because they stand at or before
		// one of this term. Before there is one, a stale log may only look right.
		return st.status.LastTerm == term && slices.ContainsFunc(out.sent, func(a messageID) bool {
			reply, ok := s.messages[a].Body.(raft.AppendEntriesReply)
			return ok && reply.Success
		})
	case raft.AppendEntriesReply:
		if st.status.State != raft.Leader {
			return true
		}
		// A match that is just what is known may still end a probe.
		_, match, _ := st.module.Progress(s.messages[m].From)
		if body.Success {
			return body.MatchIndex < match
		}
		return body.PrevLogIndex <= match
	}
	return false
}
