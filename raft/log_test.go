package raft

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// terms returns the terms of a log, the place before the first entry included.
func (l *log) terms() []Term {
	var terms []Term
	for _, e := range l.entries {
		terms = append(terms, e.Term)
	}
	return terms
}

func TestTermOfMissingEntry(t *testing.T) {
	l := newLog(LogPosition{}, entries(1, 1, 2))
	for _, c := range []struct {
		index Index
		term  Term
		known bool
	}{{0, 0, true}, {1, 1, true}, {3, 2, true}, {4, 0, false}, {1 << 60, 0, false}} {
		term, known := l.term(c.index)
		assert.Equal(t, c.term, term, "index %d", c.index)
		assert.Equal(t, c.known, known, "index %d", c.index)
	}
	assert.False(t, l.matches(4, 0), "a missing entry has no term, not term 0 (LM-07)")
	assert.True(t, l.matches(0, 0), "every log agrees on the place before the first entry")
}

func TestUpToDate(t *testing.T) {
	ours := newLog(LogPosition{}, entries(1, 1, 3))
	for _, c := range []struct {
		index Index
		term  Term
		want  bool
		why   string
	}{
		{3, 3, true, "the same log"},
		{4, 3, true, "longer in the same term"},
		{2, 3, false, "shorter in the same term"},
		{1, 4, true, "shorter, but of a later term"},
		{9, 2, false, "longer, but of an earlier term"},
		{0, 0, false, "empty"},
	} {
		assert.Equal(t, c.want, ours.upToDate(c.index, c.term), c.why)
	}
	empty := newLog(LogPosition{}, nil)
	assert.True(t, empty.upToDate(0, 0), "two empty logs")
}

func TestAppendAfter(t *testing.T) {
	for _, c := range []struct {
		name    string
		log     []Term
		prev    Index
		add     []Term
		want    []Term
		last    Index
		changed Index
	}{
		{"heartbeat", []Term{1, 1}, 2, nil, []Term{1, 1}, 2, 0},
		{"at the end", []Term{1, 1}, 2, []Term{2}, []Term{1, 1, 2}, 3, 3},
		{"to an empty log", nil, 0, []Term{1, 2}, []Term{1, 2}, 2, 1},
		{"all there already", []Term{1, 1, 2}, 1, []Term{1, 2}, []Term{1, 1, 2}, 3, 0},
		{"a shorter, old message cuts nothing (LM-02)", []Term{1, 1, 1, 1}, 0, []Term{1, 1}, []Term{1, 1, 1, 1}, 2, 0},
		{"an old heartbeat cuts nothing", []Term{1, 1, 1}, 1, nil, []Term{1, 1, 1}, 1, 0},
		{"half there, half new", []Term{1, 1}, 1, []Term{1, 2, 2}, []Term{1, 1, 2, 2}, 4, 3},
		{"a conflict at the first entry", []Term{1, 2, 2}, 1, []Term{3}, []Term{1, 3}, 2, 2},
		{"a conflict in the middle", []Term{1, 1, 2, 2, 2}, 1, []Term{1, 3}, []Term{1, 1, 3}, 3, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLog(LogPosition{}, entries(c.log...))
			last := l.appendAfter(c.prev, entries(c.add...))
			assert.Equal(t, append([]Term{0}, c.want...), l.terms())
			assert.Equal(t, c.last, last)
			assert.Equal(t, c.changed, l.changedFrom)
		})
	}
}

// TestAppendAfterTwin compares with the paper's words, taken one at a time.
func TestAppendAfterTwin(t *testing.T) {
	rng := seeded()
	randomTerms := func(n int, from Term) []Term {
		terms := make([]Term, n)
		for i := range terms {
			from += Term(rng.IntN(2))
			terms[i] = max(1, from)
		}
		return terms
	}
	for range 20_000 {
		have := randomTerms(rng.IntN(8), 0)
		prev := rng.IntN(len(have) + 1)
		add := randomTerms(rng.IntN(5), Term(rng.IntN(5)))

		want := slices.Clone(have)
		for n, term := range add {
			i := prev + n
			if i < len(want) && want[i] != term {
				want = want[:i] // AE-3
			}
			if i == len(want) {
				want = append(want, term) // AE-4
			}
		}

		l := newLog(LogPosition{}, entries(have...))
		last := l.appendAfter(Index(prev), entries(add...))
		require.Equal(t, append([]Term{0}, want...), l.terms(), "%v, after %d: %v", have, prev, add)
		require.Equal(t, Index(prev+len(add)), last)
	}
}

