package raft

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// snapshotAt describes a snapshot of some bytes in a cluster of three.
func snapshotAt(index Index, term Term, size uint64) Snapshot {
	return Snapshot{Index: index, Term: term, Configuration: NewConfiguration(1, 2, 3), Size: size, Checksum: uint32(index)}
}

// ask is what a leader in a term sends first, part a part of what it sends then.
func ask(term Term, s Snapshot) Message {
	return message(1, 2, InstallSnapshotArgs{Term: term, LeaderID: 1, Snapshot: s})
}

func part(term Term, s Snapshot, offset, length uint64) Message {
	return message(1, 2, InstallSnapshotArgs{
		Term: term, LeaderID: 1, Snapshot: s, Offset: offset, Length: length, Data: make([]byte, length),
	})
}

// theSnapshot is what the state machine is given to go on from.
func theSnapshot(s Snapshot) CommitEntry {
	return CommitEntry{Index: s.Index, Term: s.Term, Kind: EntrySnapshot, Installed: &InstalledSnapshot{Snapshot: s}}
}

// reply returns the answer to a part of a snapshot.
func reply(t testing.TB, e Effects) InstallSnapshotReply {
	t.Helper()
	require.Len(t, e.SendAfter, 1)
	return e.SendAfter[0].Body.(InstallSnapshotReply)
}

// follower is server 2 of three with a log; up to commit it is committed and applied.
func follower(t testing.TB, commit Index, log ...LogEntry) *ConsensusModule {
	term := Term(1)
	if len(log) > 0 {
		term = log[len(log)-1].Term
	}
	cm, _ := start(t, plain(2, 3), PersistentState{CurrentTerm: term, Entries: log})
	cm.commitTo(commit)
	cm.Step(Applied{0})
	cm.Step(Applied{commit})
	return cm
}

// TestInstall: a follower without the entries up to the snapshot's end, or with
// others, drops its log (SN-01).
func TestInstall(t *testing.T) {
	s := snapshotAt(3, 3, 10)
	for name, log := range map[string][]LogEntry{
		"another term there": entries(1, 1, 2, 2, 2),
		"a shorter log":      entries(1, 1),
		"an empty log":       nil,
	} {
		t.Run(name, func(t *testing.T) {
			cm := follower(t, Index(min(1, len(log))), log...)
			asked := reply(t, stepSaved(cm, ask(4, s)))
			assert.Equal(t, InstallSnapshotReply{Term: 4, AskedTerm: 4, SnapshotIndex: 3}, asked)
			got := stepSaved(cm, part(4, s, 0, 10))
			assert.Equal(t, []Chunk{{s, 0, make([]byte, 10)}}, got.Receive)
			assert.True(t, got.Receive[0].Last())
			assert.Equal(t, uint64(10), reply(t, got).NextOffset)

			installed := cm.Step(SnapshotStored{s})
			assert.Equal(t, Save{CurrentTerm: 4, Reset: LogPosition{3, 3}}, installed.Save)
			assert.Equal(t, []CommitEntry{theSnapshot(s)}, installed.Commit)
			assert.Equal(t, Index(3), cm.Status().SavedIndex, "the rest of the old log is nowhere")
			cm.Step(Saved{Index: 3, Term: 4})
			assert.Equal(t, Index(3), cm.commitIndex)
			assert.Equal(t, Index(3), reply(t, stepSaved(cm, part(4, s, 0, 10))).MatchIndex, "nothing lacks any more")

			next := stepSaved(cm, message(1, 2, AppendEntriesArgs{Term: 4, LeaderID: 1, PrevLogIndex: 3, PrevLogTerm: 3, Entries: entries(4), LeaderCommit: 4}))
			assert.True(t, next.SendAfter[0].Body.(AppendEntriesReply).Success, "at the first try")
			assert.Equal(t, []CommitEntry{{Index: 4, Term: 4, Command: []byte{1}}}, next.Commit)
			cm.Step(Applied{4})
			assert.Zero(t, cm.backlogBytes)
		})
	}
}

