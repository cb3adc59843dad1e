package raft

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestConfigThatCannotWork(t *testing.T) {
	for name, c := range map[string]Config{
		"no id":          {Configuration: NewConfiguration(1)},
		"not a voter":    {ID: 2, Configuration: NewConfiguration(1)},
		"only a learner": {ID: 2, Configuration: Configuration{Voters: []ServerID{1}, Learners: []ServerID{2}}},
		"nobody votes":   {ID: 2, Configuration: Configuration{Learners: []ServerID{2}}},
		"named twice":    {ID: 1, Configuration: Configuration{Voters: []ServerID{1, 1, 2}}},
		"not sorted":     {ID: 1, Configuration: Configuration{Voters: []ServerID{2, 1}}},
	} {
		_, _, err := NewConsensusModule(c, PersistentState{})
		assert.ErrorIs(t, err, ErrConfig, name)
	}
}

// TestForeignMessages: what is not for this server, or not from its cluster,
// changes nothing, not even the term.
func TestForeignMessages(t *testing.T) {
	c := plain(1, 3)
	c.Cluster = 7
	body := RequestVoteArgs{Term: 5, CandidateID: 2}
	for name, m := range map[string]Message{
		"another cluster's": {Cluster: 8, From: 2, To: 1, Body: body},
		"another server's":  {Cluster: 7, From: 2, To: 3, Body: body},
		"our own":           {Cluster: 7, From: 1, To: 1, Body: body},
		"nobody's":          {Cluster: 7, From: None, To: 1, Body: body},
	} {
		cm, _ := start(t, c, PersistentState{})
		before := cm.Status()
		assert.Equal(t, Effects{}, cm.Step(m), name)
		assert.Equal(t, before, cm.Status(), name)
	}
	cm, _ := start(t, c, PersistentState{})
	cm.Step(Message{Cluster: 7, From: 2, To: 1, Body: body})
	assert.Equal(t, Term(5), cm.currentTerm, "the look-alike that is meant for it")
}

// TestSoleVoterWaitsForItsDisk: a quorum of one is a durable quorum (PE-02).
func TestSoleVoterWaitsForItsDisk(t *testing.T) {
	cm, timer := start(t, plain(1, 1), PersistentState{})
	effects := cm.Step(ElectionTimeout{timer})
	assert.Equal(t, Save{CurrentTerm: 1, VotedFor: 1}, effects.Save)
	assert.Equal(t, Candidate, cm.state, "its term is not durable yet")

	effects = cm.Step(Saved{Index: 0, Term: 1})
	assert.Equal(t, Leader, cm.state)
	assert.Equal(t, Index(1), effects.Save.FirstIndex)
	assert.Empty(t, effects.Commit, "nor is its first entry")

	effects = cm.Step(Saved{Index: 1, Term: 1})
	assert.Equal(t, []CommitEntry{{Index: 1, Term: 1, Kind: EntryEmpty}}, effects.Commit)

	effects = cm.Step(Submit{Commands: [][]byte{[]byte("x=1")}})
	assert.Equal(t, []Submitted{{FirstIndex: 2, Term: 1}}, effects.Submitted)
	assert.Empty(t, effects.Commit)
	effects = cm.Step(Saved{Index: 2, Term: 1})
	assert.Equal(t, []CommitEntry{{Index: 2, Term: 1, Command: []byte("x=1")}}, effects.Commit)
}

// TestSoleVoterCrashesBeforeSaved: it comes back without the term that it had
// begun, and nobody has seen it lead.
func TestSoleVoterCrashesBeforeSaved(t *testing.T) {
	cm, timer := start(t, plain(1, 1), PersistentState{})
	effects := cm.Step(ElectionTimeout{timer})
	assert.Empty(t, effects.Send)
	assert.Empty(t, effects.SendAfter)
	cm, timer = start(t, plain(1, 1), PersistentState{})
	stepSaved(cm, ElectionTimeout{timer})
	assert.Equal(t, Status{ID: 1, State: Leader, Term: 1, VotedFor: 1, LeaderID: 1, CommitIndex: 1, SavedIndex: 1, LastIndex: 1, LastTerm: 1, FirstIndex: 1, Round: 1}, cm.Status())
}

// TestVotesOvertakeTheDisk: a majority of others does not make a leader whose own
// term is not durable, or its entries would carry a term that it can forget.
func TestVotesOvertakeTheDisk(t *testing.T) {
	cm, timer := start(t, plain(1, 5), PersistentState{})
	cm.Step(ElectionTimeout{timer})
	for _, from := range []ServerID{2, 3, 4} {
		cm.Step(message(from, 1, RequestVoteReply{Term: 1, VoteGranted: true, AskedTerm: 1}))
	}
	assert.Equal(t, Candidate, cm.state)
	cm.Step(Saved{Index: 0, Term: 1})
	assert.Equal(t, Leader, cm.state)
}

// TestOwnCopyWaitsForTheDisk: a leader's entry is sent before it is written, so
// an answer can be there first. The leader's copy is no copy until then (PE-01).
func TestOwnCopyWaitsForTheDisk(t *testing.T) {
	cm := lead(t, plain(1, 3), PersistentState{})
	stepSaved(cm, matched(cm, 2, 1))
	require.Equal(t, Index(1), cm.commitIndex)
	cm.Step(submit("x=1"))
	cm.Step(matched(cm, 2, 2))
	assert.Equal(t, Index(1), cm.commitIndex, "one of three disks has it")
	cm.Step(Saved{Index: 2, Term: 1})
	assert.Equal(t, Index(2), cm.commitIndex)
}

