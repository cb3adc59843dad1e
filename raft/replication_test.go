package raft

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// randomPair returns the logs of a new leader and of a follower as Raft allows
// them: equal up to some index and behind it without a common term, for a term
// has one leader and its entries one beginning.
func randomPair(choose func(n int) int) (leader, follower []LogEntry) {
	var common []Term
	term := Term(1)
	for range choose(4) {
		term += Term(choose(2))
		common = append(common, term)
	}
	logs := [2][]Term{slices.Clone(common), slices.Clone(common)}
	// Each later term belongs to one log; the last common one may go on in one.
	for range choose(7) {
		side := choose(2)
		for range 1 + choose(3) {
			logs[side] = append(logs[side], term)
		}
		term += Term(1 + choose(2))
	}
	return entries(logs[0]...), entries(logs[1]...)
}

// TestRepairIsFast brings 100,000 followers into line. Each refusal skips a
// whole term, so it takes no more round trips than there are terms, and two:
// one to learn that the guess was right and one to send the rest (LM-08).
func TestRepairIsFast(t *testing.T) {
	rng := seeded()
	longest := 0
	for range 100_000 {
		ours, theirs := randomPair(rng.IntN)
		terms := map[Term]bool{}
		var newest Term
		for _, e := range slices.Concat(ours, theirs) {
			terms[e.Term] = true
			newest = max(newest, e.Term)
		}

		// Server 3 votes and then keeps quiet.
		leader, timer := start(t, plain(1, 3), PersistentState{CurrentTerm: newest, Entries: ours})
		follower, _ := start(t, plain(2, 3), PersistentState{CurrentTerm: newest, Entries: theirs})
		stepSaved(leader, ElectionTimeout{timer})
		effects := stepSaved(leader, message(3, 1, RequestVoteReply{Term: newest + 1, VoteGranted: true, AskedTerm: newest + 1}))
		terms[leader.currentTerm] = true

		trips := 0
		for next := toFollower(effects); len(next) > 0; {
			trips++
			if trips > len(terms)+2 {
				t.Fatalf("more than %d round trips for %v and %v", len(terms)+2, ours, theirs)
			}
			var answers []Message
			for _, m := range next {
				answers = append(answers, stepSaved(follower, m).SendAfter...)
			}
			next = nil
			for _, m := range answers {
				next = append(next, toFollower(stepSaved(leader, m))...)
			}
		}
		if !slices.EqualFunc(leader.log.entries, follower.log.entries, sameEntry) || leader.matchIndex[2] != leader.log.lastIndex() {
			t.Fatalf("%v and %v end as %v and %v; matchIndex is %d", ours, theirs, leader.log.entries, follower.log.entries, leader.matchIndex[2])
		}
		longest = max(longest, trips)
	}
	require.Greater(t, longest, 4, "the pairs are too easy to tell anything")
}

func sameEntry(a, b LogEntry) bool {
	return a.Term == b.Term && a.Kind == b.Kind && string(a.Command) == string(b.Command)
}

func toFollower(e Effects) []Message {
	return slices.DeleteFunc(slices.Clone(e.Send), func(m Message) bool { return m.To != 2 })
}

// TestShuffledAnswers gives a leader the answers of its follower late, doubled
// and in any order: matchIndex never falls, nextIndex stays above it, and in
// the end the follower has all and is sent nothing twice (LM-04).
func TestShuffledAnswers(t *testing.T) {
	rng := seeded()
	for range 500 {
		c := plain(1, 2)
		c.MaxBatchBytes, c.MaxInflight = 20, 1+rng.IntN(4)
		leader := lead(t, c, PersistentState{})
		follower, _ := start(t, plain(2, 2), PersistentState{CurrentTerm: 1})
		var there, back []Message
		take := func(from *[]Message) Message {
			i := rng.IntN(len(*from))
			m := (*from)[i]
			if rng.IntN(4) > 0 { // else it comes again
				*from = slices.Delete(*from, i, i+1)
			}
			return m
		}
		heartbeat := func() Effects { return stepSaved(leader, HeartbeatTimeout{leader.timers[HeartbeatTimer]}) }
		for range 100 {
			match := leader.matchIndex[2]
			switch r := rng.IntN(10); {
			case r < 2:
				there = append(there, stepSaved(leader, Submit{Commands: [][]byte{{1}}}).Send...)
			case r < 3:
				there = append(there, heartbeat().Send...)
			case r < 6 && len(there) > 0:
				back = append(back, stepSaved(follower, take(&there)).SendAfter...)
			case len(back) > 0:
				there = append(there, stepSaved(leader, take(&back)).Send...)
			}
			require.GreaterOrEqual(t, leader.matchIndex[2], match)
			require.Less(t, leader.matchIndex[2], leader.nextIndex[2])
		}

		// The network heals.
		for range 200 {
			there = append(there, heartbeat().Send...)
			for len(there) > 0 {
				m := there[0]
				there = append(there[1:], exchange(leader, follower, m)...)
			}
			if leader.matchIndex[2] == leader.log.lastIndex() {
				break
			}
		}
		require.Equal(t, leader.log.entries, follower.log.entries)
		require.Equal(t, leader.log.lastIndex(), leader.commitIndex)
		for _, m := range heartbeat().Send {
			require.Empty(t, m.Body.(AppendEntriesArgs).Entries)
		}
	}
}

// exchange delivers a message to the follower and its answers to the leader,
// and returns what the leader sends then.
func exchange(leader, follower *ConsensusModule, m Message) []Message {
	var sent []Message
	for _, answer := range stepSaved(follower, m).SendAfter {
		sent = append(sent, stepSaved(leader, answer).Send...)
	}
	return sent
}

// TestAnswerBeyondTheLog: a reply is a value from outside. One that claims more
// than the leader has sent must neither be believed nor bring the leader down.
func TestAnswerBeyondTheLog(t *testing.T) {
	cm, timer := start(t, plain(1, 3), PersistentState{})
	cm.Step(ElectionTimeout{timer})
	cm.Step(Saved{Index: 0, Term: 1})
	cm.Step(Message{From: 2, To: 1, Body: RequestVoteReply{Term: 1, VoteGranted: true, AskedTerm: 1}})
	require.Equal(t, Leader, cm.state)
	cm.Step(Saved{Index: 1, Term: 1})
	require.Equal(t, Effects{}, cm.Step(Message{From: 2, To: 1, Body: AppendEntriesReply{Term: 1, Success: true, AskedTerm: 1, MatchIndex: 9}}))
	require.Equal(t, Index(0), cm.matchIndex[2])
	require.Equal(t, Index(0), cm.commitIndex)
}
