package trace

import (
	"fmt"
	"strings"

	"raftkv/raft"
)

// String returns the record as one line for people:
//
//	0042 n2 follower t3 | n1: AppendEntries prev=4/t2 +2 commit=4 | log 4→6 commit 3→4 | save, →n1 ok match=6
//
// that is: number, server, role and term after the step; what happened; what
// changed; what is to be done. An empty last part is left out.
func (r *Record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%04d ", r.Number)
	if r.At != 0 {
		fmt.Fprintf(&b, "%.3fs ", r.At.Seconds())
	}
	fmt.Fprintf(&b, "n%d %s t%d | %s", r.Server, r.After.State, r.After.Term, r.what(Command))
	if changes := r.changes(); changes != "" {
		b.WriteString(" | " + changes)
	}
	if todo := todo(&r.Effects); todo != "" {
		b.WriteString(" | " + todo)
	}
	return b.String()
}

// what describes the event; describe turns a command into words.
func (r *Record) what(describe func([]byte) string) string {
	switch ev := r.Event.(type) {
	case nil:
		return r.Note
	case raft.ElectionTimeout:
		return "election timeout"
	case raft.HeartbeatTimeout:
		return "heartbeat timeout"
	case raft.LeaderContactTimeout:
		return "no leader lately"
	case raft.QuorumCheckTimeout:
		return "quorum check"
	case raft.TransferTimeout:
		return "transfer timeout"
	case raft.Submit:
		words := make([]string, len(ev.Commands))
		for i, c := range ev.Commands {
			words[i] = describe(c)
		}
		return "submit " + strings.Join(words, " ")
	case raft.Saved:
		return fmt.Sprintf("saved to %d in t%d", ev.Index, ev.Term)
	case raft.Applied:
		return fmt.Sprintf("applied to %d", ev.Index)
	case raft.Read:
		return "read" + requests(ev.Requests...)
	case raft.ChangeConfiguration:
		return fmt.Sprintf("change%s of %d to %s", requests(ev.Request), ev.Expected, Configuration(ev.Next))
	case raft.TransferLeadership:
		if ev.To == raft.None {
			return "transfer" + requests(ev.Request)
		}
		return fmt.Sprintf("transfer%s to n%d", requests(ev.Request), ev.To)
	case raft.SnapshotStored:
		return fmt.Sprintf("snapshot %d stored", ev.Snapshot.Index)
	case raft.SnapshotDamaged:
		return fmt.Sprintf("snapshot %d damaged", ev.Snapshot.Index)
	case raft.Message:
		return fmt.Sprintf("n%d: %s", ev.From, message(ev, r.Before.Term))
	}
	return fmt.Sprintf("%T", r.Event)
}

// changes describes how the state differs.
func (r *Record) changes() string {
	var words []string
	note := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	b, a := &r.Before, &r.After
	if a.State != b.State {
		note("%s→%s", b.State, a.State)
	}
	if a.Term != b.Term {
		note("term %d→%d", b.Term, a.Term)
	}
	if a.VotedFor != raft.None && (a.VotedFor != b.VotedFor || a.Term != b.Term) {
		note("votes for n%d", a.VotedFor)
	}
	if first := r.Effects.Save.FirstIndex; first != 0 && first <= b.LastIndex {
		note("log %d→%d→%d", b.LastIndex, first-1, a.LastIndex) // cut, then grown
	} else if a.LastIndex != b.LastIndex {
		note("log %d→%d", b.LastIndex, a.LastIndex)
	}
	if a.FirstIndex != b.FirstIndex {
		note("log from %d→%d", b.FirstIndex, a.FirstIndex)
	}
	if a.CommitIndex != b.CommitIndex {
		note("commit %d→%d", b.CommitIndex, a.CommitIndex)
	}
	if a.SnapshotIndex != b.SnapshotIndex {
		note("snapshot %d→%d", b.SnapshotIndex, a.SnapshotIndex)
	}
	if a.ConfigurationIndex != b.ConfigurationIndex {
		note("configuration %d→%d", b.ConfigurationIndex, a.ConfigurationIndex)
	}
	switch {
	case a.TransferTo == b.TransferTo:
	case a.TransferTo == raft.None:
		note("transfer ends")
	default:
		note("transfers to n%d", a.TransferTo)
	}
	return strings.Join(words, " ")
}

