// Package part3 is the checks of part 3: what must survive a crash.
//
// Stories run whole clusters; rafttest looks after the rules that no schedule
// may break. Where a schedule would seldom come to the point, one server is given
// the messages that do.
package part3

import (
	"fmt"
	"slices"
	"time"

	"raftkv/internal/labs/run"
	raft "raftkv/part3-persistence"
	"raftkv/rafttest"
)

// Funcs are the checks by their ids in labs/part3/checks.txt.
var Funcs = map[string]run.Func{
	"replication/1": noCrash,
	"save/1":        changesAreSaved,
	"save/2":        promisesWait,
	"save/3":        ownCopyWaits,
	"storage/1":     mapStorage,
	"restart/1":     restored,
	"crash/1":       leaderCrashes,
	"crash/2":       oneVoteAcrossCrashes,
	"conflict/1":    conflictSearch,
	"chaos/1":       chaos,
}

func noCrash(t *run.T) {
	for _, n := range []int{1, 3, 5} {
		c := cluster(t, n)
		c.Submit("x=1").WaitCommitted()
		c.Submit("x=2").WaitCommitted()
		c.WaitAllApplied("x=1", "x=2")
	}
}

func changesAreSaved(t *run.T) {
	s := start(t, 3, raft.PersistentState{})
	s.do(message(2, raft.RequestVoteArgs{Term: 3, CandidateID: 2}))
	s.durable("a vote")
	s.do(message(3, raft.RequestVoteReply{Term: 4, AskedTerm: 1}))
	s.durable("a message of a newer term")
	s.do(message(3, raft.RequestVoteReply{Term: 5, AskedTerm: 1}))
	s.durable("a message of a newer term, having voted for nobody")
	s.do(message(3, raft.RequestVoteArgs{Term: 5, CandidateID: 3}))
	s.durable("a vote in a term that it was in already")
	s.do(message(2, raft.AppendEntriesArgs{Term: 6, LeaderID: 2, Entries: entries(6, 6, 6)}))
	s.durable("three entries")
	s.do(appendArgs(7, 1, 6, entries(7)))
	s.durable("an entry in the place of two others")
	s.do(appendArgs(7, 2, 7, entries(7)))
	s.durable("an entry more in the same term")
	s.do(raft.ElectionTimeout{})
	s.durable("becoming a candidate")
	s.do(granted(2, s.term()))
	s.durable("becoming the leader")
	s.do(raft.Submit{Command: []byte("x=1")})
	s.durable("taking a command")
}

func promisesWait(t *run.T) {
	early := func(what string, out raft.Effects) {
		for _, m := range out.Send {
			t.Failf("Durability: no promise leaves before it is on the disk (§5.1)", "%s: %s stands in Send and not in SendAfter; a crash now takes back what it says", what, rafttest.Describe(m.Body))
		}
	}
	s := start(t, 3, raft.PersistentState{})
	out := s.step(message(2, raft.RequestVoteArgs{Term: 3, CandidateID: 2}))
	early("server 1 votes", out)
	s.write(out)
	out = s.step(appendArgs(3, 0, 0, entries(3, 3)))
	early("server 1 confirms entries", out)
	s.write(out)
	out = s.step(raft.ElectionTimeout{})
	early("server 1 asks for votes in a new term", out)
}

