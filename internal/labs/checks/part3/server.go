package part3

import (
	"fmt"
	"slices"

	"raftkv/internal/cores"
	"raftkv/internal/labs/run"
	raft "raftkv/part3-persistence"
	"raftkv/rafttest"
)

func cluster(t *run.T, n int) *rafttest.Cluster {
	return rafttest.NewSeed(t, t.Seed(), n, run.Nodes(t, cores.NewPart3))
}

// server is server 1 of some, without a cluster, over a disk of ours.
type server struct {
	t  *run.T
	cm *raft.ConsensusModule

	// What its Saves have written; nothing of it is the server's own memory.
	disk raft.PersistentState
}

func start(t *run.T, n int, disk raft.PersistentState) *server {
	var peers []raft.ServerID
	for peer := 2; peer <= n; peer++ {
		peers = append(peers, raft.ServerID(peer))
	}
	s := &server{t: t, disk: disk}
	t.Do(1, fmt.Sprintf("it starts, one of %d", n), nil, func() {
		s.cm, _ = raft.NewConsensusModule(1, peers, raft.PersistentState{
			CurrentTerm: disk.CurrentTerm, VotedFor: disk.VotedFor, Entries: slices.Clone(disk.Entries),
		})
	})
	return s
}

// step has something happen and returns what is asked for, before any of it is done.
func (s *server) step(event raft.Event) (out raft.Effects) {
	what, body := fmt.Sprintf("%T", event)[len("raft."):], any(nil)
	if m, ok := event.(raft.Message); ok {
		what, body = fmt.Sprintf("it receives from server %d", m.From), m.Body
	}
	s.t.Do(1, what, body, func() { out = s.cm.Step(event) })
	return out
}

// write carries out the Save of a step, tells the server, and returns what it
// asks for then.
func (s *server) write(out raft.Effects) raft.Effects {
	if !out.Save.Needed() {
		return raft.Effects{}
	}
	s.disk.CurrentTerm, s.disk.VotedFor = out.Save.CurrentTerm, out.Save.VotedFor
	if first := out.Save.FirstIndex; first != 0 {
		s.t.Want(int(first) <= len(s.disk.Entries)+1, "Durability: no gap on the disk", "the disk has %d entries, and the Save begins at index %d", len(s.disk.Entries), first)
		s.disk.Entries = append(slices.Clone(s.disk.Entries[:first-1]), out.Save.Entries...)
	}
	now := s.cm.Status()
	return s.step(raft.Saved{Index: now.LastIndex, Term: now.Term})
}

// do has something happen, with all that follows, and returns all messages.
func (s *server) do(event raft.Event) (sent []raft.Message) {
	for out := s.step(event); ; out = s.write(out) {
		sent = append(append(sent, out.Send...), out.SendAfter...)
		if !out.Save.Needed() {
			return sent
		}
	}
}

// vote asks for a vote, wants it granted or refused, and returns what the
// question has brought about.
func (s *server) vote(candidate raft.ServerID, args raft.RequestVoteArgs, want bool) raft.Effects {
	before := s.cm.Status()
	args.CandidateID = candidate
	out := s.step(message(candidate, args))
	s.write(out)
	granted := slices.ContainsFunc(slices.Concat(out.Send, out.SendAfter), func(m raft.Message) bool {
		reply, ok := m.Body.(raft.RequestVoteReply)
		return ok && m.To == candidate && reply.VoteGranted
	})
	s.t.Want(granted == want, "Votes: one in a term, for a candidate whose log is up to date (RV-1, RV-2)",
		"server 1, a %s in term %d with entries of terms %v, has voted for %s; server %d, whose log ends at index %d, term %d, asks for its vote in term %d; granted is %t",
		before.State, before.Term, s.log(), run.Who(before.VotedFor), candidate, args.LastLogIndex, args.LastLogTerm, args.Term, granted)
	return out
}

// elect makes the server a leader: servers 2 and 3 vote for it.
func (s *server) elect() {
	s.do(raft.ElectionTimeout{})
	for _, from := range []raft.ServerID{2, 3} {
		if s.cm.Status().State != raft.Leader {
			s.do(granted(from, s.term()))
		}
	}
	s.t.Want(s.cm.Status().State == raft.Leader, "Roles: server 1 is the leader now", "it is a %s: servers 2 and 3 have voted for it", s.cm.Status().State)
}

// ack tells the leader that a follower has its log up to match.
func (s *server) ack(from raft.ServerID, match raft.Index) {
	s.do(message(from, raft.AppendEntriesReply{Term: s.term(), Success: true, AskedTerm: s.term(), MatchIndex: match}))
}

func message(from raft.ServerID, body raft.Body) raft.Message {
	return raft.Message{From: from, To: 1, Body: body}
}

func appendArgs(term raft.Term, prev raft.Index, prevTerm raft.Term, list []raft.LogEntry) raft.Message {
	return message(2, raft.AppendEntriesArgs{Term: term, LeaderID: 2, PrevLogIndex: prev, PrevLogTerm: prevTerm, Entries: list})
}

func granted(from raft.ServerID, term raft.Term) raft.Message {
	return message(from, raft.RequestVoteReply{Term: term, VoteGranted: true, AskedTerm: term})
}

// entries makes entries of these terms.
func entries(terms ...raft.Term) []raft.LogEntry {
	var list []raft.LogEntry
	for _, term := range terms {
		list = append(list, raft.LogEntry{Term: term, Command: fmt.Appendf(nil, "t%d", term)})
	}
	return list
}

func termsOf(list []raft.LogEntry) (terms []raft.Term) {
	for _, e := range list {
		terms = append(terms, e.Term)
	}
	return terms
}

func (s *server) term() raft.Term { return s.cm.Status().Term }

// log returns the terms in the log.
func (s *server) log() (terms []raft.Term) {
	for i := raft.Index(1); ; i++ {
		e, ok := s.cm.Entry(i)
		if !ok {
			return terms
		}
		terms = append(terms, e.Term)
	}
}

// durable wants the disk to hold what the server knows.
func (s *server) durable(after string) {
	now := s.cm.Status()
	s.t.Want(s.disk.CurrentTerm == now.Term && s.disk.VotedFor == now.VotedFor, "Durability: term and vote are on the disk (Figure 2, persistent state)",
		"after %s server 1 is in term %d and has voted for server %d; its disk says term %d, server %d", after, now.Term, now.VotedFor, s.disk.CurrentTerm, s.disk.VotedFor)
	s.t.Want(slices.Equal(termsOf(s.disk.Entries), s.log()), "Durability: the log is on the disk (Figure 2, persistent state)",
		"after %s server 1 has entries of terms %v; its disk has %v", after, s.log(), termsOf(s.disk.Entries))
}
