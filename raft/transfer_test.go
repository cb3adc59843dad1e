package raft

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func transferTo(to ServerID) TransferLeadership { return TransferLeadership{Request: 7, To: to} }

// timeoutsNow returns who is told to start an election at once.
func timeoutsNow(e Effects) (to []ServerID) {
	for _, m := range e.Send {
		if _, ok := m.Body.(TimeoutNowArgs); ok {
			to = append(to, m.To)
		}
	}
	return to
}

// TestTransfer: TimeoutNow waits until the other log is as long as ours, and
// meanwhile ours does not grow (TR-03). A refusal changes nothing (TR-05).
func TestTransfer(t *testing.T) {
	cm := settled(t, 3)
	stepSaved(cm, submit("x=1"))
	assert.Empty(t, timeoutsNow(stepSaved(cm, transferTo(2))))
	assert.Equal(t, ServerID(2), cm.Status().TransferTo)

	before := cm.AppendState(nil, itself)
	assert.ErrorIs(t, stepSaved(cm, submit("x=2")).Submitted[0].Err, ErrTransferring)
	assert.ErrorIs(t, stepSaved(cm, ChangeConfiguration{Next: NewConfiguration(1, 2)}).Answers[0].Err, ErrTransferring)
	assert.ErrorIs(t, stepSaved(cm, transferTo(3)).Answers[0].Err, ErrTransferring)
	assert.Equal(t, before, cm.AppendState(nil, itself))

	assert.Empty(t, timeoutsNow(stepSaved(cm, answered(cm, 3))), "not the one")
	assert.Empty(t, timeoutsNow(heartbeat(cm)))
	ready := stepSaved(cm, answered(cm, 2))
	assert.Equal(t, []ServerID{2}, timeoutsNow(ready))
	assert.Empty(t, ready.Answers, "it has not come about yet")
	heartbeat(cm)
	assert.Empty(t, timeoutsNow(stepSaved(cm, answered(cm, 2))), "once")

	taken := stepSaved(cm, message(2, 1, RequestVoteArgs{Term: 2, CandidateID: 2, LastLogIndex: 2, LastLogTerm: 1, Transfer: true}))
	assert.Equal(t, []Answer{{Request: 7}}, taken.Answers)
	assert.Equal(t, ServerID(2), cm.votedFor, "the leader protects nobody either (TR-02)")
	assert.Equal(t, StopTimer, taken.Timers[TransferTimer].Action)
}

// TestTransferTargets: who can be asked to take over, and what the others say (TR-06).
func TestTransferTargets(t *testing.T) {
	c := protecting(1, 3)
	c.DisablePreVote = true
	c.Configuration.Learners = []ServerID{4}
	leader := func() *ConsensusModule {
		cm := lead(t, c, PersistentState{})
		stepSaved(cm, answered(cm, 3))
		return cm
	}
	for _, to := range []ServerID{4, 5} {
		assert.Equal(t, []Answer{{Request: 7, Err: ErrNotVoter}}, leader().Step(transferTo(to)).Answers)
	}
	assert.Equal(t, []Answer{{Request: 7}}, leader().Step(transferTo(1)).Answers, "nothing to do")
	assert.Equal(t, []ServerID{3}, timeoutsNow(leader().Step(transferTo(None))), "who lacks least")
	assert.Equal(t, []Answer{{Request: 7, Err: ErrNotVoter}}, settled(t, 1).Step(transferTo(None)).Answers, "there is nobody")

	cm := leader()
	cm.Step(transferTo(2))
	cm.Step(TransferLeadership{Request: 8, To: 2})
	assert.Equal(t, []RequestID{7, 8}, cm.transfer.waiting, "the same again joins in")

	follower, timer := start(t, plain(1, 3), PersistentState{})
	assert.Equal(t, []Answer{{Request: 7, Err: &NotLeaderError{}}}, follower.Step(transferTo(2)).Answers)
	stepSaved(follower, ElectionTimeout{timer})
	require.Equal(t, Candidate, follower.state)
	assert.Equal(t, []Answer{{Request: 7, Err: &NotLeaderError{Term: 1}}}, follower.Step(transferTo(2)).Answers)
}

