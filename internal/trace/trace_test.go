package trace

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"raftkv/raft"
)

func entry(term raft.Term, command string) raft.LogEntry {
	return raft.LogEntry{Term: term, Command: []byte(command)}
}

// records holds one of each event and message.
func records() []*Record {
	message := func(body raft.Body) raft.Message { return raft.Message{Cluster: 7, From: 1, To: 2, Body: body} }
	reply := func(body raft.Body) raft.Message { return raft.Message{Cluster: 7, From: 2, To: 1, Body: body} }
	follower := func(term raft.Term, last, commit raft.Index) raft.Status {
		return raft.Status{ID: 2, Term: term, LastIndex: last, LastTerm: term, CommitIndex: commit}
	}
	leader := func(last, commit raft.Index) raft.Status {
		s := follower(3, last, commit)
		s.State, s.VotedFor, s.LeaderID = raft.Leader, 2, 2
		return s
	}
	candidate := follower(4, 6, 4)
	candidate.State, candidate.VotedFor = raft.Candidate, 2
	pre := follower(3, 6, 4)
	pre.State = raft.PreCandidate
	with := func(s raft.Status, change func(*raft.Status)) raft.Status {
		change(&s)
		return s
	}
	joint := raft.Configuration{Voters: []raft.ServerID{2, 3, 4}, OldVoters: []raft.ServerID{1, 2, 3}, Learners: []raft.ServerID{5}}
	snapshot := raft.Snapshot{Index: 6, Term: 3, Size: 12}

	return []*Record{
		{Number: 42, Server: 2, Before: follower(3, 4, 3), After: follower(3, 6, 4),
			Event: message(raft.AppendEntriesArgs{Term: 3, LeaderID: 1, PrevLogIndex: 4, PrevLogTerm: 2, Entries: []raft.LogEntry{entry(3, "x=1"), entry(3, "y=2")}, LeaderCommit: 4}),
			Effects: raft.Effects{
				Save:      raft.Save{CurrentTerm: 3, FirstIndex: 5, Entries: []raft.LogEntry{entry(3, "x=1"), entry(3, "y=2")}},
				SendAfter: []raft.Message{reply(raft.AppendEntriesReply{Term: 3, Success: true, AskedTerm: 3, PrevLogIndex: 4, MatchIndex: 6})},
			}},
		{Number: 43, At: 1500 * time.Millisecond, Server: 2, Before: follower(3, 6, 4), After: follower(3, 5, 4),
			Event: message(raft.AppendEntriesArgs{Term: 3, LeaderID: 1, PrevLogIndex: 4, PrevLogTerm: 2, Entries: []raft.LogEntry{entry(3, "z=1")}, LeaderCommit: 4}),
			Effects: raft.Effects{
				Save:   raft.Save{CurrentTerm: 3, FirstIndex: 5, Entries: []raft.LogEntry{entry(3, "z=1")}},
				Commit: []raft.CommitEntry{{Index: 3, Term: 1}, {Index: 4, Term: 2, Command: []byte("w=1")}},
			}},
		{Number: 44, Server: 2, Before: follower(3, 6, 4), After: follower(3, 6, 4),
			Event:   message(raft.AppendEntriesArgs{Term: 2, LeaderID: 1, PrevLogIndex: 9, PrevLogTerm: 2, LeaderCommit: 9}),
			Effects: raft.Effects{SendAfter: []raft.Message{reply(raft.AppendEntriesReply{Term: 3, AskedTerm: 2, PrevLogIndex: 9, ConflictIndex: 7})}}},
		{Number: 45, Server: 2, Before: follower(3, 6, 4), After: pre,
			Event:   raft.ElectionTimeout{Number: 3},
			Effects: raft.Effects{SendAfter: []raft.Message{reply(raft.PreVoteArgs{Term: 3, CandidateID: 2, Round: 1, LastLogIndex: 6, LastLogTerm: 3})}}},
		{Number: 46, Server: 2, Before: pre, After: candidate,
			Event: message(raft.PreVoteReply{Term: 3, AskedTerm: 3, Round: 1, VoteGranted: true}),
			Effects: raft.Effects{
				Save:      raft.Save{CurrentTerm: 4, VotedFor: 2},
				SendAfter: []raft.Message{reply(raft.RequestVoteArgs{Term: 4, CandidateID: 2, LastLogIndex: 6, LastLogTerm: 3})},
				Timers:    raft.Timers{raft.ElectionTimer: {Action: raft.RestartTimer, Number: 4}, raft.HeartbeatTimer: {Action: raft.StopTimer}},
			}},
		{Number: 47, Server: 2, Before: candidate, After: candidate, Event: message(raft.RequestVoteReply{Term: 4, AskedTerm: 4})},
		{Number: 48, Server: 2, Before: leader(6, 4), After: leader(8, 4),
			Event: raft.Submit{Commands: [][]byte{[]byte("x=1"), []byte("two words")}},
			Effects: raft.Effects{
				Submitted: []raft.Submitted{{FirstIndex: 7, Term: 3}},
				Send:      []raft.Message{reply(raft.AppendEntriesArgs{Term: 3, LeaderID: 2, PrevLogIndex: 6, PrevLogTerm: 3, Entries: []raft.LogEntry{entry(3, "x=1"), entry(3, "two words")}, LeaderCommit: 4})},
			}},
		{Number: 49, Server: 2, Before: pre, After: pre, Event: raft.Submit{Commands: [][]byte{[]byte("x=1")}},
			Effects: raft.Effects{Submitted: []raft.Submitted{{Term: 3, Err: &raft.NotLeaderError{Leader: 1, Term: 3}}}}},
		{Number: 50, Server: 2, Before: leader(8, 4), After: leader(8, 8), Event: raft.Saved{Index: 8, Term: 3}},
		{Number: 51, Server: 2, Before: leader(8, 8), After: leader(8, 8), Event: raft.Applied{Index: 8}},
		{Number: 52, Server: 2, Before: leader(8, 8), After: leader(8, 8), Event: raft.HeartbeatTimeout{Number: 5}},
		{Number: 53, Server: 2, Before: leader(8, 8), After: follower(3, 8, 8), Event: raft.QuorumCheckTimeout{Number: 6}},
		{Number: 54, Server: 2, Before: follower(3, 8, 8), After: follower(3, 8, 8), Event: raft.LeaderContactTimeout{Number: 7}},
		{Number: 55, Server: 2, Before: follower(3, 8, 8), After: follower(3, 8, 8), Note: "crash"},
		{Number: 56, Server: 2, Before: leader(8, 8), After: leader(8, 8), Event: raft.Read{Requests: []raft.RequestID{1, 2}}},
		{Number: 57, Server: 2, Before: leader(8, 8), After: leader(8, 8),
			Event: message(raft.AppendEntriesReply{Term: 3, Success: true, AskedTerm: 3, PrevLogIndex: 8, MatchIndex: 8, Round: 4}),
			Effects: raft.Effects{Answers: []raft.Answer{
				{Request: 1, Index: 8}, {Request: 2, Err: &raft.NotLeaderError{Term: 3}}, {Request: 3}}}},
		{Number: 58, Server: 2, Before: leader(8, 8), After: with(leader(9, 8), func(s *raft.Status) { s.ConfigurationIndex = 9 }),
			Event: raft.ChangeConfiguration{Request: 3, Next: joint}},
		{Number: 59, Server: 2, Before: leader(9, 9), After: with(leader(9, 9), func(s *raft.Status) { s.TransferTo = 1 }),
			Event:   raft.TransferLeadership{Request: 4, To: 1},
			Effects: raft.Effects{Send: []raft.Message{reply(raft.TimeoutNowArgs{Term: 3, LeaderID: 2})}}},
		{Number: 60, Server: 2, Before: with(leader(9, 9), func(s *raft.Status) { s.TransferTo = 1 }), After: leader(9, 9), Event: raft.TransferTimeout{Number: 8}},
		{Number: 61, Server: 2, Before: leader(9, 9), After: leader(9, 9), Event: raft.TransferLeadership{Request: 5}},
		{Number: 62, Server: 2, Before: leader(9, 9),
			After:   with(leader(9, 9), func(s *raft.Status) { s.FirstIndex, s.SnapshotIndex = 7, 6 }),
			Event:   raft.SnapshotStored{Snapshot: snapshot},
			Effects: raft.Effects{Compact: 6}},
		{Number: 63, Server: 2, Before: leader(9, 9), After: leader(9, 9),
			Event:   message(raft.InstallSnapshotReply{Term: 3, AskedTerm: 3, SnapshotIndex: 6, NextOffset: 8}),
			Effects: raft.Effects{Send: []raft.Message{reply(raft.InstallSnapshotArgs{Term: 3, LeaderID: 2, Snapshot: snapshot, Offset: 8, Length: 4})}}},
		{Number: 64, Server: 2, Before: follower(3, 4, 4), After: follower(3, 4, 4),
			Event: message(raft.InstallSnapshotArgs{Term: 3, LeaderID: 1, Snapshot: snapshot, Offset: 8, Length: 4, Data: []byte("more")}),
			Effects: raft.Effects{
				Receive:   []raft.Chunk{{Snapshot: snapshot, Offset: 8, Data: []byte("more")}},
				SendAfter: []raft.Message{reply(raft.InstallSnapshotReply{Term: 3, AskedTerm: 3, SnapshotIndex: 6, NextOffset: 12})}}},
		{Number: 65, Server: 2, Before: follower(3, 4, 4), After: with(follower(3, 6, 6), func(s *raft.Status) { s.FirstIndex, s.SnapshotIndex = 7, 6 }),
			Event: raft.SnapshotStored{Snapshot: snapshot},
			Effects: raft.Effects{
				Save:   raft.Save{CurrentTerm: 3, Reset: raft.LogPosition{Index: 6, Term: 3}},
				Commit: []raft.CommitEntry{{Index: 6, Term: 3, Kind: raft.EntrySnapshot}, {Index: 7, Term: 3}}}},
		{Number: 66, Server: 2, Before: follower(3, 4, 4), After: follower(3, 4, 4), Event: raft.SnapshotDamaged{Snapshot: snapshot}},
		{Number: 67, Server: 2, Before: follower(3, 9, 9), After: follower(3, 9, 9),
			Event:   message(raft.InstallSnapshotArgs{Term: 3, LeaderID: 1, Snapshot: snapshot}),
			Effects: raft.Effects{SendAfter: []raft.Message{reply(raft.InstallSnapshotReply{Term: 3, AskedTerm: 3, SnapshotIndex: 6, MatchIndex: 9})}}},
		{Number: 68, Server: 2, Before: follower(3, 6, 4), After: candidate,
			Event: message(raft.TimeoutNowArgs{Term: 3, LeaderID: 1}),
			Effects: raft.Effects{
				Save:      raft.Save{CurrentTerm: 4, VotedFor: 2},
				SendAfter: []raft.Message{reply(raft.RequestVoteArgs{Term: 4, CandidateID: 2, LastLogIndex: 6, LastLogTerm: 3, Transfer: true})}}},
	}
}