func ownCopyWaits(t *run.T) {
	s := start(t, 1, raft.PersistentState{})
	out := s.step(raft.ElectionTimeout{})
	t.Want(s.cm.Status().State != raft.Leader, "Durability: the own vote counts when it is on the disk", "server 1, alone, leads before its vote is written")
	for out.Save.Needed() {
		out = s.write(out)
	}
	t.Want(s.cm.Status().State == raft.Leader, "A cluster of one elects itself", "its vote is on the disk, and server 1 is a %s", s.cm.Status().State)
	out = s.step(raft.Submit{Command: []byte("x=1")})
	last := s.cm.Status().LastIndex
	t.Want(s.cm.Status().CommitIndex < last, "Durability: the own copy counts when it is on the disk (LEAD-4)", "entry %d is not written yet, and server 1, alone, takes it for committed", last)
	for out.Save.Needed() {
		out = s.write(out)
	}
	t.Want(s.cm.Status().CommitIndex == last, "Liveness: the own copy counts when it is on the disk (LEAD-4)", "entry %d is written, and commitIndex is %d", last, s.cm.Status().CommitIndex)

	s = start(t, 3, raft.PersistentState{CurrentTerm: 4})
	out = s.step(raft.ElectionTimeout{})
	s.write(out)
	s.do(granted(2, s.term()))
	t.Want(s.cm.Status().State == raft.Leader, "A majority of durable votes makes a leader", "its vote is written, server 2 has voted for it, and it is a %s", s.cm.Status().State)
	out = s.step(raft.Submit{Command: []byte("x=1")})
	last = s.cm.Status().LastIndex
	confirmed := raft.AppendEntriesReply{Term: s.term(), Success: true, AskedTerm: s.term(), MatchIndex: last}
	s.step(message(2, confirmed))
	t.Want(s.cm.Status().CommitIndex < last, "Durability: the own copy counts when it is on the disk (LEAD-4)", "server 2 has written entry %d, server 1, the leader, has not yet, and takes it for committed", last)

	s = start(t, 3, raft.PersistentState{CurrentTerm: 4})
	s.do(raft.ElectionTimeout{})
	s.do(granted(2, s.term()))
	s.do(raft.Submit{Command: []byte("x=1")})
	last = s.cm.Status().LastIndex
	s.do(message(3, raft.AppendEntriesReply{Term: s.term(), Success: true, AskedTerm: s.term() - 1, MatchIndex: last}))
	t.Want(s.cm.Status().CommitIndex < last, "Commit rule: replies to an earlier leadership do not count", "server 3 has confirmed entry %d of another term's leader; it may have lost it since, and it is committed", last)
}

func mapStorage(t *run.T) {
	m := raft.NewMapStorage()
	load := func() (p raft.PersistentState) {
		t.Do(1, "its storage is loaded", nil, func() { p, _ = m.Load() })
		return p
	}
	save := func(save raft.Save) {
		t.Do(1, "its storage saves", nil, func() { _ = m.Save(save) })
	}
	save(raft.Save{CurrentTerm: 1, VotedFor: 2, FirstIndex: 1, Entries: entries(1, 1, 1)})
	save(raft.Save{CurrentTerm: 2})
	p := load()
	t.Want(p.CurrentTerm == 2 && p.VotedFor == raft.None && len(p.Entries) == 3, "Storage: FirstIndex 0 means that the log has not changed",
		"three entries are saved, then only term 2 without a vote; loaded are term %d, vote for %d, %d entries", p.CurrentTerm, p.VotedFor, len(p.Entries))
	save(raft.Save{CurrentTerm: 3, VotedFor: 3, FirstIndex: 2, Entries: entries(3)})
	p = load()
	t.Want(p.CurrentTerm == 3 && p.VotedFor == 3 && slices.Equal(termsOf(p.Entries), []raft.Term{1, 3}), "Storage: entries replace everything from FirstIndex on",
		"entries of terms 1 1 1 are saved, then one of term 3 at index 2; loaded are %v", termsOf(p.Entries))
	save(raft.Save{CurrentTerm: 3, VotedFor: 3, FirstIndex: 3, Entries: entries(3, 3)})
	p = load()
	t.Want(slices.Equal(termsOf(p.Entries), []raft.Term{1, 3, 3, 3}), "Storage: entries are appended", "entries of terms 1 3 are saved, then two of term 3 from index 3 on; loaded are %v", termsOf(p.Entries))
}

func restored(t *run.T) {
	s := start(t, 3, raft.PersistentState{CurrentTerm: 7, VotedFor: 2, Entries: entries(1, 4, 7)})
	now := s.cm.Status()
	t.Want(now.Term == 7 && now.VotedFor == 2, "Restart: term and vote come back", "the disk says term 7 and a vote for server 2; the server starts in term %d with a vote for server %d", now.Term, now.VotedFor)
	t.Want(slices.Equal(s.log(), []raft.Term{1, 4, 7}), "Restart: the log comes back", "the disk has entries of terms 1 4 7; the server starts with %v", s.log())
	t.Want(now.State == raft.Follower && now.CommitIndex == 0, "Restart: nothing else is known", "the server starts as a %s with commitIndex %d; what is committed it learns from a leader", now.State, now.CommitIndex)

	for _, m := range s.do(message(3, raft.RequestVoteArgs{Term: 7, CandidateID: 3, LastLogIndex: 9, LastLogTerm: 7})) {
		reply, ok := m.Body.(raft.RequestVoteReply)
		t.Want(!ok || !reply.VoteGranted, "One vote a term, crashes or not", "the server has voted for server 2 in term 7 and crashed; now it votes for server 3")
	}
	s.do(appendArgs(8, 3, 7, entries(8)))
	s.durable("a restart and an entry more")
}