// TestTransferTimeout: a transfer that does not come about ends, and the leader
// leads on (TR-03).
func TestTransferTimeout(t *testing.T) {
	cm := settled(t, 3)
	began := cm.Step(transferTo(2)).Timers[TransferTimer]
	require.Equal(t, RestartTimer, began.Action)
	ended := cm.Step(TransferTimeout{began.Number})
	assert.Equal(t, []Answer{{Request: 7, Err: ErrTransferAborted}}, ended.Answers)
	assert.Equal(t, Leader, cm.state)
	assert.NoError(t, stepSaved(cm, submit("x=1")).Submitted[0].Err)
	assert.Equal(t, Effects{}, cm.Step(TransferTimeout{began.Number}))
}

// TestTransferEndsWithTheLeadership: nothing of it is left for the next one (TR-01).
func TestTransferEndsWithTheLeadership(t *testing.T) {
	for name, event := range map[string]func(cm *ConsensusModule) Event{
		"another leads": func(*ConsensusModule) Event { return message(3, 1, AppendEntriesArgs{Term: 2, LeaderID: 3}) },
		"nobody answers": func(cm *ConsensusModule) Event {
			cm.Step(QuorumCheckTimeout{cm.timers[QuorumCheckTimer]})
			return QuorumCheckTimeout{cm.timers[QuorumCheckTimer]}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cm := settled(t, 3)
			stepSaved(cm, submit("x=1"))
			timer := stepSaved(cm, transferTo(2)).Timers[TransferTimer].Number
			assert.Equal(t, []Answer{{Request: 7}}, stepSaved(cm, event(cm)).Answers)
			assert.Equal(t, transfer{}, cm.transfer)
			assert.Equal(t, Effects{}, cm.Step(TransferTimeout{timer}))

			stepSaved(cm, ElectionTimeout{cm.timers[ElectionTimer]})
			stepSaved(cm, message(2, 1, RequestVoteReply{Term: cm.currentTerm, AskedTerm: cm.currentTerm, VoteGranted: true}))
			require.Equal(t, Leader, cm.state)
			assert.NoError(t, stepSaved(cm, submit("x=2")).Submitted[0].Err)
		})
	}
}

// TestTransferToOneWhoLosesTheVote: the transfer ends when its target's vote is
// taken away (TR-06).
func TestTransferToOneWhoLosesTheVote(t *testing.T) {
	cm := settled(t, 3)
	stepSaved(cm, ChangeConfiguration{Request: 1, Next: Configuration{Voters: []ServerID{1, 3}, Learners: []ServerID{2}}})
	assert.Empty(t, stepSaved(cm, transferTo(2)).Answers, "it lacks the joint configuration")
	stepSaved(cm, matched(cm, 2, 2))
	ended := stepSaved(cm, answered(cm, 3))
	require.False(t, cm.configuration.IsVoter(2))
	assert.Equal(t, []Answer{{Request: 7, Err: ErrNotVoter}}, ended.Answers)
	assert.NoError(t, stepSaved(cm, submit("x=1")).Submitted[0].Err)
}

