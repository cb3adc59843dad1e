package raft

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// changeTo asks for a configuration in place of the present one.
func changeTo(cm *ConsensusModule, next Configuration) ChangeConfiguration {
	return ChangeConfiguration{Request: 7, Expected: cm.configurationIndex, Next: next}
}

// configurationEntry is an entry as a leader of a term would write it.
func configurationEntry(term Term, c Configuration) LogEntry {
	return LogEntry{Term: term, Kind: EntryConfiguration, Command: c.AppendTo(nil)}
}

// allAnswer lets the given followers answer until they have all of the log.
func allAnswer(cm *ConsensusModule, from ...ServerID) (e Effects) {
	for last := Index(0); last != cm.log.lastIndex(); {
		last = cm.log.lastIndex()
		for _, id := range from {
			if cm.windows[id] != nil {
				e.Merge(stepSaved(cm, answered(cm, id)))
			}
		}
	}
	return e
}

// configurationsIn returns the configurations of a log, in order.
func configurationsIn(l log) (found []Configuration) {
	for _, e := range l.entries[1:] {
		if e.Kind == EntryConfiguration {
			c, _ := DecodeConfiguration(e.Command)
			found = append(found, c)
		}
	}
	return found
}

// withLearners is a leader of n voters and learners that have all of the log.
func withLearners(t *testing.T, n int, learners ...ServerID) *ConsensusModule {
	cm := settled(t, n)
	stepSaved(cm, changeTo(cm, Configuration{Voters: cm.configuration.Voters, Learners: learners}))
	allAnswer(cm, cm.peerIDs...)
	require.Equal(t, cm.log.lastIndex(), cm.commitIndex)
	return cm
}

// TestChangeOfVoters goes through both steps of a change (§6).
func TestChangeOfVoters(t *testing.T) {
	cm := withLearners(t, 3, 4, 5)
	next := NewConfiguration(3, 4, 5)
	begun := stepSaved(cm, changeTo(cm, next))
	assert.Equal(t, []Answer{{Request: 7, Index: 3}}, begun.Answers)
	joint := Configuration{Voters: next.Voters, OldVoters: []ServerID{1, 2, 3}}
	assert.Equal(t, joint, cm.configuration, "in force as soon as it is in the log")

	// Neither half decides alone.
	stepSaved(cm, answered(cm, 4))
	stepSaved(cm, answered(cm, 5))
	assert.Equal(t, Index(2), cm.commitIndex)
	stepSaved(cm, answered(cm, 2))
	assert.Equal(t, Index(3), cm.commitIndex)
	assert.Equal(t, next, cm.configuration, "the second step follows at once")
	assert.Equal(t, []ServerID{2, 3, 4, 5}, cm.peerIDs, "as long as the joint one may still count")

	// Now the new voters alone decide; the leader has no vote and hands over.
	stepSaved(cm, answered(cm, 2))
	assert.Equal(t, Index(3), cm.commitIndex)
	stepSaved(cm, answered(cm, 4))
	last := stepSaved(cm, answered(cm, 5))
	assert.Equal(t, Index(4), cm.commitIndex)
	assert.Equal(t, []ServerID{3, 4, 5}, cm.peerIDs)
	assert.Contains(t, last.Send, message(1, 2, AppendEntriesArgs{
		Term: 1, LeaderID: 1, PrevLogIndex: 4, PrevLogTerm: 1, LeaderCommit: 4, Round: cm.reads.round,
	}), "who leaves learns that it has left")
	assert.Equal(t, []Configuration{{Voters: []ServerID{1, 2, 3}, Learners: []ServerID{4, 5}}, joint, next}, configurationsIn(cm.log))
}