// TestInstallKeepsTheSuffix: what stands behind the snapshot may have been
// acknowledged (SN-03).
func TestInstallKeepsTheSuffix(t *testing.T) {
	s := snapshotAt(3, 1, 10)
	log := entries(1, 1, 1, 1, 1)
	cm := follower(t, 1, log...)
	installed := cm.Step(SnapshotStored{s})
	assert.False(t, installed.Save.Needed())
	assert.Equal(t, []CommitEntry{{Index: 2, Term: 1, Command: []byte{2}}, {Index: 3, Term: 1, Command: []byte{3}}}, installed.Commit,
		"the state machine goes on with the entries, one by one")
	assert.Equal(t, log, cm.log.slice(1, 5))

	// The leader need not even send it.
	cm = follower(t, 1, log...)
	assert.Equal(t, Index(3), reply(t, stepSaved(cm, ask(1, s))).MatchIndex)
	assert.Equal(t, Index(3), cm.commitIndex)
}

// TestOlderSnapshot: one that is older than the state changes nothing (SN-02), one
// that is older than the newest is not taken for it (SN-04).
func TestOlderSnapshot(t *testing.T) {
	cm := follower(t, 5, entries(1, 1, 1, 1, 1, 1)...)
	assert.Equal(t, InstallSnapshotReply{Term: 1, AskedTerm: 1, SnapshotIndex: 3, MatchIndex: 5}, reply(t, stepSaved(cm, part(1, snapshotAt(3, 1, 10), 0, 10))))
	late := cm.Step(SnapshotStored{snapshotAt(3, 1, 10)})
	assert.Empty(t, late.Commit)
	assert.False(t, late.Save.Needed())
	assert.Equal(t, Index(5), cm.commitIndex)

	cm.Step(SnapshotStored{snapshotAt(5, 1, 10)})
	require.Equal(t, Index(5), cm.snapshot.Index)
	assert.Equal(t, Effects{}, cm.Step(SnapshotStored{snapshotAt(4, 1, 10)}))
	assert.Equal(t, Index(5), cm.snapshot.Index)
}

// TestOwnSnapshotIsLate: one of this server's own, which took long, is overtaken
// by one from the leader (SN-04). The log does not have what it stands for.
func TestOwnSnapshotIsLate(t *testing.T) {
	cm := follower(t, 5, entries(1, 1, 1, 1, 1)...)
	stepSaved(cm, SnapshotStored{snapshotAt(15, 2, 10)})
	require.Equal(t, Index(16), cm.log.first)
	assert.Equal(t, Effects{}, cm.Step(SnapshotStored{snapshotAt(5, 1, 10)}))
	assert.Equal(t, Index(15), cm.snapshot.Index)
	assert.Equal(t, Index(16), cm.log.first)
}

// TestPartsOfASnapshot: the follower says what it wants, whatever comes (SN-07).
func TestPartsOfASnapshot(t *testing.T) {
	s := snapshotAt(9, 1, 10)
	cm := follower(t, 0)
	other := s
	other.Checksum++
	for _, c := range []struct {
		name  string
		event Event
		next  uint64
		taken uint64
	}{
		{"the question", ask(1, s), 0, 0},
		{"a later part", part(1, s, 4, 4), 0, 0},
		{"the first part", part(1, s, 0, 4), 4, 4},
		{"the same again", part(1, s, 0, 4), 4, 0},
		{"one that goes too far", part(1, s, 4, 7), 4, 0},
		{"the second part", part(1, s, 4, 4), 8, 4},
		{"the question again", ask(1, s), 8, 0},
		{"another snapshot up to the same index", ask(1, other), 0, 0},
		{"the first one goes on", part(1, s, 8, 2), 0, 0},
		{"and begins anew", part(1, s, 0, 8), 8, 8},
		{"the last part", part(1, s, 8, 2), 10, 2},
		{"the question while it is installed", ask(1, s), 10, 0},
		{"another one was damaged", SnapshotDamaged{other}, 10, 0},
		{"it was damaged", SnapshotDamaged{s}, 0, 0},
	} {
		effects := stepSaved(cm, c.event)
		var taken uint64
		for _, chunk := range effects.Receive {
			assert.Equal(t, s, chunk.Snapshot)
			taken += uint64(len(chunk.Data))
		}
		assert.Equal(t, c.taken, taken, c.name)
		assert.Equal(t, c.next, reply(t, stepSaved(cm.Clone(), ask(1, cm.receivingOr(s)))).NextOffset, c.name)
	}
	cm, _ = start(t, plain(2, 3), PersistentState{CurrentTerm: 1})
	assert.Zero(t, reply(t, stepSaved(cm, ask(1, s))).NextOffset, "a restart")
}

