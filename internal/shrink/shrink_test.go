package shrink

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"raftkv/internal/core"
	"raftkv/internal/scenario"
	"raftkv/internal/sim"
	"raftkv/raft"
)

// broken is a core that spoils what the real one asks for.
type broken struct {
	core.Core
	spoil func(core.Core, *raft.Effects)
}

func (b broken) Step(event raft.Event) raft.Effects {
	effects := b.Core.Step(event)
	b.spoil(b.Core, &effects)
	return effects
}

func breakOut(spoil func(core.Core, *raft.Effects)) core.New {
	return func(config raft.Config, saved raft.PersistentState) (core.Core, raft.Effects, error) {
		c, effects, err := core.Raft(config, saved)
		return broken{c, spoil}, effects, err
	}
}

var bugs = []struct {
	name string
	core core.New
	told string // what the story fails with; "" if there is none
}{
	{"the vote is not saved", breakOut(func(_ core.Core, e *raft.Effects) {
		e.Save.VotedFor = raft.None
	}), "durability"},
	{"the vote is forgotten in a restart", func(config raft.Config, saved raft.PersistentState) (core.Core, raft.Effects, error) {
		saved.VotedFor = raft.None
		return core.Raft(config, saved)
	}, "durability"},
	{"a follower acknowledges what it refuses", breakOut(func(_ core.Core, e *raft.Effects) {
		for i := range e.SendAfter {
			if r, ok := e.SendAfter[i].Body.(raft.AppendEntriesReply); ok && !r.Success && r.Term == r.AskedTerm {
				r.Success, r.MatchIndex = true, r.PrevLogIndex
				e.SendAfter[i].Body = r
			}
		}
	}), "durability"},
	{"an election without a winner is not repeated", breakOut(func(c core.Core, e *raft.Effects) {
		if s := c.Status(); s.State == raft.Candidate || s.State == raft.PreCandidate {
			e.Timers[raft.ElectionTimer] = raft.TimerChange{}
		}
	}), ""},
}

// Whatever fails must fail in the same way when it is small, and from its file.
func TestShrink(t *testing.T) {
	for _, bug := range bugs {
		t.Run(bug.name, func(t *testing.T) {
			config := sim.Config{New: bug.core, Profile: sim.Full}
			seed := firstFailure(t, config, 1)
			r, err := Shrink(config, seed, Options{})
			require.NoError(t, err)
			faultsBefore, callsBefore := sim.Count(r.From.Decisions)
			faults, calls := sim.Count(r.Small.List)
			t.Logf("seed %d: %s: %d faults and %d calls, now %d and %d, in %d runs", r.From.Seed, r.Small.Fails, faultsBefore, callsBefore, faults, calls, r.Runs)
			assert.LessOrEqual(t, faults, 10)
			for _, d := range r.Small.List {
				t.Log(d)
			}

			var file bytes.Buffer
			require.NoError(t, r.Small.Write(&file))
			d, err := sim.ReadDecisions(&file)
			require.NoError(t, err)
			config.Only = d
			again := sim.RunSeed(config, d.Seed)
			require.NotNil(t, again.Failure)
			assert.Equal(t, r.Small.Fails, Property(again.Failure))
			assert.Equal(t, r.To.Hash, again.Hash)

			text, err := Story(config, d)
			if bug.told == "" {
				assert.ErrorContains(t, err, "as a story")
				return
			}
			// A story's commands are shorter than a client's, so where messages are
			// bounded in bytes another number of them may be sent. Then it cannot be told.
			for tries := 0; err != nil && tries < 20; tries++ {
				seed = firstFailure(t, config, seed+1)
				config.Only = nil
				r, err = Shrink(config, seed, Options{})
				require.NoError(t, err)
				text, err = Story(config, &r.Small)
			}
			require.NoError(t, err)
			t.Log(text)
			story, err := scenario.Parse("the story", text)
			require.NoError(t, err)
			assert.ErrorContains(t, story.Play(bug.core, false), bug.told)
			if err := story.Play(core.Raft, false); err != nil {
				assert.NotContains(t, err.Error(), bug.told, "the story fails without the bug")
			}
		})
	}
}

func firstFailure(t *testing.T, config sim.Config, from uint64) (seed uint64) {
	for seed := from; seed <= 100; seed++ {
		if sim.RunSeed(config, seed).Failure != nil {
			return seed
		}
	}
	t.Fatal(fmt.Errorf("no seed fails"))
	return 0
}
