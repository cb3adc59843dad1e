package invariant

import "raftkv/raft"

// answers says by term which round of its leader a server has answered last. The
// reply has left, so the leader may count it from now on.
type answers []answered

type answered struct {
	term  raft.Term
	round raft.Round
}

// reading is a read that waits for its index.
type reading struct {
	known raft.Index // what was committed anywhere when it was asked for
	term  raft.Term
	round raft.Round // the leader's latest then; a later one must be confirmed
}

// answersLeader notes that a reply to a leader leaves. A reply from a later term
// proves nothing but that.
func (s *server) answersLeader(term, asked raft.Term, round raft.Round) {
	n := len(s.answered)
	switch {
	case term != asked:
	case n > 0 && s.answered[n-1].term == term:
		s.answered[n-1].round = max(s.answered[n-1].round, round)
	default:
		s.answered = append(s.answered, answered{term, round})
	}
}

// hasAnswered reports whether a server has answered a round of a term, or a later one.
func (s *server) hasAnswered(term raft.Term, round raft.Round) bool {
	return s.answered.has(term, round) || s.formerAnswered.has(term, round)
}

func (a answers) has(term raft.Term, round raft.Round) bool {
	for n := len(a) - 1; n >= 0 && a[n].term >= term; n-- {
		if a[n].term == term {
			return a[n].round >= round
		}
	}
	return false
}

// BeforeRead is called before a server steps a raft.Read.
func (c *Checker) BeforeRead(id raft.ServerID, requests []raft.RequestID) {
	s, err := c.server(id)
	if err != nil {
		return // AfterStep will say so
	}
	if s.reads == nil {
		s.reads = map[raft.RequestID]reading{}
	}
	for _, request := range requests {
		s.reads[request] = reading{c.known(), s.status.Term, s.status.Round}
	}
}

// known returns the highest index that any leader has committed.
func (c *Checker) known() raft.Index { return raft.Index(len(c.committed) - 1) }

// checkAnswers judges the answers to reads. counted is the configuration that was
// in force when the step began; a change may have been committed in it.
func (c *Checker) checkAnswers(s *server, counted raft.Configuration, answers []raft.Answer) error {
	for _, a := range answers {
		read, ok := s.reads[a.Request]
		if !ok {
			continue // about something else
		}
		delete(s.reads, a.Request)
		if a.Err != nil {
			continue
		}
		confirmed := func(v *server) bool { return v == s || v.hasAnswered(read.term, read.round+1) }
		switch {
		case s.status.State != raft.Leader || s.status.Term != read.term:
			return s.violates(Reads, "lets read as %s of term %d what was asked in term %d", s.status.State, s.status.Term, read.term)
		case a.Index > s.status.CommitIndex:
			return s.violates(Reads, "lets read index %d, but has committed only %d", a.Index, s.status.CommitIndex)
		case c.committedTerm(a.Index) != read.term:
			return s.violates(Reads, "lets read in term %d before it has committed anything of it", read.term)
		case a.Index < read.known:
			return s.violates(Reads, "lets read index %d, but %d was committed when it was asked", a.Index, read.known)
		case !c.quorum(counted, confirmed) && !c.quorum(s.inForce(), confirmed):
			return s.violates(Reads, "lets read in term %d, but no majority has answered a round after %d", read.term, read.round)
		}
	}
	return nil
}

// LeaseRead is called when a server lets a read go on under its lease, with the
// index that its status names. Whatever its clock says: nobody else may lead a later
// term then, and nothing may be committed that the reader would not see.
func (c *Checker) LeaseRead(id raft.ServerID) error {
	s, err := c.server(id)
	if err != nil {
		return err
	}
	now := &s.status
	answered := func(v *server) bool { return v == s || v.hasAnswered(now.Term, now.LeaseRound) }
	switch {
	case now.State != raft.Leader || now.LeaseRound == 0:
		return s.violates(Leases, "reads under a lease as %s, round %d", now.State, now.LeaseRound)
	case c.lastLeader > now.Term:
		return s.violates(Leases, "reads under a lease of term %d, but server %d leads term %d", now.Term, c.leaderOf[c.lastLeader], c.lastLeader)
	case now.LeaseIndex < c.known():
		return s.violates(Leases, "lets read index %d under a lease, but %d is committed", now.LeaseIndex, c.known())
	case !c.quorum(s.inForce(), answered):
		return s.violates(Leases, "reads under a lease from round %d of term %d, which no majority has answered", now.LeaseRound, now.Term)
	case s.releasedTerm == now.Term && now.LeaseRound <= s.released:
		return s.violates(Leases, "reads under a lease from round %d, but has told another to take over in round %d", now.LeaseRound, s.released)
	}
	return nil
}

// checkHandedOver judges a TimeoutNow: who is told to take over must be able to
// win at once, and the lease has ended before the message leaves (thesis 3.10,
// 6.4.1).
func (c *Checker) checkHandedOver(s *server, to raft.ServerID, args raft.TimeoutNowArgs) error {
	last := s.log.last()
	target, err := c.server(to)
	switch {
	case err != nil || !s.inForce().IsVoter(to):
		return s.violates(Transfers, "tells server %d to take over, which has no vote", to)
	case s.status.State != raft.Leader:
		return s.violates(Transfers, "tells server %d to take over as %s", to, s.status.State)
	case !target.disk.log.has(last, s.log[last]) && !target.former.log.has(last, s.log[last]):
		return s.violates(Transfers, "tells server %d to take over, which lacks index %d", to, last)
	case s.status.LeaseRound != 0:
		return s.violates(Leases, "tells server %d to take over and keeps its lease", to)
	}
	s.releasedTerm, s.released = s.status.Term, args.Round
	target.toldIn = args.Term
	return nil
}
