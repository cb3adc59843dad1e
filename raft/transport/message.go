package transport

import (
	"encoding/binary"

	"raftkv/raft"
)

// The body kinds of a message frame.
const (
	requestVoteArgs byte = iota + 1
	requestVoteReply
	appendEntriesArgs
	appendEntriesReply
	preVoteArgs
	preVoteReply
	installSnapshotArgs
	installSnapshotReply
	timeoutNowArgs
)

const (
	messageHeader  = 8 + 8 + 8 + 1 // cluster, from, to, body kind
	appendHeader   = 6*8 + 4       // AppendEntriesArgs without its entries
	installHeader  = 9*8 + 4 + 4   // InstallSnapshotArgs without configuration and data
	entryLength    = 4             // before each entry
	smallestEntry  = 9             // raft/encoding.go: term and kind
	otherBodyBytes = 8 * 8         // no other body is longer
)

// messageSize returns how many bytes appendMessage adds, or a little more.
func messageSize(m raft.Message) int {
	switch body := m.Body.(type) {
	case raft.AppendEntriesArgs:
		n := messageHeader + appendHeader
		for _, e := range body.Entries {
			n += entryLength + e.EncodedSize()
		}
		return n
	case raft.InstallSnapshotArgs:
		return messageHeader + installHeader + len(body.Snapshot.Configuration.AppendTo(nil)) + len(body.Data)
	}
	return messageHeader + otherBodyBytes
}

// appendMessage appends the payload of a message frame, after its kind.
func appendMessage(b []byte, m raft.Message) []byte {
	b = appendUint64s(b, uint64(m.Cluster), uint64(m.From), uint64(m.To))
	switch body := m.Body.(type) {
	case raft.RequestVoteArgs:
		b = append(b, requestVoteArgs)
		b = appendUint64s(b, uint64(body.Term), uint64(body.CandidateID), uint64(body.LastLogIndex), uint64(body.LastLogTerm))
		return appendBool(b, body.Transfer)
	case raft.RequestVoteReply:
		b = append(b, requestVoteReply)
		b = appendUint64s(b, uint64(body.Term))
		b = appendBool(b, body.VoteGranted)
		return appendUint64s(b, uint64(body.AskedTerm))
	case raft.AppendEntriesArgs:
		b = append(b, appendEntriesArgs)
		b = appendUint64s(b, uint64(body.Term), uint64(body.LeaderID), uint64(body.PrevLogIndex), uint64(body.PrevLogTerm), uint64(body.LeaderCommit), uint64(body.Round))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(body.Entries)))
		for _, e := range body.Entries {
			b = binary.LittleEndian.AppendUint32(b, uint32(e.EncodedSize()))
			b = e.AppendTo(b)
		}
		return b
	case raft.AppendEntriesReply:
		b = append(b, appendEntriesReply)
		b = appendUint64s(b, uint64(body.Term))
		b = appendBool(b, body.Success)
		return appendUint64s(b, uint64(body.AskedTerm), uint64(body.PrevLogIndex), uint64(body.MatchIndex), uint64(body.ConflictIndex), uint64(body.ConflictTerm), uint64(body.Round))
	case raft.PreVoteArgs:
		b = append(b, preVoteArgs)
		return appendUint64s(b, uint64(body.Term), uint64(body.CandidateID), body.Round, uint64(body.LastLogIndex), uint64(body.LastLogTerm))
	case raft.PreVoteReply:
		b = append(b, preVoteReply)
		b = appendUint64s(b, uint64(body.Term))
		b = appendBool(b, body.VoteGranted)
		return appendUint64s(b, uint64(body.AskedTerm), body.Round)
	case raft.InstallSnapshotArgs:
		b = append(b, installSnapshotArgs)
		b = appendUint64s(b, uint64(body.Term), uint64(body.LeaderID))
		b = appendSnapshot(b, body.Snapshot)
		b = appendUint64s(b, body.Offset, body.Length, uint64(body.Round))
		return append(b, body.Data...)
	case raft.InstallSnapshotReply:
		b = append(b, installSnapshotReply)
		return appendUint64s(b, uint64(body.Term), uint64(body.AskedTerm), uint64(body.SnapshotIndex), body.NextOffset, uint64(body.MatchIndex), uint64(body.Round))
	case raft.TimeoutNowArgs:
		b = append(b, timeoutNowArgs)
		return appendUint64s(b, uint64(body.Term), uint64(body.LeaderID), uint64(body.Round))
	}
	panic("transport: a message body without an encoding")
}

