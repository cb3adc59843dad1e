package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/raft"
	"raftkv/raft/storage"
)

// A new leader does not know what its predecessors have committed. A follower that
// took its word for it would call its state fresh when it is not (seed 2 of the
// simulator: index 1 had been committed sixteen seconds before).
func TestNewLeaderSaysNothingAboutAge(t *testing.T) {
	s, err := New(Config{
		Raft:    raft.Config{ID: 1, Configuration: raft.NewConfiguration(1, 2, 3)},
		Storage: storage.NewMapStorage(),
	})
	require.NoError(t, err)
	var effects raft.Effects
	says := func(args raft.AppendEntriesArgs) {
		args.LeaderID = 2
		s.step(&effects, raft.Message{From: 2, To: 1, Body: args})
		s.publish()
	}
	entries := []raft.LogEntry{{Term: 1, Kind: raft.EntryEmpty}, {Term: 2, Kind: raft.EntryEmpty}}

	says(raft.AppendEntriesArgs{Term: 2, Entries: entries[:1]})
	at, _ := s.Heard()
	require.True(t, at.IsZero(), "it has not committed anything yet")
	says(raft.AppendEntriesArgs{Term: 2, PrevLogIndex: 1, PrevLogTerm: 1, Entries: entries[1:], LeaderCommit: 1})
	at, _ = s.Heard()
	require.True(t, at.IsZero(), "what it has committed is another leader's")
	says(raft.AppendEntriesArgs{Term: 2, PrevLogIndex: 2, PrevLogTerm: 2, LeaderCommit: 2})
	at, index := s.Heard()
	require.False(t, at.IsZero())
	require.EqualValues(t, 2, index)

	// A late message of the same leader, from before it had committed index 2.
	says(raft.AppendEntriesArgs{Term: 2, PrevLogIndex: 1, PrevLogTerm: 1, Entries: entries[1:], LeaderCommit: 1})
	late, index := s.Heard()
	require.EqualValues(t, 2, index)
	require.Equal(t, at, late, "it tells nothing new")
}

// What was known in an earlier leadership is not true any more: the followers' logs
// may have been overwritten meanwhile. Until the first heartbeat nothing is known.
func TestProgressIsOfThisLeadership(t *testing.T) {
	s, err := New(Config{
		Raft:    raft.Config{ID: 1, Configuration: raft.NewConfiguration(1, 2, 3), DisablePreVote: true, DisableQuorumCheck: true},
		Storage: storage.NewMapStorage(),
	})
	require.NoError(t, err)
	s.transport = &link{c: &cluster{nodes: map[raft.ServerID]*node{1: {}}}, from: 1}
	step := func(event raft.Event) {
		for next := []raft.Event{event}; len(next) > 0; {
			var effects raft.Effects
			for _, e := range next {
				s.step(&effects, e)
			}
			next, err = s.carryOut(effects)
			require.NoError(t, err)
		}
	}
	fire := func(kind raft.TimerKind) { step(raft.Timeout(kind, s.timers[kind].number)) }
	from2 := func(body raft.Body) { step(raft.Message{From: 2, To: 1, Body: body}) }

	fire(raft.ElectionTimer)
	from2(raft.RequestVoteReply{Term: 1, AskedTerm: 1, VoteGranted: true})
	require.Nil(t, s.Progress())
	from2(raft.AppendEntriesReply{Term: 1, AskedTerm: 1, Success: true, MatchIndex: 1})
	fire(raft.HeartbeatTimer)
	require.Equal(t, map[raft.ServerID]raft.Index{2: 1, 3: 0}, s.Progress())

	from2(raft.AppendEntriesArgs{Term: 2, LeaderID: 2})
	require.Nil(t, s.Progress(), "it does not lead")
	fire(raft.ElectionTimer)
	from2(raft.RequestVoteReply{Term: 3, AskedTerm: 3, VoteGranted: true})
	require.Equal(t, raft.Leader, s.Status().State)
	require.Nil(t, s.Progress(), "of the leadership before")
}
