// Package part1 is the checks of part 1: elections.
//
// Stories run whole clusters; rafttest looks after the rules that no schedule
// may break. Where a schedule would seldom come to the point, one server is given
// the messages that do.
package part1

import (
	"fmt"
	"slices"
	"time"

	"raftkv/internal/cores"
	"raftkv/internal/labs/run"
	raft "raftkv/part1-election"
	"raftkv/rafttest"
)

// Funcs are the checks by their ids in labs/part1/checks.txt.
var Funcs = map[string]run.Func{
	"election/1": oneLeader,
	"election/2": leaderStays,
	"election/3": leaderReplaced,
	"votes/1":    oneVoteATerm,
	"votes/2":    votesCounted,
	"terms/1":    newerTermWins,
	"timers/1":   timers,
	"chaos/1":    chaos,
}

func cluster(t *run.T, n int) *rafttest.Cluster {
	return rafttest.NewSeed(t, t.Seed(), n, run.Nodes(t, cores.NewPart1))
}

func oneLeader(t *run.T) {
	for _, n := range []int{1, 2, 3, 5} {
		cluster(t, n).CheckSingleLeader()
	}
}

func leaderStays(t *run.T) {
	c := cluster(t, 5)
	first := c.CheckSingleLeader()
	c.RunFor(time.Second)
	term := first.Status().Term
	c.RunFor(5 * time.Second)
	t.Want(first.Status().State == "leader" && first.Status().Term == term,
		"Liveness: a leader that everybody hears stays the leader",
		"%v led term %d; five quiet seconds later it is a %s in term %d", first, term, first.Status().State, first.Status().Term)
	for _, s := range c.Servers() {
		t.Want(s.Status().LeaderID == first.ID() && s.Status().Term == term,
			"Liveness: everybody knows the leader",
			"%v leads term %d, but %v takes server %d for the leader of term %d", first, term, s, s.Status().LeaderID, s.Status().Term)
	}
}

func leaderReplaced(t *run.T) {
	c := cluster(t, 5)
	old := c.CrashLeader()
	next := c.CheckSingleLeader()
	t.Want(next.Status().Term > old.Status().Term, "Election safety: a new leader has a new term",
		"%v led term %d and has crashed; now %v leads term %d", old, old.Status().Term, next, next.Status().Term)
	c.CrashLeader()
	c.CheckSingleLeader()
	c.CrashLeader() // and this one was one too many
	c.CheckNoLeader()
}

func oneVoteATerm(t *run.T) {
	s := start(t, 1, 3)
	s.vote(2, 1, true)
	s.vote(3, 1, false) // the vote is given
	s.vote(2, 1, true)  // asked again, it is the same vote
	s.heartbeat(2, 1)
	s.vote(3, 1, false) // and a heartbeat does not take it back
	s.vote(3, 2, true)  // a new term, a new vote
	s.vote(2, 1, false) // the old term is over

	s = start(t, 1, 3)
	s.heartbeat(2, 5)
	s.vote(3, 4, false) // its vote is free, and this is not the term to give it in

	s = start(t, 1, 3)
	s.step(raft.ElectionTimeout{}) // it votes for itself
	s.vote(2, s.term(), false)
	s.heartbeat(2, s.term()) // it has lost the election, not the memory
	s.vote(3, s.term(), false)
}

func votesCounted(t *run.T) {
	granted := func(term raft.Term) raft.RequestVoteReply {
		return raft.RequestVoteReply{Term: term, VoteGranted: true, AskedTerm: term}
	}
	s := start(t, 1, 5)
	s.step(raft.ElectionTimeout{})
	s.receive(2, granted(s.term()))
	s.isNot(raft.Leader, "it has two votes of five")
	s.receive(2, granted(s.term()))
	s.isNot(raft.Leader, "two servers of five have voted for it; a doubled reply is one vote")
	s.receive(3, raft.RequestVoteReply{Term: s.term(), AskedTerm: s.term()})
	s.isNot(raft.Leader, "two of five have voted for it; server 3 has refused")
	first := s.term()
	s.step(raft.ElectionTimeout{})
	// These were under way when the first election ended.
	s.receive(3, granted(first))
	s.receive(4, granted(first))
	s.isNot(raft.Leader, "the votes that it has received were given in an earlier term than the one in which it is a candidate")
	s.receive(2, granted(s.term()))
	s.receive(3, granted(s.term()))
	s.is(raft.Leader, "three of five have voted for it in this term")

	s = start(t, 1, 4)
	s.step(raft.ElectionTimeout{})
	s.receive(2, granted(s.term()))
	s.isNot(raft.Leader, "it has two votes of four, and that is no majority")
	s.receive(3, granted(s.term()))
	s.is(raft.Leader, "three of four have voted for it")
}