func appendSnapshot(b []byte, s raft.Snapshot) []byte {
	b = appendUint64s(b, uint64(s.Index), uint64(s.Term), uint64(s.ConfigurationIndex), s.Size)
	b = binary.LittleEndian.AppendUint32(b, s.Checksum)
	configuration := s.Configuration.AppendTo(nil)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(configuration)))
	return append(b, configuration...)
}

func appendUint64s(b []byte, values ...uint64) []byte {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// decodeMessage reads what appendMessage wrote, and accepts no other bytes:
// encoding the result gives b again. Commands and parts of snapshots share b's
// memory, which must not change afterwards.
//
// A message that contradicts itself is refused here, because raft/ asserts
// what it relies on: one bad message would stop a server there.
func decodeMessage(b []byte) (raft.Message, error) {
	f := &fields{rest: b}
	m := raft.Message{
		Cluster: raft.ClusterID(f.uint64()),
		From:    raft.ServerID(f.uint64()),
		To:      raft.ServerID(f.uint64()),
	}
	kind := f.uint8()
	switch kind {
	case requestVoteArgs:
		m.Body = raft.RequestVoteArgs{Term: f.term(), CandidateID: f.server(), LastLogIndex: f.index(), LastLogTerm: f.term(), Transfer: f.bool()}
	case requestVoteReply:
		m.Body = raft.RequestVoteReply{Term: f.term(), VoteGranted: f.bool(), AskedTerm: f.term()}
	case appendEntriesArgs:
		m.Body = f.appendEntries()
	case appendEntriesReply:
		m.Body = raft.AppendEntriesReply{Term: f.term(), Success: f.bool(), AskedTerm: f.term(),
			PrevLogIndex: f.index(), MatchIndex: f.index(), ConflictIndex: f.index(), ConflictTerm: f.term(), Round: f.round()}
	case preVoteArgs:
		m.Body = raft.PreVoteArgs{Term: f.term(), CandidateID: f.server(), Round: f.uint64(), LastLogIndex: f.index(), LastLogTerm: f.term()}
	case preVoteReply:
		m.Body = raft.PreVoteReply{Term: f.term(), VoteGranted: f.bool(), AskedTerm: f.term(), Round: f.uint64()}
	case installSnapshotArgs:
		m.Body = f.installSnapshot()
	case installSnapshotReply:
		m.Body = raft.InstallSnapshotReply{Term: f.term(), AskedTerm: f.term(), SnapshotIndex: f.index(),
			NextOffset: f.uint64(), MatchIndex: f.index(), Round: f.round()}
	case timeoutNowArgs:
		m.Body = raft.TimeoutNowArgs{Term: f.term(), LeaderID: f.server(), Round: f.round()}
	default:
		return raft.Message{}, badf("a message has the unknown body kind %d", kind)
	}
	if !f.end() {
		return raft.Message{}, badf("a message of body kind %d has the wrong length or a field out of range", kind)
	}
	return m, contradiction(m)
}

func (f *fields) term() raft.Term       { return raft.Term(f.uint64()) }
func (f *fields) index() raft.Index     { return raft.Index(f.uint64()) }
func (f *fields) server() raft.ServerID { return raft.ServerID(f.uint64()) }
func (f *fields) round() raft.Round     { return raft.Round(f.uint64()) }

// bool accepts 0 and 1 only, so that a value has one encoding.
func (f *fields) bool() bool {
	v := f.uint8()
	f.bad = f.bad || v > 1
	return v == 1
}

func (f *fields) appendEntries() raft.AppendEntriesArgs {
	args := raft.AppendEntriesArgs{Term: f.term(), LeaderID: f.server(), PrevLogIndex: f.index(), PrevLogTerm: f.term(), LeaderCommit: f.index(), Round: f.round()}
	count := f.uint32()
	// A count that the remaining bytes cannot hold must not decide how much
	// memory is taken.
	if uint64(count)*(entryLength+smallestEntry) > uint64(len(f.rest)) {
		f.bad = true
		return args
	}
	if count > 0 {
		args.Entries = make([]raft.LogEntry, count)
	}
	for i := range args.Entries {
		entry, err := raft.DecodeEntry(f.bytes(f.uint32()))
		f.bad = f.bad || err != nil
		args.Entries[i] = entry
	}
	return args
}

func (f *fields) installSnapshot() raft.InstallSnapshotArgs {
	args := raft.InstallSnapshotArgs{Term: f.term(), LeaderID: f.server(), Snapshot: f.snapshot(),
		Offset: f.uint64(), Length: f.uint64(), Round: f.round()}
	if data := f.bytes(uint32(len(f.rest))); len(data) > 0 { // the rest; a frame has at most 1 GiB
		args.Data = data[:len(data):len(data)]
	}
	return args
}

func (f *fields) snapshot() raft.Snapshot {
	s := raft.Snapshot{Index: f.index(), Term: f.term(), ConfigurationIndex: f.index(), Size: f.uint64(), Checksum: f.uint32()}
	configuration, err := raft.DecodeConfiguration(f.bytes(f.uint32()))
	f.bad = f.bad || err != nil
	s.Configuration = configuration
	return s
}

// contradiction finds a message that no correct server sends.
func contradiction(m raft.Message) error {
	switch body := m.Body.(type) {
	case raft.RequestVoteArgs:
		if body.CandidateID != m.From {
			return badf("server %d asks for a vote for server %d", m.From, body.CandidateID)
		}
	case raft.PreVoteArgs:
		if body.CandidateID != m.From {
			return badf("server %d asks for a pre-vote for server %d", m.From, body.CandidateID)
		}
	case raft.AppendEntriesArgs:
		return appendContradiction(m.From, body)
	case raft.InstallSnapshotArgs:
		return installContradiction(m.From, body)
	case raft.TimeoutNowArgs:
		if body.LeaderID != m.From {
			return badf("server %d hands over for leader %d", m.From, body.LeaderID)
		}
	}
	return nil
}

// appendContradiction checks what the log's arithmetic relies on: terms do not
// fall along a log, none is above the leader's, and indexes do not wrap around.
func appendContradiction(from raft.ServerID, args raft.AppendEntriesArgs) error {
	if args.LeaderID != from {
		return badf("server %d sends entries of leader %d", from, args.LeaderID)
	}
	if (args.PrevLogIndex == 0) != (args.PrevLogTerm == 0) {
		return badf("entries follow index %d of term %d; only index 0 has term 0", args.PrevLogIndex, args.PrevLogTerm)
	}
	if last := args.PrevLogIndex + raft.Index(len(args.Entries)); last < args.PrevLogIndex {
		return badf("entries follow index %d, where no more fit", args.PrevLogIndex)
	}
	term := max(args.PrevLogTerm, 1) // no entry has term 0
	for i, e := range args.Entries {
		if e.Term < term {
			return badf("the entry at index %d has term %d, less than the term before it", args.PrevLogIndex+1+raft.Index(i), e.Term)
		}
		term = e.Term
	}
	if term > args.Term {
		return badf("the leader of term %d sends a log that reaches term %d", args.Term, term)
	}
	return nil
}

// installContradiction checks that there is such a snapshot, and that the part
// lies within it and has come whole. A part without its bytes is a question.
func installContradiction(from raft.ServerID, args raft.InstallSnapshotArgs) error {
	s := args.Snapshot
	switch {
	case args.LeaderID != from:
		return badf("server %d sends a snapshot of leader %d", from, args.LeaderID)
	case s.Index == 0 || s.Term == 0:
		return badf("a snapshot ends at index %d of term %d; both start at 1", s.Index, s.Term)
	case s.Term > args.Term:
		return badf("the leader of term %d sends a snapshot of term %d", args.Term, s.Term)
	case s.ConfigurationIndex > s.Index:
		return badf("a snapshot up to index %d has the configuration of index %d", s.Index, s.ConfigurationIndex)
	case args.Offset > s.Size || args.Length > s.Size-args.Offset:
		return badf("a part of %d bytes at %d does not lie within a snapshot of %d bytes", args.Length, args.Offset, s.Size)
	case len(args.Data) != 0 && uint64(len(args.Data)) != args.Length:
		return badf("a part of %d bytes has come with %d bytes", args.Length, len(args.Data))
	}
	return nil
}
