package raft

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBatch packs entries of sizes around the limit: a run without a hole, at
// least one entry, no more than fits (LM-06).
func TestBatch(t *testing.T) {
	rng := seeded()
	const limit = 3 * (entryHeader + 10)
	for range 5_000 {
		c := plain(1, 1)
		c.MaxBatchBytes = limit
		cm, _ := start(t, c, PersistentState{})
		for i := range 1 + rng.IntN(8) {
			size := rng.IntN(2 * limit / 3)
			if rng.IntN(6) == 0 {
				size += limit
			}
			command := make([]byte, 1+size)
			command[0] = byte(i)
			cm.log.append(LogEntry{Term: 1, Command: command})
		}
		for lo := Index(1); lo <= cm.log.lastIndex(); {
			batch := cm.batch(lo)
			require.NotEmpty(t, batch)
			require.True(t, len(batch) == 1 || encodedSize(batch) <= limit)
			for n, e := range batch {
				require.Equal(t, cm.log.entry(lo+Index(n)), e, "a hole")
			}
			hi := lo + Index(len(batch)) - 1
			if hi < cm.log.lastIndex() {
				require.Greater(t, encodedSize(batch)+cm.log.entry(hi+1).EncodedSize(), limit, "the next one would have fitted")
			}
			lo = hi + 1
		}
	}
}

func submit(commands ...string) Submit {
	var s Submit
	for _, c := range commands {
		s.Commands = append(s.Commands, []byte(c))
	}
	return s
}

// TestInflight: no more than MaxInflight messages with entries are under way to
// a follower; an answer makes room, a refusal empties the window (LV-05).
func TestInflight(t *testing.T) {
	c := plain(1, 2)
	c.MaxInflight = 2
	cm := lead(t, c, PersistentState{})
	require.Equal(t, Index(1), cm.log.lastIndex(), "its empty entry is under way")

	assert.Len(t, stepSaved(cm, submit("a")).Send, 1)
	assert.Empty(t, stepSaved(cm, submit("b")).Send, "the window is full")
	assert.Empty(t, stepSaved(cm, submit("c")).Send)

	sent := stepSaved(cm, matched(cm, 2, 1)).Send
	require.Len(t, sent, 1)
	assert.Len(t, sent[0].Body.(AppendEntriesArgs).Entries, 2, "b and c together")

	// A heartbeat follows the last entry sent; a follower that missed one refuses.
	refusal := AppendEntriesReply{Term: 1, AskedTerm: 1, PrevLogIndex: 4, ConflictIndex: 2}
	sent = stepSaved(cm, message(2, 1, refusal)).Send
	require.Len(t, sent, 1)
	assert.Equal(t, AppendEntriesArgs{Term: 1, LeaderID: 1, PrevLogIndex: 1, PrevLogTerm: 1, LeaderCommit: cm.commitIndex, Round: 1}, sent[0].Body, "one question at a time")
	assert.Empty(t, stepSaved(cm, submit("d")).Send, "nothing is sent on a guess that was just proved wrong")
	assert.Empty(t, stepSaved(cm, message(2, 1, refusal)).Send, "the same refusal again")

	sent = stepSaved(cm, matched(cm, 2, 1)).Send
	require.Len(t, sent, 1)
	assert.Len(t, sent[0].Body.(AppendEntriesArgs).Entries, 4)
}

// TestAnswersDoNotMultiply: with answers doubled and one entry a message, each
// match is answered by new entries once.
func TestAnswersDoNotMultiply(t *testing.T) {
	c := plain(1, 2)
	c.MaxBatchBytes, c.MaxInflight = 1, 1
	cm := lead(t, c, PersistentState{})
	stepSaved(cm, submit("a", "b", "c"))
	assert.Len(t, stepSaved(cm, matched(cm, 2, 1)).Send, 1)
	assert.Empty(t, stepSaved(cm, matched(cm, 2, 1)).Send)
	assert.Empty(t, stepSaved(cm, matched(cm, 2, 1)).Send)
	assert.Len(t, stepSaved(cm, matched(cm, 2, 2)).Send, 1)
}

