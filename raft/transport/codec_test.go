package transport

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"raftkv/raft"
)

// Every message that a server may send comes out as it went in, among others
// in one stream, and its size is never underestimated: queues are bounded by it.
func TestEveryMessageSurvivesTheTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		messages := rapid.SliceOfN(rapid.Custom(drawMessage), 1, 5).Draw(t, "messages")
		var b []byte
		for _, m := range messages {
			o := outgoing{kind: messageFrame, message: m}
			before := len(b)
			b = o.appendTo(b)
			require.LessOrEqual(t, len(b)-before, o.size())
		}
		r := bufio.NewReader(bytes.NewReader(b))
		for _, want := range messages {
			payload, err := readFrame(r, len(b))
			require.NoError(t, err)
			require.Equal(t, byte(messageFrame), payload[0])
			got, err := decodeMessage(payload[1:])
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		require.Zero(t, r.Buffered())
	})
}

func drawMessage(t *rapid.T) raft.Message {
	number := func(name string) uint64 {
		return rapid.OneOf(rapid.Uint64Range(0, 3), rapid.Uint64()).Draw(t, name)
	}
	term := func(name string) raft.Term { return raft.Term(number(name)) }
	index := func(name string) raft.Index { return raft.Index(number(name)) }
	yes := func(name string) bool { return rapid.Bool().Draw(t, name) }
	m := raft.Message{
		Cluster: raft.ClusterID(number("cluster")),
		From:    raft.ServerID(number("from")),
		To:      raft.ServerID(number("to")),
	}
	round := func() raft.Round { return raft.Round(number("round")) }
	switch rapid.IntRange(1, 9).Draw(t, "body") {
	case 1:
		m.Body = raft.RequestVoteArgs{Term: term("term"), CandidateID: m.From, LastLogIndex: index("last"), LastLogTerm: term("last term"), Transfer: yes("transfer")}
	case 2:
		m.Body = raft.RequestVoteReply{Term: term("term"), VoteGranted: yes("granted"), AskedTerm: term("asked")}
	case 3:
		m.Body = drawAppendEntries(t, m.From)
	case 4:
		m.Body = raft.AppendEntriesReply{Term: term("term"), Success: yes("success"), AskedTerm: term("asked"),
			PrevLogIndex: index("prev"), MatchIndex: index("match"), ConflictIndex: index("conflict"), ConflictTerm: term("conflict term"), Round: round()}
	case 5:
		m.Body = raft.PreVoteArgs{Term: term("term"), CandidateID: m.From, Round: number("round"), LastLogIndex: index("last"), LastLogTerm: term("last term")}
	case 6:
		m.Body = raft.PreVoteReply{Term: term("term"), VoteGranted: yes("granted"), AskedTerm: term("asked"), Round: number("round")}
	case 7:
		m.Body = drawInstallSnapshot(t, m.From)
	case 8:
		m.Body = raft.InstallSnapshotReply{Term: term("term"), AskedTerm: term("asked"), SnapshotIndex: index("snapshot"),
			NextOffset: number("next"), MatchIndex: index("match"), Round: round()}
	case 9:
		m.Body = raft.TimeoutNowArgs{Term: term("term"), LeaderID: m.From, Round: round()}
	}
	return m
}

func drawAppendEntries(t *rapid.T, from raft.ServerID) raft.AppendEntriesArgs {
	args := raft.AppendEntriesArgs{LeaderID: from, LeaderCommit: raft.Index(rapid.Uint64().Draw(t, "commit")),
		Round: raft.Round(rapid.Uint64().Draw(t, "round"))}
	if rapid.Bool().Draw(t, "behind other entries") {
		args.PrevLogIndex = raft.Index(rapid.Uint64Range(1, math.MaxUint64-8).Draw(t, "prev"))
		args.PrevLogTerm = raft.Term(rapid.Uint64Range(1, 5).Draw(t, "prev term"))
	}
	term := max(args.PrevLogTerm, 1)
	for range rapid.IntRange(0, 8).Draw(t, "entries") {
		term += raft.Term(rapid.Uint64Range(0, 2).Draw(t, "step"))
		e := raft.LogEntry{Term: term, Kind: raft.EntryEmpty}
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 1:
			e.Kind, e.Command = raft.EntryCommand, rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		case 2:
			e.Kind, e.Command = raft.EntryConfiguration, drawConfiguration(t).AppendTo(nil)
		}
		args.Entries = append(args.Entries, e)
	}
	args.Term = term + raft.Term(rapid.Uint64Range(0, 2).Draw(t, "newer"))
	return args
}

