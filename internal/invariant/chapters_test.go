package invariant

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"raftkv/raft"
)

// join adds a server that waits to be added to the cluster.
func (h *history) join(id raft.ServerID) {
	h.checker.Joined(id)
	h.puppets[id] = newPuppet(id)
}

// change appends configurations to a server's log, in its present term.
func (h *history) change(id raft.ServerID, configurations ...raft.Configuration) {
	h.do(id, func(p *puppet) {
		log := p.log[:len(p.log):len(p.log)]
		for _, c := range configurations {
			log = append(log, raft.LogEntry{Term: p.status.Term, Kind: raft.EntryConfiguration, Command: c.AppendTo(nil)})
		}
		p.log = log
		p.status.LastIndex, p.status.LastTerm = raft.Index(len(log)-1), p.status.Term
		if p.status.State == raft.Leader {
			p.next = p.status.LastIndex + 1
		}
	})
}

func learner(id raft.ServerID, voters ...raft.ServerID) raft.Configuration {
	c := raft.NewConfiguration(voters...)
	c.Learners = []raft.ServerID{id}
	return c
}

func joint(old, voters []raft.ServerID) raft.Configuration {
	return raft.Configuration{Voters: voters, OldVoters: old}
}

// committed is replicated, with both entries committed by server 1 and applied.
func committed() *history {
	h := replicated()
	h.commit(1, 2)
	h.apply(1, 1, 2)
	h.note(h.checker.Applied(1, h.entry(1, 1)))
	h.note(h.checker.Applied(1, h.entry(1, 2)))
	return h
}

// snapshot is what server 1 has of the first entries after committed.
func snapshot(index raft.Index) raft.Snapshot {
	return raft.Snapshot{Index: index, Term: 1, Configuration: raft.NewConfiguration(1, 2, 3), Size: 10, Checksum: 7}
}

func (h *history) store(id raft.ServerID, s raft.Snapshot) { h.note(h.checker.SnapshotStored(id, s)) }

// compacted says that a server's log begins behind index i, where its snapshot ends.
func compacted(i raft.Index) func(*puppet) {
	return func(p *puppet) {
		p.status.FirstIndex, p.status.SnapshotIndex, p.status.LastApplied = i+1, i, i
	}
}

// installs is a server's step with which a snapshot replaces its log.
func (h *history) installs(id raft.ServerID, s raft.Snapshot) {
	h.step(id, raft.Effects{Save: raft.Save{
		CurrentTerm: h.puppets[id].status.Term, VotedFor: h.puppets[id].status.VotedFor, Reset: raft.LogPosition{Index: s.Index, Term: s.Term},
	}}, func(p *puppet) {
		p.log = make([]raft.LogEntry, s.Index+1)
		p.log[s.Index].Term = s.Term
		p.status.FirstIndex, p.status.SnapshotIndex, p.status.CommitIndex = s.Index+1, s.Index, s.Index
		p.status.LastIndex, p.status.LastTerm = s.Index, s.Term
	})
	h.save(id)
}

// asked is committed, with a read asked at server 1 in its round 5 and answered by
// the others in the given round.
func asked(round raft.Round, answer raft.Answer) *history {
	h := committed()
	h.do(1, func(p *puppet) { p.status.Round = 5 })
	h.checker.BeforeRead(1, []raft.RequestID{9})
	h.do(1, func(p *puppet) { p.status.Round = 6 })
	h.says(2, raft.AppendEntriesReply{Term: 1, AskedTerm: 1, Success: true, MatchIndex: 2, Round: round})
	h.step(1, raft.Effects{Answers: []raft.Answer{answer}}, func(*puppet) {})
	return h
}

// leased is committed, with server 1 under a lease from round 5, which server 2
// has answered in the given round.
func leased(round raft.Round) *history {
	h := committed()
	h.says(2, raft.AppendEntriesReply{Term: 1, AskedTerm: 1, Success: true, MatchIndex: 2, Round: round})
	h.do(1, func(p *puppet) { p.status.Round, p.status.LeaseRound, p.status.LeaseIndex = 6, 5, 2 })
	return h
}

