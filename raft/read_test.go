package raft

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func read(requests ...RequestID) Read { return Read{Requests: requests} }

// TestReadBeforeOwnEntry: a new leader may not know yet what its predecessor has
// committed and a client was told of (RD-01).
func TestReadBeforeOwnEntry(t *testing.T) {
	cm := lead(t, plain(1, 3), PersistentState{CurrentTerm: 1, Entries: entries(1, 1)})
	require.Equal(t, Index(0), cm.commitIndex)
	assert.Empty(t, stepSaved(cm, read(7)).Answers)
	assert.Empty(t, stepSaved(cm, heartbeat(cm).Send[0]).Answers)

	// Both old entries are on a majority; only the leader's own commits them.
	assert.Empty(t, stepSaved(cm, matched(cm, 2, 2)).Answers)
	asks := stepSaved(cm, answered(cm, 2))
	assert.Empty(t, asks.Answers, "the round begins now")
	require.Len(t, asks.Send, 2)
	assert.Equal(t, []Answer{{Request: 7, Index: 3}}, stepSaved(cm, answered(cm, 3)).Answers)
}

// TestReadNeedsItsOwnRound: an answer to what was sent before the read says
// nothing about now (RD-02). Nor does one that nobody asked for.
func TestReadNeedsItsOwnRound(t *testing.T) {
	cm := settled(t, 5)
	old := []Message{answered(cm, 2), answered(cm, 3), answered(cm, 4), answered(cm, 5)}
	stepSaved(cm, read(7))
	for _, m := range old {
		assert.Empty(t, stepSaved(cm, m).Answers, "an answer of before the read")
	}
	earlier := answered(cm, 3)
	reply := earlier.Body.(AppendEntriesReply)
	reply.AskedTerm--
	earlier.Body = reply
	later := answered(cm, 4)
	reply = later.Body.(AppendEntriesReply)
	reply.Round++
	later.Body = reply
	for _, m := range []Message{
		answered(cm, 2), // good, and still one too few
		answered(cm, 2), // the same again
		answered(cm, 9), // nobody's vote
		earlier,         // of another leadership
		later,           // of a round that has not begun
	} {
		assert.Empty(t, stepSaved(cm, m).Answers, "%+v", m)
	}
	refusal := message(3, 1, AppendEntriesReply{Term: 1, AskedTerm: 1, PrevLogIndex: 1, ConflictIndex: 1, Round: cm.reads.round})
	assert.Equal(t, []Answer{{Request: 7, Index: 1}}, stepSaved(cm, refusal).Answers, "a refusal is an answer of the leader's term, too")
}

// TestReadsShareRounds: a read sends at once (RD-07); those that come while a
// round is under way share the next one.
func TestReadsShareRounds(t *testing.T) {
	cm := settled(t, 3)
	require.Len(t, stepSaved(cm, read(1, 2)).Send, 2)
	assert.Empty(t, stepSaved(cm, read(3)).Send)
	assert.Empty(t, stepSaved(cm, read(4)).Send)

	first := stepSaved(cm, answered(cm, 2))
	assert.Equal(t, []Answer{{Request: 1, Index: 1}, {Request: 2, Index: 1}}, first.Answers)
	require.Len(t, first.Send, 2, "the next round")
	assert.Equal(t, []Answer{{Request: 3, Index: 1}, {Request: 4, Index: 1}}, stepSaved(cm, answered(cm, 3)).Answers)

	// What is committed when the round begins counts, applied or not (RD-03).
	stepSaved(cm, submit("x=1"))
	stepSaved(cm, read(5))
	stepSaved(cm, matched(cm, 2, 2))
	assert.Equal(t, []Answer{{Request: 5, Index: 1}}, stepSaved(cm, answered(cm, 2)).Answers)
	require.Equal(t, Index(2), cm.commitIndex)
	stepSaved(cm, read(6))
	assert.Equal(t, []Answer{{Request: 6, Index: 2}}, stepSaved(cm, answered(cm, 2)).Answers)
	assert.Equal(t, Index(0), cm.lastApplied)
}

// TestLostRound: the messages of a round may be lost; any later round confirms it.
func TestLostRound(t *testing.T) {
	cm := settled(t, 3)
	stepSaved(cm, read(1))
	heartbeat(cm)
	assert.Equal(t, []Answer{{Request: 1, Index: 1}}, stepSaved(cm, answered(cm, 2)).Answers)
}

// TestReadsEndWithTheLeadership: whoever waits is told, and nothing of it is left
// for the next leadership (RD-07).
func TestReadsEndWithTheLeadership(t *testing.T) {
	cm := settled(t, 3)
	stepSaved(cm, read(1))
	stepSaved(cm, read(2))
	lost := stepSaved(cm, message(2, 1, AppendEntriesArgs{Term: 2, LeaderID: 2}))
	for i, request := range []RequestID{1, 2} {
		assert.Equal(t, request, lost.Answers[i].Request)
		assert.Equal(t, &NotLeaderError{Term: 2}, lost.Answers[i].Err)
	}
	assert.Equal(t, []Answer{{Request: 3, Err: &NotLeaderError{Leader: 2, Term: 2}}}, stepSaved(cm, read(3)).Answers)
	assert.Equal(t, reads{}, cm.reads)
}

