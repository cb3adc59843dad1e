package invariant

import (
	"bytes"

	"raftkv/raft"
)

// seenEntry is an entry that some log has had, and the term before it.
type seenEntry struct {
	term, prevTerm raft.Term
	kind           raft.EntryKind
	command        []byte
}

// checkLog brings s.log up to date and checks each new entry. It returns the
// lowest index that has changed; 0 if none has.
//
// Only new entries are looked at. Going backwards, the first entry with the
// same term as before is the same entry, and so is all before it: that is what
// log matching says, and each entry was checked for it when it came. A Save
// names its first index, so what it rewrites is looked at again in any case.
// What a log has before its beginning cannot be seen any more; checkBeginning has
// made sure that it was committed.
func (c *Checker) checkLog(s *server, now raft.Status, view View, save raft.Save) (changed raft.Index, err error) {
	if save.Reset.Index != 0 {
		return c.checkReset(s, now, save)
	}
	if now.LastIndex == s.log.last() && now.LastTerm == s.log[s.log.last()] && save.FirstIndex == 0 {
		return 0, nil
	}
	same := min(now.LastIndex, s.log.last())
	for same > 0 && same >= now.FirstIndex {
		e, ok := view.Entry(same)
		if ok && e.Term == s.log[same] {
			break
		}
		same--
	}
	if save.FirstIndex != 0 {
		same = min(same, save.FirstIndex-1)
	}
	if same == now.LastIndex && same == s.log.last() {
		return 0, nil
	}
	old := s.log
	log := s.log[:same+1]
	for i := same + 1; i <= now.LastIndex; i++ {
		e, ok := view.Entry(i)
		if !ok {
			return 0, s.violates(LogMatching, "says that its log ends at %d, but has no entry at %d", now.LastIndex, i)
		}
		if err := c.checkEntry(s, log, e); err != nil {
			return 0, err
		}
		if old.has(i, c.committedTerm(i)) && e.Term != old[i] && c.mustKeep(s, i) {
			return 0, s.violates(LeaderCompleteness, "replaces index %d, which is committed", i)
		}
		log = append(log, e.Term) // may write over old[i], which is behind us now
	}
	for i := now.LastIndex + 1; i <= old.last(); i++ {
		if old.has(i, c.committedTerm(i)) && c.mustKeep(s, i) {
			return 0, s.violates(LeaderCompleteness, "removes index %d, which is committed", i)
		}
	}
	s.log = log
	c.findChanges(s, same+1)
	return same + 1, s.checkEnd(now)
}

// checkEnd compares what a server says of its log's end with the log.
func (s *server) checkEnd(now raft.Status) error {
	last := s.log[s.log.last()]
	switch {
	case s.log.last() != now.LastIndex:
		return s.violates(LogMatching, "says that its log ends at %d, but it is %d", now.LastIndex, s.log.last())
	case last != now.LastTerm:
		return s.violates(LogMatching, "says that its log ends with term %d, but it is %d", now.LastTerm, last)
	case last > now.Term:
		return s.violates(LogMatching, "is in term %d, but its log ends with term %d", now.Term, last)
	}
	return nil
}

// checkEntry is Log Matching (Figure 3) for an entry that comes after log: if
// any log ever had an entry with this index and term, it was the same entry and
// stood behind the same term. By induction the logs are equal up to here.
func (c *Checker) checkEntry(s *server, log terms, e raft.LogEntry) error {
	i, prevTerm := log.last()+1, log[log.last()]
	if e.Term == 0 || e.Term < prevTerm {
		return s.violates(LogMatching, "has term %d at index %d, after term %d: terms never fall along a log", e.Term, i, prevTerm)
	}
	for i >= raft.Index(len(c.seen)) {
		c.seen = append(c.seen, nil)
	}
	for _, o := range c.seen[i] {
		if o.term != e.Term {
			continue
		}
		switch {
		case o.prevTerm != prevTerm:
			return s.violates(LogMatching, "has (index %d, term %d) after term %d, another log had it after term %d", i, e.Term, prevTerm, o.prevTerm)
		case o.kind != e.Kind || !bytes.Equal(o.command, e.Command):
			return s.violates(LogMatching, "has %q at (index %d, term %d), another log had %q", e.Command, i, e.Term, o.command)
		}
		return nil
	}
	c.seen[i] = append(c.seen[i], seenEntry{e.Term, prevTerm, e.Kind, e.Command})
	return nil
}

// checkAppendOnly is Leader Append-Only (Figure 3), and its counterpart: what
// a follower has acknowledged to the leader of this term it keeps in this term.
func (c *Checker) checkAppendOnly(s *server, now raft.Status, changed raft.Index) error {
	if changed == 0 {
		return nil
	}
	if now.State == raft.Leader && changed <= s.status.LastIndex {
		return s.violates(LeaderAppendOnly, "leads term %d and changed its log at index %d; it ended at %d", now.Term, changed, s.status.LastIndex)
	}
	if now.Term == s.ackedTerm && changed <= s.acked {
		return s.violates(Durability, "changed its log at index %d, but told the leader of term %d that it matches up to %d", changed, now.Term, s.acked)
	}
	return nil
}