// receivingOr returns the snapshot that is being received, or s if none is.
func (cm *ConsensusModule) receivingOr(s Snapshot) Snapshot {
	if cm.receiving.snapshot.Index != 0 {
		return cm.receiving.snapshot
	}
	return s
}

// TestOldQuestionLosesNothing: what has come of a snapshot stays when a message
// about an older one arrives, which the follower has no need for.
func TestOldQuestionLosesNothing(t *testing.T) {
	cm := follower(t, 5, entries(1, 1, 1, 1, 1)...)
	s := snapshotAt(9, 1, 10)
	stepSaved(cm, part(1, s, 0, 8))
	assert.Equal(t, Index(5), reply(t, stepSaved(cm, ask(1, snapshotAt(3, 1, 10)))).MatchIndex)
	assert.Equal(t, uint64(10), reply(t, stepSaved(cm, part(1, s, 8, 2))).NextOffset)
}

// TestSnapshotOfAnOldLeader is answered with the newer term and changes nothing.
func TestSnapshotOfAnOldLeader(t *testing.T) {
	cm := follower(t, 0, entries(3)...)
	got := stepSaved(cm, part(2, snapshotAt(9, 2, 10), 0, 10))
	assert.Equal(t, InstallSnapshotReply{Term: 3, AskedTerm: 2, SnapshotIndex: 9}, reply(t, got))
	assert.Empty(t, got.Receive)
	assert.Equal(t, Timers{}, got.Timers)
}

// TestSnapshotEndsACandidacy: as an AppendEntries would (CAN-3).
func TestSnapshotEndsACandidacy(t *testing.T) {
	cm := follower(t, 0)
	stepSaved(cm, ElectionTimeout{cm.timers[ElectionTimer]})
	require.Equal(t, Candidate, cm.state)
	got := stepSaved(cm, ask(2, snapshotAt(9, 1, 10)))
	assert.Equal(t, Follower, cm.state)
	assert.Equal(t, ServerID(1), cm.leaderID)
	assert.Equal(t, RestartTimer, got.Timers[ElectionTimer].Action)
}

// TestInstallAsCandidate: the snapshot was complete before the election began. Its
// configuration is in force at once, in this election as well (MB-06).
func TestInstallAsCandidate(t *testing.T) {
	cm := follower(t, 0)
	s := snapshotAt(9, 1, 10)
	s.Configuration, s.ConfigurationIndex = NewConfiguration(1, 2, 3, 4, 5), 7
	stepSaved(cm, part(1, s, 0, 10))
	stepSaved(cm, ElectionTimeout{cm.timers[ElectionTimer]})
	stepSaved(cm, SnapshotStored{s})
	assert.Equal(t, s.Configuration, cm.configuration)
	assert.Equal(t, Index(7), cm.configurationIndex)
	for _, c := range []struct {
		from ServerID
		want CMState
	}{{3, Candidate}, {4, Leader}} {
		stepSaved(cm, message(c.from, 2, RequestVoteReply{Term: 2, AskedTerm: 2, VoteGranted: true}))
		assert.Equal(t, c.want, cm.state)
	}
	assert.Equal(t, Index(10), cm.log.lastIndex())
}