func drawConfiguration(t *rapid.T) raft.Configuration {
	ids := func(name string) []raft.ServerID {
		n := rapid.IntRange(0, 3).Draw(t, name)
		if n == 0 {
			return nil
		}
		return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) raft.ServerID {
			return raft.ServerID(rapid.Uint64().Draw(t, "id"))
		}), n, n).Draw(t, name)
	}
	c := raft.Configuration{Voters: ids("voters"), OldVoters: ids("old voters"), Learners: ids("learners")}
	for _, id := range c.Voters {
		c.Addresses = append(c.Addresses, raft.Address{ID: id, Addr: rapid.String().Draw(t, "address"), Since: raft.Index(rapid.Uint64().Draw(t, "since"))})
	}
	return c
}

// drawInstallSnapshot draws a part of a snapshot, or the question that has none.
func drawInstallSnapshot(t *rapid.T, from raft.ServerID) raft.InstallSnapshotArgs {
	up := func(least uint64, name string) uint64 { return rapid.Uint64Min(least).Draw(t, name) }
	args := raft.InstallSnapshotArgs{LeaderID: from, Round: raft.Round(up(0, "round"))}
	args.Snapshot = raft.Snapshot{
		Index:         raft.Index(up(1, "index")),
		Term:          raft.Term(up(1, "term of the last entry")),
		Configuration: drawConfiguration(t),
		Size:          up(0, "size"),
		Checksum:      rapid.Uint32().Draw(t, "checksum"),
	}
	s := &args.Snapshot
	s.ConfigurationIndex = raft.Index(rapid.Uint64Range(0, uint64(s.Index)).Draw(t, "configuration's index"))
	args.Term = raft.Term(up(uint64(s.Term), "term"))
	args.Offset = rapid.Uint64Range(0, s.Size).Draw(t, "offset")
	args.Length = rapid.Uint64Range(0, s.Size-args.Offset).Draw(t, "length")
	if rapid.Bool().Draw(t, "with data") {
		args.Data = rapid.SliceOfN(rapid.Byte(), 0, int(min(args.Length, 1000))).Draw(t, "data")
		args.Length = uint64(len(args.Data))
	}
	if len(args.Data) == 0 {
		args.Data = nil
	}
	return args
}

// A command must not live in memory that the next frame overwrites.
func TestCommandsOwnTheirMemory(t *testing.T) {
	frame := func(fill byte) []byte {
		m := raft.Message{From: 1, Body: raft.AppendEntriesArgs{Term: 1, LeaderID: 1,
			Entries: []raft.LogEntry{{Term: 1, Command: bytes.Repeat([]byte{fill}, 100)}}}}
		return outgoing{kind: messageFrame, message: m}.appendTo(nil)
	}
	r := bufio.NewReader(bytes.NewReader(append(frame('a'), frame('b')...)))
	read := func() []byte {
		payload, err := readFrame(r, 1<<10)
		require.NoError(t, err)
		m, err := decodeMessage(payload[1:])
		require.NoError(t, err)
		return m.Body.(raft.AppendEntriesArgs).Entries[0].Command
	}
	first := read()
	second := read()
	require.Equal(t, bytes.Repeat([]byte{'a'}, 100), first)
	require.Equal(t, bytes.Repeat([]byte{'b'}, 100), second)
	_ = append(first, 'c') // and an append to one does not reach the next entry
	require.Equal(t, bytes.Repeat([]byte{'a'}, 100), first)
}

// Cut off anywhere, or with one bit flipped anywhere, a frame is never taken
// for another one.
func TestDamagedFramesAreFound(t *testing.T) {
	for name, frame := range examples() {
		if bytes.HasPrefix(frame, []byte(magic)) {
			frame = frame[preambleBytes:]
		}
		t.Run(name, func(t *testing.T) {
			for n := range frame {
				_, err := readFrame(bufio.NewReader(bytes.NewReader(frame[:n])), 1<<10)
				require.True(t, errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF), "cut to %d bytes: %v", n, err)
			}
			for bit := range len(frame) * 8 {
				damaged := bytes.Clone(frame)
				damaged[bit/8] ^= 1 << (bit % 8)
				_, err := readFrame(bufio.NewReader(bytes.NewReader(damaged)), 1<<10)
				require.ErrorAs(t, err, new(protocolError), "bit %d flipped", bit)
			}
		})
	}
}

