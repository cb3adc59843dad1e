package transport

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/raft"
)

// examples are the frames that docs/protocol.md shows and testdata/frames
// pins. Servers of one cluster are upgraded one by one, so these bytes may only
// change together with protocolVersion. There is no flag that rewrites them.
func examples() map[string][]byte {
	h := hello{
		Cluster:  0xc1a5,
		From:     1,
		To:       2,
		Store:    raft.StoreID([]byte("store of node 1.")),
		Since:    10,
		Run:      0x77,
		Addr:     "127.0.0.1:9080",
		HTTPAddr: "127.0.0.1:8080",
	}
	accept := h
	accept.From, accept.To = 2, 1
	accept.Since = 0
	accept.Store = raft.StoreID([]byte("store of node 2."))
	accept.Addr, accept.HTTPAddr = "127.0.0.1:9081", "127.0.0.1:8081"

	configuration := raft.Configuration{
		Voters:    []raft.ServerID{1, 2, 3},
		Learners:  []raft.ServerID{4},
		Addresses: []raft.Address{{ID: 4, Addr: "h4.x:9080", Since: 10}},
	}
	message := func(from, to raft.ServerID, body raft.Body) []byte {
		return outgoing{kind: messageFrame, message: raft.Message{Cluster: 0xc1a5, From: from, To: to, Body: body}}.appendTo(nil)
	}
	return map[string][]byte{
		"hello":            appendHello(appendPreamble(nil, protocolVersion), helloFrame, h),
		"accept":           appendHello(appendPreamble(nil, protocolVersion), acceptFrame, accept),
		"refuse":           appendRefusal(appendPreamble(nil, protocolVersion), "no"),
		"RequestVoteArgs":  message(1, 2, raft.RequestVoteArgs{Term: 5, CandidateID: 1, LastLogIndex: 9, LastLogTerm: 4}),
		"RequestVoteReply": message(2, 1, raft.RequestVoteReply{Term: 5, VoteGranted: true, AskedTerm: 5}),
		"AppendEntriesArgs": message(1, 2, raft.AppendEntriesArgs{Term: 5, LeaderID: 1, PrevLogIndex: 9, PrevLogTerm: 4, LeaderCommit: 8, Round: 6, Entries: []raft.LogEntry{
			{Term: 5, Kind: raft.EntryEmpty},
			{Term: 5, Kind: raft.EntryCommand, Command: []byte("x=1")},
		}}),
		"EntryConfiguration": message(1, 2, raft.AppendEntriesArgs{Term: 5, LeaderID: 1, PrevLogIndex: 9, PrevLogTerm: 5, LeaderCommit: 9, Round: 6, Entries: []raft.LogEntry{
			{Term: 5, Kind: raft.EntryConfiguration, Command: configuration.AppendTo(nil)},
		}}),
		"AppendEntriesReply": message(2, 1, raft.AppendEntriesReply{Term: 5, AskedTerm: 5, PrevLogIndex: 9, ConflictIndex: 3, ConflictTerm: 2, Round: 6}),
		"PreVoteArgs":        message(1, 2, raft.PreVoteArgs{Term: 4, CandidateID: 1, Round: 3, LastLogIndex: 9, LastLogTerm: 4}),
		"PreVoteReply":       message(2, 1, raft.PreVoteReply{Term: 4, VoteGranted: true, AskedTerm: 4, Round: 3}),
		"InstallSnapshotArgs": message(1, 2, raft.InstallSnapshotArgs{Term: 5, LeaderID: 1,
			Snapshot: raft.Snapshot{Index: 20, Term: 4, Configuration: configuration, ConfigurationIndex: 10, Size: 1000, Checksum: 0x1234abcd},
			Offset:   996, Length: 4, Data: []byte{0xde, 0xad, 0xbe, 0xef}, Round: 6}),
		"InstallSnapshotReply": message(2, 1, raft.InstallSnapshotReply{Term: 5, AskedTerm: 5, SnapshotIndex: 20, NextOffset: 1000, Round: 6}),
		"TimeoutNowArgs":       message(1, 2, raft.TimeoutNowArgs{Term: 5, LeaderID: 1, Round: 6}),
		"request":              outgoing{kind: requestFrame, rest: requestPayload(0x2a, []byte("put"))}.appendTo(nil),
		"reply":                outgoing{kind: replyFrame, rest: replyPayload(0x2a, answered, []byte("ok"))}.appendTo(nil),
	}
}

// TestExampleFrames compares the code with testdata/frames, and that with the
// document, whose examples are the same files.
func TestExampleFrames(t *testing.T) {
	document, err := os.ReadFile("../../docs/protocol.md")
	require.NoError(t, err)
	files, err := filepath.Glob("testdata/frames/*.hex")
	require.NoError(t, err)
	all := examples()
	require.Len(t, files, len(all))
	for name, frame := range all {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", "frames", name+".hex"))
			require.NoError(t, err)
			require.Equal(t, hex.Dump(fromHex(t, string(text))), hex.Dump(frame))
			require.Contains(t, string(document), "```\n"+string(text)+"```\n", "docs/protocol.md shows other bytes")
		})
	}
}

// fromHex reads lines of hex bytes, each up to two blanks and a remark.
func fromHex(t *testing.T, text string) (b []byte) {
	t.Helper()
	for line := range strings.Lines(text) {
		digits, _, _ := strings.Cut(strings.TrimRight(line, "\n"), "  ")
		part, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		require.NoError(t, err, line)
		b = append(b, part...)
	}
	return b
}