// TestChangeIsRefused: nothing is appended (MB-11), and nothing begins before
// what came before has ended (MB-01, MB-03).
func TestChangeIsRefused(t *testing.T) {
	ready := func() *ConsensusModule { return withLearners(t, 3, 4) }
	refused := func(cm *ConsensusModule, ev ChangeConfiguration, want error) {
		t.Helper()
		before := cm.AppendState(nil, itself)
		effects := cm.Step(ev)
		assert.Equal(t, before, cm.AppendState(nil, itself))
		assert.False(t, effects.Save.Needed())
		require.Len(t, effects.Answers, 1)
		assert.ErrorIs(t, effects.Answers[0].Err, want)
	}
	for name, c := range map[string]struct {
		next Configuration
		err  error
	}{
		"nobody votes":             {Configuration{Learners: []ServerID{1, 2, 3}}, ErrConfig},
		"named twice":              {Configuration{Voters: []ServerID{1, 1, 2}}, ErrConfig},
		"not sorted":               {Configuration{Voters: []ServerID{2, 1}}, ErrConfig},
		"learner twice":            {Configuration{Voters: []ServerID{1, 2, 3}, Learners: []ServerID{4, 4}}, ErrConfig},
		"server 0":                 {Configuration{Voters: []ServerID{0, 1, 2}}, ErrConfig},
		"voter and learner":        {Configuration{Voters: []ServerID{1, 2, 3}, Learners: []ServerID{3}}, ErrConfig},
		"joint":                    {Configuration{Voters: []ServerID{1, 2}, OldVoters: []ServerID{1, 2, 3}}, ErrConfig},
		"two addresses":            {Configuration{Voters: []ServerID{1, 2}, Addresses: []Address{{ID: 1, Addr: "a"}, {ID: 1, Addr: "b"}}}, ErrConfig},
		"one address for two":      {Configuration{Voters: []ServerID{1, 2}, Addresses: []Address{{ID: 1, Addr: "a"}, {ID: 2, Addr: "a"}}}, ErrConfig},
		"an address for a foreign": {Configuration{Voters: []ServerID{1, 2}, Addresses: []Address{{ID: 9, Addr: "a"}}}, ErrConfig},
		"a stranger votes":         {NewConfiguration(1, 2, 3, 9), ErrNotCaughtUp},
	} {
		t.Run(name, func(t *testing.T) {
			cm := ready()
			refused(cm, changeTo(cm, c.next), c.err)
		})
	}
	t.Run("another is in force", func(t *testing.T) {
		cm := ready()
		ev := changeTo(cm, NewConfiguration(1, 2))
		ev.Expected--
		refused(cm, ev, ErrChanged)
		ev.Next = cm.configuration
		assert.Equal(t, []Answer{{Request: 7, Index: 2}}, cm.Step(ev).Answers, "a repetition of what was done")
	})
	t.Run("a change is under way", func(t *testing.T) {
		cm := ready()
		learners := Configuration{Voters: []ServerID{1, 2, 3}, Learners: []ServerID{4, 5}}
		stepSaved(cm, changeTo(cm, learners))
		refused(cm, changeTo(cm, NewConfiguration(1, 2, 3)), ErrChanging)
		refused(cm, changeTo(cm, learners), ErrChanging)
		allAnswer(cm, 2, 3)
		stepSaved(cm, changeTo(cm, NewConfiguration(1, 2)))
		refused(cm, changeTo(cm, NewConfiguration(1, 2)), ErrChanging)
		stepSaved(cm, answered(cm, 2))
		require.False(t, cm.configuration.Joint())
		refused(cm, changeTo(cm, NewConfiguration(1)), ErrChanging)
		stepSaved(cm, answered(cm, 2))
		assert.NoError(t, cm.Step(changeTo(cm, NewConfiguration(1))).Answers[0].Err)
	})
	t.Run("no entry of this term is committed", func(t *testing.T) {
		cm := lead(t, plain(1, 4), PersistentState{})
		refused(cm, changeTo(cm, NewConfiguration(1, 2, 3)), ErrChanging)
	})
	t.Run("not the leader", func(t *testing.T) {
		cm, _ := start(t, plain(1, 3), PersistentState{})
		refused(cm, changeTo(cm, NewConfiguration(1, 2)), &NotLeaderError{})
	})
}

// Is lets ErrorIs compare what a refusal says.
func (e *NotLeaderError) Is(target error) bool {
	t, ok := target.(*NotLeaderError)
	return ok && *t == *e
}

