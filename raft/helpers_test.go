package raft

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// entries returns a log with the given terms. Each command tells its index, so
// that no two are the same.
func entries(terms ...Term) []LogEntry {
	var log []LogEntry
	for i, t := range terms {
		log = append(log, LogEntry{Term: t, Command: []byte{byte(i + 1)}})
	}
	return log
}

// plain is the configuration of server id in a cluster of n, as in the paper.
func plain(id ServerID, n int) Config {
	c := Config{ID: id, DisablePreVote: true, DisableQuorumCheck: true}
	for i := range n {
		c.Configuration.Voters = append(c.Configuration.Voters, ServerID(i+1))
	}
	return c
}

// start returns a server and the number of its election timer.
func start(t testing.TB, c Config, saved PersistentState) (*ConsensusModule, TimerNumber) {
	cm, effects, err := NewConsensusModule(c, saved)
	require.NoError(t, err)
	return cm, effects.Timers[ElectionTimer].Number
}

// stepSaved steps an event and, where something is to be saved, Saved. It
// returns both steps' effects merged.
func stepSaved(cm *ConsensusModule, event Event) Effects {
	effects := cm.Step(event)
	for next := effects; next.Save.Needed(); {
		next = cm.Step(Saved{Index: cm.log.lastIndex(), Term: cm.currentTerm})
		effects.Merge(next)
	}
	return effects
}

// lead makes server 1 of n leader, with the votes of all others.
func lead(t testing.TB, c Config, saved PersistentState) *ConsensusModule {
	cm, timer := start(t, c, saved)
	stepSaved(cm, ElectionTimeout{timer})
	for _, id := range cm.peerIDs {
		if cm.state == Candidate {
			stepSaved(cm, message(id, c.ID, RequestVoteReply{Term: cm.currentTerm, VoteGranted: true, AskedTerm: cm.currentTerm}))
		}
	}
	require.Equal(t, Leader, cm.state)
	return cm
}

func message(from, to ServerID, body Body) Message { return Message{From: from, To: to, Body: body} }

// matched is a follower's answer that its log equals the leader's up to index.
func matched(cm *ConsensusModule, from ServerID, index Index) Message {
	return message(from, cm.id, AppendEntriesReply{Term: cm.currentTerm, Success: true, AskedTerm: cm.currentTerm, PrevLogIndex: index, MatchIndex: index})
}

// answered is a follower's answer to the latest that the leader has sent: it has
// all of the log.
func answered(cm *ConsensusModule, from ServerID) Message {
	last := cm.log.lastIndex()
	return message(from, cm.id, AppendEntriesReply{
		Term: cm.currentTerm, Success: true, AskedTerm: cm.currentTerm, PrevLogIndex: last, MatchIndex: last, Round: cm.reads.round,
	})
}

// protecting is plain with all that keeps a working leader in office.
func protecting(id ServerID, n int) Config {
	c := plain(id, n)
	c.DisablePreVote, c.DisableQuorumCheck = false, false
	return c
}

// settled makes server 1 of n leader; all have the log, and everything is committed.
func settled(t testing.TB, n int) *ConsensusModule {
	c := protecting(1, n)
	c.DisablePreVote = true
	cm := lead(t, c, PersistentState{})
	for _, id := range cm.peerIDs {
		stepSaved(cm, answered(cm, id))
	}
	require.Equal(t, cm.log.lastIndex(), cm.commitIndex)
	return cm
}

// heartbeat lets a leader's heartbeat timer fire.
func heartbeat(cm *ConsensusModule) Effects {
	return stepSaved(cm, HeartbeatTimeout{cm.timers[HeartbeatTimer]})
}

// seeded makes a test's choices repeatable.
func seeded() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }
