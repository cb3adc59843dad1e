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
	"election/1":    electionRules,
	"replication/2": replicationRules,
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
		c.CheckSingleLeader()
		run.Quiet(c)
		c.Submit("x=1").WaitCommitted()
		run.Quiet(c)
		c.Submit("x=2").WaitCommitted()
		c.WaitAllApplied("x=1", "x=2")
	}
}

// electionRules is part 1 in short: what must not get lost on the way.
func electionRules(t *run.T) {
	s := start(t, 3, raft.PersistentState{})
	s.vote(2, raft.RequestVoteArgs{Term: 1}, true)
	s.vote(3, raft.RequestVoteArgs{Term: 1}, false) // the vote is given
	s.vote(2, raft.RequestVoteArgs{Term: 1}, true)  // asked again, it is the same vote
	s.do(appendArgs(5, 0, 0, nil))
	waits := s.vote(3, raft.RequestVoteArgs{Term: 4}, false) // its vote is free, and this is not the term to give it in
	t.Want(waits.Timers[raft.ElectionTimer] != raft.RestartTimer, "Election timer: a refused vote does not restart it (FOL-2)", "server 1 has refused server 3 its vote, and waits for it all the same")
	told := slices.ContainsFunc(slices.Concat(waits.Send, waits.SendAfter), func(m raft.Message) bool { return m.To == 3 && m.Term() == 5 })
	t.Want(told, "Old candidates are told the newer term (RV-1)", "server 1 is in term 5, server 3 asks it for its vote in term 4, and the answer with its term does not come")

	s = start(t, 3, raft.PersistentState{})
	waits = s.step(raft.ElectionTimeout{}) // it votes for itself
	t.Want(waits.Timers[raft.ElectionTimer] == raft.RestartTimer, "Election timer: a candidate restarts it (CAN-4)", "server 1 has become a candidate without a timer: if the votes are split, nothing will ever happen")
	s.write(waits)
	s.vote(2, raft.RequestVoteArgs{Term: s.term()}, false)
	s.do(appendArgs(s.term(), 0, 0, nil))
	now := s.cm.Status()
	t.Want(now.State == raft.Follower && now.LeaderID == 2, "Roles: a candidate follows the leader of its term (CAN-3)",
		"server 1 is a candidate in term %d, and server 2 leads it; server 1 has its heartbeat and is a %s that takes server %d for the leader", now.Term, now.State, now.LeaderID)
	s.vote(3, raft.RequestVoteArgs{Term: s.term()}, false) // it has lost the election, not the memory

	s = start(t, 3, raft.PersistentState{})
	s.elect()
	led := s.term()
	deposed := s.step(message(3, raft.AppendEntriesReply{Term: led + 9}))
	now = s.cm.Status()
	t.Want(now.State == raft.Follower && now.Term == led+9, "Newer terms win: whoever hears of one becomes a follower in it (ALL-2)", "server 1 leads term %d and hears of term %d; now it is a %s in term %d", led, led+9, now.State, now.Term)
	t.Want(deposed.Timers[raft.ElectionTimer] == raft.RestartTimer, "Timers: a deposed leader waits like a follower", "server 1 led and hears of a newer term, and its election timer does not start")

	s = start(t, 5, raft.PersistentState{})
	s.do(raft.ElectionTimeout{})
	first := s.term()
	s.do(raft.ElectionTimeout{})
	for _, from := range []raft.ServerID{2, 3} { // on their way since the first election
		s.do(message(from, raft.RequestVoteReply{Term: s.term(), VoteGranted: true, AskedTerm: first}))
	}
	t.Want(s.cm.Status().State != raft.Leader, "Election safety: votes count for their own election", "server 1 is a candidate in term %d; the votes of servers 2 and 3 were given in term %d, and it leads", s.term(), first)

	s = start(t, 4, raft.PersistentState{})
	s.do(raft.ElectionTimeout{})
	s.do(granted(2, s.term()))
	t.Want(s.cm.Status().State != raft.Leader, "Election safety: half is no majority", "two of four servers have voted for server 1, and it leads")
}