// TestRepeatedChange: the same request again succeeds and changes nothing. The
// caller need not know since when each server takes part.
func TestRepeatedChange(t *testing.T) {
	cm := withLearners(t, 3, 4)
	ev := changeTo(cm, Configuration{
		Voters: []ServerID{1, 2, 3}, Learners: []ServerID{4, 5},
		Addresses: []Address{{ID: 4, Addr: "four"}, {ID: 5, Addr: "five"}},
	})
	stepSaved(cm, ev)
	allAnswer(cm, 2, 3)
	assert.Equal(t, []Address{{4, "four", 0}, {5, "five", 3}}, cm.configuration.Addresses)
	again := stepSaved(cm, ev)
	assert.Equal(t, []Answer{{Request: 7, Index: 3}}, again.Answers)
	assert.False(t, again.Save.Needed())
	assert.Equal(t, []Address{{ID: 4, Addr: "four"}, {ID: 5, Addr: "five"}}, ev.Next.Addresses, "they are the caller's")

	// A server that leaves and comes back is another one.
	for _, learners := range [][]ServerID{{4}, {4, 5}} {
		next := Configuration{Voters: []ServerID{1, 2, 3}, Learners: learners}
		stepSaved(cm, changeTo(cm, next.WithAddresses(ev.Next.Addresses...)))
		allAnswer(cm, 2, 3)
	}
	assert.Equal(t, []Address{{4, "four", 0}, {5, "five", 5}}, cm.configuration.Addresses)
}

// TestWhoMayVote: a server must have caught up as a learner (MB-09).
func TestWhoMayVote(t *testing.T) {
	next := NewConfiguration(1, 2, 3, 4)
	asks := func(cm *ConsensusModule) error { return cm.Step(changeTo(cm, next)).Answers[0].Err }

	cm := settled(t, 3)
	stepSaved(cm, changeTo(cm, Configuration{Voters: []ServerID{1, 2, 3}, Learners: []ServerID{4}}))
	allAnswer(cm, 2, 3)
	assert.ErrorIs(t, asks(cm.Clone()), ErrNotCaughtUp, "it has said nothing yet")

	stepSaved(cm, message(4, 1, AppendEntriesReply{Term: 1, Success: true, AskedTerm: 1, PrevLogIndex: 1, MatchIndex: 1, Round: cm.reads.round}))
	assert.NoError(t, asks(cm.Clone()), "it lacks what one message can bring")
	stepSaved(cm, Submit{Commands: [][]byte{make([]byte, cm.config.MaxBatchBytes)}})
	allAnswer(cm, 2, 3)
	assert.ErrorIs(t, asks(cm.Clone()), ErrNotCaughtUp, "it lacks more")

	allAnswer(cm, 2, 3, 4)
	assert.NoError(t, asks(cm.Clone()))

	// One that was here before, was removed and is added again has all of the log but
	// the entry that says so (seed 600951 of the simulator).
	cm = settled(t, 3)
	allAnswer(cm, 2, 3)
	learner := Configuration{Voters: []ServerID{1, 2, 3}, Learners: []ServerID{4}, Addresses: []Address{{ID: 4, Addr: "four"}}}
	stepSaved(cm, changeTo(cm, learner))
	allAnswer(cm, 2, 3)
	added := cm.configurationIndex
	lacksIt := AppendEntriesReply{Term: 1, Success: true, AskedTerm: 1, PrevLogIndex: added - 1, MatchIndex: added - 1, Round: cm.reads.round}
	stepSaved(cm, message(4, 1, lacksIt))
	next = next.WithAddresses(learner.Addresses...)
	assert.ErrorIs(t, asks(cm.Clone()), ErrNotCaughtUp, "it does not know that it takes part")
	allAnswer(cm, 4)
	assert.NoError(t, asks(cm.Clone()))
	for range 2 {
		assert.NoError(t, asks(cm.Clone()), "it was heard lately")
		stepSaved(cm, answered(cm, 2))
		stepSaved(cm, QuorumCheckTimeout{cm.timers[QuorumCheckTimer]})
	}
	assert.ErrorIs(t, asks(cm.Clone()), ErrNotCaughtUp, "it is silent")
}