// TestCompactedTwin: whatever was dropped from the beginning of a log, it answers
// as the whole log does (SN-09), here in the hands of a follower and for every
// place and length of what a leader may send.
func TestCompactedTwin(t *testing.T) {
	rng := seeded()
	for range 100 {
		terms := make([]Term, 1+rng.IntN(6))
		term := Term(1)
		for i := range terms {
			term += Term(rng.IntN(2))
			terms[i] = term
		}
		have, last := entries(terms...), Index(len(terms))
		committed := Index(1 + rng.IntN(len(terms)))
		// The leader has what is committed, and behind it something of its own.
		theirs := append(slices.Clone(terms[:committed]), terms[committed:committed+Index(rng.IntN(int(last-committed)+1))]...)
		for range rng.IntN(4) {
			theirs = append(theirs, term+1)
		}
		sent := entries(theirs...)
		for first := Index(0); first <= committed; first++ {
			for prev := Index(0); prev <= Index(len(sent)); prev++ {
				for n := Index(0); n <= Index(len(sent))-prev; n++ {
					whole := follower(t, committed, have...)
					cut := whole.Clone()
					cut.log.compact(first)
					require.Equal(t, last, cut.log.lastIndex())
					l := newLog(LogPosition{}, sent)
					prevTerm, _ := l.term(prev)
					m := message(1, 2, AppendEntriesArgs{
						Term: term + 1, LeaderID: 1, PrevLogIndex: prev, PrevLogTerm: prevTerm, Entries: sent[prev : prev+n], LeaderCommit: committed,
					})
					want, got := stepSaved(whole, m), stepSaved(cut, m)
					for _, e := range []*Effects{&want, &got} {
						reply := e.SendAfter[0].Body.(AppendEntriesReply)
						if !reply.Success {
							reply.ConflictIndex = max(reply.ConflictIndex, first+1) // that is where the logs agree
						}
						e.SendAfter[0].Body = reply
					}
					require.Equal(t, want, got, "%v, compacted up to %d; %v after %d", terms, first, theirs[prev:prev+n], prev)
					require.Equal(t, whole.log.terms()[first:], cut.log.terms())
					require.Equal(t, whole.commitIndex, cut.commitIndex)
					require.Equal(t, whole.backlogBytes, cut.backlogBytes)
				}
			}
		}
	}
}

// TestCompactFreesMemory: what is left must not keep the memory of what is gone,
// nor share it.
func TestCompactFreesMemory(t *testing.T) {
	l := newLog(LogPosition{}, entries(1, 1, 2, 2))
	handed := l.slice(1, 4)
	l.compact(2)
	assert.Equal(t, []Term{1, 2, 2}, l.terms())
	assert.Equal(t, Index(3), l.first)
	l.entries[1].Term = 9
	assert.Equal(t, entries(1, 1, 2, 2), handed)
}

// TestSearchTwins compares the binary searches with a walk along the log, all of
// it or what is left of it.
func TestSearchTwins(t *testing.T) {
	rng := seeded()
	for range 5_000 {
		terms := make([]Term, rng.IntN(10))
		var term Term = 1
		for i := range terms {
			term += Term(rng.IntN(3) / 2 * (1 + rng.IntN(2)))
			terms[i] = term
		}
		l := newLog(LogPosition{}, entries(terms...))
		l.compact(Index(rng.IntN(len(terms) + 1)))
		for i := l.first; i <= l.lastIndex(); i++ {
			first := i
			for first > l.first && terms[first-2] == terms[i-1] {
				first--
			}
			require.Equal(t, first, l.firstOfTerm(i), "%v at %d", terms, i)
		}
		for want := Term(0); want <= term+1; want++ {
			for limit := Index(0); limit <= l.lastIndex()+1; limit++ {
				last := min(limit, l.lastIndex())
				for last > 0 && terms[last-1] != want {
					last--
				}
				if last < l.first {
					last = 0
				}
				require.Equal(t, last, l.lastOfTerm(want, limit), "term %d up to %d in %v", want, limit, terms)
			}
		}
	}
}

// TestSlicesOutliveTheLog: what is handed out belongs to messages under way and
// to a Save that is being written. Neither may change when the log does (LM-10).
func TestSlicesOutliveTheLog(t *testing.T) {
	cut := func(l *log) { l.appendAfter(1, []LogEntry{{Term: 2, Command: []byte("other")}}) }
	grow := func(l *log) { l.append(LogEntry{Term: 2, Command: []byte("more")}) }
	for _, c := range []struct {
		name   string
		change []func(*log)
	}{
		{"cut", []func(*log){cut}},
		{"grow", []func(*log){grow}},
		{"cut, then grow", []func(*log){cut, grow, grow}},
		{"grow, then cut", []func(*log){grow, cut, grow}},
		{"cut twice", []func(*log){cut, func(l *log) { l.appendAfter(0, entries(3)) }, grow, grow}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLog(LogPosition{}, nil)
			for _, e := range entries(1, 1, 1) {
				l.append(e) // leaves room behind the last entry
			}
			var handed, copies [][]LogEntry
			hand := func() {
				for lo := Index(1); lo <= l.lastIndex(); lo++ {
					s := l.slice(lo, l.lastIndex())
					handed, copies = append(handed, s), append(copies, slices.Clone(s))
				}
			}
			for _, change := range c.change {
				hand()
				change(&l)
			}
			for i := range handed {
				assert.Equal(t, copies[i], handed[i])
				assert.Equal(t, len(handed[i]), cap(handed[i]), "appending to it would write into the log")
			}
		})
	}
}

// TestAppendDoesNotCopy: a follower that copied its log for every message would
// get slower with every entry.
func TestAppendDoesNotCopy(t *testing.T) {
	l := newLog(LogPosition{}, nil)
	one := entries(1)
	const n = 10_000
	allocated := testing.AllocsPerRun(1, func() {
		for range n {
			l.appendAfter(l.lastIndex(), one)
		}
	})
	assert.Less(t, allocated, float64(n/10))
}
