package invariant

import (
	"bytes"
	"slices"

	"raftkv/raft"
)

// disk is what of a server is known to survive a crash.
type disk struct {
	term raft.Term
	vote raft.ServerID
	log  terms

	snapshot raft.Index // the newest snapshot reaches up to here; 0 if there is none
}

// checkSave compares what has changed in a step with what it wants saved.
// A change that is in no Save would be forgotten in a crash.
func (c *Checker) checkSave(s *server, before raft.Status, changed raft.Index, save raft.Save) error {
	now := s.status
	if !save.Needed() {
		if now.Term != before.Term || now.VotedFor != before.VotedFor || changed != 0 {
			return s.violates(Durability, "changed its term, vote or log and saves nothing (term %d→%d, vote %d→%d, log from index %d)",
				before.Term, now.Term, before.VotedFor, now.VotedFor, changed)
		}
		return nil
	}
	switch {
	case save.CurrentTerm != now.Term || save.VotedFor != now.VotedFor:
		return s.violates(Durability, "is in term %d with vote %d, but saves term %d with vote %d",
			now.Term, now.VotedFor, save.CurrentTerm, save.VotedFor)
	case changed != 0 && save.Reset.Index == 0 && (save.FirstIndex == 0 || save.FirstIndex > changed):
		return s.violates(Durability, "changed its log from index %d, but saves it from index %d", changed, save.FirstIndex)
	case save.FirstIndex != 0 && save.FirstIndex-1+raft.Index(len(save.Entries)) != s.log.last():
		return s.violates(Durability, "saves %d entries from index %d, but its log ends at %d", len(save.Entries), save.FirstIndex, s.log.last())
	}
	for n, e := range save.Entries {
		if err := c.checkSaved(s, save.FirstIndex+raft.Index(n), e); err != nil {
			return err
		}
	}
	s.unsaved = true
	from := save.FirstIndex
	if save.Reset.Index != 0 {
		from = changed
	}
	if from != 0 && (s.rewrite == 0 || from < s.rewrite) {
		s.rewrite = from
	}
	return nil
}

// checkSaved demands that an entry to be saved is the one in the log.
func (c *Checker) checkSaved(s *server, i raft.Index, e raft.LogEntry) error {
	if s.log.has(i, e.Term) {
		for _, o := range c.seen[i] {
			if o.term == e.Term && o.kind == e.Kind && bytes.Equal(o.command, e.Command) {
				return nil
			}
		}
	}
	return s.violates(Durability, "saves another entry at index %d than its log has", i)
}

// write carries out a Save on s.disk.
func (c *Checker) write(s *server, save raft.Save) error {
	if reset := save.Reset; reset.Index != 0 {
		if reset.Index > s.disk.snapshot {
			return s.violates(Durability, "drops its log up to index %d, but its snapshot ends at %d", reset.Index, s.disk.snapshot)
		}
		s.disk.log = slices.Clone(c.committed[:reset.Index+1])
	}
	switch {
	case save.CurrentTerm < s.disk.term:
		return s.violates(Monotony, "saves term %d over term %d", save.CurrentTerm, s.disk.term)
	case save.CurrentTerm == s.disk.term && s.disk.vote != raft.None && save.VotedFor != s.disk.vote:
		return s.violates(VoteOnce, "saves a vote for %d in term %d over one for %d", save.VotedFor, save.CurrentTerm, s.disk.vote)
	case save.FirstIndex > s.disk.log.last()+1:
		return s.violates(Durability, "saves entries from index %d, but its disk ends at %d", save.FirstIndex, s.disk.log.last())
	}
	s.disk.term, s.disk.vote = save.CurrentTerm, save.VotedFor
	if save.FirstIndex != 0 {
		s.disk.log = s.disk.log[:save.FirstIndex]
		for _, e := range save.Entries {
			s.disk.log = append(s.disk.log, e.Term)
		}
	}
	return nil
}

// checkReload compares what a server finds on its disk with what was durable.
// It may find more: a Save that the crash interrupted can have arrived in part.
func (s *server) checkReload(saved raft.PersistentState) error {
	switch {
	case saved.CurrentTerm < s.disk.term:
		return s.violates(Durability, "restarts in term %d, but term %d was durable", saved.CurrentTerm, s.disk.term)
	case saved.CurrentTerm == s.disk.term && s.disk.vote != raft.None && saved.VotedFor != s.disk.vote:
		return s.violates(VoteOnce, "restarts with a vote for %d in term %d, but one for %d was durable", saved.VotedFor, saved.CurrentTerm, s.disk.vote)
	}
	if at := saved.Snapshot; at.Index != 0 && at.Index >= s.disk.snapshot && !s.disk.log.has(at.Index, at.Term) {
		return nil // stored right before the crash: the log was not of that history, or ended before
	}
	first := saved.Start.Index + 1 // the snapshot stands for what was before
	for i := first; i <= s.disk.log.last() && (s.rewrite == 0 || i < s.rewrite); i++ {
		if i-first >= raft.Index(len(saved.Entries)) || saved.Entries[i-first].Term != s.disk.log[i] {
			return s.violates(Durability, "restarts without index %d of term %d, which was durable", i, s.disk.log[i])
		}
	}
	return nil
}