// TestInstallIsOneStream: the snapshot comes after the entries that were given
// out before, and in place of those that were not (SN-08).
func TestInstallIsOneStream(t *testing.T) {
	cm := follower(t, 0, entries(1, 1, 1)...)
	var all Effects
	step := func(event Event) { all.Merge(stepSaved(cm, event)) }
	step(message(1, 2, AppendEntriesArgs{Term: 1, LeaderID: 1, PrevLogIndex: 3, PrevLogTerm: 1, LeaderCommit: 2}))
	step(SnapshotStored{snapshotAt(9, 1, 10)})
	step(Applied{1}) // it is behind
	step(message(1, 2, AppendEntriesArgs{Term: 1, LeaderID: 1, PrevLogIndex: 9, PrevLogTerm: 1, Entries: entries(1), LeaderCommit: 10}))
	step(Applied{2})
	step(Applied{9})
	var order []Index
	for _, e := range all.Commit {
		order = append(order, e.Index)
	}
	assert.Equal(t, []Index{1, 2, 9, 10}, order)
	assert.Equal(t, EntrySnapshot, all.Commit[2].Kind)
	assert.Equal(t, entries(1)[0].EncodedSize(), cm.backlogBytes)
	step(Applied{10})
	assert.Zero(t, cm.backlogBytes)
}

// TestMergeOfInstall: what was appended before the log was dropped is not written
// behind it.
func TestMergeOfInstall(t *testing.T) {
	cm := follower(t, 0)
	var batch Effects
	batch.Merge(cm.Step(message(1, 2, AppendEntriesArgs{Term: 1, LeaderID: 1, Entries: entries(1, 1)})))
	batch.Merge(cm.Step(SnapshotStored{snapshotAt(9, 1, 10)}))
	batch.Merge(cm.Step(message(1, 2, AppendEntriesArgs{Term: 1, LeaderID: 1, PrevLogIndex: 9, PrevLogTerm: 1, Entries: entries(1)})))
	assert.Equal(t, Save{CurrentTerm: 1, Reset: LogPosition{9, 1}, FirstIndex: 10, Entries: entries(1)}, batch.Save)
}

// TestStartFromSnapshot: what a crash can leave behind at any point of taking,
// installing and compacting is started from (SN-11); storage has made the log fit.
func TestStartFromSnapshot(t *testing.T) {
	all := entries(1, 1, 2, 2, 2, 3)
	for at := Index(1); at <= 6; at++ {
		for begin := Index(0); begin <= at; begin++ {
			term, _ := (&log{entries: append(make([]LogEntry, 1), all...), first: 1}).term(begin)
			s := snapshotAt(at, all[at-1].Term, 10)
			cm, effects, err := NewConsensusModule(plain(1, 3), PersistentState{
				CurrentTerm: 3, Snapshot: s, Start: LogPosition{begin, term}, Entries: all[begin:],
			})
			require.NoError(t, err)
			assert.Equal(t, []CommitEntry{theSnapshot(s)}, effects.Commit)
			assert.Equal(t, at, cm.commitIndex)
			assert.Equal(t, begin+1, cm.Status().FirstIndex)
			assert.Equal(t, Index(6), cm.log.lastIndex())
			cm.Step(Applied{at})
			stepSaved(cm, message(2, 1, AppendEntriesArgs{Term: 3, LeaderID: 2, PrevLogIndex: 6, PrevLogTerm: 3, LeaderCommit: 6}))
			assert.Equal(t, Index(6), cm.delivered)
		}
	}
	for name, saved := range map[string]PersistentState{
		"a gap behind the snapshot":    {Snapshot: snapshotAt(3, 1, 10), Start: LogPosition{4, 1}, Entries: entries(1)},
		"no log up to the snapshot":    {Snapshot: snapshotAt(3, 1, 10), Entries: entries(1, 1)},
		"no snapshot before the log":   {Start: LogPosition{4, 1}, Entries: entries(1)},
		"another term at the snapshot": {Snapshot: snapshotAt(2, 2, 10), Entries: entries(1, 1, 3)},
		"another term before the log":  {Snapshot: snapshotAt(2, 2, 10), Start: LogPosition{2, 1}},
	} {
		saved.CurrentTerm = 3
		_, _, err := NewConsensusModule(plain(1, 3), saved)
		assert.ErrorIs(t, err, ErrConfig, name)
	}
}

