package raft

// A Message travels from one server to another. It may be lost, doubled,
// delayed beyond several elections or overtaken by a later one; every handler
// must be right for all of these.
type Message struct {
	From, To ServerID
	Body     Body
}

// Body is one of the message structs below.
type Body interface {
	// SenderTerm is the term that the sender was in.
	SenderTerm() Term
}

// Term returns the term that the message's sender was in.
func (m Message) Term() Term { return m.Body.SenderTerm() }

// RequestVoteArgs asks for a vote (Figure 2).
type RequestVoteArgs struct {
	Term        Term // the candidate's term
	CandidateID ServerID

	// The end of the candidate's log, for the comparison of §5.4.1.
	LastLogIndex Index
	LastLogTerm  Term
}

// RequestVoteReply answers RequestVoteArgs (Figure 2).
type RequestVoteReply struct {
	Term        Term // the replier's term, so that a late candidate steps down
	VoteGranted bool

	// AskedTerm is the term of the request. A reply here is a message of its
	// own that may outlive its election; a candidate counts it only if AskedTerm
	// is its current term (divergence D-1).
	AskedTerm Term
}

// AppendEntriesArgs replicates entries and, when it has none, is a heartbeat
// (Figure 2).
type AppendEntriesArgs struct {
	Term     Term // the leader's term
	LeaderID ServerID

	// The entry right before Entries; index 0 and term 0 at the log's beginning.
	PrevLogIndex Index
	PrevLogTerm  Term

	// Entries have the indexes PrevLogIndex+1, PrevLogIndex+2, …: a run without
	// holes, because nothing else can be written down here. Shared with the
	// sender's log and never changed afterwards.
	Entries []LogEntry

	LeaderCommit Index // the leader's commitIndex
}

// AppendEntriesReply answers AppendEntriesArgs (Figure 2).
type AppendEntriesReply struct {
	Term    Term // the replier's term, so that a deposed leader steps down
	Success bool // the log held PrevLogIndex with PrevLogTerm

	// What the reply is about. In the paper a reply belongs to a call; messages
	// here may be late or doubled, even across two leaderships of one server
	// (divergence D-1). The leader ignores a reply whose AskedTerm is not its own.
	AskedTerm    Term
	PrevLogIndex Index
	MatchIndex   Index // last index known equal on both logs; 0 if !Success

	// Where to look for agreement if !Success (end of §5.3, divergence D-2).
	// ConflictTerm is the term the replier has at PrevLogIndex and ConflictIndex
	// the first index of that term in its log. A log that ends before
	// PrevLogIndex has ConflictTerm 0 and ConflictIndex one past its end.
	ConflictIndex Index
	ConflictTerm  Term
}

func (a RequestVoteArgs) SenderTerm() Term    { return a.Term }
func (r RequestVoteReply) SenderTerm() Term   { return r.Term }
func (a AppendEntriesArgs) SenderTerm() Term  { return a.Term }
func (r AppendEntriesReply) SenderTerm() Term { return r.Term }