// TestJointPhaseIsLeft: whoever leads when a joint configuration is committed
// appends the final one, and does so once (MB-02).
func TestJointPhaseIsLeft(t *testing.T) {
	old := NewConfiguration(1, 2, 3)
	joint := Configuration{Voters: []ServerID{1, 2}, OldVoters: old.Voters}
	final := NewConfiguration(1, 2)
	for name, c := range map[string]struct {
		log  []LogEntry
		want []Configuration
	}{
		"joint":           {[]LogEntry{configurationEntry(1, joint)}, []Configuration{joint, final}},
		"joint and final": {[]LogEntry{configurationEntry(1, joint), configurationEntry(1, final)}, []Configuration{joint, final}},
		"final only":      {[]LogEntry{configurationEntry(1, final)}, []Configuration{final}},
	} {
		t.Run(name, func(t *testing.T) {
			cm := lead(t, plain(1, 3), PersistentState{CurrentTerm: 1, Entries: c.log})
			stepSaved(cm, answered(cm, 3))
			assert.Equal(t, len(c.log)+1, len(cm.log.entries)-1, "not before an own entry is committed")
			allAnswer(cm, 2, 3)
			assert.Equal(t, c.want, configurationsIn(cm.log))
			assert.Equal(t, final, cm.configuration)
			assert.Equal(t, cm.log.lastIndex(), cm.commitIndex)
			stepSaved(cm, submit("x=1"))
			allAnswer(cm, 2)
			assert.Equal(t, c.want, configurationsIn(cm.log), "once")
		})
	}
	t.Run("the final one is overwritten", func(t *testing.T) {
		cm, _ := start(t, plain(1, 3), PersistentState{CurrentTerm: 1, Entries: []LogEntry{configurationEntry(1, joint), configurationEntry(1, final)}})
		require.Equal(t, final, cm.configuration)
		stepSaved(cm, message(2, 1, AppendEntriesArgs{Term: 2, LeaderID: 2, PrevLogIndex: 1, PrevLogTerm: 1, Entries: entries(2)}))
		assert.Equal(t, joint, cm.configuration)
		assert.Equal(t, Index(1), cm.configurationIndex)
	})
}

// TestLeavingServerMayCampaign: the latest configuration, which is not known to
// be committed, leaves out the servers that alone have it (MB-04). One of them
// may win, with the votes of those whom it names.
func TestLeavingServerMayCampaign(t *testing.T) {
	old := NewConfiguration(1, 2, 3, 4, 5)
	joint := Configuration{Voters: []ServerID{4, 5}, OldVoters: old.Voters}
	final := NewConfiguration(4, 5)
	cm, timer := start(t, plain(1, 5), PersistentState{CurrentTerm: 1, Entries: []LogEntry{configurationEntry(1, joint), configurationEntry(1, final)}})
	stepSaved(cm, ElectionTimeout{timer})
	require.Equal(t, Candidate, cm.state)
	vote := func(from ServerID) Effects {
		return stepSaved(cm, message(from, 1, RequestVoteReply{Term: 2, AskedTerm: 2, VoteGranted: true}))
	}
	vote(2)
	vote(3)
	vote(4)
	assert.Equal(t, Candidate, cm.state, "those who leave count for nothing")
	vote(5)
	require.Equal(t, Leader, cm.state)

	stepSaved(cm, answered(cm, 4))
	assert.Equal(t, Index(0), cm.commitIndex, "nor does the leader's own copy")
	assert.Equal(t, []ServerID{4}, timeoutsNow(stepSaved(cm, answered(cm, 5))), "committed; then it hands over")
	assert.Equal(t, Index(3), cm.commitIndex)
	stepSaved(cm, TransferTimeout{cm.timers[TransferTimer]})
	assert.Equal(t, Follower, cm.state, "or steps down")
	stepSaved(cm, ElectionTimeout{cm.timers[ElectionTimer]})
	assert.Equal(t, Follower, cm.state, "and does not come back")
	assert.NotZero(t, cm.timers[ElectionTimer], "until it is added again")
}

