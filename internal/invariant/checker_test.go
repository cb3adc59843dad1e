package invariant

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"raftkv/raft"
)

// puppet is a server that does what a test tells it, right or wrong.
type puppet struct {
	status      raft.Status
	log         []raft.LogEntry // log[0] is the place before the first entry
	next, match raft.Index      // about every other server
}

func (p *puppet) Status() raft.Status { return p.status }

func (p *puppet) Entry(i raft.Index) (raft.LogEntry, bool) {
	if i == 0 || i >= raft.Index(len(p.log)) {
		return raft.LogEntry{}, false
	}
	return p.log[i], true
}

func (p *puppet) Progress(raft.ServerID) (next, match raft.Index, ok bool) {
	return p.next, p.match, p.status.State == raft.Leader
}

// setLog gives the puppet a log: one letter an entry, whose terms are given.
// The command of an entry is its term, unless a test changes it.
func (p *puppet) setLog(terms ...raft.Term) {
	p.log = make([]raft.LogEntry, 1)
	for _, t := range terms {
		p.log = append(p.log, raft.LogEntry{Term: t, Command: []byte{byte('0' + t)}})
	}
	p.status.LastIndex = raft.Index(len(terms))
	p.status.LastTerm = p.log[len(terms)].Term
}

func newPuppet(id raft.ServerID) *puppet {
	return &puppet{status: raft.Status{ID: id}, log: make([]raft.LogEntry, 1), next: 1}
}

// history plays a story to a checker and keeps its first complaint.
type history struct {
	checker *Checker
	puppets map[raft.ServerID]*puppet
	saves   map[raft.ServerID]raft.Save
	err     error
}

func newHistory(servers int) *history {
	h := &history{puppets: map[raft.ServerID]*puppet{}, saves: map[raft.ServerID]raft.Save{}}
	var voters []raft.ServerID
	for i := range servers {
		id := raft.ServerID(i + 1)
		voters = append(voters, id)
		h.puppets[id] = newPuppet(id)
	}
	h.checker = New(voters...)
	return h
}

func (h *history) note(err error) {
	if h.err == nil {
		h.err = err
	}
}

// step changes a server and shows it to the checker. The Save that is due is
// added, unless the effects have one.
func (h *history) step(id raft.ServerID, effects raft.Effects, change func(p *puppet)) {
	p := h.puppets[id]
	before, log := p.status, p.log
	change(p)
	if !effects.Save.Needed() && (p.status.Term != before.Term || p.status.VotedFor != before.VotedFor || !slices.EqualFunc(p.log, log, sameEntry)) {
		effects.Save = raft.Save{CurrentTerm: p.status.Term, VotedFor: p.status.VotedFor}
		if !slices.EqualFunc(p.log, log, sameEntry) {
			first := 1
			for first < min(len(log), len(p.log)) && sameEntry(log[first], p.log[first]) {
				first++
			}
			effects.Save.FirstIndex, effects.Save.Entries = raft.Index(first), p.log[first:]
		}
	}
	if effects.Save.Needed() {
		h.saves[id] = effects.Save
	}
	h.note(h.checker.AfterStep(id, p, effects))
}

func sameEntry(a, b raft.LogEntry) bool {
	return a.Term == b.Term && string(a.Command) == string(b.Command)
}

func (h *history) save(id raft.ServerID) {
	h.note(h.checker.AfterSave(id, h.saves[id]))
	delete(h.saves, id)
}

// do is a step whose Save becomes durable at once.
func (h *history) do(id raft.ServerID, change func(p *puppet)) {
	h.step(id, raft.Effects{}, change)
	h.save(id)
}

// says is a step that changes nothing and sends messages.
func (h *history) says(id raft.ServerID, bodies ...raft.Body) {
	h.step(id, sendAfter(id, bodies...), func(*puppet) {})
}

// sendAfter addresses messages to server 1, or to 2 if 1 is the sender.
func sendAfter(from raft.ServerID, bodies ...raft.Body) (e raft.Effects) {
	to := raft.ServerID(1)
	if from == 1 {
		to = 2
	}
	for _, b := range bodies {
		e.SendAfter = append(e.SendAfter, raft.Message{From: from, To: to, Body: b})
	}
	return e
}

func vote(term raft.Term, who raft.ServerID) func(*puppet) {
	return func(p *puppet) {
		p.status.State, p.status.Term, p.status.VotedFor = raft.Follower, term, who
	}
}

func lead(p *puppet) { p.status.State, p.next, p.match = raft.Leader, p.status.LastIndex+1, 0 }

