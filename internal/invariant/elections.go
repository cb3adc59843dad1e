package invariant

import "raftkv/raft"

// checkElected is called for a server that has just begun to lead its term.
func (c *Checker) checkElected(s *server) error {
	term := s.status.Term
	// The history is kept, because two leaders of one term need not overlap in
	// time. Two leaders at once are legal if their terms differ.
	if first, seen := c.leaderOf[term]; seen && first != s.id {
		return s.violates(ElectionSafety, "leads term %d, which server %d has led", term, first)
	}
	c.leaderOf[term] = s.id
	c.lastLeader = max(c.lastLeader, term)

	// A voter that has moved on to a later term may have voted here before.
	voted := func(d *disk) bool { return d.term > term || d.term == term && d.vote == s.id }
	if !c.quorum(s.inForce(), func(v *server) bool { return voted(&v.disk) || voted(&v.former) }) {
		return s.violates(ElectionSafety, "leads term %d, but no majority has a durable vote for it", term)
	}
	return c.checkCompleteness(s)
}

// checkCompleteness demands that a leader holds everything that was committed
// in earlier terms. Earlier by number, not by time: a vote that was long under
// way can make a server leader of an old term, while a newer leader already
// commits what this one has never heard of.
func (c *Checker) checkCompleteness(s *server) error {
	for _, p := range c.commits {
		// By log matching, the last entry stands for all before it.
		if p.term < s.status.Term && !s.log.has(p.index, c.committed[p.index]) {
			return s.violates(LeaderCompleteness, "leads term %d without index %d, which was committed in term %d",
				s.status.Term, p.index, p.term)
		}
	}
	return nil
}

// checkProgress looks at what a leader believes about its followers.
func (c *Checker) checkProgress(s *server, view View) error {
	v, ok := view.(interface {
		Progress(raft.ServerID) (next, match raft.Index, ok bool)
	})
	if !ok {
		return nil
	}
	members := s.inForce()
	for _, ids := range [...][]raft.ServerID{members.Voters, members.OldVoters, members.Learners} {
		for _, id := range ids {
			if id == s.id {
				continue
			}
			next, match, ok := v.Progress(id)
			if !ok {
				return s.violates(Progress, "leads, but knows nothing about server %d", id)
			}
			if next <= match || next > s.status.LastIndex+1 {
				return s.violates(Progress, "has nextIndex %d and matchIndex %d for server %d; its log ends at %d",
					next, match, id, s.status.LastIndex)
			}
		}
	}
	return nil
}
