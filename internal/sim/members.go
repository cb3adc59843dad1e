package sim

import (
	"errors"
	"fmt"
	"slices"

	"raftkv/raft"
)

// An operator changes who takes part, while everything else goes wrong: servers
// join with empty disks, are promoted, demoted, replaced and removed, leaders
// included, and one that has lost its disk is removed and added again.

// lookAtConfiguration takes note of the configuration in force at a server.
func (s *simulation) lookAtConfiguration(n *node) {
	if c, ok := n.core.(interface{ Configuration() raft.Configuration }); ok {
		n.configuration = c.Configuration()
	}
}

// planChange lets the operator want something after a while, and so on until all
// is healed.
func (s *simulation) planChange() {
	if s.plan.changeEvery == 0 {
		return
	}
	s.after(s.faults.around(s.plan.changeEvery), func() {
		if s.healed {
			return
		}
		s.changes++
		if s.decide(changeMembers, 0, 0, true) {
			s.changeMembers(newSource(s.seed, fmt.Sprint("change ", s.changes)))
		}
		s.planChange()
	})
}

// changeMembers asks somebody who believes to lead for another configuration.
func (s *simulation) changeMembers(random *source) {
	leader := s.someLeader(nil, random)
	if leader == nil || len(leader.configuration.Voters) == 0 {
		return
	}
	if leader.configuration.Joint() || leader.status.ConfigurationIndex > leader.status.CommitIndex {
		if random.oneIn(4) { // to be refused
			s.ask(leader, leader.configuration.Voters, nil)
		}
		return
	}
	if s.bringBack(leader) || s.loseDisk(leader, random) {
		return
	}
	voters, learners := slices.Clone(leader.configuration.Voters), slices.Clone(leader.configuration.Learners)
	switch what := random.weighted([]int{4, 6, 1, 2, 2, 2}); {
	case what == 0 || what == 1 && len(learners) == 0: // add learners
		for range random.between(1, 2) {
			if id := s.newcomer(leader, learners, random); id != raft.None {
				learners = append(learners, id)
			}
		}
	case what == 1: // promote
		if random.oneIn(2) {
			learners = random.drawn(learners)
		}
		voters = append(voters, learners...)
		learners = slices.DeleteFunc(slices.Clone(leader.configuration.Learners), func(id raft.ServerID) bool { return slices.Contains(voters, id) })
	case what == 2: // demote
		i := random.below(len(voters))
		learners = append(learners, voters[i])
		voters = slices.Delete(voters, i, i+1)
	case what == 3: // remove one
		members := append(voters, learners...)
		gone := members[random.below(len(members))]
		other := func(id raft.ServerID) bool { return id == gone }
		voters, learners = slices.DeleteFunc(slices.Clone(voters), other), slices.DeleteFunc(learners, other)
	case what == 4: // remove the leader
		voters = slices.DeleteFunc(voters, func(id raft.ServerID) bool { return id == leader.id })
	default: // replace several at once
		stay := random.drawn(voters)
		if len(learners) > 0 && random.oneIn(2) {
			stay = nil
		}
		voters, learners = append(stay, learners...), nil
	}
	if len(voters) == 0 || len(voters) > 7 {
		return
	}
	s.ask(leader, voters, learners)
}

// drawn returns some of the ids, at least one if there are any.
func (s *source) drawn(ids []raft.ServerID) (some []raft.ServerID) {
	for _, i := range s.shuffled(len(ids)) {
		if len(some) == 0 || s.oneIn(2) {
			some = append(some, ids[i])
		}
	}
	return some
}

// ask puts the operator's request to a leader. Nothing depends on the answer: the
// operator looks again at what is in force before it wants something else.
func (s *simulation) ask(leader *node, voters, learners []raft.ServerID) {
	next := raft.NewConfiguration(voters...)
	if len(learners) > 0 {
		next.Learners = raft.NewConfiguration(learners...).Voters
	}
	for _, id := range next.Members() {
		next.Addresses = append(next.Addresses, raft.Address{ID: id, Addr: fmt.Sprint("n", id)})
	}
	s.because("server %d is asked for voters %v and learners %v", leader.id, next.Voters, next.Learners)
	s.note(leader, fmt.Sprintf("is asked for voters %v and learners %v", next.Voters, next.Learners))
	expected := leader.status.ConfigurationIndex
	s.arrive(leader, input{ask: &ask{
		event: func(id raft.RequestID) raft.Event {
			return raft.ChangeConfiguration{Request: id, Expected: expected, Next: next}
		},
		answer: func(a raft.Answer) {
			switch {
			case a.Err == nil:
				s.count(ChangeBegun)
			case errors.Is(a.Err, raft.ErrNotCaughtUp):
				s.count(NotCaughtUp)
			default:
				s.count(ChangeRefused)
			}
		},
	}})
}