// TestCompact: the log keeps a tail, and all that the state machine has yet to
// take in (SN-10). Its place before the first entry keeps its term.
func TestCompact(t *testing.T) {
	log := entries(1, 1, 2, 2, 3, 3, 3, 3)
	size := log[0].EncodedSize()
	for _, c := range []struct {
		name            string
		snapshot, apply Index
		trailing        int
		compact         Index
	}{
		{"all", 8, 8, 1, 8},
		{"less than an entry is nothing", 8, 8, size - 1, 8},
		{"a tail of three", 8, 8, 3 * size, 5},
		{"a tail of nearly four", 8, 8, 4*size - 1, 5},
		{"the tail is all", 8, 8, 8 * size, 0},
		{"what is not applied", 8, 4, 1, 4},
		{"nothing is applied", 8, 0, 1, 0},
		{"what is behind the snapshot", 5, 8, 1, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf := plain(2, 3)
			conf.TrailingBytes = c.trailing
			cm, _ := start(t, conf, PersistentState{CurrentTerm: 3, Entries: log})
			stepSaved(cm, message(1, 2, AppendEntriesArgs{Term: 3, LeaderID: 1, PrevLogIndex: 8, PrevLogTerm: 3, LeaderCommit: 8}))
			cm.Step(Applied{c.apply})
			effects := cm.Step(SnapshotStored{snapshotAt(c.snapshot, log[c.snapshot-1].Term, 10)})
			assert.Equal(t, c.compact, effects.Compact)
			assert.Equal(t, c.compact+1, cm.log.first)
			assert.Equal(t, log[c.compact:], append([]LogEntry{}, cm.log.slice(cm.log.first, 8)...))
			term, known := cm.log.term(c.compact)
			assert.True(t, known)
			if c.compact > 0 {
				assert.Equal(t, log[c.compact-1].Term, term)
				_, held := cm.Entry(c.compact)
				assert.False(t, held)
			}
			assert.Equal(t, encodedSize(log[max(c.snapshot, c.apply):]), cm.backlogBytes)
		})
	}
}

// compacted is a leader of three whose log begins behind a snapshot.
func compacted(t *testing.T, c Config) *ConsensusModule {
	c.TrailingBytes = 1
	cm := lead(t, c, PersistentState{})
	stepSaved(cm, submit("a", "b", "c"))
	stepSaved(cm, answered(cm, 3))
	cm.Step(Applied{4})
	require.Equal(t, Index(4), cm.Step(SnapshotStored{snapshotAt(4, 1, 10)}).Compact)
	return cm
}

// fallBack lets a follower say that its log is empty.
func fallBack(cm *ConsensusModule, from ServerID) Effects {
	return stepSaved(cm, message(from, 1, AppendEntriesReply{
		Term: 1, AskedTerm: 1, PrevLogIndex: cm.nextIndex[from] - 1, ConflictIndex: 1, Round: cm.reads.round,
	}))
}

// wants is a follower's answer in the leader's latest round.
func wants(cm *ConsensusModule, from ServerID, s Snapshot, next uint64, match Index) Message {
	return message(from, 1, InstallSnapshotReply{
		Term: 1, AskedTerm: 1, SnapshotIndex: s.Index, NextOffset: next, MatchIndex: match, Round: cm.reads.round,
	})
}

