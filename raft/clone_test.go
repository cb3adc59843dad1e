package raft

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func itself(id ServerID) ServerID { return id }

// ledLog is a leader of three with a log, one follower that matches and one
// that it is asking where the logs agree.
func ledLog(t *testing.T) *ConsensusModule {
	cm := lead(t, plain(1, 3), PersistentState{CurrentTerm: 3, Entries: entries(1, 3)})
	stepSaved(cm, Submit{Commands: [][]byte{{'x'}}})
	stepSaved(cm, matched(cm, 2, 3))
	stepSaved(cm, message(3, 1, AppendEntriesReply{Term: 4, AskedTerm: 4, PrevLogIndex: 2, ConflictIndex: 2}))
	require.True(t, cm.windows[3].probing)
	require.NotEmpty(t, cm.windows[2].ends)
	return cm
}

// Two servers that lived through the same, but for who is who, have the same
// packed state when they are called by the same names, and no other.
func TestAppendStateRenames(t *testing.T) {
	rename := func(id ServerID) ServerID { return id%3 + 1 } // 1 2 3 become 2 3 1
	life := func(name func(ServerID) ServerID) *ConsensusModule {
		from := func(id ServerID, body Body) Message { return message(name(id), name(1), body) }
		cm, _ := start(t, plain(name(1), 3), PersistentState{})
		stepSaved(cm, from(2, RequestVoteArgs{Term: 1, CandidateID: name(2)}))
		stepSaved(cm, from(2, AppendEntriesArgs{Term: 1, LeaderID: name(2), Entries: entries(1, 1)}))
		stepSaved(cm, ElectionTimeout{cm.timers[ElectionTimer]})
		stepSaved(cm, from(3, RequestVoteReply{Term: 2, AskedTerm: 2, VoteGranted: true}))
		stepSaved(cm, from(2, AppendEntriesReply{Term: 2, AskedTerm: 2, Success: true, PrevLogIndex: 2, MatchIndex: 3}))
		return cm
	}
	here, there := life(itself), life(rename)
	require.Equal(t, Leader, here.state)
	assert.Equal(t, there.AppendState(nil, itself), here.AppendState(nil, rename))
	assert.NotEqual(t, there.AppendState(nil, itself), here.AppendState(nil, itself))
	assert.NotEqual(t, here.AppendState(nil, itself), here.AppendState(nil, func(id ServerID) ServerID { return [...]ServerID{0, 1, 3, 2}[id] }),
		"the follower that matches is not the other one")
}

// Everything that decides what a server does next must be in its packed state.
func TestAppendStateIsComplete(t *testing.T) {
	for name, change := range map[string]func(cm *ConsensusModule){
		"state":         func(cm *ConsensusModule) { cm.state = Candidate },
		"leaderID":      func(cm *ConsensusModule) { cm.leaderID = 2 },
		"currentTerm":   func(cm *ConsensusModule) { cm.currentTerm++ },
		"votedFor":      func(cm *ConsensusModule) { cm.votedFor = 2 },
		"entry":         func(cm *ConsensusModule) { cm.log.entries = cm.log.entries[:cm.log.at(4)] },
		"entry's term":  func(cm *ConsensusModule) { cm.log.entries[cm.log.at(1)].Term = 2 },
		"entry's kind":  func(cm *ConsensusModule) { cm.log.entries[cm.log.at(1)].Kind = EntryEmpty },
		"command":       func(cm *ConsensusModule) { cm.log.entries[cm.log.at(1)].Command = []byte{'y'} },
		"commitIndex":   func(cm *ConsensusModule) { cm.commitIndex++ },
		"lastApplied":   func(cm *ConsensusModule) { cm.lastApplied++ },
		"delivered":     func(cm *ConsensusModule) { cm.delivered++ },
		"savedIndex":    func(cm *ConsensusModule) { cm.savedIndex-- },
		"savedTerm":     func(cm *ConsensusModule) { cm.savedTerm-- },
		"votesReceived": func(cm *ConsensusModule) { cm.votesReceived = map[ServerID]bool{2: true} },
		"round":         func(cm *ConsensusModule) { cm.preVote.round++ },
		"pre-votes":     func(cm *ConsensusModule) { cm.preVote.votes = map[ServerID]bool{2: true} },
		"heard":         func(cm *ConsensusModule) { cm.preVote.heard = map[ServerID]bool{2: true} },
		"leaderContact": func(cm *ConsensusModule) { cm.preVote.leaderContact = true },
		"timer stopped": func(cm *ConsensusModule) { cm.timers[HeartbeatTimer] = 0 },
		"timer runs":    func(cm *ConsensusModule) { cm.timers[ElectionTimer] = 1 },
		"nextIndex":     func(cm *ConsensusModule) { cm.nextIndex[3]++ },
		"matchIndex":    func(cm *ConsensusModule) { cm.matchIndex[2]-- },
		"probing":       func(cm *ConsensusModule) { cm.windows[3].probing = false },
		"in flight":     func(cm *ConsensusModule) { cm.windows[2].ends = nil },
	} {
		cm := ledLog(t)
		before := cm.AppendState(nil, itself)
		c := cm.Clone()
		c.log.entries = append([]LogEntry(nil), c.log.entries...) // entries are shared
		change(c)
		assert.NotEqual(t, before, c.AppendState(nil, itself), name)
		assert.Equal(t, before, cm.AppendState(nil, itself), "%s: a copy that changes must not change the original", name)
	}
}

// A timer's runs differ only in their numbers, and so does what follows.
func TestAppendStateForgetsTimerNumbers(t *testing.T) {
	a, timer := start(t, plain(1, 3), PersistentState{CurrentTerm: 1})
	b, _ := start(t, plain(1, 3), PersistentState{CurrentTerm: 1})
	b.restartTimer(ElectionTimer)
	require.NotEqual(t, timer, b.timers[ElectionTimer])
	assert.Equal(t, a.AppendState(nil, itself), b.AppendState(nil, itself))
}