func TestText(t *testing.T) {
	var lines []string
	for _, r := range records() {
		lines = append(lines, r.String())
	}
	assert.Equal(t, strings.TrimSpace(`
0042 n2 follower t3 | n1: AppendEntries prev=4/t2 +2 commit=4 | log 4→6 commit 3→4 | save, →n1 ok match=6
0043 1.500s n2 follower t3 | n1: AppendEntries prev=4/t2 +1 commit=4 | log 6→4→5 | save, apply 3..4
0044 n2 follower t3 | n1: AppendEntries t2 prev=9/t2 commit=9 | →n1 no prev=9 conflict=7/t0
0045 n2 precandidate t3 | election timeout | follower→precandidate | →n1 PreVote last=6/t3 round=1
0046 n2 candidate t4 | n1: pre-vote | precandidate→candidate term 3→4 votes for n2 | save, →n1 RequestVote last=6/t3
0047 n2 candidate t4 | n1: no vote
0048 n2 leader t3 | submit x=1 "two words" | log 6→8 | →n1 AppendEntries prev=6/t3 +2 commit=4
0049 n2 precandidate t3 | submit x=1 | refused: raft: not the leader in term 3; ask server 1
0050 n2 leader t3 | saved to 8 in t3 | commit 4→8
0051 n2 leader t3 | applied to 8
0052 n2 leader t3 | heartbeat timeout
0053 n2 follower t3 | quorum check | leader→follower
0054 n2 follower t3 | no leader lately
0055 n2 follower t3 | crash
0056 n2 leader t3 | read #1 #2
0057 n2 leader t3 | n1: ok match=8 | answer #1: index 8, answer #2: raft: not the leader in term 3; no leader is known, answer #3: done
0058 n2 leader t3 | change #3 of 0 to 1,2,3>2,3,4+5 | log 8→9 configuration 0→9
0059 n2 leader t3 | transfer #4 to n1 | transfers to n1 | →n1 TimeoutNow
0060 n2 leader t3 | transfer timeout | transfer ends
0061 n2 leader t3 | transfer #5
0062 n2 leader t3 | snapshot 6 stored | log from 0→7 snapshot 0→6 | compact to 6
0063 n2 leader t3 | n1: snapshot 6 wanted from byte 8 | →n1 InstallSnapshot last=6/t3 bytes 8 to 12 of 12
0064 n2 follower t3 | n1: InstallSnapshot last=6/t3 bytes 8 to 12 of 12 | write bytes 8 to 12 of snapshot 6, →n1 snapshot 6 wanted from byte 12
0065 n2 follower t3 | snapshot 6 stored | log 4→6 log from 0→7 commit 4→6 snapshot 0→6 | save, apply snapshot 6, apply 7..7
0066 n2 follower t3 | snapshot 6 damaged
0067 n2 follower t3 | n1: InstallSnapshot last=6/t3 ask | →n1 snapshot 6 not needed match=9
0068 n2 candidate t4 | n1: TimeoutNow | follower→candidate term 3→4 votes for n2 | save, →n1 RequestVote last=6/t3 transfer
`), strings.Join(lines, "\n"))
}

