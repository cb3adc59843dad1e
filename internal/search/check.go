package search

import (
	"fmt"

	"raftkv/raft"
)

// The properties of Figure 3. The search looks for the harm, not for its cause:
// a vote that was not saved is no violation until two servers lead one term.

// past is what a state knows of the moments before it: two of the properties
// are about all moments. The first two fields say how much of the bounds is used.
type past struct {
	entries, crashes uint8

	leaderOf [maxTerm + 1]uint8  // by term: who has led it; 0 if nobody
	applied  [maxIndex + 1]uint8 // by index: the term of the entry that was applied there; 0 if none
}

// note brings the past up to date with a server that has applied entries, and
// tells what that has broken.
func (s *search) note(p *past, now serverID, applied []raft.CommitEntry) string {
	status := &s.servers[now].status
	if status.Term > s.config.Terms {
		return fmt.Sprintf("server %d is in term %d, though no election has begun beyond term %d", status.ID, status.Term, s.config.Terms)
	}
	for _, e := range applied {
		if e.Index < 1 || e.Index > maxIndex {
			return fmt.Sprintf("server %d applies index %d, where no entry can be", status.ID, e.Index)
		}
		// The term tells the entry, by Log Matching and Election Safety.
		switch was := p.applied[e.Index]; {
		case was == 0:
			p.applied[e.Index] = uint8(e.Term)
		case was != uint8(e.Term):
			return fmt.Sprintf("State Machine Safety: server %d applies an entry of term %d at index %d, where one of term %d was applied", status.ID, e.Term, e.Index, was)
		}
	}
	if status.State == raft.Leader {
		switch was := p.leaderOf[status.Term]; {
		case was == 0:
			p.leaderOf[status.Term] = uint8(status.ID)
		case was != uint8(status.ID):
			return fmt.Sprintf("Election Safety: term %d is led by server %d and by server %d", status.Term, was, status.ID)
		}
	}
	return ""
}

// covers reports whether everything that can go wrong after b can go wrong after
// a, or has done so already, if their servers and messages are the same: a has
// as much left to use and knows of as much to contradict.
func (a *past) covers(b *past) bool {
	if a.entries > b.entries || a.crashes > b.crashes {
		return false
	}
	for t, id := range b.leaderOf {
		if id != 0 && a.leaderOf[t] != id {
			return false
		}
	}
	for i, t := range b.applied {
		if t != 0 && a.applied[i] != t {
			return false
		}
	}
	return true
}

// check tells what is broken in the servers of one moment.
func (s *search) check(servers [maxNodes]serverID) string {
	for i := range s.config.Nodes {
		a := &s.servers[servers[i]]
		for j := range s.config.Nodes {
			b := &s.servers[servers[j]]
			if i == j {
				continue
			}
			if broken := logMatching(a, b); broken != "" {
				return broken
			}
			if broken := leaderCompleteness(a, b); broken != "" {
				return broken
			}
		}
	}
	return ""
}

// logMatching: where two logs agree on a term, they agree on all before.
func logMatching(a, b *serverState) string {
	agreed := false
	for i := min(len(a.log), len(b.log)) - 1; i >= 0; i-- {
		same := sameEntry(a.log[i], b.log[i])
		if !same && (agreed || a.log[i].Term == b.log[i].Term) {
			return fmt.Sprintf("Log Matching: servers %d and %d differ at index %d and agree on a term there or behind", a.status.ID, b.status.ID, i+1)
		}
		agreed = agreed || same
	}
	return ""
}

// leaderCompleteness: what b knows to be committed was committed in its term or
// an earlier one, so whoever leads that term or a later one has it.
func leaderCompleteness(a, b *serverState) string {
	if a.status.State != raft.Leader || a.status.Term < b.status.Term {
		return ""
	}
	for i := range min(int(b.status.CommitIndex), len(b.log)) {
		if i >= len(a.log) || !sameEntry(a.log[i], b.log[i]) {
			return fmt.Sprintf("Leader Completeness: server %d leads term %d without the entry at index %d that server %d knows to be committed", a.status.ID, a.status.Term, i+1, b.status.ID)
		}
	}
	return ""
}

// appendOnly: a leader never changes what is in its log.
func appendOnly(before, after *serverState) string {
	if before.status.State != raft.Leader || after.status.State != raft.Leader || before.status.Term != after.status.Term {
		return ""
	}
	for i, e := range before.log {
		if i >= len(after.log) || !sameEntry(e, after.log[i]) {
			return fmt.Sprintf("Leader Append-Only: server %d leads term %d and changes index %d", before.status.ID, before.status.Term, i+1)
		}
	}
	return ""
}

func sameEntry(a, b raft.LogEntry) bool {
	return a.Term == b.Term && a.Kind == b.Kind && string(a.Command) == string(b.Command)
}