// TestWhoNeverCampaigns: a learner, a server that has left, one that waits to be
// added (MB-05).
func TestWhoNeverCampaigns(t *testing.T) {
	for name, c := range map[string]Configuration{
		"a learner":              {Voters: []ServerID{2, 3}, Learners: []ServerID{1}},
		"a server that has left": NewConfiguration(2, 3),
		"a new server":           {},
	} {
		t.Run(name, func(t *testing.T) {
			conf := Config{ID: 1}
			saved := PersistentState{CurrentTerm: 1}
			if len(c.Voters) > 0 {
				saved.Entries = []LogEntry{configurationEntry(1, c)}
			}
			cm, timer := start(t, conf, saved)
			before := cm.AppendState(nil, itself)
			effects := cm.Step(ElectionTimeout{timer})
			assert.Empty(t, effects.SendAfter)
			assert.Equal(t, before, cm.AppendState(nil, itself))
			// It votes all the same: who asks may be in a newer configuration (§6).
			cm.Step(LeaderContactTimeout{cm.timers[LeaderContactTimer]})
			stepSaved(cm, message(9, 1, RequestVoteArgs{Term: 2, CandidateID: 9, LastLogIndex: 5, LastLogTerm: 1}))
			assert.Equal(t, ServerID(9), cm.votedFor)
		})
	}
}

// TestConfigurationInForce: the newest in the log counts, committed or not and
// applied or not, in the next election as well (MB-06). Learners are only asked.
func TestConfigurationInForce(t *testing.T) {
	cm, _ := start(t, plain(1, 3), PersistentState{})
	stepSaved(cm, message(2, 1, AppendEntriesArgs{Term: 1, LeaderID: 2, Entries: []LogEntry{
		configurationEntry(1, Configuration{Voters: []ServerID{1, 2, 3}, Learners: []ServerID{4, 5}}),
		configurationEntry(1, Configuration{Voters: []ServerID{1, 2, 3, 4, 5}, OldVoters: []ServerID{1, 2, 3}}),
	}}))
	require.Equal(t, Index(0), cm.commitIndex)
	elected := func(votes ...ServerID) bool {
		c := cm.Clone()
		stepSaved(c, ElectionTimeout{c.timers[ElectionTimer]})
		for _, id := range votes {
			stepSaved(c, message(id, 1, RequestVoteReply{Term: 2, AskedTerm: 2, VoteGranted: true}))
		}
		return c.state == Leader
	}
	assert.False(t, elected(2), "two of five")
	assert.False(t, elected(4, 5), "one of the old three")
	assert.True(t, elected(2, 4))
}

// TestLeaderRemovesItselfOfTwo: the other one can go on alone, whatever message is
// lost then (MB-07).
func TestLeaderRemovesItselfOfTwo(t *testing.T) {
	cm := settled(t, 2)
	stays, _ := start(t, protecting(2, 2), PersistentState{CurrentTerm: 1, Entries: cm.log.slice(1, 1)})
	sent := stepSaved(cm, changeTo(cm, NewConfiguration(2))).Send
	for i := 0; cm.commitIndex < 3; i++ {
		sent = append(sent, exchange(cm, stays, sent[i])...)
	}
	// Everything that the leader sends from now on is lost.
	require.Equal(t, Index(3), stays.log.lastIndex())
	require.Equal(t, Index(2), stays.commitIndex)
	assert.Equal(t, ServerID(2), cm.transfer.to, "the leader stays until the other one has taken over")
	stays.Step(LeaderContactTimeout{stays.timers[LeaderContactTimer]})
	stepSaved(stays, ElectionTimeout{stays.timers[ElectionTimer]})
	assert.Equal(t, Leader, stays.state)
	assert.Equal(t, stays.log.lastIndex(), stays.commitIndex)
	assert.Empty(t, stays.peerIDs)
}

