package search

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"raftkv/raft"
)

func TestTheCoreIsClean(t *testing.T) {
	for _, c := range []Config{
		{Terms: 2, Prune: true},
		{Terms: 2, Prune: true, Crashes: 1},
		{Nodes: 2, Terms: 3, Entries: 1, Prune: true, Crashes: 1},
	} {
		r, err := Run(c)
		require.NoError(t, err)
		assert.True(t, r.Complete)
		assert.NotZero(t, r.Commits)
		if c.Nodes == 0 {
			assert.NotZero(t, r.Deposed)
		}
	}
	r, err := Run(Config{MaxDepth: 7})
	require.NoError(t, err)
	assert.False(t, r.Complete)
	assert.Equal(t, 7, r.Depth)
	r, err = Run(Config{Prune: true, MaxStates: 1000})
	require.NoError(t, err)
	assert.False(t, r.Complete)
}

// The sound core fulfils every claim that a message is spent, or the search
// would have started again and kept all.
func TestNoClaimIsRefuted(t *testing.T) {
	s := newSearch(Config{Nodes: 3, Terms: 3, Prune: true, MaxStates: 1_000_000}, newModule)
	_, err := s.run(true)
	require.NoError(t, err)
	assert.False(t, s.keepSpent)
}

func TestBounds(t *testing.T) {
	for _, c := range []Config{{Nodes: 6}, {Nodes: -1}, {Terms: 8}, {Terms: 3, Entries: 10}, {Entries: -1}, {Crashes: -1}} {
		_, err := Run(c)
		assert.ErrorContains(t, err, "can be searched", "%+v", c)
	}
}

// liar is a core with a bug: it is sound, but what it is told and what it asks
// for is changed on the way.
type liar struct {
	soundModule
	hears func(raft.Status, raft.Event) raft.Event
	asks  func(*raft.Effects)
}

func (l liar) clone() module {
	l.soundModule = soundModule{l.Clone()}
	return l
}

func (l liar) Step(ev raft.Event) raft.Effects {
	if l.hears != nil {
		ev = l.hears(l.Status(), ev)
	}
	effects := l.soundModule.Step(ev)
	if l.asks != nil {
		l.asks(&effects)
	}
	return effects
}

func (l liar) new(config raft.Config, saved raft.PersistentState) (module, raft.Effects, error) {
	cm, effects, err := raft.NewConsensusModule(config, saved)
	l.soundModule = soundModule{cm}
	return l, effects, err
}

// A search that finds nothing must be one that would find something.
func TestBugsAreFound(t *testing.T) {
	votesForAll := liar{asks: func(e *raft.Effects) {
		for i, m := range e.SendAfter {
			if reply, ok := m.Body.(raft.RequestVoteReply); ok {
				reply.VoteGranted = reply.Term == reply.AskedTerm
				e.SendAfter[i].Body = reply
			}
		}
	}}
	forgetsVotes := liar{asks: func(e *raft.Effects) { e.Save.VotedFor = raft.None }}
	countsStaleVotes := liar{hears: func(now raft.Status, ev raft.Event) raft.Event {
		if m, ok := ev.(raft.Message); ok {
			if reply, ok := m.Body.(raft.RequestVoteReply); ok {
				reply.AskedTerm = now.Term
				m.Body = reply
				return m
			}
		}
		return ev
	}}
	losesEntries := liar{hears: func(_ raft.Status, ev raft.Event) raft.Event {
		if m, ok := ev.(raft.Message); ok {
			if args, ok := m.Body.(raft.AppendEntriesArgs); ok && len(args.Entries) > 1 {
				args.Entries = args.Entries[1:]
				m.Body = args
				return m
			}
		}
		return ev
	}}
	for name, tc := range map[string]struct {
		bug   liar
		c     Config
		want  string
		steps int // of the shortest path
	}{
		"a vote for everyone":     {votesForAll, Config{Terms: 1, Prune: true}, "Election Safety", 4},
		"a vote not saved":        {forgetsVotes, Config{Terms: 1, Prune: true, Crashes: 1}, "Election Safety", 7},
		"a vote of another term":  {countsStaleVotes, Config{Terms: 2}, "Election Safety", 7},
		"an entry that went lost": {losesEntries, Config{Nodes: 2, Terms: 1, Entries: 2, Prune: true}, "Log Matching", 8},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := run(tc.c, tc.bug.new)
			var found *Violation
			require.ErrorAs(t, err, &found)
			assert.Contains(t, found.Property, tc.want)
			assert.True(t, found.Shortest)
			assert.Len(t, found.Path, tc.steps, "%v", found)
		})
	}
	r, err := run(Config{Terms: 2, Prune: true}, countsStaleVotes.new)
	assert.NoError(t, err, "the pruned search is blind for old messages")
	assert.True(t, r.Complete)
}

func TestSet(t *testing.T) {
	var a, b set
	a.add(3)
	a.add(130)
	assert.True(t, a.has(3) && a.has(130))
	assert.False(t, a.has(4) || a.has(1000) || b.has(3))
	assert.Equal(t, 2, a.len())
	assert.True(t, b.within(a) && a.within(a))
	b.add(3)
	assert.True(t, b.within(a))
	assert.False(t, a.within(b))
	b.add(200)
	assert.False(t, b.within(a) || a.within(b))
}