// installs returns the parts of snapshots among what is sent to a follower.
func installs(e Effects, to ServerID) (parts []InstallSnapshotArgs) {
	for _, m := range e.Send {
		if args, ok := m.Body.(InstallSnapshotArgs); ok && m.To == to {
			parts = append(parts, args)
		}
	}
	return parts
}

// TestSendSnapshot: a follower that needs what is gone is asked, told what it
// wants, and gets entries again as soon as anything connects (SN-06).
func TestSendSnapshot(t *testing.T) {
	c := plain(1, 3)
	c.MaxBatchBytes = 4
	cm := compacted(t, c)
	asked := installs(fallBack(cm, 2), 2)
	require.Len(t, asked, 1)
	s := asked[0].Snapshot
	assert.Equal(t, InstallSnapshotArgs{Term: 1, LeaderID: 1, Snapshot: snapshotAt(4, 1, 10), Round: cm.reads.round}, asked[0])
	assert.Len(t, installs(heartbeat(cm), 2), 1, "the question is the heartbeat")
	assert.Empty(t, installs(stepSaved(cm, submit("d")), 2), "nothing else is sent")

	next := func(offset uint64) []InstallSnapshotArgs {
		return installs(stepSaved(cm, wants(cm, 2, s, offset, 0)), 2)
	}
	for offset, length := range map[uint64]uint64{0: 4, 4: 4, 8: 2} {
		parts := next(offset)
		require.Len(t, parts, 1)
		assert.Equal(t, offset, parts[0].Offset)
		assert.Equal(t, length, parts[0].Length)
		assert.Empty(t, next(offset), "the same answer again")
		heartbeat(cm)
		assert.Len(t, next(offset), 1, "it was lost: a later message was answered without it")
	}
	assert.Empty(t, next(10), "all has come")
	other := snapshotAt(3, 1, 10)
	assert.Empty(t, installs(stepSaved(cm, wants(cm, 2, other, 0, 0)), 2), "an old answer, about another one")

	for name, connects := range map[string]Message{
		"it is installed":     wants(cm, 2, s, 0, 4),
		"it came another way": matched(cm, 2, 4),
		"the answer is old":   wants(cm, 2, other, 0, 4),
		"it has even more":    matched(cm, 2, 5),
	} {
		t.Run(name, func(t *testing.T) {
			cm := cm.Clone()
			stepSaved(cm, connects)
			assert.False(t, cm.windows[2].sending)
			assert.False(t, cm.windows[2].probing)
			stepSaved(cm, submit("e"))
			assert.Equal(t, cm.log.lastIndex()+1, cm.nextIndex[2])
			stepSaved(cm, answered(cm, 2))
			assert.Equal(t, cm.log.lastIndex(), cm.matchIndex[2])
		})
	}
}

// TestTransferOfASnapshotKeepsTheLog: what the follower needs behind the snapshot
// stays, up to a bound; beyond it a newer snapshot is sent (SN-10).
func TestTransferOfASnapshotKeepsTheLog(t *testing.T) {
	c := plain(1, 3)
	c.MaxBacklogBytes = 100
	cm := compacted(t, c)
	fallBack(cm, 2)
	snapshotNow := func(bytes int) {
		stepSaved(cm, Submit{Commands: [][]byte{make([]byte, bytes)}})
		stepSaved(cm, answered(cm, 3))
		cm.Step(Applied{cm.commitIndex})
		stepSaved(cm, SnapshotStored{snapshotAt(cm.commitIndex, 1, 10)})
	}
	snapshotNow(20)
	assert.Equal(t, Index(5), cm.log.first, "server 2 gets the snapshot up to 4")
	assert.Equal(t, Index(4), installs(heartbeat(cm), 2)[0].Snapshot.Index, "and no other")
	snapshotNow(100)
	assert.Equal(t, Index(7), cm.log.first, "that is too much to keep")
	assert.Equal(t, Index(6), installs(heartbeat(cm), 2)[0].Snapshot.Index)

	snapshotNow(20)
	require.Equal(t, Index(7), cm.log.first)
	stepSaved(cm, wants(cm, 2, snapshotAt(6, 1, 10), 0, 6))
	stepSaved(cm, answered(cm, 2))
	snapshotNow(20)
	assert.Equal(t, Index(9), cm.log.first, "it has all")
}