// elect makes a server leader with the votes of the others named.
func (h *history) elect(id raft.ServerID, term raft.Term, others ...raft.ServerID) {
	for _, v := range append(others, id) {
		h.do(v, vote(term, id))
	}
	h.do(id, lead)
}

// logs gives servers a log, durable.
func (h *history) logs(terms []raft.Term, ids ...raft.ServerID) {
	for _, id := range ids {
		h.do(id, func(p *puppet) { p.setLog(terms...) })
	}
}

func (h *history) commit(id raft.ServerID, index raft.Index) {
	h.do(id, func(p *puppet) { p.status.CommitIndex = index })
}

// apply hands entries first to last of the server's log to its state machine.
func (h *history) apply(id raft.ServerID, first, last raft.Index) {
	var e raft.Effects
	for i := first; i <= last; i++ {
		e.Commit = append(e.Commit, h.entry(id, i))
	}
	h.step(id, e, func(*puppet) {})
}

func (h *history) entry(id raft.ServerID, i raft.Index) raft.CommitEntry {
	e := h.puppets[id].log[i]
	return raft.CommitEntry{Index: i, Term: e.Term, Kind: e.Kind, Command: e.Command}
}

func (h *history) restart(id raft.ServerID, saved raft.PersistentState) {
	p := &puppet{status: raft.Status{ID: id, Term: saved.CurrentTerm, VotedFor: saved.VotedFor}, next: 1}
	p.log = append(make([]raft.LogEntry, 1), saved.Entries...)
	p.status.LastIndex = raft.Index(len(saved.Entries))
	p.status.LastTerm = p.log[len(saved.Entries)].Term
	h.puppets[id] = p
	delete(h.saves, id)
	h.note(h.checker.Restarted(id, saved))
}

func of(terms ...raft.Term) []raft.Term { return terms }

// replicated is a history in which server 1 leads term 1 of three servers, and
// all have two entries of it.
func replicated() *history {
	h := newHistory(3)
	h.elect(1, 1, 2, 3)
	h.logs(of(1, 1), 1, 2, 3)
	return h
}

// lateMessage is a history of five servers. Server 2 leads term 2 with an entry
// of its own; then server 4 commits, in term 3, what server 3 has as well. Server
// 3 is in the given term when it hears of server 2's entry.
func lateMessage(term raft.Term) *history {
	h := newHistory(5)
	h.elect(1, 1, 3, 4, 5)
	h.logs(of(1), 1, 3, 4, 5)
	h.elect(2, 2, 3, 5)
	h.logs(of(2), 2)
	h.elect(4, 3, 1, 5)
	h.logs(of(1, 3), 4, 1, 5)
	h.commit(4, 2)
	if term > 2 {
		h.do(3, vote(term, raft.None))
	}
	return h
}

// contrast is a story that breaks an invariant, and the legal story that looks most
// like it.
type contrast struct {
	name          string
	invariant     string
	broken, legal func() *history
}

func (c contrast) check(t *testing.T) {
	t.Run(c.name, func(t *testing.T) {
		var violation *Violation
		if h := c.broken(); assert.Error(t, h.err) && assert.ErrorAs(t, h.err, &violation) {
			assert.Equal(t, c.invariant, violation.Invariant, "%v", h.err)
		}
		assert.NoError(t, c.legal().err)
	})
}

// TestInvariants tells each invariant a story that breaks it.
func TestInvariants(t *testing.T) {
	for _, c := range []contrast{
		{"two leaders of one term, one after the other", ElectionSafety,
			func() *history {
				h := newHistory(5)
				h.elect(1, 1, 2, 3)
				h.do(1, func(p *puppet) { p.status.State = raft.Follower })
				h.do(2, lead)
				return h
			},
			func() *history { // two leaders at once, of two terms (LB-05)
				h := newHistory(5)
				h.elect(1, 1, 2, 3)
				h.elect(4, 2, 3, 5)
				h.commit(1, 0)
				return h
			}},
		{"a leader without a majority of votes", ElectionSafety,
			func() *history {
				h := newHistory(4)
				h.elect(1, 1, 2)
				return h
			},
			func() *history { // one of the voters has moved on since
				h := newHistory(4)
				h.do(2, vote(1, 1))
				h.do(3, vote(1, 1))
				h.do(3, vote(2, 4))
				h.elect(1, 1)
				return h
			}},
		{"a leader whose own vote is not durable", ElectionSafety,
			func() *history {
				h := newHistory(1)
				h.step(1, raft.Effects{}, vote(1, 1))
				h.step(1, raft.Effects{}, lead)
				return h
			},
			func() *history {
				h := newHistory(1)
				h.step(1, raft.Effects{}, vote(1, 1))
				h.save(1)
				h.step(1, raft.Effects{}, lead)
				return h
			}},
		{"a leader cuts its log", LeaderAppendOnly,
			func() *history {
				h := replicated()
				h.logs(of(1), 1)
				return h
			},
			func() *history { // it leads no longer
				h := newHistory(3)
				h.elect(1, 1, 2)
				h.logs(of(1), 1)
				h.elect(3, 2, 2)
				h.logs(of(2), 3)
				h.do(1, vote(2, raft.None))
				h.logs(of(2), 1)
				return h
			}},
		{"one index and term, two commands", LogMatching,
			func() *history {
				h := replicated()
				h.do(2, func(p *puppet) {
					p.setLog(1, 1, 1)
					p.log[3].Command = []byte("other")
				})
				h.logs(of(1, 1, 1), 3)
				return h
			},
			func() *history { // two terms at one index
				h := newHistory(3)
				h.do(1, vote(2, 1))
				h.do(2, vote(2, 1))
				h.logs(of(1), 1)
				h.logs(of(2), 2)
				return h
			}},
		{"one index and term, different logs before it", LogMatching,
			func() *history {
				h := newHistory(3)
				h.do(1, vote(3, 1))
				h.do(2, vote(3, 1))
				h.logs(of(1, 3), 1)
				h.logs(of(2, 3), 2)
				return h
			},
			func() *history {
				h := newHistory(3)
				h.do(1, vote(3, 1))
				h.do(2, vote(3, 1))
				h.logs(of(1, 3), 1)
				h.logs(of(1, 3), 2)
				return h
			}},
		{"terms fall along a log", LogMatching,
			func() *history {
				h := newHistory(3)
				h.do(1, vote(3, 1))
				h.logs(of(1, 3, 2), 1)
				return h
			},
			func() *history {
				h := newHistory(3)
				h.do(1, vote(3, 1))
				h.logs(of(1, 2, 2, 3), 1)
				return h
			}},
		{"a leader lacks what was committed in an earlier term", LeaderCompleteness,
			func() *history {
				h := replicated()
				h.commit(1, 2)
				h.restart(3, raft.PersistentState{CurrentTerm: 1, VotedFor: 1, Entries: h.puppets[3].log[1:]})
				h.do(3, func(p *puppet) { p.setLog(1) }) // how it lost it is another matter
				h.err = nil
				h.elect(3, 2, 2)
				return h
			},
			func() *history { // a delayed vote: leader of term 2 after term 3 has committed
				h := newHistory(5)
				h.do(1, vote(2, 1))
				h.do(2, vote(2, 1))
				h.do(3, vote(2, 1)) // on its way to server 1
				h.elect(4, 3, 3, 5)
				h.logs(of(3), 4, 3, 5)
				h.commit(4, 1)
				h.do(1, lead)
				return h
			}},
		{"an old leader commits late what a newer leader lacks", LeaderCompleteness,
			func() *history {
				h := newHistory(3)
				h.elect(1, 1, 2)
				h.logs(of(1), 1, 2)
				h.elect(3, 2, 2)
				h.commit(1, 1)
				return h
			},
			func() *history {
				h := newHistory(3)
				h.elect(1, 1, 2, 3)
				h.logs(of(1), 1, 2, 3)
				h.elect(3, 2, 2)
				h.commit(1, 1)
				return h
			}},
		{"a committed entry is taken out of a log", LeaderCompleteness,
			func() *history {
				h := replicated()
				h.commit(1, 1)
				h.do(3, vote(2, raft.None))
				h.logs(of(2), 3)
				return h
			},
			func() *history { // the entry behind it is not committed
				h := replicated()
				h.commit(1, 1)
				h.do(3, vote(2, raft.None))
				h.logs(of(1, 2), 3)
				return h
			}},
		{"a committed entry is taken out of a log in the term that committed it", LeaderCompleteness,
			func() *history {
				h := lateMessage(3)
				h.logs(of(2), 3)
				return h
			},
			func() *history { // a paused server hears the leader of term 2 when term 3 has committed
				h := lateMessage(2)
				h.logs(of(2), 3)
				return h
			}},
		{"an entry of an older term committed by counting (Figure 8)", LeaderCompleteness,
			func() *history {
				h := replicated()
				h.elect(1, 2, 2, 3)
				h.commit(1, 2)
				return h
			},
			func() *history { // with an entry of the leader's own term behind it
				h := replicated()
				h.elect(1, 2, 2, 3)
				h.logs(of(1, 1, 2), 1, 2)
				h.commit(1, 3)
				return h
			}},
		{"a commit that is not on a majority of the disks", Durability,
			func() *history {
				h := newHistory(3)
				h.elect(1, 1, 2, 3)
				h.step(1, raft.Effects{}, func(p *puppet) { p.setLog(1) })
				h.logs(of(1), 2)
				h.step(1, raft.Effects{}, func(p *puppet) { p.status.CommitIndex = 1 })
				return h
			},
			func() *history { // the leader's own disk is slow, two others are enough
				h := newHistory(3)
				h.elect(1, 1, 2, 3)
				h.step(1, raft.Effects{}, func(p *puppet) { p.setLog(1) })
				h.logs(of(1), 2, 3)
				h.step(1, raft.Effects{}, func(p *puppet) { p.status.CommitIndex = 1 })
				return h
			}},
		{"a follower commits what no leader has", StateMachineSafety,
			func() *history {
				h := replicated()
				h.commit(1, 1)
				h.commit(2, 2)
				return h
			},
			func() *history {
				h := replicated()
				h.commit(1, 2)
				h.commit(2, 1)
				h.commit(2, 2)
				return h
			}},
		{"two servers apply different entries at one index", StateMachineSafety,
			func() *history {
				h := replicated()
				h.commit(1, 1)
				h.commit(2, 1)
				h.apply(1, 1, 1)
				other := h.entry(2, 1)
				other.Command = []byte("other")
				h.step(2, raft.Effects{Commit: []raft.CommitEntry{other}}, func(*puppet) {})
				return h
			},
			func() *history {
				h := replicated()
				h.commit(1, 2)
				h.commit(2, 2)
				h.apply(1, 1, 1)
				h.apply(2, 1, 2)
				h.apply(1, 2, 2)
				return h
			}},
		{"an entry is applied twice in a life", StateMachineSafety,
			func() *history {
				h := replicated()
				h.commit(1, 1)
				h.apply(1, 1, 1)
				h.apply(1, 1, 1)
				return h
			},
			func() *history { // again in the next life
				h := replicated()
				h.commit(1, 1)
				h.apply(1, 1, 1)
				h.restart(1, raft.PersistentState{CurrentTerm: 1, VotedFor: 1, Entries: h.puppets[1].log[1:]})
				h.elect(1, 2, 2)
				h.logs(of(1, 1, 2), 1, 2)
				h.commit(1, 3)
				h.apply(1, 1, 3)
				return h
			}},
		{"an entry is given out that is not committed", StateMachineSafety,
			func() *history {
				h := replicated()
				h.commit(1, 1)
				h.apply(1, 1, 2)
				return h
			},
			func() *history {
				h := replicated()
				h.commit(1, 2)
				h.apply(1, 1, 2)
				return h
			}},
		{"the state machine skips an entry", StateMachineSafety,
			func() *history {
				h := replicated()
				h.commit(1, 2)
				h.apply(1, 1, 2)
				h.note(h.checker.Applied(1, h.entry(1, 2)))
				return h
			},
			func() *history {
				h := replicated()
				h.commit(1, 2)
				h.apply(1, 1, 2)
				h.note(h.checker.Applied(1, h.entry(1, 1)))
				h.note(h.checker.Applied(1, h.entry(1, 2)))
				return h
			}},
		{"the term goes back", Monotony,
			func() *history {
				h := newHistory(3)
				h.do(1, vote(2, 1))
				h.step(1, raft.Effects{}, vote(1, 1))
				return h
			},
			func() *history { // in a crash, as long as nothing of it was durable
				h := newHistory(3)
				h.do(1, vote(1, 2))
				h.step(1, raft.Effects{}, vote(2, 1))
				h.restart(1, raft.PersistentState{CurrentTerm: 1, VotedFor: 2})
				return h
			}},
		{"the commit index goes back", Monotony,
			func() *history {
				h := replicated()
				h.commit(1, 2)
				h.commit(1, 1)
				return h
			},
			func() *history {
				h := replicated()
				h.commit(1, 2)
				h.restart(1, raft.PersistentState{CurrentTerm: 1, VotedFor: 1, Entries: h.puppets[1].log[1:]})
				return h
			}},
		{"the applied index goes back", Monotony,
			func() *history {
				h := replicated()
				h.commit(1, 2)
				h.do(1, func(p *puppet) { p.status.LastApplied = 2 })
				h.do(1, func(p *puppet) { p.status.LastApplied = 1 })
				return h
			},
			func() *history {
				h := replicated()
				h.commit(1, 2)
				h.do(1, func(p *puppet) { p.status.LastApplied = 1 })
				h.do(1, func(p *puppet) { p.status.LastApplied = 2 })
				return h
			}},
		{"more is committed than the log has", Monotony,
			func() *history {
				h := replicated()
				h.commit(1, 3)
				return h
			},
			func() *history {
				h := replicated()
				h.commit(1, 2)
				return h
			}},
		{"nextIndex is not above matchIndex", Progress,
			func() *history {
				h := replicated()
				h.do(1, func(p *puppet) { p.next, p.match = 2, 2 })
				return h
			},
			func() *history {
				h := replicated()
				h.do(1, func(p *puppet) { p.next, p.match = 3, 2 })
				return h
			}},
		{"a second vote in one term", VoteOnce,
			func() *history { // after stepping down within the term (EL-03)
				h := newHistory(3)
				h.do(1, vote(1, 1))
				h.do(1, vote(1, 2))
				return h
			},
			func() *history { // in the next term
				h := newHistory(3)
				h.do(1, vote(1, 1))
				h.do(1, vote(2, 2))
				return h
			}},
		{"a durable vote is forgotten in a crash", VoteOnce,
			func() *history {
				h := newHistory(3)
				h.do(1, vote(1, 1))
				h.restart(1, raft.PersistentState{CurrentTerm: 1})
				return h
			},
			func() *history { // it was not durable, so nobody has heard of it
				h := newHistory(3)
				h.step(1, raft.Effects{}, vote(1, 1))
				h.restart(1, raft.PersistentState{})
				h.do(1, vote(1, 2))
				return h
			}},
		{"a durable entry is forgotten in a crash", Durability,
			func() *history {
				h := replicated()
				h.restart(2, raft.PersistentState{CurrentTerm: 1, VotedFor: 1, Entries: h.puppets[2].log[1:2]})
				return h
			},
			func() *history { // an interrupted Save had begun to replace it
				h := replicated()
				h.do(2, vote(2, 3))
				one := slices.Clone(h.puppets[2].log[1:2])
				h.step(2, raft.Effects{}, func(p *puppet) { p.setLog(1, 2, 2) })
				h.restart(2, raft.PersistentState{CurrentTerm: 2, VotedFor: 3, Entries: one})
				return h
			}},
		{"a change of the term is not saved", Durability,
			func() *history {
				h := newHistory(3)
				h.note(h.checker.AfterStep(1, &puppet{status: raft.Status{Term: 1}}, raft.Effects{}))
				return h
			},
			func() *history {
				h := newHistory(3)
				h.step(1, raft.Effects{}, vote(1, raft.None))
				return h
			}},
		{"a change of the log is saved from a later index on", Durability,
			func() *history {
				h := newHistory(3)
				h.step(1, raft.Effects{Save: raft.Save{CurrentTerm: 1, FirstIndex: 2, Entries: []raft.LogEntry{{Term: 1, Command: []byte("1")}}}},
					func(p *puppet) { vote(1, raft.None)(p); p.setLog(1, 1) })
				return h
			},
			func() *history { // from an earlier one: more than is needed
				h := newHistory(3)
				h.do(1, func(p *puppet) { vote(1, raft.None)(p); p.setLog(1) })
				h.step(1, raft.Effects{Save: raft.Save{CurrentTerm: 1, FirstIndex: 1, Entries: []raft.LogEntry{{Term: 1, Command: []byte("1")}, {Term: 1, Command: []byte("1")}}}},
					func(p *puppet) { p.setLog(1, 1) })
				h.save(1)
				return h
			}},
		{"an acknowledgement of what is not durable", Durability,
			func() *history { // the disk was written, but for an earlier step
				h := newHistory(3)
				h.do(2, func(p *puppet) { vote(1, 1)(p); p.setLog(1) })
				h.says(2, raft.AppendEntriesReply{Term: 1, AskedTerm: 1, Success: true, MatchIndex: 2})
				return h
			},
			func() *history { // it waits for the disk
				h := newHistory(3)
				h.step(2, sendAfter(2, raft.AppendEntriesReply{Term: 1, AskedTerm: 1, Success: true, MatchIndex: 2}),
					func(p *puppet) { vote(1, 1)(p); p.setLog(1, 1) })
				h.save(2)
				return h
			}},
		{"an acknowledgement of an entry that the leader does not have", Durability,
			func() *history {
				h := newHistory(3)
				h.do(2, vote(1, 2))
				h.logs(of(1), 2)
				h.elect(1, 2, 2)
				h.logs(of(2), 1)
				h.says(2, raft.AppendEntriesReply{Term: 2, AskedTerm: 2, Success: true, MatchIndex: 1})
				return h
			},
			func() *history { // a refusal acknowledges nothing
				h := newHistory(3)
				h.do(2, vote(1, 2))
				h.logs(of(1), 2)
				h.elect(1, 2, 2)
				h.logs(of(2), 1)
				h.says(2, raft.AppendEntriesReply{Term: 2, AskedTerm: 2, PrevLogIndex: 1, ConflictIndex: 1, ConflictTerm: 1})
				return h
			}},
		{"what was acknowledged is cut off in the same term", Durability,
			func() *history {
				h := replicated()
				h.says(2, raft.AppendEntriesReply{Term: 1, AskedTerm: 1, Success: true, MatchIndex: 2})
				h.logs(of(1), 2)
				return h
			},
			func() *history { // in a later term
				h := replicated()
				h.says(2, raft.AppendEntriesReply{Term: 1, AskedTerm: 1, Success: true, MatchIndex: 2})
				h.do(2, vote(2, 3))
				h.logs(of(1, 2), 2)
				return h
			}},
		{"a request for votes without a durable vote of its own", Durability,
			func() *history {
				h := newHistory(3)
				h.do(1, vote(1, raft.None))
				h.says(1, raft.RequestVoteArgs{Term: 1, CandidateID: 1})
				return h
			},
			func() *history {
				h := newHistory(3)
				h.step(1, sendAfter(1, raft.RequestVoteArgs{Term: 1, CandidateID: 1}), vote(1, 1))
				h.save(1)
				return h
			}},
		{"a vote that is not durable", Durability,
			func() *history {
				h := newHistory(3)
				h.do(2, vote(1, raft.None))
				h.says(2, raft.RequestVoteReply{Term: 1, AskedTerm: 1, VoteGranted: true})
				return h
			},
			func() *history { // a later term is durable by now and covers it
				h := newHistory(3)
				h.step(2, sendAfter(2, raft.RequestVoteReply{Term: 1, AskedTerm: 1, VoteGranted: true}), vote(1, 1))
				h.step(2, raft.Effects{}, vote(2, raft.None))
				h.save(2)
				return h
			}},
		{"a message of a term that is not durable", Durability,
			func() *history {
				h := newHistory(3)
				h.says(2, raft.PreVoteReply{Term: 1})
				return h
			},
			func() *history {
				h := newHistory(3)
				h.step(2, sendAfter(2, raft.PreVoteReply{Term: 1}), vote(1, raft.None))
				h.save(2)
				return h
			}},
		{"an acknowledgement leaves before the disk is written", Durability,
			func() *history {
				h := replicated()
				h.step(2, raft.Effects{Send: sendAfter(2, raft.AppendEntriesReply{Term: 1, AskedTerm: 1, Success: true, MatchIndex: 2}).SendAfter}, func(*puppet) {})
				return h
			},
			func() *history { // a leader's entries may
				h := replicated()
				h.step(1, raft.Effects{Send: sendAfter(1, raft.AppendEntriesArgs{Term: 1, LeaderID: 1, PrevLogIndex: 2, PrevLogTerm: 1, Entries: []raft.LogEntry{{Term: 1}}}).SendAfter},
					func(p *puppet) { p.setLog(1, 1, 1) })
				return h
			}},
		{"a leader describes a log that it does not have", Truth,
			func() *history { // LM-07: a missing entry has no term, not term 0
				h := replicated()
				h.says(1, raft.AppendEntriesArgs{Term: 1, LeaderID: 1, PrevLogIndex: 3, PrevLogTerm: 0})
				return h
			},
			func() *history {
				h := replicated()
				h.says(1, raft.AppendEntriesArgs{Term: 1, LeaderID: 1, PrevLogIndex: 0, PrevLogTerm: 0})
				return h
			}},
		{"a server that does not vote takes part", Membership,
			func() *history {
				h := newHistory(3)
				h.note(h.checker.AfterStep(4, &puppet{}, raft.Effects{}))
				return h
			},
			func() *history {
				h := newHistory(3)
				h.note(h.checker.AfterStep(3, &puppet{}, raft.Effects{}))
				return h
			}},
	} {
		c.check(t)
	}
}

// TestComplaints has a story for each complaint that TestInvariants does not
// hear, because there another one is made first or the case is a detail.
func TestComplaints(t *testing.T) {
	send := func(h *history, id raft.ServerID, body raft.Body) *history {
		h.step(id, raft.Effects{Send: sendAfter(id, body).SendAfter}, func(*puppet) {})
		return h
	}
	save := func(h *history, save raft.Save, change func(*puppet)) *history {
		h.step(1, raft.Effects{Save: save}, change)
		h.save(1)
		return h
	}
	voted := func() *history {
		h := newHistory(3)
		h.do(1, vote(2, 2))
		return h
	}
	for complaint, h := range map[string]*history{
		"applies index 1, but only 0 was given out": func() *history {
			h := replicated()
			h.commit(1, 1)
			h.note(h.checker.Applied(1, h.entry(1, 1)))
			return h
		}(),
		"has applied index 1, but committed only 0": func() *history {
			h := replicated()
			h.do(1, func(p *puppet) { p.status.LastApplied = 1 })
			return h
		}(),
		"voted for 2 in term 2 and now says 0": func() *history {
			h := voted()
			h.step(1, raft.Effects{}, vote(2, raft.None))
			return h
		}(),
		"leads, but knows nothing about server 2": func() *history {
			h := newHistory(3)
			for _, id := range []raft.ServerID{1, 2} {
				h.do(id, vote(1, 1))
			}
			h.note(h.checker.AfterStep(1, unknowing{raft.Status{State: raft.Leader, Term: 1, VotedFor: 1}}, raft.Effects{}))
			return h
		}(),
		"says that its log ends at 9, but has no entry at 1": func() *history {
			h := newHistory(3)
			h.step(1, raft.Effects{}, func(p *puppet) { p.status.LastIndex = 9 })
			return h
		}(),
		"says that its log ends with term 7, but it is 1": func() *history {
			h := newHistory(3)
			h.step(1, raft.Effects{}, func(p *puppet) { vote(7, raft.None)(p); p.setLog(1); p.status.LastTerm = 7 })
			return h
		}(),
		"is in term 1, but its log ends with term 2": func() *history {
			h := newHistory(3)
			h.step(1, raft.Effects{}, func(p *puppet) { vote(1, raft.None)(p); p.setLog(2) })
			return h
		}(),
		"commits index 1 with term 2, it was committed with term 1": func() *history {
			h := newHistory(3)
			h.elect(1, 1, 2)
			h.logs(of(1), 1, 2)
			h.do(3, vote(2, raft.None))
			h.logs(of(2), 3)
			h.commit(1, 1)
			h.commit(3, 1)
			return h
		}(),
		"is in term 1 with vote 2, but saves term 1 with vote 0": save(newHistory(3), raft.Save{CurrentTerm: 1}, vote(1, 2)),
		"saves 2 entries from index 1, but its log ends at 1": save(newHistory(3),
			raft.Save{CurrentTerm: 1, FirstIndex: 1, Entries: []raft.LogEntry{{Term: 1}, {Term: 1}}},
			func(p *puppet) { vote(1, raft.None)(p); p.setLog(1) }),
		"saves another entry at index 1 than its log has": save(newHistory(3),
			raft.Save{CurrentTerm: 1, FirstIndex: 1, Entries: []raft.LogEntry{{Term: 1, Command: []byte("other")}}},
			func(p *puppet) { vote(1, raft.None)(p); p.setLog(1) }),
		"saves term 1 over term 2": func() *history {
			h := voted()
			h.note(h.checker.AfterSave(1, raft.Save{CurrentTerm: 1}))
			return h
		}(),
		"saves a vote for 3 in term 2 over one for 2": func() *history {
			h := voted()
			h.note(h.checker.AfterSave(1, raft.Save{CurrentTerm: 2, VotedFor: 3}))
			return h
		}(),
		"saves entries from index 5, but its disk ends at 0": func() *history {
			h := voted()
			h.note(h.checker.AfterSave(1, raft.Save{CurrentTerm: 2, VotedFor: 2, FirstIndex: 5}))
			return h
		}(),
		"restarts in term 1, but term 2 was durable": func() *history {
			h := voted()
			h.restart(1, raft.PersistentState{CurrentTerm: 1})
			return h
		}(),
		"sends a message without content to server 1": send(newHistory(3), 2, nil),
		"sends a message without content to server 2": func() *history {
			h := newHistory(3)
			h.says(1, nil)
			return h
		}(),
		"sends a raft.AppendEntriesArgs of term 2 before its disk is written; term 1 is durable": func() *history {
			h := replicated()
			h.step(1, raft.Effects{Send: sendAfter(1, raft.AppendEntriesArgs{Term: 2}).SendAfter}, vote(2, 1))
			return h
		}(),
		"sends AppendEntries as follower of term 1": send(replicated(), 2, raft.AppendEntriesArgs{Term: 1}),
		"sends entries up to index 3, but its log ends at 2": send(replicated(), 1,
			raft.AppendEntriesArgs{Term: 1, PrevLogIndex: 2, PrevLogTerm: 1, Entries: make([]raft.LogEntry, 1)}),
		"says that 2 is committed, but its commit index is 0": send(replicated(), 1, raft.AppendEntriesArgs{Term: 1, LeaderCommit: 2}),
		"sends an entry of term 9 for index 2, its log has another": send(replicated(), 1,
			raft.AppendEntriesArgs{Term: 1, PrevLogIndex: 1, PrevLogTerm: 1, Entries: []raft.LogEntry{{Term: 9}}}),
	} {
		assert.ErrorContains(t, h.err, complaint)
	}
}