func leaderCrashes(t *run.T) {
	c := cluster(t, 3)
	old := c.WaitForLeader()
	c.Submit("x=1").WaitCommitted()
	c.Crash(old)
	c.WaitForLeader().Submit("x=2").WaitCommitted()
	c.Restart(old)
	c.WaitApplied(old, "x=1", "x=2")

	for _, s := range c.Servers() { // the power goes out
		c.Crash(s)
	}
	for _, s := range c.Servers() {
		c.Restart(s)
	}
	c.Submit("x=3").WaitCommitted()
	c.WaitAllApplied("x=1", "x=2", "x=3")

	last := c.WaitForLeader()
	c.CrashInSave(last)
	last.Submit("x=4")
	c.Restart(last)
	c.Commit("x=5")
	all := c.WaitAllEqual()
	t.Want(slices.Contains(all, "x=3") && slices.Contains(all, "x=5"), "Committed stays committed", "x=3 and x=5 were committed, and the servers have applied %v", all)
}

func oneVoteAcrossCrashes(t *run.T) {
	c := cluster(t, 3)
	for range 8 {
		for _, s := range c.Servers() {
			c.CrashAfterVote(s)
		}
		if l := c.Leader(); l != nil {
			c.Isolate(l)
		}
		c.RunFor(400 * time.Millisecond)
		c.Heal()
	}
	c.RunFor(time.Second)
	c.CheckSingleLeader()
}

// conflictSearch lets a leader and a follower with other entries talk until their
// logs are equal. How fast is not asked: one entry after the other is right, too.
func conflictSearch(t *run.T) {
	for _, logs := range []struct{ leader, follower []raft.LogEntry }{
		{entries(1, 1, 1, 5, 5, 6), entries(1, 1, 1)},
		{entries(1, 1, 4, 4, 5, 5), entries(1, 1, 2, 3, 3)},
		{entries(1, 4, 4, 4), entries(1, 1, 1, 1, 2, 2, 2)},
		{entries(1, 1, 1, 4), nil},
		{entries(2), entries(1, 1, 1)},
	} {
		const term = 9
		follower := start(t, 3, raft.PersistentState{CurrentTerm: term, VotedFor: 2, Entries: logs.follower})
		leader := start(t, 3, raft.PersistentState{CurrentTerm: term, Entries: logs.leader})
		leader.do(raft.ElectionTimeout{})
		waiting := leader.do(granted(3, leader.term()))
		rounds := 0
		for len(waiting) > 0 {
			rounds++
			t.Want(rounds < 50, "Liveness: every refusal brings the leader nearer", "the leader has entries of terms %v, the follower %v; after 50 messages the follower has %v",
				leader.log(), termsOf(logs.follower), follower.log())
			var answers []raft.Message
			for _, m := range waiting {
				if args, ok := m.Body.(raft.AppendEntriesArgs); ok && m.To == 2 {
					answers = append(answers, follower.do(message(2, args))...)
				}
			}
			waiting = nil
			for _, m := range answers {
				if reply, ok := m.Body.(raft.AppendEntriesReply); ok {
					waiting = append(waiting, leader.do(message(2, reply))...)
				}
			}
		}
		t.Want(slices.Equal(leader.log(), follower.log()), "Log matching: the follower's log becomes the leader's", "the leader has entries of terms %v, the follower had %v, and when nothing more is said it has %v",
			leader.log(), termsOf(logs.follower), follower.log())
		follower.durable("having been brought in line")
	}
}

func chaos(t *run.T) {
	c := cluster(t, 5)
	c.StartChaos(4 * time.Second)
	var commands []string
	for i := range 15 {
		commands = append(commands, fmt.Sprint("x=", i))
		c.Commit(commands[i])
		c.RunFor(200 * time.Millisecond)
	}
	c.RunFor(4 * time.Second)
	all := c.WaitAllEqual()
	for _, command := range commands {
		t.Want(slices.Contains(all, command), "Committed stays committed", "%s was committed, and the servers have applied %v", command, all)
	}
}