// todo lists the effects in the order in which they are carried out. Timers
// are left out: what restarts them is plain from the event, and there are many.
func todo(e *raft.Effects) string {
	var words []string
	for _, s := range e.Submitted {
		if s.Err != nil {
			words = append(words, "refused: "+s.Err.Error())
		}
	}
	for _, a := range e.Answers {
		switch {
		case a.Err != nil:
			words = append(words, fmt.Sprintf("answer #%d: %s", a.Request, a.Err))
		case a.Index != 0:
			words = append(words, fmt.Sprintf("answer #%d: index %d", a.Request, a.Index))
		default:
			words = append(words, fmt.Sprintf("answer #%d: done", a.Request))
		}
	}
	for _, m := range e.Send {
		words = append(words, fmt.Sprintf("→n%d %s", m.To, message(m, m.Term())))
	}
	if e.Save.Needed() {
		words = append(words, "save")
	}
	for _, c := range e.Receive {
		words = append(words, fmt.Sprintf("write bytes %d to %d of snapshot %d", c.Offset, c.Offset+uint64(len(c.Data)), c.Snapshot.Index))
	}
	for _, m := range e.SendAfter {
		words = append(words, fmt.Sprintf("→n%d %s", m.To, message(m, m.Term())))
	}
	commit := e.Commit
	if len(commit) > 0 && commit[0].Kind == raft.EntrySnapshot {
		words = append(words, fmt.Sprintf("apply snapshot %d", commit[0].Index))
		commit = commit[1:]
	}
	if n := len(commit); n > 0 {
		words = append(words, fmt.Sprintf("apply %d..%d", commit[0].Index, commit[n-1].Index))
	}
	if e.Compact != 0 {
		words = append(words, fmt.Sprintf("compact to %d", e.Compact))
	}
	return strings.Join(words, ", ")
}

// Message describes a message in a few words, such as "AppendEntries t3
// prev=4/t2 +2 commit=4" or "ok match=6 t3".
func Message(m raft.Message) string { return message(m, 0) }

// message leaves the term out if it is the one that the reader expects.
func message(m raft.Message, expected raft.Term) string {
	var t string
	if m.Term() != expected {
		t = fmt.Sprintf(" t%d", m.Term())
	}
	switch b := m.Body.(type) {
	case raft.RequestVoteArgs:
		s := fmt.Sprintf("RequestVote%s last=%d/t%d", t, b.LastLogIndex, b.LastLogTerm)
		if b.Transfer {
			s += " transfer"
		}
		return s
	case raft.PreVoteArgs:
		return fmt.Sprintf("PreVote%s last=%d/t%d round=%d", t, b.LastLogIndex, b.LastLogTerm, b.Round)
	case raft.RequestVoteReply:
		return vote(b.VoteGranted) + t
	case raft.PreVoteReply:
		return "pre-" + vote(b.VoteGranted) + t
	case raft.AppendEntriesArgs:
		s := fmt.Sprintf("AppendEntries%s prev=%d/t%d", t, b.PrevLogIndex, b.PrevLogTerm)
		if n := len(b.Entries); n > 0 {
			s += fmt.Sprintf(" +%d", n)
		}
		return s + fmt.Sprintf(" commit=%d", b.LeaderCommit)
	case raft.AppendEntriesReply:
		if b.Success {
			return fmt.Sprintf("ok match=%d%s", b.MatchIndex, t)
		}
		return fmt.Sprintf("no prev=%d conflict=%d/t%d%s", b.PrevLogIndex, b.ConflictIndex, b.ConflictTerm, t)
	case raft.InstallSnapshotArgs:
		s := fmt.Sprintf("InstallSnapshot%s last=%d/t%d", t, b.Snapshot.Index, b.Snapshot.Term)
		if b.Length == 0 {
			return s + " ask"
		}
		return s + fmt.Sprintf(" bytes %d to %d of %d", b.Offset, b.Offset+b.Length, b.Snapshot.Size)
	case raft.InstallSnapshotReply:
		if b.MatchIndex != 0 {
			return fmt.Sprintf("snapshot %d not needed match=%d%s", b.SnapshotIndex, b.MatchIndex, t)
		}
		return fmt.Sprintf("snapshot %d wanted from byte %d%s", b.SnapshotIndex, b.NextOffset, t)
	case raft.TimeoutNowArgs:
		return "TimeoutNow" + t
	}
	return fmt.Sprintf("%v", m.Body)
}

// requests writes the numbers of requests, each with a space before it.
func requests(ids ...raft.RequestID) string {
	var s string
	for _, id := range ids {
		s += fmt.Sprintf(" #%d", id)
	}
	return s
}

// Configuration writes a configuration in one word: the voters with commas
// between them; before them, while they change, the old ones and a ">"; behind
// them a "+" and the learners. "1,2,3>2,3,4+5" is an example.
func Configuration(c raft.Configuration) string {
	list := func(ids []raft.ServerID) string {
		return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ids)), ","), "[]")
	}
	s := list(c.Voters)
	if c.Joint() {
		s = list(c.OldVoters) + ">" + s
	}
	if len(c.Learners) > 0 {
		s += "+" + list(c.Learners)
	}
	if s == "" {
		return "nobody"
	}
	return s
}

func vote(granted bool) string {
	if granted {
		return "vote"
	}
	return "no vote"
}

// Content says in one word what an entry holds, as stories write it: a command, "-"
// for a leader's empty entry, or a configuration in braces.
func Content(e raft.LogEntry) string {
	switch e.Kind {
	case raft.EntryEmpty:
		return "-"
	case raft.EntryConfiguration:
		c, err := raft.DecodeConfiguration(e.Command)
		if err != nil {
			return "{?}"
		}
		return "{" + Configuration(c) + "}"
	}
	return Command(e.Command)
}

// Command describes a command: as it is if it reads well on one line, quoted if not.
func Command(c []byte) string {
	s := string(c)
	if quoted := fmt.Sprintf("%q", s); strings.ContainsAny(s, " ,|") || quoted != `"`+s+`"` || s == "" {
		return quoted
	}
	return s
}