// TestCompactBesideAWindow: what is under way to a follower is dropped from the
// log. Its answer goes on from there; its silence ends in a snapshot.
func TestCompactBesideAWindow(t *testing.T) {
	c := plain(1, 3)
	c.MaxInflight, c.MaxBatchBytes = 2, 1
	cm := compacted(t, c)
	require.Equal(t, Index(3), cm.nextIndex[2])
	assert.Empty(t, toFollower(stepSaved(cm, submit("d"))))
	answers := cm.Clone()
	stepSaved(answers, matched(answers, 2, 2))
	assert.Len(t, installs(heartbeat(answers), 2), 1, "it has two of four")
	assert.Empty(t, stepSaved(answers, wants(answers, 2, answers.snapshot, 0, 0)).SendAfter)
	stepSaved(answers, matched(answers, 2, 4))
	assert.Equal(t, Index(6), answers.nextIndex[2])

	require.Len(t, installs(heartbeat(cm), 2), 1)
	late := cm.Clone()
	stepSaved(late, matched(late, 2, 1))
	stepSaved(late, matched(late, 2, 2))
	assert.Len(t, installs(heartbeat(late), 2), 1)
	assert.Equal(t, Index(3), late.nextIndex[2])
}

// TestSnapshotOverABadNetwork: with parts and answers lost, doubled, late and
// damaged, and restarts half way, the follower gets the bytes and then the rest.
func TestSnapshotOverABadNetwork(t *testing.T) {
	rng := seeded()
	content := []byte("0123456789")
	for range 300 {
		c := plain(1, 3)
		c.MaxBatchBytes = 1 + rng.IntN(12)
		leader := compacted(t, c)
		fallBack(leader, 2)
		conf := plain(2, 3)
		saved := PersistentState{CurrentTerm: 1}
		cm, _ := start(t, conf, saved)
		var got []byte
		var network []Message
		deliver := func(m Message) {
			if m.To == 1 {
				network = append(network, stepSaved(leader, m).Send...)
				return
			}
			if args, ok := m.Body.(InstallSnapshotArgs); ok {
				args.Data = bytes.Clone(content[args.Offset : args.Offset+args.Length])
				if args.Length > 0 && rng.IntN(40) == 0 {
					args.Data[0]++
				}
				m.Body = args
			}
			effects := stepSaved(cm, m)
			network = append(network, effects.SendAfter...)
			for _, chunk := range effects.Receive {
				if chunk.Offset == 0 {
					got = nil
				}
				require.Equal(t, uint64(len(got)), chunk.Offset)
				got = append(got, chunk.Data...)
				switch {
				case !chunk.Last():
				case bytes.Equal(got, content):
					stepSaved(cm, SnapshotStored{chunk.Snapshot})
				default:
					cm.Step(SnapshotDamaged{chunk.Snapshot})
				}
			}
		}
		steps := 0
		for ; cm.commitIndex < leader.commitIndex; steps++ {
			require.Less(t, steps, 2_000)
			if len(network) == 0 || rng.IntN(5) == 0 {
				network = append(network, heartbeat(leader).Send...)
			}
			i := rng.IntN(len(network))
			m := network[i]
			if rng.IntN(6) > 0 {
				network = slices.Delete(network, i, i+1)
			}
			if m.To != 3 && rng.IntN(6) > 0 {
				deliver(m)
			}
			if len(network) > 6 {
				network = network[1:]
			}
			if rng.IntN(200) == 0 && cm.commitIndex == 0 {
				cm, _ = start(t, conf, saved)
			}
		}
		require.Equal(t, content, got)
		require.Equal(t, leader.log.entries, cm.log.entries)
	}
}
