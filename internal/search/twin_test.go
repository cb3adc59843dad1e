package search

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"raftkv/raft"
)

// slowly visits all that can be reached, and leaves out nothing but what Prune
// says: every event is a step, every state is compared whole. It returns the
// keys that it met, and what was broken first. With settled, what changes no
// server happens at once; that is a reduction, too, but without it only the
// smallest bounds can be searched.
func slowly(s *search, settled bool) (keys map[key]bool, broken string) {
	first := state{}
	for i := range s.config.Nodes {
		first.servers[i] = s.born(raft.ServerID(i+1), raft.PersistentState{})
	}
	keys = map[key]bool{}
	been := map[string]bool{}
	var wait []state
	visit := func(st state) {
		whole, err := binary.Append(nil, binary.LittleEndian, struct {
			Servers          [maxNodes]serverID
			Entries, Crashes uint8
			LeaderOf         [maxTerm + 1]uint8
			Applied          [maxIndex + 1]uint8
		}{st.servers, st.past.entries, st.past.crashes, st.past.leaderOf, st.past.applied})
		if err != nil {
			panic(err)
		}
		for _, v := range st.messages {
			whole = binary.LittleEndian.AppendUint64(whole, v)
		}
		if been[string(whole)] {
			return
		}
		been[string(whole)] = true
		k, _ := s.key(st.servers)
		keys[k] = true
		if why := s.check(st.servers); why != "" && broken == "" {
			broken = why
		}
		wait = append(wait, st)
	}
	become := func(from state, i int, next serverID, sent []messageID) state {
		st := state{servers: from.servers, past: from.past, messages: slices.Clone(from.messages)}
		st.servers[i] = next
		if settled {
			st.messages = s.settle(&st, i, from.messages, sent)
			return st
		}
		for _, m := range sent {
			st.messages.add(m)
		}
		for j := range s.config.Nodes {
			if s.config.Prune {
				s.dropOlder(j, st.messages, s.servers[st.servers[j]].status.Term)
			}
		}
		return st
	}
	visit(first)
	for len(wait) > 0 && broken == "" {
		now := wait[len(wait)-1]
		wait = wait[:len(wait)-1]
		for i, server := range now.servers[:s.config.Nodes] {
			status := s.servers[server].status
			events := []event{{kind: crashes}, {kind: submits}, {kind: beats}, {kind: timesOut}}
			for m := range s.to(i, now.messages) {
				events = append(events, event{receives, m})
			}
			for _, ev := range events {
				leads := status.State == raft.Leader
				switch {
				case ev.kind == crashes && int(now.past.crashes) == s.config.Crashes,
					ev.kind == submits && (!leads || int(now.past.entries) == s.config.Entries),
					ev.kind == beats && !leads,
					ev.kind == timesOut && (leads || status.Term == s.config.Terms):
					continue
				}
				out := *s.outcome(server, ev)
				if out.broken != "" {
					return keys, out.broken
				}
				next := become(now, i, out.next, out.sent)
				switch ev.kind {
				case crashes:
					next.past.crashes++
				case submits:
					next.past.entries++
				}
				half := next.past
				half.crashes++
				if why := s.note(&next.past, out.next, out.commit); why != "" {
					return keys, why
				}
				visit(next)
				for _, c := range out.cuts {
					if int(now.past.crashes) < s.config.Crashes {
						cut := become(now, i, c.next, c.sent)
						cut.past = half
						visit(cut)
					}
				}
			}
		}
	}
	return keys, broken
}

// What the reductions leave out is missed by nobody: within small bounds, the
// search meets what a search without any of them meets, no less and no more.
func TestReductionsMissNothing(t *testing.T) {
	for _, tc := range []struct {
		config  Config
		settled bool
	}{
		{Config{Nodes: 2, Terms: 2, Prune: true}, false},
		{Config{Nodes: 2, Terms: 2, Prune: true, Crashes: 1}, false},
		{Config{Nodes: 2, Terms: 2, Prune: true, Single: true}, true},
		{Config{Nodes: 2, Terms: 2}, true},
		{Config{Nodes: 2, Terms: 1, Entries: 1, Crashes: 1}, true},
		{Config{Nodes: 2, Terms: 2, Entries: 1, Prune: true}, true},
		{Config{Nodes: 2, Terms: 2, Entries: 1, Prune: true, Crashes: 1}, true},
		{Config{Nodes: 3, Terms: 1, Prune: true}, true},
	} {
		c := tc.config
		c.MaxStates = 1_000_000
		s := newSearch(c, newModule)
		s.keepSpent = true // slowly looks at all messages
		want, broken := slowly(s, tc.settled)
		require.Empty(t, broken)
		s.keepSpent = false
		for _, deep := range []bool{true, false} {
			report, err := s.run(deep)
			require.NoError(t, err)
			require.True(t, report.Complete)
			require.False(t, s.keepSpent)
			got := map[key]bool{}
			for k := range s.visited {
				got[k] = true
			}
			assert.Equal(t, want, got, "%+v", c)
			t.Logf("%+v deep %v: %d states for %d sets of servers", c, deep, report.States, len(want))
		}
	}
}