// What is written can be read again, each kind of line.
func TestLines(t *testing.T) {
	lines := []Line{
		Run{Format: FormatVersion, Title: "seed 1", Servers: []raft.ServerID{1, 2}},
		Fault{At: 1, Fault: 1, Text: "the network splits", Servers: []raft.ServerID{1}, Links: [][2]raft.ServerID{{1, 2}, {2, 1}}},
		Call{At: 2, Client: 4, Call: 1, Text: "put x"}, Attempt{At: 3, Client: 4, Call: 1, Server: 2},
		Log{Server: 2, From: 5, Entries: []Entry{{Term: 3, Text: "x=1"}, {Term: 3}}},
		Arrive{At: 4, Message: 7, Server: 1, Down: true},
		Effect{At: 5, Client: 4, Call: 1, Server: 2, Index: 6}, Answer{At: 6, Client: 4, Call: 1, Outcome: "applied", Text: "put x"},
		FaultEnd{At: 7, Fault: 1},
		Verdict{At: 8, Failure: "liveness", Text: "nobody leads", Hash: "1f", Steps: 9, Operations: 1},
	}
	for _, r := range records() {
		lines = append(lines, NewStep(r, 7, Command))
	}
	var file strings.Builder
	for _, l := range lines {
		b, err := Marshal(l)
		require.NoError(t, err)
		file.Write(append(b, '\n'))
	}
	file.WriteString(`{"Kind":"a later invention","At":9}` + "\n")
	var got []Line
	for l, err := range Read(strings.NewReader(file.String())) {
		require.NoError(t, err)
		got = append(got, l)
	}
	assert.Equal(t, lines, got)

	for _, err := range Read(strings.NewReader("{\"Kind\":\"run\"}\nnonsense\n")) {
		if err != nil {
			assert.ErrorContains(t, err, "line 2 of the trace")
			return
		}
	}
	t.Error("nonsense was read")
}