// unknowing is a leader that cannot tell how far its followers are.
type unknowing struct{ status raft.Status }

func (u unknowing) Status() raft.Status                       { return u.status }
func (unknowing) Entry(raft.Index) (e raft.LogEntry, ok bool) { return e, false }
func (unknowing) Progress(raft.ServerID) (next, match raft.Index, ok bool) {
	return 0, 0, false
}

// TestVolatile shows a core without a disk, as in the first parts of the tutorial.
func TestVolatile(t *testing.T) {
	play := func(volatile bool) error {
		c := New(1)
		c.Volatile = volatile
		p := &puppet{}
		vote(1, 1)(p)
		lead(p)
		p.setLog(1)
		p.next, p.status.CommitIndex = 2, 1
		return c.AfterStep(1, p, raft.Effects{})
	}
	assert.NoError(t, play(true))
	assert.Error(t, play(false))
}

// TestBrokenCoreIsReported feeds nonsense: the checker must answer, not panic.
func TestBrokenCoreIsReported(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	number := func() uint64 {
		if rng.IntN(8) == 0 {
			return rng.Uint64()
		}
		return rng.Uint64N(4)
	}
	index := func() raft.Index { return raft.Index(number()) }
	term := func() raft.Term { return raft.Term(number()) }
	body := func() raft.Body {
		switch rng.IntN(4) {
		case 0:
			return raft.RequestVoteReply{Term: term(), VoteGranted: true}
		case 1:
			return raft.AppendEntriesArgs{Term: term(), PrevLogIndex: index(), PrevLogTerm: term(), Entries: make([]raft.LogEntry, rng.IntN(3)), LeaderCommit: index()}
		case 2:
			return raft.AppendEntriesReply{Term: term(), Success: true, MatchIndex: index()}
		}
		return nil
	}
	reported := 0
	for range 100_000 {
		h := newHistory(3)
		for range 4 {
			p := &puppet{next: index(), match: index()}
			p.setLog(make([]raft.Term, rng.IntN(3))...)
			for i := range p.log[1:] {
				p.log[i+1].Term = term()
			}
			p.status = raft.Status{State: raft.CMState(rng.IntN(4)), Term: term(), VotedFor: raft.ServerID(rng.IntN(3)),
				CommitIndex: index(), LastApplied: index(), SavedIndex: index(), LastIndex: index(), LastTerm: term()}
			effects := raft.Effects{
				Save:      raft.Save{CurrentTerm: term(), VotedFor: 1, FirstIndex: index(), Entries: make([]raft.LogEntry, rng.IntN(3))},
				Send:      []raft.Message{{From: 1, To: 2, Body: body()}},
				SendAfter: []raft.Message{{From: 1, To: 2, Body: body()}},
				Commit:    []raft.CommitEntry{{Index: index(), Term: term()}},
			}
			id := raft.ServerID(1 + rng.IntN(3))
			h.note(h.checker.AfterStep(id, p, effects))
			h.note(h.checker.AfterSave(id, effects.Save))
			h.note(h.checker.Applied(id, effects.Commit[0]))
			h.note(h.checker.Restarted(id, raft.PersistentState{CurrentTerm: term(), Entries: p.log[1:]}))
		}
		if h.err != nil {
			reported++
			require.True(t, errors.As(h.err, new(*Violation)))
		}
	}
	assert.Greater(t, reported, 99_000)
}