// newcomer returns a server to be added: one that has never been there, which
// starts with an empty disk and no configuration, or one that was removed.
func (s *simulation) newcomer(leader *node, besides []raft.ServerID, random *source) raft.ServerID {
	for _, i := range random.shuffled(len(s.nodes)) {
		n := s.nodes[i]
		if leader.configuration.Has(n.id) || slices.Contains(besides, n.id) || n.lost {
			continue
		}
		if n.spared {
			n.spared = false
			s.checker.Joined(n.id)
		}
		s.start(n)
		return n.id
	}
	return raft.None
}

// bringBack is the recipe for a lost disk: remove the server, and add it again. Who
// is away meanwhile hears of it later, perhaps from this very server, which leads by
// then. It reports whether the operator is busy with that.
func (s *simulation) bringBack(leader *node) (busy bool) {
	i := slices.IndexFunc(s.nodes, func(n *node) bool { return n.lost })
	if i < 0 {
		return false
	}
	n, now := s.nodes[i], leader.configuration
	without := func(ids []raft.ServerID) []raft.ServerID {
		return slices.DeleteFunc(slices.Clone(ids), func(id raft.ServerID) bool { return id == n.id })
	}
	switch {
	case !now.Has(n.id):
		s.ask(leader, now.Voters, append(slices.Clone(now.Learners), n.id))
	case now.Address(n.id).Since <= n.disk.addedAfter:
		s.ask(leader, without(now.Voters), without(now.Learners))
	default:
		n.lost = false
		s.count(DiskReplaced)
		return false
	}
	return true
}

// loseDisk lets a server come back with an empty disk. Whoever knew the old one
// refuses it until it is removed and added again. As in wipe, everybody must have
// met the old store, since the server was added last, and the rest must be able to
// do without, also when a change is made that a leader has been asked for and has not
// seen: once that is in the log, it binds. From {1,5,6} with 1 lost there is a way on,
// from {1,5} there is none.
func (s *simulation) loseDisk(leader *node, random *source) bool {
	victim := s.nodes[random.below(len(s.nodes))]
	if !random.oneIn(3) || victim == leader || victim.spared || victim.damage != nil || victim.disk.files == nil ||
		!leader.configuration.Has(victim.id) || len(leader.configuration.Voters) < 3 || leader.status.Term != s.lastTerm() ||
		slices.ContainsFunc(s.nodes, (*node).isAskedForChange) {
		return false
	}
	for _, n := range s.nodes {
		if n != victim && !n.spared && (!n.up || n.met[victim.index] != met{victim.store, leader.configuration.Address(victim.id).Since}) {
			return false
		}
	}
	s.stop(victim, true)
	victim.wipes++
	victim.disk = s.newDisk(victim.index, fmt.Sprint("disk ", victim.index, " ", victim.wipes), true)
	victim.disk.addedAfter = leader.status.ConfigurationIndex
	victim.lost = true
	s.checker.Replaced(victim.id, victim.disk.addedAfter)
	s.note(victim, "has lost its disk")
	s.because("server %d has lost its disk, and is to be removed and added again", victim.id)
	s.count(DiskWiped)
	s.after(random.around(s.plan.downTime), func() { s.start(victim) })
	s.letOneMissIt(leader, victim, random)
	return true
}

// isAskedForChange reports whether a request of the operator waits for n's loop.
func (n *node) isAskedForChange() bool {
	return slices.ContainsFunc(n.inbox, func(in input) bool { return in.ask != nil && in.ask.event != nil })
}

// letOneMissIt keeps a server away while the one that has lost its disk is removed
// and added again, if the others can do both without it. It goes on to know the old
// disk, and that happens too rarely by itself. Often it stays away until all is
// healed: a leader that it would refuse must then be the last one.
func (s *simulation) letOneMissIt(leader, victim *node, random *source) {
	away := s.nodes[random.below(len(s.nodes))]
	now := leader.configuration
	if away == leader || away == victim || !now.Has(away.id) || now.IsVoter(victim.id) && len(now.Voters) < 5 {
		return
	}
	s.stop(away, false)
	if random.oneIn(3) {
		s.after(random.around(3*s.plan.changeEvery), func() { s.start(away) })
	}
}

// lastTerm returns the highest term that a server is in.
func (s *simulation) lastTerm() (last raft.Term) {
	for _, n := range s.nodes {
		last = max(last, n.status.Term)
	}
	return last
}

// countChanges looks for what may befall the configuration in one step.
func (s *simulation) countChanges(n *node, before *raft.Status) {
	now := &n.status
	if now.ConfigurationIndex == before.ConfigurationIndex {
		return
	}
	old := n.configuration
	s.lookAtConfiguration(n)
	e, known := n.core.Entry(now.ConfigurationIndex)
	if now.State != raft.Leader || !known {
		return
	}
	switch {
	case n.configuration.Joint():
		s.count(JointEntered)
		s.jointSince = now.Term
	case old.Joint():
		s.count(JointLeft)
		if e.Term != s.jointSince {
			s.count(JointLeftByAnother)
		}
	}
	for _, id := range n.configuration.Voters {
		if slices.Contains(old.Learners, id) {
			s.count(LearnerPromoted)
		}
	}
	if !n.configuration.IsVoter(n.id) {
		s.count(LeaderRemovedItself)
	}
}