// TestTimeoutNow: the server that is asked starts an election at once, and the
// votes of those who hear the old leader are not refused to it (TR-02).
func TestTimeoutNow(t *testing.T) {
	heartbeat := AppendEntriesArgs{Term: 1, LeaderID: 1, Round: 4}
	now := message(1, 2, TimeoutNowArgs{Term: 1, LeaderID: 1, Round: 4})
	heard := func(c Config) *ConsensusModule {
		cm, _ := start(t, c, PersistentState{})
		stepSaved(cm, message(1, c.ID, heartbeat))
		return cm
	}
	cm := heard(protecting(2, 3))
	asks := stepSaved(cm, now)
	assert.Equal(t, Candidate, cm.state, "no pre-vote")
	assert.Equal(t, Save{CurrentTerm: 2, VotedFor: 2}, asks.Save)
	request := RequestVoteArgs{Term: 2, CandidateID: 2, Transfer: true}
	assert.Equal(t, []Message{message(2, 1, request), message(2, 3, request)}, asks.SendAfter)
	assert.False(t, stepSaved(cm, now).Save.Needed(), "the same again")

	voter := heard(protecting(3, 3))
	stepSaved(voter, message(2, 3, request))
	assert.Equal(t, ServerID(2), voter.votedFor)

	// The next election is one like any other.
	stepSaved(cm, ElectionTimeout{cm.timers[ElectionTimer]})
	assert.Equal(t, PreCandidate, cm.state)
}

// TestStaleTimeoutNow: a late copy starts nothing.
func TestStaleTimeoutNow(t *testing.T) {
	heartbeat := message(1, 2, AppendEntriesArgs{Term: 3, LeaderID: 1, Round: 4})
	voter := protecting(2, 3)
	learner := protecting(2, 3)
	learner.Configuration = Configuration{Voters: []ServerID{1, 3}, Learners: []ServerID{2}}
	for name, c := range map[string]struct {
		config Config
		before []Event
		now    Message
	}{
		"of an earlier term":                   {voter, []Event{heartbeat}, message(1, 2, TimeoutNowArgs{Term: 2, LeaderID: 1, Round: 4})},
		"of a later term that was not heard":   {voter, []Event{heartbeat}, message(1, 2, TimeoutNowArgs{Term: 4, LeaderID: 1, Round: 4})},
		"answered a later round":               {voter, []Event{heartbeat}, message(1, 2, TimeoutNowArgs{Term: 3, LeaderID: 1, Round: 3})},
		"from someone who does not lead":       {voter, []Event{heartbeat}, message(3, 2, TimeoutNowArgs{Term: 3, LeaderID: 3, Round: 4})},
		"after a restart":                      {voter, nil, message(1, 2, TimeoutNowArgs{Term: 3, LeaderID: 1, Round: 4})},
		"to a learner":                         {learner, []Event{heartbeat}, message(1, 2, TimeoutNowArgs{Term: 3, LeaderID: 1, Round: 4})},
		"to a server that is not in a cluster": {Config{ID: 2}, []Event{heartbeat}, message(1, 2, TimeoutNowArgs{Term: 3, LeaderID: 1, Round: 4})},
	} {
		t.Run(name, func(t *testing.T) {
			saved := PersistentState{CurrentTerm: 3, Entries: []LogEntry{
				{Term: 3, Kind: EntryConfiguration, Command: c.config.Configuration.AppendTo(nil)},
			}}
			cm, _ := start(t, c.config, saved)
			for _, event := range c.before {
				stepSaved(cm, event)
			}
			stepSaved(cm, c.now)
			assert.Equal(t, Follower, cm.state)
		})
	}
}

// TestTransferEndsTheLease: from the moment that TimeoutNow leaves the other one
// may be elected, whatever the voters have promised (TR-04).
func TestTransferEndsTheLease(t *testing.T) {
	cm := settled(t, 3)
	require.NotZero(t, cm.Status().LeaseRound)
	stepSaved(cm, submit("x=1"))
	stepSaved(cm, transferTo(2))
	assert.NotZero(t, cm.Status().LeaseRound, "nobody has been told yet")
	stepSaved(cm, answered(cm, 2))
	assert.Zero(t, cm.Status().LeaseRound)

	// Nor after an abort. TimeoutNow may be on its way still; and though server 2
	// ignores it once it has answered a later round, it forgets that it has when
	// it restarts.
	cm.Step(TransferTimeout{cm.timers[TransferTimer]})
	heartbeat(cm)
	for _, id := range cm.peerIDs {
		stepSaved(cm, answered(cm, id))
	}
	require.Equal(t, Leader, cm.state)
	assert.Zero(t, cm.Status().LeaseRound)
}