// TestBusy: what is not committed, or committed and not applied, is bounded
// (LV-06). A refusal changes nothing.
func TestBusy(t *testing.T) {
	c := plain(1, 3)
	c.MaxBacklogBytes = 2*entryHeader + 1
	cm := lead(t, c, PersistentState{}) // its empty entry counts, too
	require.NoError(t, stepSaved(cm, submit("a")).Submitted[0].Err)

	before := cm.Status()
	effects := cm.Step(submit("b"))
	require.Len(t, effects.Submitted, 1)
	assert.ErrorIs(t, effects.Submitted[0].Err, ErrBusy)
	assert.Equal(t, before, cm.Status())
	assert.False(t, effects.Save.Needed())
	assert.Empty(t, effects.Send)

	stepSaved(cm, matched(cm, 2, 2))
	require.Equal(t, Index(2), cm.commitIndex)
	assert.ErrorIs(t, cm.Step(submit("b")).Submitted[0].Err, ErrBusy, "committed, but not applied")

	cm.Step(Applied{1})
	assert.NoError(t, stepSaved(cm, submit("b")).Submitted[0].Err)
	assert.ErrorIs(t, cm.Step(submit("c")).Submitted[0].Err, ErrBusy)
}

// TestBacklogTwin compares the running count with one from scratch, through
// appends, conflicts and changes of roles.
func TestBacklogTwin(t *testing.T) {
	rng := seeded()
	for range 1_000 {
		cm, timer := start(t, plain(1, 2), PersistentState{})
		for range 30 {
			term := cm.currentTerm
			switch rng.IntN(5) {
			case 0:
				if cm.state != Leader {
					stepSaved(cm, ElectionTimeout{max(timer, cm.timers[ElectionTimer])})
					stepSaved(cm, message(2, 1, RequestVoteReply{Term: cm.currentTerm, VoteGranted: true, AskedTerm: cm.currentTerm}))
				}
			case 1:
				stepSaved(cm, Submit{Commands: [][]byte{make([]byte, rng.IntN(20))}})
			case 2:
				if cm.state == Leader {
					stepSaved(cm, matched(cm, 2, cm.commitIndex+Index(rng.IntN(int(cm.log.lastIndex()-cm.commitIndex)+1))))
				}
			case 3:
				stepSaved(cm, Applied{cm.lastApplied + Index(rng.IntN(int(cm.commitIndex-cm.lastApplied)+1))})
			case 4: // a new leader replaces what is not committed
				prev := cm.commitIndex + Index(rng.IntN(int(cm.log.lastIndex()-cm.commitIndex)+1))
				prevTerm, _ := cm.log.term(prev)
				stepSaved(cm, message(2, 1, AppendEntriesArgs{Term: term + 1, LeaderID: 2, PrevLogIndex: prev, PrevLogTerm: prevTerm,
					Entries: []LogEntry{{Term: term + 1, Command: make([]byte, rng.IntN(20))}}}))
			}
			require.Equal(t, encodedSize(cm.log.slice(cm.lastApplied+1, cm.log.lastIndex())), cm.backlogBytes)
		}
	}
}

// TestDeliveryWaitsForTheStateMachine: what is committed and not applied stays
// in the log; there is no second queue to grow (LV-03).
func TestDeliveryWaitsForTheStateMachine(t *testing.T) {
	cm := lead(t, plain(1, 2), PersistentState{})
	commands := make([][]byte, 2*MaxUnapplied)
	stepSaved(cm, Submit{Commands: commands})
	effects := stepSaved(cm, matched(cm, 2, cm.log.lastIndex()))
	require.Equal(t, cm.log.lastIndex(), cm.commitIndex, "committing waits for nobody")
	require.Len(t, effects.Commit, MaxUnapplied)

	effects = cm.Step(Applied{10})
	require.Len(t, effects.Commit, 10)
	assert.Equal(t, Index(MaxUnapplied+1), effects.Commit[0].Index, "each index once, in order")

	assert.Empty(t, cm.Step(Applied{10}).Commit, "the same again")
	assert.Empty(t, cm.Step(Applied{3}).Commit, "or an older one")
	assert.Equal(t, Index(10), cm.lastApplied)
}
