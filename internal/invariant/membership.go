package invariant

import (
	"slices"

	"raftkv/raft"
)

// change is a configuration and where it stands in a log.
type change struct {
	index raft.Index
	raft.Configuration
}

// inForce returns the configuration that a server has to obey: the last one in
// its log, committed or not (§6).
func (s *server) inForce() raft.Configuration {
	if n := len(s.configurations); n > 0 {
		return s.configurations[n-1].Configuration
	}
	return raft.Configuration{}
}

// quorum reports whether yes holds for more than half of the voters and, as long
// as a configuration is joint, for more than half of the old ones as well. It does
// not ask the package under test, which has a function for the same.
func (c *Checker) quorum(in raft.Configuration, yes func(*server) bool) bool {
	count := func(ids []raft.ServerID) (n int) {
		for _, s := range c.servers {
			if slices.Contains(ids, s.id) && yes(s) {
				n++
			}
		}
		return n
	}
	return 2*count(in.Voters) > len(in.Voters) &&
		(len(in.OldVoters) == 0 || 2*count(in.OldVoters) > len(in.OldVoters))
}

// findChanges brings s.configurations up to date after the log has changed from
// an index on.
func (c *Checker) findChanges(s *server, from raft.Index) {
	for n := len(s.configurations); n > 0 && s.configurations[n-1].index >= from && s.configurations[n-1].index > 0; n-- {
		s.configurations = s.configurations[: n-1 : n-1]
	}
	for i := from; i <= s.log.last(); i++ {
		for _, e := range c.seen[i] {
			if e.term == s.log[i] && e.kind == raft.EntryConfiguration {
				// What cannot be decoded is an empty configuration, in which nobody decides.
				decoded, _ := raft.DecodeConfiguration(e.command)
				s.configurations = append(s.configurations, change{i, decoded})
			}
		}
	}
}

// changesUpTo returns the committed configurations up to an index.
func (c *Checker) changesUpTo(i raft.Index) []change {
	n := 0
	for n < len(c.changes) && c.changes[n].index <= i {
		n++
	}
	return slices.Clone(c.changes[:n])
}

// checkCandidate demands that only a voter stands for election. One that a change
// has taken the vote from may, too, until it knows the change to be committed. One
// that came in the place of another may not do so for what the other one was.
func (s *server) checkCandidate(before raft.Status) error {
	now := &s.status
	if now.State == before.State && now.Term == before.Term || now.State == raft.Follower || now.State == raft.Leader {
		return nil
	}
	for n, change := range slices.Backward(s.configurations) {
		if change.IsVoter(s.id) && (s.addedAfter == 0 || change.Address(s.id).Since > s.addedAfter) {
			return nil
		}
		if n > 0 && change.index <= now.CommitIndex {
			break
		}
	}
	return s.violates(Membership, "stands for election in term %d and has no vote", now.Term)
}

// checkChange judges the configurations that a leader has appended in this step.
func (c *Checker) checkChange(s *server, changed raft.Index) error {
	if changed == 0 || s.status.State != raft.Leader {
		return nil
	}
	for n, next := range s.configurations {
		if next.index < changed || n == 0 {
			continue
		}
		before := s.configurations[n-1]
		switch {
		case c.committedTerm(s.status.CommitIndex) != s.status.Term:
			return s.violates(Membership, "changes the configuration at index %d before it has committed anything of term %d", next.index, s.status.Term)
		case before.index > s.status.CommitIndex:
			return s.violates(Membership, "changes the configuration at index %d, but the one at %d is not committed", next.index, before.index)
		case len(next.Voters) == 0:
			return s.violates(Membership, "wants a configuration without voters at index %d", next.index)
		case before.Joint() && (next.Joint() || !slices.Equal(next.Voters, before.Voters)):
			return s.violates(Membership, "leaves the joint configuration of voters %v and %v for %v", before.OldVoters, before.Voters, next.Voters)
		case !before.Joint() && !slices.Equal(next.Voters, before.Voters) && !slices.Equal(next.OldVoters, before.Voters):
			return s.violates(Membership, "goes from voters %v to %v and not by way of both", before.Voters, next.Voters)
		}
	}
	return nil
}
