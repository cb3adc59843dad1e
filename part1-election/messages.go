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

// AppendEntriesArgs is a heartbeat (Figure 2).
type AppendEntriesArgs struct {
	Term     Term // the leader's term
	LeaderID ServerID
}

// AppendEntriesReply answers AppendEntriesArgs (Figure 2).
type AppendEntriesReply struct {
	Term    Term // the replier's term, so that a deposed leader steps down
	Success bool // the replier takes the sender for its leader
}

func (a RequestVoteArgs) SenderTerm() Term    { return a.Term }
func (r RequestVoteReply) SenderTerm() Term   { return r.Term }
func (a AppendEntriesArgs) SenderTerm() Term  { return a.Term }
func (r AppendEntriesReply) SenderTerm() Term { return r.Term }