// replicationRules is part 2 in short.
func replicationRules(t *run.T) {
	s := start(t, 3, raft.PersistentState{})
	s.do(appendArgs(1, 0, 0, entries(1, 1, 1)))
	s.do(appendArgs(1, 0, 0, entries(1))) // sent earlier, arrived later
	t.Want(len(s.log()) == 3, "Committed stays committed: an old message cuts nothing off (AE-3)", "server 1 has three entries of term 1 and receives an older message with 1 of them; now it has %d", len(s.log()))
	s.do(appendArgs(4, 4, 1, entries(4)))
	s.do(appendArgs(4, 2, 2, entries(4)))
	t.Want(slices.Equal(s.log(), []raft.Term{1, 1, 1}), "Log matching: no gaps, and what stands before must have the same term (AE-2)", "server 1 has entries of terms 1 1 1 and is sent one for after an entry 4, and one for after an entry 2 of term 2; now it has %v", s.log())
	s.do(appendArgs(3, 3, 1, entries(3))) // term 4 has begun with the messages before
	t.Want(len(s.log()) == 3, "Old leaders are refused (AE-1)", "server 1 is in term 4 and is sent an entry by a leader of term 3; now it has %v", s.log())
	s.do(appendArgs(4, 1, 1, entries(3, 4)))
	t.Want(slices.Equal(s.log(), []raft.Term{1, 3, 4}), "Log matching: an entry that conflicts goes, with all behind it (AE-3, AE-4)", "server 1 has entries of terms 1 1 1 and is sent 3 4 for after index 1; now it has %v", s.log())

	s = start(t, 3, raft.PersistentState{})
	s.do(appendArgs(1, 0, 0, entries(1, 1, 1)))
	for _, m := range []struct {
		prev, says, want raft.Index
		entries          []raft.LogEntry
		why              string
	}{
		{1, 3, 1, nil, "the message says commit 3 and that the logs are equal up to 1"},
		{1, 3, 3, entries(2, 2), "the message says commit 3, and it reaches up to index 3"},
		{1, 2, 3, nil, "an older message says commit 2, after 3"},
	} {
		s.do(message(2, raft.AppendEntriesArgs{Term: 2, LeaderID: 2, PrevLogIndex: m.prev, PrevLogTerm: 1, Entries: m.entries, LeaderCommit: m.says}))
		t.Want(s.cm.Status().CommitIndex == m.want, "Commit rule: a follower commits up to the last entry of the message, and never goes back (AE-5)", "%s; commitIndex is %d", m.why, s.cm.Status().CommitIndex)
	}

	s = start(t, 5, raft.PersistentState{})
	s.do(appendArgs(2, 0, 0, entries(1, 2)))
	s.vote(3, raft.RequestVoteArgs{Term: 7, LastLogIndex: 9, LastLogTerm: 1}, false)
	s.vote(3, raft.RequestVoteArgs{Term: 7, LastLogIndex: 1, LastLogTerm: 2}, false)
	s.vote(3, raft.RequestVoteArgs{Term: 7, LastLogIndex: 1, LastLogTerm: 3}, true)
	s.elect()
	s.ack(2, 2)
	s.ack(3, 2)
	t.Want(s.cm.Status().CommitIndex == 0, "Commit rule: copies of an older term's entry commit nothing (§5.4.2, Figure 8)", "server 1 leads term %d; three of five servers have entry 2 of term 2, and commitIndex is %d", s.term(), s.cm.Status().CommitIndex)
	last := s.cm.Status().LastIndex
	s.ack(2, last)
	s.ack(3, last)
	t.Want(s.cm.Status().CommitIndex >= 2, "Liveness: a leader begins with an entry of its own, which commits those before it (§8)", "server 1 has two older entries and leads term %d; no client asks for anything, three of five servers have all of its %d entries, and commitIndex is %d", s.term(), last, s.cm.Status().CommitIndex)
	s.ack(2, last-1) // this one is late
	if next, match, ok := s.cm.Progress(2); ok {
		t.Want(match == last && next > last, "matchIndex never goes back", "server 2 has confirmed index %d and, in an older reply, index %d; the leader now has matchIndex %d, nextIndex %d", last, last-1, match, next)
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
	run.Quiet(c)
	c.Submit("x=1").WaitCommitted()
	c.Crash(old)
	c.WaitForLeader()
	run.Quiet(c)
	c.Submit("x=2").WaitCommitted()
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
