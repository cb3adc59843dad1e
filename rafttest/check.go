package rafttest

import "fmt"

// checker remembers what no later step may contradict (Figure 3). It keeps
// history, because two leaders of one term need not overlap in time.
type checker struct {
	leaderOf  map[int]int         // by term
	voteOf    map[ballot]int      // whom a server has voted for in a term
	places    map[place]content   // what some log has held there
	committed map[int]commitEntry // by index: what some state machine was given
	before    map[int]memory      // by server: its latest step, in this life
}

type ballot struct{ server, term int }

type place struct{ index, term int }

type content struct {
	prevTerm int
	command  string
}

type commitEntry struct {
	Entry
	in int // the term of the server that applied it first
	by *Server
}

// memory is what a server was after its latest step.
type memory struct {
	status        Status
	length, term  int // of its log, and of the last entry
	leaderChecked int // the latest term in which it was seen to lead
}

func newChecker() checker {
	return checker{
		leaderOf:  map[int]int{},
		voteOf:    map[ballot]int{},
		places:    map[place]content{},
		committed: map[int]commitEntry{},
		before:    map[int]memory{},
	}
}

// restarted forgets what a crash may take back. What must survive it stays.
func (k *checker) restarted(s *Server) { delete(k.before, s.id) }

// afterStep looks at a server that has taken a step.
func (k *checker) afterStep(c *Cluster, s *Server) error {
	was, now := k.before[s.id], s.status
	is := memory{status: now, length: len(s.log), leaderChecked: was.leaderChecked}
	if is.length > 0 {
		is.term = s.log[is.length-1].Term
	}

	if now.Term < was.status.Term {
		return fmt.Errorf("%v has gone back from term %d to term %d", s, was.status.Term, now.Term)
	}
	if err := k.vote(s); err != nil {
		return err
	}
	if now.CommitIndex < was.status.CommitIndex {
		return fmt.Errorf("%v has taken back its commitIndex, from %d to %d", s, was.status.CommitIndex, now.CommitIndex)
	}
	if now.CommitIndex > is.length {
		return fmt.Errorf("%v has commitIndex %d, but its log ends at %d", s, now.CommitIndex, is.length)
	}
	if is.length != was.length || is.term != was.term {
		if err := k.logMatching(s); err != nil {
			return err
		}
	}
	if now.State == leader {
		if err := k.leader(c, s, &is, was); err != nil {
			return err
		}
	}
	k.before[s.id] = is
	return nil
}

// vote: a server votes for one candidate in a term, whether or not it has
// crashed meanwhile (§5.2).
func (k *checker) vote(s *Server) error {
	if s.status.VotedFor == 0 {
		return nil
	}
	key := ballot{s.id, s.status.Term}
	first, voted := k.voteOf[key]
	if voted && first != s.status.VotedFor {
		return fmt.Errorf("double vote: in term %d %v has voted for server %d and for server %d", s.status.Term, s, first, s.status.VotedFor)
	}
	k.voteOf[key] = s.status.VotedFor
	return nil
}

// logMatching: if two logs have an entry of the same term at an index, they
// are equal up to there (Figure 3). And nothing that is committed changes.
func (k *checker) logMatching(s *Server) error {
	prevTerm := 0
	for _, e := range s.log {
		if e.Term < prevTerm {
			return fmt.Errorf("the log of %v goes from term %d at index %d to term %d at index %d", s, prevTerm, e.Index-1, e.Term, e.Index)
		}
		key, is := place{e.Index, e.Term}, content{prevTerm, e.text()}
		first, seen := k.places[key]
		if seen && first != is {
			return fmt.Errorf("log matching: entry %d of term %d is %q after term %d in the log of %v, but elsewhere it was %q after term %d",
				e.Index, e.Term, is.command, is.prevTerm, s, first.command, first.prevTerm)
		}
		k.places[key] = is
		if done := k.committed[e.Index]; e.Index <= s.status.CommitIndex && done.by != nil && done.Term != e.Term {
			return fmt.Errorf("%v has replaced entry %d (%s, term %d), which was committed, by one of term %d", s, e.Index, done.text(), done.Term, e.Term)
		}
		prevTerm = e.Term
	}
	return nil
}

// leader: a term has one leader (Election Safety). It has every entry that was
// committed in an earlier term (Leader Completeness). It commits only what a
// majority has.
func (k *checker) leader(c *Cluster, s *Server, is *memory, was memory) error {
	term := s.status.Term
	first, seen := k.leaderOf[term]
	if seen && first != s.id {
		return fmt.Errorf("two leaders: term %d was led by server %d and is led by %v", term, first, s)
	}
	k.leaderOf[term] = s.id

	if is.leaderChecked != term {
		is.leaderChecked = term
		for i := 1; k.committed[i].by != nil; i++ {
			e := k.committed[i]
			if e.in < term && (i > len(s.log) || s.log[i-1].Term != e.Term) {
				return fmt.Errorf("%v leads term %d without entry %d (%s, term %d), which %v had committed", s, term, i, e.text(), e.Term, e.by)
			}
		}
	}

	if n := s.status.CommitIndex; n > was.status.CommitIndex {
		e, copies := s.log[n-1], 0
		for _, other := range c.servers {
			if n <= len(other.log) && other.log[n-1].Term == e.Term {
				copies++
			}
		}
		if copies <= len(c.servers)/2 {
			return fmt.Errorf("commit without a majority: %v says that entry %d (%s) is committed, and only %d of %d servers have it", s, n, e.text(), copies, len(c.servers))
		}
	}
	return nil
}

// applied looks at an entry that a server gives to its state machine: one
// index after the other, and at each the same on every server (State Machine
// Safety).
func (k *checker) applied(c *Cluster, s *Server, e Entry) error {
	if e.Index != len(s.applied)+1 {
		return fmt.Errorf("%v applies entry %d after entry %d", s, e.Index, len(s.applied))
	}
	first := k.committed[e.Index]
	if first.by == nil {
		k.committed[e.Index] = commitEntry{e, s.status.Term, s}
		return nil
	}
	if first.Term != e.Term || first.text() != e.text() {
		return fmt.Errorf("%v applies %s (term %d) as entry %d, but %v had applied %s (term %d) there", s, e.text(), e.Term, e.Index, first.by, first.text(), first.Term)
	}
	return nil
}
