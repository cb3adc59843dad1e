package invariant

import (
	"bytes"
	"cmp"
	"slices"

	"raftkv/raft"
)

// commitPoint says how far the leader of a term has committed.
type commitPoint struct {
	term  raft.Term
	index raft.Index
}

// committedTerm returns the term of the committed entry at index i, or 0, which
// no entry has, if nothing is known to be committed there.
func (c *Checker) committedTerm(i raft.Index) raft.Term {
	if i >= raft.Index(len(c.committed)) {
		return 0
	}
	return c.committed[i]
}

// mustKeep reports whether a server may not take index i, which is committed,
// out of its log: if its term is at least the one in which the index was
// committed, for every leader from then on has it. A server that is still in an
// older term, paused or cut off, may yet hear from that term's leader, who has
// not. Its copy was not of the majority that counted.
func (c *Checker) mustKeep(s *server, i raft.Index) bool {
	for _, p := range c.commits {
		if p.index >= i {
			return s.status.Term >= p.term
		}
	}
	return false
}

// checkCommit is called for a server whose commit index has just grown. counted is
// the configuration that was in force then.
func (c *Checker) checkCommit(s *server, counted raft.Configuration) error {
	n := s.status.CommitIndex
	if n > s.log.last() {
		return nil // checkMonotony has told
	}
	known := raft.Index(len(c.committed) - 1)
	if i := min(n, known); s.log[i] != c.committed[i] {
		return s.violates(StateMachineSafety, "commits index %d with term %d, it was committed with term %d", i, s.log[i], c.committed[i])
	}
	if s.status.State != raft.Leader {
		if n > known {
			return s.violates(StateMachineSafety, "commits index %d, but no leader has committed more than %d", n, known)
		}
		return nil
	}

	// A leader commits by counting copies. They must be on disks: a copy that a
	// power cut can take is none.
	term := s.status.Term
	if s.log[n] != term {
		return s.violates(LeaderCompleteness, "leads term %d and commits index %d of term %d by counting copies (Figure 8)", term, n, s.log[n])
	}
	if !c.quorum(counted, func(v *server) bool { return v.disk.log.has(n, term) || v.former.log.has(n, term) }) {
		return s.violates(Durability, "commits index %d, which is not on a majority of the disks", n)
	}
	for i := known + 1; i <= n; i++ {
		c.committed = append(c.committed, s.log[i])
	}
	for _, change := range s.configurations {
		if change.index > known && change.index <= n {
			c.changes = append(c.changes, change)
		}
	}
	at, found := slices.BinarySearchFunc(c.commits, term, func(p commitPoint, t raft.Term) int { return cmp.Compare(p.term, t) })
	if !found {
		c.commits = slices.Insert(c.commits, at, commitPoint{term, n})
	} else {
		c.commits[at].index = max(c.commits[at].index, n)
	}

	// The leader of an old term can commit late. Whoever leads a newer term by
	// then was elected by servers that had the entry.
	for _, other := range c.servers {
		if other.status.State == raft.Leader && other.status.Term > term {
			if err := c.checkCompleteness(other); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkDelivered is State Machine Safety (Figure 3) for an entry on its way to
// a state machine: in order, each index once, and the same on every server. Only
// a snapshot, which stands for all up to its index, may skip some; it may not go
// back, for what it would replace was newer.
func (c *Checker) checkDelivered(s *server, e raft.CommitEntry, at *raft.Index) error {
	if e.Kind == raft.EntrySnapshot {
		if e.Index <= *at || e.Term != c.committedTerm(e.Index) {
			return s.violates(Snapshots, "has a snapshot up to index %d of term %d follow index %d on the way to its state machine", e.Index, e.Term, *at)
		}
		*at = e.Index
		return nil
	}
	if e.Index != *at+1 {
		return s.violates(StateMachineSafety, "has index %d follow %d on the way to its state machine", e.Index, *at)
	}
	*at = e.Index
	if e.Index == raft.Index(len(c.applied)) {
		c.applied = append(c.applied, e)
		return nil
	}
	o := c.applied[e.Index]
	if o.Term != e.Term || o.Kind != e.Kind || !bytes.Equal(o.Command, e.Command) {
		return s.violates(StateMachineSafety, "applies %q of term %d at index %d, another server applied %q of term %d", e.Command, e.Term, e.Index, o.Command, o.Term)
	}
	return nil
}