// TestReadsOfASoleVoter: there is nobody to ask, with or without learners.
func TestReadsOfASoleVoter(t *testing.T) {
	cm := settled(t, 1)
	assert.Equal(t, []Answer{{Request: 1, Index: 1}}, stepSaved(cm, read(1)).Answers)
	heartbeat(cm)
	assert.Equal(t, cm.reads.round, cm.Status().LeaseRound, "nor does a lease need more than a heartbeat")
}

// TestReadOutlivesItsQuorum: a read waits for one of two voters when that one
// leaves the cluster and falls silent. The leader alone is a quorum now.
func TestReadOutlivesItsQuorum(t *testing.T) {
	cm := settled(t, 2)
	stepSaved(cm, ChangeConfiguration{Request: 1, Next: NewConfiguration(1)})
	joint := answered(cm, 2)
	stepSaved(cm, read(2))
	left := stepSaved(cm, joint)
	require.Equal(t, NewConfiguration(1), cm.configuration)
	assert.Equal(t, []Answer{{Request: 2, Index: 1}}, left.Answers)
	assert.Len(t, stepSaved(cm, read(3)).Answers, 1, "or all later reads would wait for that one")
}

// TestLeaseRound: a lease rests on the latest round that a quorum has answered,
// not on when the answers came or what was sent since (RD-04, RD-05).
func TestLeaseRound(t *testing.T) {
	c := protecting(1, 3)
	c.DisablePreVote = true
	c.Configuration.Learners = []ServerID{4, 5, 6}
	cm := lead(t, c, PersistentState{})
	lease := func() Round { return cm.Status().LeaseRound }
	first := cm.reads.round
	stepSaved(cm, message(2, 1, AppendEntriesReply{Term: 1, AskedTerm: 1, PrevLogIndex: 0, ConflictIndex: 1, Round: first}))
	assert.Zero(t, lease(), "nothing of this term is committed (RD-01)")
	assert.Zero(t, cm.Status().LeaseIndex)
	stepSaved(cm, answered(cm, 2))
	assert.Equal(t, first, lease())
	assert.Equal(t, Index(1), cm.Status().LeaseIndex)

	late := answered(cm, 3)
	heartbeat(cm)
	second := cm.reads.round
	assert.Equal(t, first, lease())
	stepSaved(cm, late)
	for _, learner := range []ServerID{4, 5, 6} {
		stepSaved(cm, answered(cm, learner))
	}
	assert.Equal(t, first, lease(), "learners promise nothing (MB-08)")
	stepSaved(cm, answered(cm, 3))
	assert.Equal(t, second, lease())
	stepSaved(cm, late)
	assert.Equal(t, second, lease())

	stepSaved(cm, message(2, 1, AppendEntriesReply{Term: 2}))
	assert.Zero(t, lease(), "not the leader")
}

// TestNoLeaseWithoutPatience: where voters do not protect a leader there is nothing
// for a lease to rest on.
func TestNoLeaseWithoutPatience(t *testing.T) {
	cm := lead(t, plain(1, 3), PersistentState{})
	stepSaved(cm, answered(cm, 2))
	require.True(t, cm.committedOwn())
	assert.Zero(t, cm.Status().LeaseRound)
}

// TestVotersPatience: who has answered a leader elects nobody for an election
// timeout (RD-05); nor does a server that may have and does not remember (thesis
// 6.4.1).
func TestVotersPatience(t *testing.T) {
	ask := message(3, 2, RequestVoteArgs{Term: 9, CandidateID: 3, LastLogIndex: 99, LastLogTerm: 8})
	preAsk := message(3, 2, PreVoteArgs{Term: 8, CandidateID: 3, LastLogIndex: 99, LastLogTerm: 8})
	deaf := func(cm *ConsensusModule) {
		t.Helper()
		before := cm.Status()
		assert.Equal(t, Effects{}, cm.Step(ask))
		assert.Equal(t, Effects{}, cm.Step(preAsk))
		assert.Equal(t, before, cm.Status())
	}
	for name, event := range map[string]Body{
		"AppendEntries":   AppendEntriesArgs{Term: 1, LeaderID: 1},
		"InstallSnapshot": InstallSnapshotArgs{Term: 1, LeaderID: 1, Snapshot: Snapshot{Index: 5, Term: 1, Size: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			cm, _ := start(t, protecting(2, 3), PersistentState{})
			stepSaved(cm, message(1, 2, event))
			deaf(cm)
			cm.Step(LeaderContactTimeout{cm.timers[LeaderContactTimer]})
			assert.Len(t, stepSaved(cm, ask).SendAfter, 1)
			assert.Equal(t, ServerID(3), cm.votedFor)
		})
	}
	t.Run("restart", func(t *testing.T) {
		cm, _ := start(t, protecting(2, 3), PersistentState{CurrentTerm: 1})
		deaf(cm)
		cm.Step(LeaderContactTimeout{cm.timers[LeaderContactTimer]})
		stepSaved(cm, ask)
		assert.Equal(t, ServerID(3), cm.votedFor)
	})
	t.Run("first start", func(t *testing.T) {
		cm, _ := start(t, protecting(2, 3), PersistentState{})
		stepSaved(cm, ask)
		assert.Equal(t, ServerID(3), cm.votedFor, "there was no term in which it could have heard a leader")
	})
}
