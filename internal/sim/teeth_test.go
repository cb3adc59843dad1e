package sim

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"raftkv/internal/core"
	"raftkv/raft"
)

// broken is a core with one rule broken: what goes in, or what comes out, is
// not what package raft was given, or has said.
type broken struct {
	core.Core
	in  func(core.Core, raft.Event) raft.Event
	out func(core.Core, *raft.Effects)
}

// The other methods that a core may have.
func (b broken) Configuration() raft.Configuration {
	return b.Core.(*raft.ConsensusModule).Configuration()
}

func (b broken) Progress(peer raft.ServerID) (next, match raft.Index, ok bool) {
	return b.Core.(*raft.ConsensusModule).Progress(peer)
}

func (b broken) Step(event raft.Event) raft.Effects {
	if b.in != nil {
		event = b.in(b.Core, event)
	}
	effects := b.Core.Step(event)
	if b.out != nil {
		b.out(b.Core, &effects)
	}
	return effects
}

// breakIn returns a core that misreads messages.
func breakIn(misread func(now raft.Status, body raft.Body) raft.Body) core.New {
	return func(config raft.Config, saved raft.PersistentState) (core.Core, raft.Effects, error) {
		c, effects, err := core.Raft(config, saved)
		return broken{Core: c, in: func(c core.Core, event raft.Event) raft.Event {
			if m, ok := event.(raft.Message); ok {
				m.Body = misread(c.Status(), m.Body)
				return m
			}
			return event
		}}, effects, err
	}
}

// breakOut returns a core that asks for the wrong things.
func breakOut(spoil func(core.Core, *raft.Effects)) core.New {
	return func(config raft.Config, saved raft.PersistentState) (core.Core, raft.Effects, error) {
		c, effects, err := core.Raft(config, saved)
		return broken{Core: c, out: spoil}, effects, err
	}
}

// breakStart returns a core that starts with something else than its disk holds.
func breakStart(spoil func(*raft.Config, *raft.PersistentState)) core.New {
	return func(config raft.Config, saved raft.PersistentState) (core.Core, raft.Effects, error) {
		spoil(&config, &saved)
		return core.Raft(config, saved)
	}
}