// TestStaleTimers: a timer that fired before it was restarted or stopped means
// nothing when its event arrives.
func TestStaleTimers(t *testing.T) {
	quiet := func(t *testing.T, cm *ConsensusModule, event Event) {
		before := cm.Status()
		assert.Equal(t, Effects{}, cm.Step(event), "%#v", event)
		assert.Equal(t, before, cm.Status(), "%#v", event)
	}
	heartbeat := message(2, 1, AppendEntriesArgs{Term: 1, LeaderID: 2})

	t.Run("election", func(t *testing.T) {
		cm, first := start(t, plain(1, 3), PersistentState{})
		second := stepSaved(cm, heartbeat).Timers[ElectionTimer].Number
		quiet(t, cm, ElectionTimeout{first})
		quiet(t, cm, ElectionTimeout{0})
		cm.Step(ElectionTimeout{second})
		assert.Equal(t, Candidate, cm.state)
		quiet(t, cm, ElectionTimeout{second})
	})
	t.Run("leader contact", func(t *testing.T) {
		c := plain(1, 3)
		c.DisableQuorumCheck = false
		cm, _ := start(t, c, PersistentState{})
		first := stepSaved(cm, heartbeat).Timers[LeaderContactTimer].Number
		second := stepSaved(cm, heartbeat).Timers[LeaderContactTimer].Number
		quiet(t, cm, LeaderContactTimeout{first})
		assert.True(t, cm.preVote.leaderContact, "or a stale timer would end the trust in a leader that was just heard")
		cm.Step(LeaderContactTimeout{second})
		assert.False(t, cm.preVote.leaderContact)
	})
	t.Run("heartbeat and quorum check of an earlier leadership", func(t *testing.T) {
		c := plain(1, 3)
		c.DisableQuorumCheck = false
		cm, timer := start(t, c, PersistentState{})
		stepSaved(cm, ElectionTimeout{timer})
		won := stepSaved(cm, message(2, 1, RequestVoteReply{Term: 1, VoteGranted: true, AskedTerm: 1})).Timers
		require.Equal(t, Leader, cm.state)
		lost := stepSaved(cm, message(2, 1, AppendEntriesReply{Term: 2})).Timers
		assert.Equal(t, StopTimer, lost[HeartbeatTimer].Action)
		assert.Equal(t, StopTimer, lost[QuorumCheckTimer].Action)
		assert.Equal(t, RestartTimer, lost[ElectionTimer].Action)

		stepSaved(cm, ElectionTimeout{lost[ElectionTimer].Number})
		stepSaved(cm, message(2, 1, RequestVoteReply{Term: 3, VoteGranted: true, AskedTerm: 3}))
		require.Equal(t, Leader, cm.state)
		quiet(t, cm, HeartbeatTimeout{won[HeartbeatTimer].Number})
		quiet(t, cm, QuorumCheckTimeout{won[QuorumCheckTimer].Number})
	})
}

// TestCloneIsIndependent lets a copy and its original live different lives.
func TestCloneIsIndependent(t *testing.T) {
	submit := func(c byte) Event { return Submit{Commands: [][]byte{{c}}} }
	leader := func() *ConsensusModule {
		c := plain(1, 3)
		c.DisableQuorumCheck, c.MaxInflight = false, 2
		cm := lead(t, c, PersistentState{})
		stepSaved(cm, submit(1))
		return cm
	}
	candidate := func() *ConsensusModule {
		cm, timer := start(t, plain(1, 5), PersistentState{})
		stepSaved(cm, ElectionTimeout{timer})
		return cm
	}
	preCandidate := func() *ConsensusModule {
		c := plain(1, 5)
		c.DisablePreVote = false
		cm, timer := start(t, c, PersistentState{})
		stepSaved(cm, ElectionTimeout{timer})
		return cm
	}
	for _, c := range []struct {
		name  string
		make  func() *ConsensusModule
		event func(cm *ConsensusModule) Event
	}{
		{"a log that grows", leader, func(*ConsensusModule) Event { return submit(2) }},
		{"a log that is cut", leader, func(*ConsensusModule) Event {
			return message(2, 1, AppendEntriesArgs{Term: 2, LeaderID: 2, Entries: entries(2)})
		}},
		{"matchIndex, window and who was heard", leader, func(cm *ConsensusModule) Event { return matched(cm, 2, 2) }},
		{"votes", candidate, func(*ConsensusModule) Event {
			return message(2, 1, RequestVoteReply{Term: 1, VoteGranted: true, AskedTerm: 1})
		}},
		{"pre-votes", preCandidate, func(*ConsensusModule) Event {
			return message(2, 1, PreVoteReply{VoteGranted: true, Round: 1})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			original, twin := c.make(), c.make()
			clone := original.Clone()
			require.Equal(t, twin, original)

			want := stepSaved(twin, c.event(twin))
			got := stepSaved(clone, c.event(clone))
			assert.Equal(t, want, got, "the clone does what the original would do")
			assert.Equal(t, c.make(), original, "and the original knows nothing of it")

			assert.Equal(t, want, stepSaved(original, c.event(original)))
			assert.Equal(t, twin, original)
		})
	}
}

// TestCloneSharesNoRoom: both grow their logs from the same place.
func TestCloneSharesNoRoom(t *testing.T) {
	a := lead(t, plain(1, 3), PersistentState{})
	for c := range byte(5) {
		stepSaved(a, Submit{Commands: [][]byte{{c}}}) // leaves room behind the last entry
	}
	b := a.Clone()
	stepSaved(a, Submit{Commands: [][]byte{[]byte("a")}})
	stepSaved(b, Submit{Commands: [][]byte{[]byte("b")}})
	assert.Equal(t, "a", string(a.log.entry(7).Command))
	assert.Equal(t, "b", string(b.log.entry(7).Command))
}
