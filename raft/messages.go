package raft

// A Message travels from one server to another. It may be lost, doubled,
// delayed beyond several elections or overtaken by a later one; every handler
// must be right for all of these.
type Message struct {
	Cluster  ClusterID // the cluster both ends believe to be in
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

	// Transfer says that the leader itself has asked for this election, so that
	// nobody protects it (thesis 4.2.3).
	Transfer bool
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

	Round Round // the leader's latest when this left, see read.go
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

	Round Round // that of the request
}

// PreVoteArgs asks whether an election in term Term+1 could be won, before
// anything is changed for it (thesis 9.6).
type PreVoteArgs struct {
	Term        Term // the asker's current term, which stays what it is
	CandidateID ServerID
	Round       uint64 // counts the asker's attempts since it started

	LastLogIndex Index
	LastLogTerm  Term
}

// PreVoteReply answers PreVoteArgs.
type PreVoteReply struct {
	Term        Term // the replier's term
	VoteGranted bool

	// The request this answers: an earlier attempt's yes says nothing about now.
	AskedTerm Term
	Round     uint64
}

// InstallSnapshotArgs brings a follower a part of a snapshot, because the
// entries that it lacks are no longer in the leader's log (§7, Figure 13).
// With Length 0 it asks how much the follower has, and is a heartbeat.
type InstallSnapshotArgs struct {
	Term     Term // the leader's term
	LeaderID ServerID
	Snapshot Snapshot // what the parts make up

	// The part: where in the snapshot it begins, its length, and its bytes. The
	// module leaves Data nil and the server fills it in.
	Offset uint64
	Length uint64
	Data   []byte

	Round Round // as in AppendEntriesArgs
}

// InstallSnapshotReply answers InstallSnapshotArgs. In Figure 13 it says
// nothing but the term; then a lost part, or a follower that restarts half way,
// could not be told from success (divergence D-3).
type InstallSnapshotReply struct {
	Term Term // the replier's term, so that a deposed leader steps down

	// What the reply is about, as in AppendEntriesReply.
	AskedTerm     Term
	SnapshotIndex Index

	NextOffset uint64 // where the follower wants the next part to begin
	MatchIndex Index  // as in AppendEntriesReply; 0 as long as the snapshot is needed

	Round Round // that of the request
}

// TimeoutNowArgs asks a server to start an election at once, because the leader
// wants to hand over to it (thesis 3.10). There is no reply: a request for votes
// in the next term is the answer.
type TimeoutNowArgs struct {
	Term     Term
	LeaderID ServerID
	Round    Round // as in AppendEntriesArgs
}

func (a RequestVoteArgs) SenderTerm() Term    { return a.Term }
func (r RequestVoteReply) SenderTerm() Term   { return r.Term }
func (a AppendEntriesArgs) SenderTerm() Term  { return a.Term }
func (r AppendEntriesReply) SenderTerm() Term { return r.Term }
func (a PreVoteArgs) SenderTerm() Term        { return a.Term }
func (r PreVoteReply) SenderTerm() Term       { return r.Term }

func (a InstallSnapshotArgs) SenderTerm() Term  { return a.Term }
func (r InstallSnapshotReply) SenderTerm() Term { return r.Term }
func (a TimeoutNowArgs) SenderTerm() Term       { return a.Term }
