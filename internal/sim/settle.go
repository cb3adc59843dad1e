package sim

import (
	"fmt"
	"strings"

	"raftkv/internal/lincheck"
	"raftkv/raft"
)

// heal ends all faults, for ever. From now on the cluster has a good network,
// good disks and good clocks, and must show that it works: a protocol that is
// safe because it has stopped is not what we want. Messages that are already
// late still come late.
func (s *simulation) heal() {
	s.healed = true
	s.network.heal()
	s.watcher.healed()
	for _, n := range s.nodes {
		n.pausedUntil = min(n.pausedUntil, s.now)
		n.slowDisk = 0
		n.warp = 0
		n.doom = alive
		s.healDisk(n)
		s.start(n)
	}
	s.noteAll("everything is healed")
	if s.profile.Clients {
		s.startProbe()
	} else {
		s.probed = true
	}
	s.lookAgain()
}

// startProbe lets one more client write to every key and read it.
func (s *simulation) startProbe() {
	c := s.newClient(s.plan.clients+1, registered)
	probe := func(key string) {
		c.script = append(c.script,
			lincheck.Operation{Kind: lincheck.Append, Key: key, Value: c.token()},
			lincheck.Operation{Kind: lincheck.Get, Key: key})
	}
	for i := range s.plan.keys {
		probe(key(i))
	}
	for i := range s.plan.ledgers {
		probe(ledger(i))
	}
	c.script = append(c.script, lincheck.Operation{}) // its end
	s.nextCall(c)
}

// lookAgain looks from time to time whether the cluster has settled, and loses
// patience in the end.
func (s *simulation) lookAgain() {
	s.after(s.plan.electionTimeout, func() {
		unsettled := s.unsettled()
		switch {
		case unsettled == "" && s.quiet:
			s.settled = true
		case s.now > s.healAt+s.plan.mustSettleIn:
			s.fail("liveness", "%v after everything was healed, %s", s.now-s.healAt, unsettled+s.describe())
		default:
			s.quiet = unsettled == ""
			s.lookAgain()
		}
	})
}

// unsettled says what is still missing; "" if nothing is.
func (s *simulation) unsettled() string {
	switch {
	case !s.probed:
		return "the probe has not written and read every key"
	case s.lanes > 0:
		return fmt.Sprintf("%d calls have not ended", s.lanes)
	}
	var leader *node
	for _, n := range s.participants() {
		if n.status.State == raft.Leader {
			if leader != nil {
				return fmt.Sprintf("servers %d and %d both lead", leader.id, n.id)
			}
			leader = n
		}
	}
	if leader == nil {
		return "nobody leads"
	}
	if leader.configuration.Joint() || leader.status.ConfigurationIndex > leader.status.CommitIndex {
		return "a change of the members has not ended"
	}
	for _, n := range s.participants() {
		switch {
		case n.status.LeaderID != leader.id || n.status.Term != leader.status.Term:
			return fmt.Sprintf("server %d does not follow server %d", n.id, leader.id)
		case !s.profile.Clients:
		case n.status.CommitIndex != leader.status.LastIndex || len(n.commits) > 0:
			return fmt.Sprintf("server %d has not applied index %d", n.id, leader.status.LastIndex)
		case len(n.service.waiting) > 0:
			return fmt.Sprintf("%d requests wait at server %d", len(n.service.waiting), n.id)
		}
	}
	return ""
}

// describe tells in what state the servers are.
func (s *simulation) describe() string {
	var b strings.Builder
	for _, n := range s.nodes {
		fmt.Fprintf(&b, "\n\tserver %d: up %t, %s of term %d, leader %d, log %d/t%d, commit %d, inbox %d, busy %t",
			n.id, n.up, n.status.State, n.status.Term, n.status.LeaderID, n.status.LastIndex, n.status.LastTerm,
			n.status.CommitIndex, len(n.inbox), n.busy)
	}
	return b.String()
}