// TestLeaveBesideATransfer: the leader was handing over to a server that leaves
// together with it. It must find another one, or it would lead on without a vote.
func TestLeaveBesideATransfer(t *testing.T) {
	cm := settled(t, 3)
	cm.Step(changeTo(cm, NewConfiguration(3)))
	cm.Step(TransferLeadership{Request: 8, To: 2})
	cm.Step(answered(cm, 3))
	stepSaved(cm, Saved{Index: 2, Term: 1}) // the disk was slow
	require.False(t, cm.configuration.Joint())
	left := stepSaved(cm, answered(cm, 3))
	require.Equal(t, cm.log.lastIndex(), cm.commitIndex)
	assert.Equal(t, []Answer{{Request: 8, Err: ErrNotVoter}}, left.Answers)
	assert.Equal(t, []ServerID{3}, timeoutsNow(left))
	assert.Equal(t, RestartTimer, left.Timers[TransferTimer].Action)
}

// TestLearnersDecideNothing: a leader that only learners answer commits nothing
// and resigns (MB-08).
func TestLearnersDecideNothing(t *testing.T) {
	cm := withLearners(t, 3, 4, 5, 6, 7)
	stepSaved(cm, submit("x=1"))
	for range 2 {
		allAnswer(cm, 4, 5, 6, 7)
		assert.Equal(t, Index(2), cm.commitIndex)
		require.Equal(t, Leader, cm.state)
		stepSaved(cm, QuorumCheckTimeout{cm.timers[QuorumCheckTimer]})
	}
	assert.Equal(t, Follower, cm.state)
}

// TestRoles: after a restart, from the log or from a snapshot of any place, every
// server has the role that it had (MB-10).
func TestRoles(t *testing.T) {
	rng := seeded()
	for range 300 {
		cm := withLearners(t, 3, 4, 5)
		placed := []placedConfiguration{{0, NewConfiguration(1, 2, 3)}}
		for range 1 + rng.IntN(6) {
			var next Configuration
			for id := ServerID(1); id <= 6; id++ {
				addr := Address{ID: id, Addr: string(rune(0x60 + id))}
				switch rng.IntN(3) {
				case 0:
					if id == 1 || cm.caughtUp(id) {
						next.Voters = append(next.Voters, id)
						next.Addresses = append(next.Addresses, addr)
					}
				case 1:
					if id != 1 {
						next.Learners = append(next.Learners, id)
						next.Addresses = append(next.Addresses, addr)
					}
				}
			}
			if !slices.Contains(next.Voters, 1) {
				next.Voters = append([]ServerID{1}, next.Voters...)
			}
			stepSaved(cm, changeTo(cm, next))
			if rng.IntN(3) > 0 {
				allAnswer(cm, cm.peerIDs...)
			}
		}
		for i := Index(1); i <= cm.log.lastIndex(); i++ {
			if e := cm.log.entry(i); e.Kind == EntryConfiguration {
				c, err := DecodeConfiguration(e.Command)
				require.NoError(t, err)
				placed = append(placed, placedConfiguration{i, c})
			}
		}
		saved := PersistentState{CurrentTerm: 1, Entries: cm.log.slice(1, cm.log.lastIndex())}
		again, _ := start(t, protecting(1, 3), saved)
		require.Equal(t, cm.configuration, again.configuration)
		require.Equal(t, cm.configurationIndex, again.configurationIndex)

		at := Index(1 + rng.IntN(int(cm.commitIndex)))
		last := placed[0]
		for _, p := range placed {
			if p.index <= at {
				last = p
			}
		}
		saved.Snapshot = Snapshot{Index: at, Term: 1, Configuration: last.Configuration, ConfigurationIndex: last.index, Size: 1}
		if rng.IntN(2) > 0 {
			saved.Start, saved.Entries = LogPosition{at, 1}, cm.log.slice(at+1, cm.log.lastIndex())
		}
		again, _ = start(t, Config{ID: 1}, saved)
		require.Equal(t, cm.configuration, again.configuration)
		require.Equal(t, cm.configurationIndex, again.configurationIndex)
	}
}