// bugs are mistakes that implementations of Raft have really had, or nearly.
// blindly is how many seeds it may take without the invariants to find them; 0
// if only the invariants can be expected to. try is a seed behind the first ones
// that is known to show it.
var bugs = []struct {
	name    string
	core    core.New
	blindly uint64
	try     uint64
}{
	{"the vote is not saved", breakOut(func(_ core.Core, e *raft.Effects) {
		e.Save.VotedFor = raft.None
	}), 0, 0},

	{"the vote is forgotten in a restart", breakStart(func(_ *raft.Config, saved *raft.PersistentState) {
		saved.VotedFor = raft.None
	}), 0, 0},

	{"the last entry is forgotten in a restart", breakStart(func(_ *raft.Config, saved *raft.PersistentState) {
		if n := len(saved.Entries); n > 0 {
			saved.Entries = saved.Entries[: n-1 : n-1]
		}
	}), 100, 0},

	{"promises leave before the disk is written", breakOut(func(_ core.Core, e *raft.Effects) {
		e.Send, e.SendAfter = append(e.Send, e.SendAfter...), nil
	}), 0, 0},

	{"a server counts its own copy before it is written", breakOut(func(c core.Core, e *raft.Effects) {
		if e.Save.Needed() {
			s := c.Status()
			e.Merge(c.Step(raft.Saved{Index: s.LastIndex, Term: s.Term}))
		}
	}), 0, 0},

	{"votes of an earlier election count", breakIn(func(now raft.Status, body raft.Body) raft.Body {
		if r, ok := body.(raft.RequestVoteReply); ok {
			r.AskedTerm = now.Term
			return r
		}
		return body
	}), 0, 0},

	{"acknowledgements of an earlier leadership count", breakIn(func(now raft.Status, body raft.Body) raft.Body {
		if r, ok := body.(raft.AppendEntriesReply); ok && r.Term <= now.Term {
			r.AskedTerm = now.Term
			return r
		}
		return body
	}), 0, 38},

	{"any candidate's log is good enough", breakIn(func(_ raft.Status, body raft.Body) raft.Body {
		if a, ok := body.(raft.RequestVoteArgs); ok {
			a.LastLogTerm = math.MaxUint64
			return a
		}
		return body
	}), 100, 0},

	{"entries are called committed when they are sent", breakOut(func(c core.Core, e *raft.Effects) {
		for i := range e.Send {
			if a, ok := e.Send[i].Body.(raft.AppendEntriesArgs); ok {
				a.LeaderCommit = c.Status().LastIndex
				e.Send[i].Body = a
			}
		}
	}), 100, 0},

	{"a follower acknowledges what it refuses", breakOut(func(_ core.Core, e *raft.Effects) {
		for i := range e.SendAfter {
			if r, ok := e.SendAfter[i].Body.(raft.AppendEntriesReply); ok && !r.Success && r.Term == r.AskedTerm {
				r.Success, r.MatchIndex = true, r.PrevLogIndex
				e.SendAfter[i].Body = r
			}
		}
	}), 100, 0},

	{"a follower is silent about what it lacks", breakOut(func(_ core.Core, e *raft.Effects) {
		kept := e.SendAfter[:0]
		for _, m := range e.SendAfter {
			if r, ok := m.Body.(raft.AppendEntriesReply); !ok || r.Success || r.Term > r.AskedTerm {
				kept = append(kept, m)
			}
		}
		e.SendAfter = kept
	}), 100, 0},

	{"an election without a winner is not repeated", breakOut(func(c core.Core, e *raft.Effects) {
		if s := c.Status(); s.State == raft.Candidate || s.State == raft.PreCandidate {
			e.Timers[raft.ElectionTimer] = raft.TimerChange{}
		}
	}), 100, 0},

	{"two servers are enough", breakStart(func(config *raft.Config, _ *raft.PersistentState) {
		// Everybody believes in a cluster of three around itself.
		var three []raft.ServerID
		n := len(config.Configuration.Voters)
		for i := range min(3, n) {
			three = append(three, raft.ServerID((int(config.ID)-1+i)%n+1))
		}
		config.Configuration = raft.NewConfiguration(three...)
	}), 300, 0},

	{"committed entries skip one after a restart", func() core.New {
		return breakOut(func(_ core.Core, e *raft.Effects) {
			if len(e.Commit) > 8 {
				e.Commit = append(e.Commit[:4:4], e.Commit[5:]...)
			}
		})
	}(), 100, 0},
}

// The simulator must find each bug, within the seeds that chaos runs in a few
// seconds. A check that never fails proves nothing.
func TestBugsAreFound(t *testing.T) {
	for _, bug := range bugs {
		mustFind(t, bug.name, Config{New: bug.core, Profile: Full}, 300, bug.try)
	}
}

// Most bugs show from outside, too: in what clients are told, in state machines
// that differ, in a cluster that does not recover, or in a core that panics.
func TestBugsShowFromOutside(t *testing.T) {
	for _, bug := range bugs {
		if bug.blindly > 0 {
			mustFind(t, bug.name, Config{New: bug.core, Profile: Full, blind: true}, bug.blindly, 0)
		}
	}
}

// mustFind demands that one of the first seeds fails. The seed try is the first to
// be tried, unless it is 0: if it shows the bug no longer, because runs have become
// different ones, the search only takes longer.
func mustFind(t *testing.T, name string, config Config, seeds, try uint64) {
	t.Run(name, func(t *testing.T) {
		var r Report
		if try >= 1 && try <= seeds {
			r = RunSeed(config, try)
		}
		if r.Failure == nil {
			r = firstFailure(config, seeds)
		}
		if assert.NotNil(t, r.Failure, "not found") {
			t.Logf("seed %d: %s: %.300s", r.Seed, r.Failure.Kind, r.Failure.Text)
		}
	})
}

func firstFailure(config Config, seeds uint64) (r Report) {
	for seed := range seeds {
		if r = RunSeed(config, seed+1); r.Failure != nil {
			return r
		}
	}
	return r
}