// header returns a frame header whose own checksum is right.
func header(length uint32, sum uint32) []byte {
	b := binary.LittleEndian.AppendUint32(nil, length)
	b = binary.LittleEndian.AppendUint32(b, sum)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// A length costs no memory before it has been found possible.
func TestLengthsDoNotTakeMemory(t *testing.T) {
	for _, length := range []uint32{0, 1<<10 + 1, 1 << 30, math.MaxUint32} {
		r := bufio.NewReader(bytes.NewReader(header(length, 0)))
		var err error
		taken := bytesAllocated(func() { _, err = readFrame(r, 1<<10) })
		require.ErrorContains(t, err, "1 to 1024 are allowed")
		require.Less(t, taken, uint64(64<<10))
	}
	m := appendMessage(nil, raft.Message{From: 1, Body: raft.AppendEntriesArgs{Term: 1, LeaderID: 1}})
	binary.LittleEndian.PutUint32(m[len(m)-4:], math.MaxUint32) // entries
	install := appendMessage(nil, raft.Message{From: 1, Body: goodInstall()})
	binary.LittleEndian.PutUint32(install[messageHeader+6*8+4:], math.MaxUint32) // configuration
	for _, b := range [][]byte{m, install} {
		var err error
		taken := bytesAllocated(func() { _, err = decodeMessage(b) })
		require.ErrorAs(t, err, new(protocolError))
		require.Less(t, taken, uint64(64<<10))
	}
}

// goodInstall is the last part of a snapshot, sent by server 2.
func goodInstall() raft.InstallSnapshotArgs {
	return raft.InstallSnapshotArgs{Term: 5, LeaderID: 2, Offset: 7, Length: 3, Data: []byte("end"), Snapshot: raft.Snapshot{
		Index: 20, Term: 4, Configuration: raft.NewConfiguration(1, 2), ConfigurationIndex: 10, Size: 10,
	}}
}

// bytesAllocated returns what f takes from the heap; other goroutines may add
// a little.
func bytesAllocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// badMessages are payloads of message frames that must not reach a server.
// Each differs in one point from a message that may.
func badMessages() map[string][]byte {
	whole := func(m raft.Message) []byte { return appendMessage(nil, m) }
	vote := func(body raft.Body) []byte {
		return whole(raft.Message{Cluster: testCluster, From: 2, To: 1, Body: body})
	}
	entries := func(change func(*raft.AppendEntriesArgs)) []byte {
		args := raft.AppendEntriesArgs{Term: 5, LeaderID: 2, PrevLogIndex: 9, PrevLogTerm: 3, Entries: []raft.LogEntry{
			{Term: 4, Command: []byte("x=1")}, {Term: 5, Kind: raft.EntryEmpty},
		}}
		change(&args)
		return vote(args)
	}
	good := entries(func(*raft.AppendEntriesArgs) {})
	patched := func(from int, b ...byte) []byte {
		p := bytes.Clone(good)
		copy(p[from:], b)
		return p
	}
	install := func(change func(*raft.InstallSnapshotArgs)) []byte {
		args := goodInstall()
		change(&args)
		return vote(args)
	}
	snapshot := vote(goodInstall())
	configuration := messageHeader + 6*8 + 4 // where its length stands in snapshot
	badly := func(from int, b ...byte) []byte {
		p := bytes.Clone(snapshot)
		copy(p[from:], b)
		return p
	}
	firstEntry := messageHeader + appendHeader
	return map[string][]byte{
		"empty":                          {},
		"too short":                      good[:len(good)-1],
		"trailing byte":                  append(bytes.Clone(good), 0),
		"reply with a trailing byte":     append(vote(raft.RequestVoteReply{Term: 5}), 0),
		"body kind 0":                    patched(messageHeader-1, 0),
		"body kind 10":                   patched(messageHeader-1, 10),
		"boolean 2":                      append(vote(raft.RequestVoteReply{Term: 5})[:messageHeader+8], 2, 0, 0, 0, 0, 0, 0, 0, 0),
		"fewer entries than counted":     patched(firstEntry-4, 3),
		"more entries than counted":      patched(firstEntry-4, 1),
		"more entries than can be":       patched(firstEntry-4, 0xff, 0xff, 0xff, 0xff),
		"entry longer than the message":  patched(firstEntry, 0xff, 0xff, 0xff, 0x7f),
		"entry without a term":           patched(firstEntry, 8),
		"entry of an unknown kind":       patched(firstEntry+entryLength+8, 4),
		"snapshot as an entry":           patched(firstEntry+entryLength+8, byte(raft.EntrySnapshot)),
		"entry that is no configuration": patched(firstEntry+entryLength+8, byte(raft.EntryConfiguration)),
		"other cluster":                  whole(raft.Message{Cluster: 0xbad, From: 2, To: 1, Body: raft.RequestVoteReply{Term: 5}}),
		"other sender":                   whole(raft.Message{Cluster: testCluster, From: 3, To: 1, Body: raft.RequestVoteReply{Term: 5}}),
		"other recipient":                whole(raft.Message{Cluster: testCluster, From: 2, To: 3, Body: raft.RequestVoteReply{Term: 5}}),
		"vote for somebody else":         vote(raft.RequestVoteArgs{Term: 5, CandidateID: 3}),
		"pre-vote for somebody else":     vote(raft.PreVoteArgs{Term: 5, CandidateID: 3}),
		"entries of another leader":      entries(func(a *raft.AppendEntriesArgs) { a.LeaderID = 3 }),
		"entries newer than the leader":  entries(func(a *raft.AppendEntriesArgs) { a.Term = 4 }),
		"past newer than the leader":     vote(raft.AppendEntriesArgs{Term: 5, LeaderID: 2, PrevLogIndex: 9, PrevLogTerm: 6}),
		"terms that fall":                entries(func(a *raft.AppendEntriesArgs) { a.Entries[0].Term, a.Entries[1].Term = 5, 4 }),
		"terms that fall at the seam":    entries(func(a *raft.AppendEntriesArgs) { a.PrevLogTerm = 5 }),
		"entry of term 0":                entries(func(a *raft.AppendEntriesArgs) { a.PrevLogIndex, a.PrevLogTerm, a.Entries[0].Term = 0, 0, 0 }),
		"place without a term":           entries(func(a *raft.AppendEntriesArgs) { a.PrevLogTerm = 0 }),
		"term without a place":           entries(func(a *raft.AppendEntriesArgs) { a.PrevLogIndex = 0 }),
		"index that wraps around":        entries(func(a *raft.AppendEntriesArgs) { a.PrevLogIndex = math.MaxUint64 - 1 }),
		"leader of term 0":               vote(raft.AppendEntriesArgs{LeaderID: 2}),

		"handover of another leader":           vote(raft.TimeoutNowArgs{Term: 5, LeaderID: 3}),
		"snapshot of another leader":           install(func(a *raft.InstallSnapshotArgs) { a.LeaderID = 3 }),
		"snapshot newer than the leader":       install(func(a *raft.InstallSnapshotArgs) { a.Term = 3 }),
		"snapshot of nothing":                  install(func(a *raft.InstallSnapshotArgs) { a.Snapshot.Index, a.Snapshot.ConfigurationIndex = 0, 0 }),
		"snapshot of term 0":                   install(func(a *raft.InstallSnapshotArgs) { a.Snapshot.Term = 0 }),
		"configuration behind the snapshot":    install(func(a *raft.InstallSnapshotArgs) { a.Snapshot.ConfigurationIndex = 21 }),
		"part that ends behind the snapshot":   install(func(a *raft.InstallSnapshotArgs) { a.Snapshot.Size = 9 }),
		"part that wraps around":               install(func(a *raft.InstallSnapshotArgs) { a.Offset, a.Length, a.Data = 8, math.MaxUint64, nil }),
		"part that begins behind the snapshot": install(func(a *raft.InstallSnapshotArgs) { a.Offset, a.Length, a.Data = 11, 0, nil }),
		"part with too little data":            install(func(a *raft.InstallSnapshotArgs) { a.Data = a.Data[:2] }),
		"part with too much data":              install(func(a *raft.InstallSnapshotArgs) { a.Length = 2 }),
		"question with data":                   install(func(a *raft.InstallSnapshotArgs) { a.Length = 0 }),
		"snapshot cut off":                     snapshot[:configuration],
		"configuration too long":               badly(configuration, 0xff, 0xff, 0xff, 0xff),
		"configuration too short":              badly(configuration, 4),
		"configuration too long by a byte":     badly(configuration, 7),
		"configuration that is none":           badly(configuration+4, 9),
	}
}

func TestBadMessagesAreRefused(t *testing.T) {
	e := &endpoint{cfg: Config{Cluster: testCluster, ID: 1}}
	for name, payload := range badMessages() {
		t.Run(name, func(t *testing.T) {
			_, err := e.checkedMessage(&peer{id: 2}, payload)
			require.ErrorAs(t, err, new(protocolError))
		})
	}
}