// TestJointWithDeadNewVoters: nothing is committed until they are back (MB-12).
func TestJointWithDeadNewVoters(t *testing.T) {
	cm := withLearners(t, 3, 4, 5, 6)
	stepSaved(cm, changeTo(cm, NewConfiguration(4, 5, 6)))
	stepSaved(cm, submit("x=1"))
	before := cm.commitIndex
	allAnswer(cm, 2, 3, 4)
	assert.Equal(t, before, cm.commitIndex)
	assert.True(t, cm.Configuration().Joint())
	assert.Equal(t, Leader, cm.state)
	allAnswer(cm, 2, 3, 4, 5)
	assert.Equal(t, NewConfiguration(4, 5, 6), cm.Configuration())
}

// TestFollowersComeAndGo: a server that is added again may have lost everything,
// so what was known of it is forgotten (SN-12); and what its old self said, and
// comes late, is not believed.
func TestFollowersComeAndGo(t *testing.T) {
	cm := withLearners(t, 2, 3)
	old := answered(cm, 3)
	with, without := cm.configuration, NewConfiguration(1, 2)
	stepSaved(cm, changeTo(cm, without))
	allAnswer(cm, 2)
	require.Equal(t, []ServerID{2}, cm.peerIDs)
	stepSaved(cm, answered(cm, 3))
	assert.Zero(t, cm.matchIndex[3])

	last := answered(cm, 3)
	stepSaved(cm, changeTo(cm, with))
	assert.Zero(t, cm.matchIndex[3])
	for _, late := range []Message{old, last} {
		stepSaved(cm, late)
		assert.Zero(t, cm.matchIndex[3])
		assert.False(t, cm.caughtUp(3))
	}
	sent := stepSaved(cm, message(3, 1, AppendEntriesReply{Term: 1, AskedTerm: 1, PrevLogIndex: 3, ConflictIndex: 1, Round: cm.reads.round})).Send
	require.Len(t, sent, 1)
	assert.Equal(t, Index(0), sent[0].Body.(AppendEntriesArgs).PrevLogIndex)
}

// Server 2 alone was the cluster once. It lost its disk, was removed, and catches
// up as a new server under its old id. Half way through, the log says that it
// alone decides; but what the old one has promised to keep lies behind that. Seed
// 2778 of the simulator found it: an empty server that elected itself.
func TestWhoCameForAnotherDoesNotLeadInItsPlace(t *testing.T) {
	alone := Configuration{Voters: []ServerID{2}, Addresses: []Address{{ID: 2, Addr: "b", Since: 2}}}
	again := Configuration{Voters: []ServerID{2}, Addresses: []Address{{ID: 2, Addr: "b", Since: 5}}}
	log := func(c Configuration) PersistentState {
		return PersistentState{CurrentTerm: 3, Entries: []LogEntry{{Term: 3, Kind: EntryConfiguration, Command: c.AppendTo(nil)}}}
	}
	for _, test := range []struct {
		addedAfter Index
		in         Configuration
		leads      bool
	}{
		{0, alone, true},  // there was no other
		{4, alone, false}, // that was the other one
		{4, again, true},
	} {
		cm, timer := start(t, Config{ID: 2, AddedAfter: test.addedAfter, DisablePreVote: true}, log(test.in))
		stepSaved(cm, ElectionTimeout{timer})
		require.Equal(t, test.leads, cm.state == Leader, "added after %d, in %v", test.addedAfter, test.in)

		// Nor does it vote in its place: the other one may have voted in this term.
		cm, _ = start(t, Config{ID: 2, AddedAfter: test.addedAfter, DisableQuorumCheck: true}, log(test.in))
		reply := cm.Step(message(1, 2, RequestVoteArgs{Term: 4, CandidateID: 1, LastLogIndex: 9, LastLogTerm: 3})).SendAfter[0].Body
		require.Equal(t, test.leads, reply.(RequestVoteReply).VoteGranted, "added after %d, in %v", test.addedAfter, test.in)
	}
}