// TestLaterChapters is TestInvariants for snapshots, members, reads and transfers.
func TestLaterChapters(t *testing.T) {
	ids := func(ids ...raft.ServerID) []raft.ServerID { return ids }
	timeoutNow := func(h *history, to raft.ServerID) *history {
		h.step(1, raft.Effects{Send: []raft.Message{{From: 1, To: to, Body: raft.TimeoutNowArgs{Term: 1, LeaderID: 1}}}}, func(*puppet) {})
		return h
	}
	for _, c := range []contrast{
		{"a log begins where no snapshot stands for what was before", Durability,
			func() *history { h := committed(); h.do(1, compacted(1)); return h },
			func() *history { h := committed(); h.store(1, snapshot(1)); h.do(1, compacted(1)); return h }},
		{"a log begins behind its snapshot", Snapshots,
			func() *history {
				h := committed()
				h.store(1, snapshot(1))
				h.do(1, func(p *puppet) { compacted(2)(p); p.status.SnapshotIndex = 1 })
				return h
			},
			func() *history { h := committed(); h.store(1, snapshot(2)); h.do(1, compacted(2)); return h }},
		{"a snapshot has another configuration than the log", Snapshots,
			func() *history {
				h := committed()
				s := snapshot(2)
				s.Configuration = raft.NewConfiguration(1, 2)
				h.store(1, s)
				return h
			},
			func() *history { h := committed(); h.store(1, snapshot(2)); return h }},
		{"two snapshots up to one index differ", Snapshots,
			func() *history {
				h := committed()
				h.store(1, snapshot(2))
				s := snapshot(2)
				s.Checksum++
				h.store(2, s)
				return h
			},
			func() *history { h := committed(); h.store(1, snapshot(2)); h.store(2, snapshot(2)); return h }},
		{"a snapshot of what is not committed", Snapshots,
			func() *history { h := replicated(); h.store(1, snapshot(2)); return h },
			func() *history { h := committed(); h.store(1, snapshot(1)); return h }},
		{"a snapshot wipes a log that agrees with it (SN-03)", Snapshots,
			func() *history { h := committed(); h.store(2, snapshot(1)); h.installs(2, snapshot(1)); return h },
			func() *history { // the log ends before it
				h := committed()
				h.note(h.checker.AfterSave(3, raft.Save{}))
				h.restart(3, raft.PersistentState{CurrentTerm: 1, VotedFor: 1, Entries: h.puppets[1].log[1:3]})
				return h
			}},
		{"an older snapshot follows what is newer (SN-02)", Snapshots,
			func() *history {
				h := committed()
				h.store(1, snapshot(1))
				h.step(1, raft.Effects{Commit: []raft.CommitEntry{{Index: 1, Term: 1, Kind: raft.EntrySnapshot}}}, func(*puppet) {})
				return h
			},
			func() *history {
				h := committed()
				h.store(2, snapshot(2))
				h.step(2, raft.Effects{Commit: []raft.CommitEntry{{Index: 2, Term: 1, Kind: raft.EntrySnapshot}}},
					func(p *puppet) { p.status.CommitIndex = 2 })
				return h
			}},
		{"a server offers a snapshot that it does not have", Truth,
			func() *history {
				h := committed()
				h.step(1, raft.Effects{Send: sendAfter(1, raft.InstallSnapshotArgs{Term: 1, LeaderID: 1, Snapshot: snapshot(2)}).SendAfter}, func(*puppet) {})
				return h
			},
			func() *history {
				h := committed()
				h.store(1, snapshot(2))
				h.step(1, raft.Effects{Send: sendAfter(1, raft.InstallSnapshotArgs{Term: 1, LeaderID: 1, Snapshot: snapshot(2)}).SendAfter}, func(*puppet) {})
				return h
			}},
		{"a restart without the snapshot that stands for the log", Snapshots,
			func() *history {
				h := committed()
				h.store(1, snapshot(2))
				h.restart(1, raft.PersistentState{CurrentTerm: 1, VotedFor: 1, Start: raft.LogPosition{Index: 2, Term: 1}})
				return h
			},
			func() *history {
				h := committed()
				h.store(1, snapshot(2))
				h.note(h.checker.Restarted(1, raft.PersistentState{CurrentTerm: 1, VotedFor: 1, Start: raft.LogPosition{Index: 2, Term: 1}, Snapshot: snapshot(2)}))
				return h
			}},

		{"a change before anything of the term is committed (MB-01)", Membership,
			func() *history { h := replicated(); h.change(1, learner(4, 1, 2, 3)); return h },
			func() *history { h := committed(); h.join(4); h.change(1, learner(4, 1, 2, 3)); return h }},
		{"two changes at once (MB-03)", Membership,
			func() *history {
				h := committed()
				h.change(1, learner(4, 1, 2, 3))
				h.change(1, learner(5, 1, 2, 3))
				return h
			},
			func() *history {
				h := committed()
				h.change(1, learner(4, 1, 2, 3))
				h.change(2, learner(4, 1, 2, 3))
				h.commit(1, 3)
				h.change(1, learner(5, 1, 2, 3))
				return h
			}},
		{"voters change and not by way of both", Membership,
			func() *history { h := committed(); h.change(1, raft.NewConfiguration(1, 2)); return h },
			func() *history { h := committed(); h.change(1, joint(ids(1, 2, 3), ids(1, 2))); return h }},
		{"a joint commit without a majority of the old voters", Durability,
			func() *history {
				h := committed()
				h.join(4)
				c := joint(ids(1, 2, 3), ids(1, 4))
				h.change(1, c)
				h.do(4, vote(1, raft.None))
				h.logs(of(1, 1), 4)
				h.change(4, c)
				h.commit(1, 3)
				return h
			},
			func() *history {
				h := committed()
				c := joint(ids(1, 2, 3), ids(1, 2))
				h.change(1, c)
				h.change(2, c)
				h.commit(1, 3)
				return h
			}},
		{"a learner counts (MB-08)", Durability,
			func() *history {
				h := committed()
				h.change(1, learner(4, 1, 2, 3))
				h.join(4)
				h.do(4, vote(1, raft.None))
				h.logs(of(1, 1), 4)
				h.change(4, learner(4, 1, 2, 3))
				h.commit(1, 3)
				return h
			},
			func() *history {
				h := committed()
				h.change(1, learner(4, 1, 2, 3))
				h.change(3, learner(4, 1, 2, 3))
				h.commit(1, 3)
				return h
			}},
		{"a learner stands for election (MB-05)", Membership,
			func() *history {
				h := newHistory(3)
				h.join(4)
				h.do(4, func(p *puppet) { vote(1, 4)(p); p.status.State = raft.Candidate })
				return h
			},
			func() *history { // it was a voter until a change that it does not know to be committed (MB-04)
				h := committed()
				h.do(3, func(p *puppet) { p.status.CommitIndex = 2 })
				h.change(3, raft.Configuration{Voters: ids(1, 2)})
				h.do(3, func(p *puppet) { vote(2, 3)(p); p.status.State = raft.Candidate })
				return h
			}},

		{"a read is answered before a majority has answered a later round (RD-02)", Reads,
			func() *history { return asked(5, raft.Answer{Request: 9, Index: 2}) },
			func() *history { return asked(6, raft.Answer{Request: 9, Index: 2}) }},
		{"a read misses what was committed", Reads,
			func() *history { return asked(6, raft.Answer{Request: 9, Index: 1}) },
			func() *history { return asked(5, raft.Answer{Request: 9, Err: &raft.NotLeaderError{}}) }},
		{"a read before anything of the term is committed (RD-01)", Reads,
			func() *history {
				h := committed()
				h.commit(2, 2)
				h.elect(2, 2, 3)
				h.checker.BeforeRead(2, []raft.RequestID{1})
				h.says(3, raft.AppendEntriesReply{Term: 2, AskedTerm: 2, Round: 1})
				h.step(2, raft.Effects{Answers: []raft.Answer{{Request: 1, Index: 2}}}, func(*puppet) {})
				return h
			},
			func() *history { return asked(7, raft.Answer{Request: 9, Index: 2}) }},
		{"a lease from a round that nobody has answered", Leases,
			func() *history { h := leased(4); h.note(h.checker.LeaseRead(1)); return h },
			func() *history { h := leased(5); h.note(h.checker.LeaseRead(1)); return h }},
		{"a lease while another leads (RD-05)", Leases,
			func() *history { h := leased(5); h.elect(2, 2, 3); h.note(h.checker.LeaseRead(1)); return h },
			func() *history { h := leased(5); h.do(2, vote(2, 2)); h.note(h.checker.LeaseRead(1)); return h }},
		{"TimeoutNow leaves under a lease (TR-04)", Leases,
			func() *history { return timeoutNow(leased(5), 2) },
			func() *history { return timeoutNow(committed(), 2) }},
		{"TimeoutNow for one who lacks an entry (TR-03)", Transfers,
			func() *history { h := committed(); h.logs(of(1, 1, 1), 1); return timeoutNow(h, 2) },
			func() *history { h := committed(); h.logs(of(1, 1, 1), 1, 2); return timeoutNow(h, 2) }},
		{"TimeoutNow for one without a vote (TR-06)", Transfers,
			func() *history { return timeoutNow(committed(), 4) },
			func() *history { return timeoutNow(committed(), 3) }},
		{"an election that no leader has asked for passes for one", Transfers,
			func() *history {
				h := committed()
				h.do(2, vote(2, 2))
				h.says(2, raft.RequestVoteArgs{Term: 2, CandidateID: 2, Transfer: true})
				return h
			},
			func() *history {
				h := timeoutNow(committed(), 2)
				h.do(2, vote(2, 2))
				h.says(2, raft.RequestVoteArgs{Term: 2, CandidateID: 2, Transfer: true})
				return h
			}},
	} {
		c.check(t)
	}
}

// A snapshot that replaces a log is fine where the log ended before it.
func TestSnapshotInstalled(t *testing.T) {
	h := newHistory(3)
	h.elect(1, 1, 2, 3)
	h.logs(of(1, 1), 1, 2)
	h.commit(1, 2)
	h.apply(1, 1, 2)
	h.store(3, snapshot(2))
	h.installs(3, snapshot(2))
	assert.NoError(t, h.err)
	h.logs(of(1, 1, 1), 1)
	h.says(3, raft.InstallSnapshotReply{Term: 1, AskedTerm: 1, SnapshotIndex: 2, MatchIndex: 2})
	assert.NoError(t, h.err)
	h.says(3, raft.InstallSnapshotReply{Term: 1, AskedTerm: 1, SnapshotIndex: 2, MatchIndex: 3})
	assert.Error(t, h.err, "it does not have index 3")
}