// A message's own fields stand in its line, with the paper's names.
func TestSendLine(t *testing.T) {
	l := NewSend(records()[4].Effects.SendAfter[0])
	l.Message, l.Lost = 3, "the network lost it"
	b, err := Marshal(l)
	require.NoError(t, err)
	assert.JSONEq(t, `{
		"Kind": "send", "At": 0, "Message": 3, "From": 2, "To": 1, "Type": "RequestVoteArgs",
		"Text": "RequestVote t4 last=6/t3", "Lost": "the network lost it",
		"Body": {"Term": 4, "CandidateID": 2, "LastLogIndex": 6, "LastLogTerm": 3, "Transfer": false}
	}`, string(b))
}

// TestHash has one number for every architecture; .ci/run also runs it for
// 32 bits and for js/wasm.
func TestHash(t *testing.T) {
	var h Hash
	for _, r := range records() {
		h.Add(r)
	}
	assert.Equal(t, uint64(0x71915369745220d3), h.Sum())
}

// TestHashSeesEveryDifference changes one thing at a time.
func TestHashSeesEveryDifference(t *testing.T) {
	sum := func(change func(r *Record)) uint64 {
		r := records()[0]
		change(r)
		var h Hash
		h.Add(r)
		return h.Sum()
	}
	seen := map[uint64]string{}
	for name, change := range map[string]func(r *Record){
		"nothing": func(r *Record) {},
		"number":  func(r *Record) { r.Number++ },
		"time":    func(r *Record) { r.At++ },
		"server":  func(r *Record) { r.Server++ },
		"note":    func(r *Record) { r.Note = "crash" },
		"event":   func(r *Record) { r.Event = raft.Applied{} },
		"state":   func(r *Record) { r.After.State = raft.Leader },
		"vote":    func(r *Record) { r.After.VotedFor = 1 },
		"commit":  func(r *Record) { r.After.CommitIndex++ },
		"command": func(r *Record) { r.Effects.Save.Entries[1].Command = []byte("y=3") },
		"longer":  func(r *Record) { r.Effects.Save.Entries[1].Command = []byte("y=2\x00") },
		"reply": func(r *Record) {
			r.Effects.SendAfter[0].Body = raft.AppendEntriesReply{Term: 3, AskedTerm: 3, PrevLogIndex: 4}
		},
		"early":   func(r *Record) { r.Effects.Send, r.Effects.SendAfter = r.Effects.SendAfter, nil },
		"refusal": func(r *Record) { r.Effects.Submitted = []raft.Submitted{{Err: raft.ErrBusy}} },
		"timer":   func(r *Record) { r.Effects.Timers[raft.ElectionTimer].Number = 1 },
		"apply":   func(r *Record) { r.Effects.Commit = []raft.CommitEntry{{Index: 1}} },
		"answer":  func(r *Record) { r.Effects.Answers = []raft.Answer{{Request: 1}} },
		"receive": func(r *Record) { r.Effects.Receive = []raft.Chunk{{Data: []byte("x")}} },
		"reset":   func(r *Record) { r.Effects.Save.Reset.Index = 1 },
		"compact": func(r *Record) { r.Effects.Compact = 1 },
		"round":   func(r *Record) { r.After.Round++ },
		"other learners": func(r *Record) {
			r.Event = raft.ChangeConfiguration{Next: raft.Configuration{Learners: []raft.ServerID{1}}}
		},
		"other voters": func(r *Record) {
			r.Event = raft.ChangeConfiguration{Next: raft.Configuration{Voters: []raft.ServerID{1}}}
		},
	} {
		s := sum(change)
		assert.NotContains(t, seen, s, "%s is hashed like %s", name, seen[s])
		seen[s] = name
	}
}

// TestHashFormatsNothing: a simulator hashes every event.
func TestHashFormatsNothing(t *testing.T) {
	r := records()[0]
	var h Hash
	assert.Zero(t, testing.AllocsPerRun(100, func() { h.Add(r) }))
}

func BenchmarkHash(b *testing.B) {
	r := records()[0]
	var h Hash
	for b.Loop() {
		h.Add(r)
	}
}