// checkMessages judges each message at the moment it may leave.
func (c *Checker) checkMessages(s *server, effects raft.Effects) error {
	for _, m := range effects.Send {
		switch m.Body.(type) {
		case nil:
			return s.violates(Truth, "sends a message without content to server %d", m.To)
		case raft.RequestVoteArgs, raft.RequestVoteReply, raft.AppendEntriesReply, raft.PreVoteArgs, raft.PreVoteReply,
			raft.InstallSnapshotReply:
			return s.violates(Durability, "sends a %T before its disk is written", m.Body)
		}
		if m.Term() != s.disk.term {
			return s.violates(Durability, "sends a %T of term %d before its disk is written; term %d is durable", m.Body, m.Term(), s.disk.term)
		}
		if err := c.checkTruth(s, m); err != nil {
			return err
		}
	}
	for _, m := range effects.SendAfter {
		if m.Body == nil {
			return s.violates(Truth, "sends a message without content to server %d", m.To)
		}
		if err := c.checkTruth(s, m); err != nil {
			return err
		}
		if s.unsaved {
			s.waiting = append(s.waiting, m)
			continue
		}
		if err := c.checkLeaving(s, m); err != nil {
			return err
		}
	}
	return nil
}

// checkLeaving is called for a message that leaves now, with everything that it
// relies on durable.
func (c *Checker) checkLeaving(s *server, m raft.Message) error {
	switch body := m.Body.(type) {
	case raft.AppendEntriesReply:
		s.answersLeader(body.Term, body.AskedTerm, body.Round)
	case raft.InstallSnapshotReply:
		s.answersLeader(body.Term, body.AskedTerm, body.Round)
	}
	return c.checkPromise(s, m)
}

// checkPromise judges a message that leaves now. What it promises in its term
// must be on the disk, or the sender could come back from a crash and act
// against it. A later term on the disk covers it: no promise of an older term
// can be broken from there.
func (c *Checker) checkPromise(s *server, m raft.Message) error {
	term := m.Term()
	if term > s.disk.term {
		return s.violates(Durability, "sends a %T of term %d, but term %d is durable", m.Body, term, s.disk.term)
	}
	if term < s.disk.term {
		return nil
	}
	switch body := m.Body.(type) {
	case raft.RequestVoteArgs:
		if s.disk.vote != s.id {
			return s.violates(Durability, "asks for votes in term %d, but its own vote is not durable", term)
		}
	case raft.RequestVoteReply:
		if body.VoteGranted && s.disk.vote != m.To {
			return s.violates(Durability, "votes for %d in term %d, but a vote for %d is durable", m.To, term, s.disk.vote)
		}
	case raft.AppendEntriesReply:
		if body.Success {
			return c.checkAcknowledgement(s, m.To, term, body.MatchIndex)
		}
	case raft.InstallSnapshotReply:
		return c.checkAcknowledgement(s, m.To, term, body.MatchIndex)
	}
	return nil
}

// checkAcknowledgement judges "my log equals yours up to MatchIndex".
func (c *Checker) checkAcknowledgement(s *server, leader raft.ServerID, term raft.Term, match raft.Index) error {
	if match > s.disk.log.last() {
		return s.violates(Durability, "acknowledges index %d, but only %d is durable", match, s.disk.log.last())
	}
	// Only while the leader still leads that term is its log at hand.
	if l, err := c.server(leader); err == nil && l.status.State == raft.Leader && l.status.Term == term {
		if t := s.disk.log[match]; !l.log.has(match, t) {
			return s.violates(Durability, "acknowledges index %d, where it has term %d and leader %d has not", match, t, leader)
		}
	}
	if term > s.ackedTerm {
		s.ackedTerm, s.acked = term, 0
	}
	s.acked = max(s.acked, match)
	return nil
}

// checkTruth compares what a message says of its sender with the sender.
func (c *Checker) checkTruth(s *server, m raft.Message) error {
	if m.Term() != s.status.Term {
		return nil // within a batch, the log may have moved on
	}
	switch args := m.Body.(type) {
	case raft.AppendEntriesArgs:
		return c.checkEntriesSent(s, args)
	case raft.InstallSnapshotArgs:
		return c.checkPartSent(s, args)
	case raft.TimeoutNowArgs:
		return c.checkHandedOver(s, m.To, args)
	case raft.RequestVoteArgs:
		if args.Transfer && s.toldIn+1 != args.Term {
			return s.violates(Transfers, "says that the leader before term %d wanted this election", args.Term)
		}
	}
	return nil
}

// checkEntriesSent compares a leader's AppendEntries with its log.
func (c *Checker) checkEntriesSent(s *server, args raft.AppendEntriesArgs) error {
	last := args.PrevLogIndex + raft.Index(len(args.Entries))
	switch {
	case s.status.State != raft.Leader:
		return s.violates(Truth, "sends AppendEntries as %s of term %d", s.status.State, args.Term)
	case !s.log.has(args.PrevLogIndex, args.PrevLogTerm):
		return s.violates(Truth, "says that it has term %d at index %d", args.PrevLogTerm, args.PrevLogIndex)
	case last < args.PrevLogIndex || last > s.log.last():
		return s.violates(Truth, "sends entries up to index %d, but its log ends at %d", last, s.log.last())
	case args.LeaderCommit > s.status.CommitIndex:
		return s.violates(Truth, "says that %d is committed, but its commit index is %d", args.LeaderCommit, s.status.CommitIndex)
	}
	for n, e := range args.Entries {
		if i := args.PrevLogIndex + 1 + raft.Index(n); !s.log.has(i, e.Term) {
			return s.violates(Truth, "sends an entry of term %d for index %d, its log has another", e.Term, i)
		}
	}
	return nil
}
