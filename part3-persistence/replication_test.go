package raft

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// newLeader returns server 1 of three, leader of term 1. Its log is its empty
// entry, which the others do not have yet.
func newLeader() *ConsensusModule {
	cm, _ := NewConsensusModule(1, []ServerID{2, 3}, PersistentState{})
	cm.Step(ElectionTimeout{})
	cm.Step(Saved{cm.log.lastIndex(), cm.currentTerm})
	cm.Step(Message{2, 1, RequestVoteReply{Term: 1, VoteGranted: true, AskedTerm: 1}})
	return cm
}

// Answers come late and twice. One that says less than is known moves nothing
// back, or the same entries would be sent again and again (LM-04).
func TestOldAnswersChangeNothing(t *testing.T) {
	cm := newLeader()
	cm.Step(Submit{[]byte("x=1")})
	accepted := func(match Index) Message {
		return Message{2, 1, AppendEntriesReply{Term: 1, Success: true, AskedTerm: 1, MatchIndex: match}}
	}
	refused := func(prev Index) Message {
		return Message{2, 1, AppendEntriesReply{Term: 1, AskedTerm: 1, PrevLogIndex: prev}}
	}
	cm.Step(accepted(2))
	for _, old := range []Message{accepted(1), accepted(2), refused(0), refused(1), refused(2), refused(5), accepted(9)} {
		require.Empty(t, cm.Step(old), "%+v", old)
		require.Equal(t, Index(2), cm.matchIndex[2])
		require.Equal(t, Index(3), cm.nextIndex[2])
	}
}

// A message shares its entries with the log that it comes from. They stay what
// they are when that log is overwritten (LM-10).
func TestMessagesKeepTheirEntries(t *testing.T) {
	cm := newLeader()
	cm.Step(Submit{[]byte("x=1")})
	cm.Step(Submit{[]byte("x=2")})
	args := cm.Step(HeartbeatTimeout{}).Send[0].Body.(AppendEntriesArgs)
	before := append([]LogEntry(nil), args.Entries...)
	require.Len(t, before, 3)

	cm.Step(Message{3, 1, AppendEntriesArgs{
		Term: 2, LeaderID: 3, PrevLogIndex: 1, PrevLogTerm: 1,
		Entries: []LogEntry{{Term: 2, Kind: EntryEmpty}, {Term: 2, Command: []byte("y=1")}},
	}})
	require.Equal(t, Term(2), cm.log[2].Term)
	require.Equal(t, before, args.Entries)
}

// Two logs that agree up to some place become equal, whatever stands behind it.
func TestLogsBecomeEqual(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		ours, theirs, terms := randomLogs(random)
		leader := newLeader()
		leader.state, leader.currentTerm, leader.log = Candidate, 99, ours
		leader.savedTerm = 99
		follower := newLeader()
		follower.id, follower.peerIDs = 2, []ServerID{1, 3}
		follower.becomeFollower(98, None)
		follower.log = theirs

		leader.startLeader()
		rounds := 0
		for messages := leader.takeEffects().Send; len(messages) > 0; rounds++ {
			require.Equal(t, ServerID(2), messages[0].To)
			answers := follower.Step(messages[0]).SendAfter
			messages = leader.Step(answers[0]).Send
		}
		require.Equal(t, leader.log, follower.log)
		require.LessOrEqual(t, rounds, terms+2)
	}
}

// randomLogs returns two logs that Raft allows side by side, and the number of
// terms in the second.
func randomLogs(random *rand.Rand) (ours, theirs log, terms int) {
	grow := func(l log, n int, parity Term) log {
		l = append(log(nil), l...)
		for range n {
			term := max(l.lastTerm(), 1) + Term(random.IntN(3))
			if parity < 2 && term%2 != parity { // no term is in both tails
				term++
			}
			l = append(l, LogEntry{Term: term})
		}
		return l
	}
	common := grow(newLog(nil), random.IntN(6), 2)
	ours, theirs = grow(common, random.IntN(8), 0), grow(common, random.IntN(8), 1)
	seen := map[Term]bool{}
	for _, e := range theirs {
		seen[e.Term] = true
	}
	return ours, theirs, len(seen)
}
