package part2

import (
	"fmt"

	"raftkv/internal/cores"
	"raftkv/internal/labs/run"
	raft "raftkv/part2-commands"
	"raftkv/rafttest"
)

func cluster(t *run.T, n int) *rafttest.Cluster {
	return rafttest.NewSeed(t, t.Seed(), n, run.Nodes(t, cores.NewPart2))
}

// server is server 1 of some, without a cluster.
type server struct {
	t  *run.T
	cm *raft.ConsensusModule
}

func start(t *run.T, n int) (s server) {
	var peers []raft.ServerID
	for peer := 2; peer <= n; peer++ {
		peers = append(peers, raft.ServerID(peer))
	}
	s.t = t
	t.Do(1, fmt.Sprintf("it starts, one of %d", n), nil, func() { s.cm, _ = raft.NewConsensusModule(1, peers) })
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

func (s server) receive(from raft.ServerID, body raft.Body) []raft.Message {
	return s.step(raft.Message{From: from, To: 1, Body: body}).Send
}

func (s server) term() raft.Term { return s.cm.Status().Term }

// vote asks for a vote and wants it granted or refused.
func (s server) vote(candidate raft.ServerID, term raft.Term, want bool) {
	before := s.cm.Status()
	granted := false
	for _, m := range s.receive(candidate, raft.RequestVoteArgs{Term: term, CandidateID: candidate}) {
		reply, ok := m.Body.(raft.RequestVoteReply)
		granted = granted || ok && m.To == candidate && reply.VoteGranted
	}
	s.t.Want(granted == want, "One vote a term: the first candidate gets it, and nobody else (RV-1, RV-2)",
		"server 1, a %s in term %d that has voted for %s, is asked by server %d for its vote in term %d; granted is %t",
		before.State, before.Term, run.Who(before.VotedFor), candidate, term, granted)
}

// entries makes entries of these terms; each has a command of its own.
func entries(terms ...raft.Term) []raft.LogEntry {
	var list []raft.LogEntry
	for _, term := range terms {
		list = append(list, raft.LogEntry{Term: term, Command: fmt.Appendf(nil, "t%d", term)})
	}
	return list
}

// append sends AppendEntries of the newest term among the entries, or of term if
// that is newer, and returns the reply.
func (s server) append(from raft.ServerID, term raft.Term, prev raft.Index, prevTerm raft.Term, commit raft.Index, list []raft.LogEntry) raft.AppendEntriesReply {
	sent := s.receive(from, raft.AppendEntriesArgs{
		Term: term, LeaderID: from, PrevLogIndex: prev, PrevLogTerm: prevTerm, Entries: list, LeaderCommit: commit,
	})
	for _, m := range sent {
		if reply, ok := m.Body.(raft.AppendEntriesReply); ok && m.To == from {
			return reply
		}
	}
	s.t.Failf("Every AppendEntries is answered", "server 1 gets AppendEntries from server %d in term %d and sends no reply", from, term)
	return raft.AppendEntriesReply{}
}

// log returns the terms in the log.
func (s server) log() (terms []raft.Term) {
	for i := raft.Index(1); ; i++ {
		e, ok := s.cm.Entry(i)
		if !ok {
			return terms
		}
		terms = append(terms, e.Term)
	}
}

func (s server) commit() raft.Index { return s.cm.Status().CommitIndex }

// elect makes the server a leader: that many others vote for it.
func (s server) elect(others int) {
	s.step(raft.ElectionTimeout{})
	for from := range others {
		s.receive(raft.ServerID(from+2), raft.RequestVoteReply{Term: s.term(), VoteGranted: true, AskedTerm: s.term()})
	}
	s.t.Want(s.cm.Status().State == raft.Leader, "Roles: server 1 is the leader now", "it is a %s: %d others have voted for it", s.cm.Status().State, others)
}

// ack tells the leader that a follower has its log up to match.
func (s server) ack(from raft.ServerID, match raft.Index) {
	s.receive(from, raft.AppendEntriesReply{Term: s.term(), Success: true, AskedTerm: s.term(), MatchIndex: match})
}