func newerTermWins(t *run.T) {
	newer := []raft.Body{
		raft.RequestVoteArgs{Term: 7, CandidateID: 2},
		raft.RequestVoteReply{Term: 7, AskedTerm: 1},
		raft.AppendEntriesArgs{Term: 7, LeaderID: 2},
		raft.AppendEntriesReply{Term: 7},
	}
	for _, body := range newer {
		s := start(t, 1, 3)
		s.elect()
		led := s.term()
		s.receive(2, body)
		now := s.cm.Status()
		t.Want(now.State == raft.Follower && now.Term == 7, "Newer terms win: whoever hears of one becomes a follower in it (ALL-2)",
			"server 1 leads term %d and receives %s; now it is a %s in term %d", led, rafttest.Describe(body), now.State, now.Term)
	}

	s := start(t, 1, 3)
	s.step(raft.ElectionTimeout{})
	s.heartbeat(2, s.term())
	s.is(raft.Follower, "server 2 leads the term in which it was a candidate (CAN-3)")
	t.Want(s.cm.Status().LeaderID == 2, "A follower knows its leader", "server 2 has sent a heartbeat, and server 1 takes server %d for the leader", s.cm.Status().LeaderID)

	s.vote(3, 5, true)
	out := s.heartbeat(2, 1) // an old leader
	t.Want(s.cm.Status().Term == 5 && s.cm.Status().LeaderID != 2, "Old leaders are refused (AE-1)",
		"server 1 is in term 5 and receives a heartbeat of term 1; now it is in term %d and takes server %d for the leader", s.cm.Status().Term, s.cm.Status().LeaderID)
	told := slices.ContainsFunc(out.Send, func(m raft.Message) bool { return m.To == 2 && m.Term() == 5 })
	t.Want(told, "Old leaders are told the newer term (AE-1)", "server 1 is in term 5, receives a heartbeat of term 1 from server 2, and does not answer with its term")

	out = s.vote(2, 4, false) // an old candidate
	told = slices.ContainsFunc(out.Send, func(m raft.Message) bool { return m.To == 2 && m.Term() == 5 })
	t.Want(told, "Old candidates are told the newer term (RV-1)", "server 1 is in term 5, server 2 asks it for its vote in term 4, and the answer with its term does not come")
}

func timers(t *run.T) {
	s := start(t, 1, 3)
	out := s.vote(2, 1, true)
	t.Want(out.Timers[raft.ElectionTimer] == raft.RestartTimer, "Election timer: a vote restarts it (FOL-2)", "server 1 has voted for server 2 and goes on waiting as before")
	out = s.vote(3, 1, false)
	t.Want(out.Timers[raft.ElectionTimer] != raft.RestartTimer, "Election timer: a refused vote does not restart it (FOL-2)", "server 1 has refused server 3 its vote, and waits for it all the same")
	out = s.heartbeat(2, 1)
	t.Want(out.Timers[raft.ElectionTimer] == raft.RestartTimer, "Election timer: the leader's messages restart it (FOL-2)", "server 1 hears from its leader and goes on waiting as before")
	out = s.heartbeat(3, 0)
	t.Want(out.Timers[raft.ElectionTimer] != raft.RestartTimer, "Election timer: an old leader's messages do not restart it (FOL-2)", "server 1 hears from the leader of a term that is over, and waits for it all the same")

	out = s.step(raft.ElectionTimeout{})
	t.Want(out.Timers[raft.ElectionTimer] == raft.RestartTimer, "Election timer: a candidate restarts it (CAN-4)", "server 1 has become a candidate without a timer: if the votes are split, nothing will ever happen")
	out = s.receive(2, raft.RequestVoteReply{Term: s.term(), VoteGranted: true, AskedTerm: s.term()})
	s.is(raft.Leader, "two of three have voted for it")
	t.Want(out.Timers[raft.ElectionTimer] == raft.StopTimer, "Election timer: a leader stops it", "server 1 has become the leader, and its election timer still runs")
	t.Want(out.Timers[raft.HeartbeatTimer] == raft.RestartTimer && len(out.Send) == 2, "Heartbeats: a leader sends them at once (LEAD-1)",
		"server 1 has become the leader of three servers, sends %d messages, and %s", len(out.Send), map[bool]string{true: "its heartbeat timer runs", false: "its heartbeat timer does not run"}[out.Timers[raft.HeartbeatTimer] == raft.RestartTimer])
	out = s.receive(2, raft.AppendEntriesReply{Term: 9})
	t.Want(out.Timers[raft.ElectionTimer] == raft.RestartTimer && out.Timers[raft.HeartbeatTimer] == raft.StopTimer,
		"Timers: a deposed leader waits like a follower", "server 1 led and hears of term 9; its election timer must start and its heartbeat timer stop")
}

func chaos(t *run.T) {
	c := cluster(t, 5)
	c.Chaos(5*time.Second, rafttest.IsolateServers, rafttest.CutLinks, rafttest.LoseMessages, rafttest.DelayMessages)
	c.CheckSingleLeader()
}

// server is one server without a cluster.
type server struct {
	t  *run.T
	cm *raft.ConsensusModule
}

func start(t *run.T, id, n int) (s server) {
	var peers []raft.ServerID
	for peer := 1; peer <= n; peer++ {
		if peer != id {
			peers = append(peers, raft.ServerID(peer))
		}
	}
	s.t = t
	t.Do(id, fmt.Sprintf("it starts, one of %d", n), nil, func() { s.cm, _ = raft.NewConsensusModule(raft.ServerID(id), peers) })
	return s
}

func (s server) step(event raft.Event) (out raft.Effects) {
	what, body := fmt.Sprintf("%T", event)[len("raft."):], any(nil)
	if m, ok := event.(raft.Message); ok {
		what, body = fmt.Sprintf("it receives from server %d", m.From), m.Body
	}
	s.t.Do(1, what, body, func() { out = s.cm.Step(event) })
	return out
}

func (s server) term() raft.Term { return s.cm.Status().Term }

// elect makes server 1 of three the leader.
func (s server) elect() {
	s.step(raft.ElectionTimeout{})
	s.receive(2, raft.RequestVoteReply{Term: s.term(), VoteGranted: true, AskedTerm: s.term()})
	s.is(raft.Leader, "two of three have voted for it")
}

func (s server) receive(from raft.ServerID, body raft.Body) raft.Effects {
	return s.step(raft.Message{From: from, To: 1, Body: body})
}

func (s server) heartbeat(from raft.ServerID, term raft.Term) raft.Effects {
	return s.receive(from, raft.AppendEntriesArgs{Term: term, LeaderID: from})
}

// vote asks for a vote and wants it granted or refused.
func (s server) vote(candidate raft.ServerID, term raft.Term, want bool) raft.Effects {
	before := s.cm.Status()
	out := s.receive(candidate, raft.RequestVoteArgs{Term: term, CandidateID: candidate})
	granted := slices.ContainsFunc(out.Send, func(m raft.Message) bool {
		reply, ok := m.Body.(raft.RequestVoteReply)
		return ok && m.To == candidate && reply.VoteGranted
	})
	did := map[bool]string{true: "votes for it", false: "does not"}
	s.t.Want(granted == want, "One vote a term: the first candidate gets it, and nobody else (RV-1, RV-2)",
		"server 1, a %s in term %d that has voted for %s, is asked by server %d for its vote in term %d, and %s",
		before.State, before.Term, run.Who(before.VotedFor), candidate, term, did[granted])
	return out
}

func (s server) is(state raft.CMState, why string) {
	now := s.cm.Status().State
	s.t.Want(now == state, fmt.Sprintf("Roles: server 1 is the %s now", state), "it is a %s: %s", now, why)
}

func (s server) isNot(state raft.CMState, why string) {
	s.t.Want(s.cm.Status().State != state, fmt.Sprintf("Election safety: server 1 is not the %s", state), "it is: %s", why)
}
