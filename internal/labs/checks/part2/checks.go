// Package part2 is the checks of part 2: commands and their replication.
//
// Stories run whole clusters; rafttest looks after the rules that no schedule
// may break. Where a schedule would seldom come to the point, one server is given
// the messages that do.
package part2

import (
	"fmt"
	"slices"
	"time"

	"raftkv/internal/labs/run"
	raft "raftkv/part2-commands"
	"raftkv/rafttest"
)

// Funcs are the checks by their ids in labs/part2/checks.txt.
var Funcs = map[string]run.Func{
	"election/1":    leaderStays,
	"election/2":    electionRules,
	"replication/1": oneCommand,
	"replication/2": catchesUp,
	"replication/3": conflictingTail,
	"replication/4": staleMessages,
	"replication/5": gapsRefused,
	"replication/6": handedOut,
	"votes/1":       upToDate,
	"commit/1":      majority,
	"commit/2":      figure8,
	"commit/3":      followersCommit,
	"commit/4":      inherited,
	"chaos/1":       chaos,
}

func leaderStays(t *run.T) {
	for _, n := range []int{1, 3, 5} {
		c := cluster(t, n)
		first := c.CheckSingleLeader()
		c.RunFor(time.Second)
		term := first.Status().Term
		c.RunFor(3 * time.Second)
		t.Want(first.Status().State == "leader" && first.Status().Term == term,
			"Liveness: a leader that everybody hears stays the leader",
			"%v led term %d; three quiet seconds later it is a %s in term %d", first, term, first.Status().State, first.Status().Term)
	}
}

// electionRules is part 1 in short: what must not get lost on the way.
func electionRules(t *run.T) {
	s := start(t, 3)
	s.vote(2, 1, true)
	s.vote(3, 1, false) // the vote is given
	s.vote(2, 1, true)  // asked again, it is the same vote
	s.append(2, 5, 0, 0, 0, nil)
	s.vote(3, 4, false) // its vote is free, and this is not the term to give it in
	waits := s.step(raft.Message{From: 2, To: 1, Body: raft.RequestVoteArgs{Term: 4, CandidateID: 2}})
	t.Want(waits.Timers[raft.ElectionTimer] != raft.RestartTimer, "Election timer: a refused vote does not restart it (FOL-2)", "server 1 has refused server 2 its vote, and waits for it all the same")
	told := slices.ContainsFunc(waits.Send, func(m raft.Message) bool { return m.To == 2 && m.Term() == 5 })
	t.Want(told, "Old candidates are told the newer term (RV-1)", "server 1 is in term 5, server 2 asks it for its vote in term 4, and the answer with its term does not come")

	s = start(t, 3)
	waits = s.step(raft.ElectionTimeout{}) // it votes for itself
	t.Want(waits.Timers[raft.ElectionTimer] == raft.RestartTimer, "Election timer: a candidate restarts it (CAN-4)", "server 1 has become a candidate without a timer: if the votes are split, nothing will ever happen")
	s.vote(2, s.term(), false)
	s.append(2, s.term(), 0, 0, 0, nil)
	now := s.cm.Status()
	t.Want(now.State == raft.Follower && now.LeaderID == 2, "Roles: a candidate follows the leader of its term (CAN-3)",
		"server 1 is a candidate in term %d, and server 2 leads it; server 1 has its heartbeat and is a %s that takes server %d for the leader", now.Term, now.State, now.LeaderID)
	s.vote(3, s.term(), false) // it has lost the election, not the memory

	s = start(t, 3)
	s.elect(1)
	led := s.term()
	deposed := s.step(raft.Message{From: 3, To: 1, Body: raft.AppendEntriesReply{Term: 9}})
	now = s.cm.Status()
	t.Want(now.State == raft.Follower && now.Term == 9, "Newer terms win: whoever hears of one becomes a follower in it (ALL-2)", "server 1 leads term %d and hears of term 9; now it is a %s in term %d", led, now.State, now.Term)
	t.Want(deposed.Timers[raft.ElectionTimer] == raft.RestartTimer, "Timers: a deposed leader waits like a follower", "server 1 led and hears of term 9, and its election timer does not start")

	s = start(t, 5)
	s.step(raft.ElectionTimeout{})
	first := s.term()
	s.step(raft.ElectionTimeout{})
	for _, from := range []raft.ServerID{2, 3} { // on their way since the first election
		s.receive(from, raft.RequestVoteReply{Term: s.term(), VoteGranted: true, AskedTerm: first})
	}
	t.Want(s.cm.Status().State != raft.Leader, "Election safety: votes count for their own election", "server 1 is a candidate in term %d; the votes of servers 2 and 3 were given in term %d, and it leads", s.term(), first)

	s = start(t, 4)
	s.step(raft.ElectionTimeout{})
	s.receive(2, raft.RequestVoteReply{Term: s.term(), VoteGranted: true, AskedTerm: s.term()})
	t.Want(s.cm.Status().State != raft.Leader, "Election safety: half is no majority", "two of four servers have voted for server 1, and it leads")
}

func oneCommand(t *run.T) {
	for _, n := range []int{1, 3, 5} {
		c := cluster(t, n)
		leader := c.CheckSingleLeader()
		for _, s := range c.Servers() {
			if s != leader {
				t.Want(s.Submit("y=1").Refused(), "Only the leader takes commands (LEAD-2)", "%v, a %s, has taken a command", s, s.Status().State)
			}
		}
		run.Quiet(c)
		c.Submit("x=1").WaitCommitted()
		c.WaitAllApplied("x=1")
		c.RunFor(time.Second)
		run.Quiet(c)
		c.Submit("x=2").WaitCommitted()
		c.WaitAllApplied("x=1", "x=2")
	}
}

func catchesUp(t *run.T) {
	c := cluster(t, 3)
	leader := c.CheckSingleLeader()
	run.Quiet(c)
	c.Commit("x=0")
	run.Quiet(c)
	slow := c.Server(leader.ID()%3 + 1)
	c.Isolate(slow)
	for _, command := range []string{"x=1", "x=2", "x=3"} {
		c.Commit(command)
		run.Quiet(c)
	}
	c.RunFor(time.Second) // it has newer terms now, so there will be a new leader, who must ask where it stands
	c.Heal()
	all := c.WaitAllEqual()
	for _, command := range []string{"x=0", "x=1", "x=2", "x=3"} {
		t.Want(slices.Contains(all, command), "Committed stays committed", "%s was committed, and the servers have applied %v", command, all)
	}
}

func conflictingTail(t *run.T) {
	s := start(t, 3)
	s.append(2, 1, 0, 0, 0, entries(1, 1, 1))
	s.append(3, 4, 1, 1, 0, entries(3, 4))
	t.Want(slices.Equal(s.log(), []raft.Term{1, 3, 4}), "Log matching: an entry that conflicts goes, with all behind it (AE-3, AE-4)",
		"server 1 has entries of terms 1 1 1 and is sent 3 4 for after index 1; now it has %v", s.log())

	s.append(3, 4, 1, 1, 0, entries(3, 4, 4, 4))
	t.Want(slices.Equal(s.log(), []raft.Term{1, 3, 4, 4, 4}), "Log matching: entries that are there stay, new ones are appended (AE-3, AE-4)",
		"server 1 has entries of terms 1 3 4 and is sent 3 4 4 4 for after index 1; now it has %v", s.log())

	c := cluster(t, 5)
	old := c.CheckSingleLeader()
	run.Quiet(c)
	c.Isolate(old)
	lost := []*rafttest.Submission{old.Submit("x=1"), old.Submit("x=2"), old.Submit("x=3")}
	c.WaitForLeader()
	for _, command := range []string{"y=1", "y=2"} {
		c.RunFor(time.Second)
		run.Quiet(c)
		c.Commit(command)
	}
	run.Quiet(c)
	c.Heal()
	c.WaitAllApplied("y=1", "y=2")
	for _, sub := range lost {
		t.Want(!sub.Committed(), "Log matching: what only a cut-off leader had is overwritten", "%s is still at index %d", sub.Command, sub.Index)
	}
}

func staleMessages(t *run.T) {
	s := start(t, 3)
	s.append(2, 1, 0, 0, 0, entries(1, 1, 1))
	for _, list := range [][]raft.LogEntry{entries(1), nil} { // sent earlier, arrived later
		reply := s.append(2, 1, 0, 0, 0, list)
		t.Want(len(s.log()) == 3, "Committed stays committed: an old message cuts nothing off (AE-3)",
			"server 1 has three entries of term 1 and receives an older message with %d of them; now it has %d", len(list), len(s.log()))
		t.Want(reply.MatchIndex <= raft.Index(len(list)), "A reply says what is known to match, and no more",
			"server 1 is sent %d entries from index 1 on and replies that it matches up to %d: what it has behind may be a dead leader's", len(list), reply.MatchIndex)
	}

	leader := start(t, 3)
	leader.elect(1)
	for range 2 {
		leader.step(raft.Submit{Command: []byte("x=1")})
	}
	last := raft.Index(len(leader.log()))
	leader.ack(2, last)
	leader.ack(2, last-1) // this one is late
	if next, match, ok := leader.cm.Progress(2); ok {
		t.Want(match == last && next > last, "matchIndex never goes back", "server 2 has confirmed index %d and, in an older reply, index %d; the leader now has matchIndex %d, nextIndex %d", last, last-1, match, next)
	}
}

func gapsRefused(t *run.T) {
	s := start(t, 3)
	s.append(2, 2, 0, 0, 0, entries(1, 2))
	reply := s.append(2, 2, 4, 2, 0, entries(2))
	t.Want(!reply.Success && len(s.log()) == 2, "Log matching: no gaps (AE-2)", "server 1 has two entries and is sent one for after index 4; success is %t, and it has %d", reply.Success, len(s.log()))
	reply = s.append(2, 3, 2, 3, 0, entries(3))
	t.Want(!reply.Success && len(s.log()) <= 2, "Log matching: what stands before must have the same term (AE-2)",
		"server 1 has entries of terms 1 2 and is sent one for after an entry 2 of term 3; success is %t, and it has %d", reply.Success, len(s.log()))
	reply = s.append(2, 3, 1, 1, 0, entries(3))
	t.Want(reply.Success && slices.Equal(s.log(), []raft.Term{1, 3}), "Log matching: where the logs agree, entries are taken",
		"server 1 has entries of terms 1 2 and is sent one of term 3 for after index 1; success is %t, and it has %v", reply.Success, s.log())
	reply = s.append(3, 2, 2, 3, 0, entries(2))
	t.Want(!reply.Success && len(s.log()) == 2, "Old leaders are refused (AE-1)", "server 1 is in term 3 and is sent an entry by a leader of term 2; success is %t", reply.Success)
}

// handedOut deposes a leader whose messages are still under way, and has a newer
// leader put other entries in the place of those that they carry.
func handedOut(t *run.T) {
	s := start(t, 3)
	s.elect(1)
	s.step(raft.Submit{Command: []byte("x=1")})
	var onTheWay []raft.LogEntry
	for _, m := range s.step(raft.Submit{Command: []byte("x=2")}).Send {
		if args, ok := m.Body.(raft.AppendEntriesArgs); ok && len(args.Entries) > len(onTheWay) {
			onTheWay = args.Entries
		}
	}
	before := slices.Clone(onTheWay)
	term := s.term() + 5
	s.append(3, term, 0, 0, 0, entries(term, term, term))
	for i := range before {
		t.Want(before[i].Term == onTheWay[i].Term && string(before[i].Command) == string(onTheWay[i].Command), "What was handed out does not change: a message under way keeps its entries",
			"server 1 led term %d, and a message of it with %d entries is under way; it follows a new leader and overwrites these entries in its log, and in that message the entry of term %d has become one of term %d",
			term-5, len(before), before[i].Term, onTheWay[i].Term)
	}
}

func upToDate(t *run.T) {
	for _, candidate := range []struct {
		index raft.Index
		term  raft.Term
		want  bool
		why   string
	}{
		{3, 1, false, "a longer log of an older last term is not up to date"},
		{9, 1, false, "a longer log of an older last term is not up to date"},
		{1, 2, false, "with equal last terms the shorter log is behind"},
		{2, 2, true, "an equal log is up to date"},
		{3, 2, true, "with equal last terms the longer log is ahead"},
		{1, 3, true, "a newer last term is ahead, however short the log"},
	} {
		s := start(t, 3)
		s.append(2, 2, 0, 0, 0, entries(1, 2))
		sent := s.receive(3, raft.RequestVoteArgs{Term: 7, CandidateID: 3, LastLogIndex: candidate.index, LastLogTerm: candidate.term})
		granted := slices.ContainsFunc(sent, func(m raft.Message) bool {
			reply, ok := m.Body.(raft.RequestVoteReply)
			return ok && reply.VoteGranted
		})
		t.Want(granted == candidate.want, "Leader completeness: only an up-to-date candidate gets a vote (§5.4.1): "+candidate.why,
			"server 1 has two entries, the last of term 2; a candidate whose log ends at index %d, term %d asks: granted is %t", candidate.index, candidate.term, granted)
	}

	s := start(t, 3)
	s.append(2, 2, 0, 0, 0, entries(1, 2))
	for _, m := range s.step(raft.ElectionTimeout{}).Send {
		if args, ok := m.Body.(raft.RequestVoteArgs); ok {
			t.Want(args.LastLogIndex == 2 && args.LastLogTerm == 2, "A candidate tells how its log ends (§5.4.1)",
				"server 1 has two entries, the last of term 2, and says that its log ends at index %d, term %d", args.LastLogIndex, args.LastLogTerm)
		}
	}
}

func majority(t *run.T) {
	s := start(t, 5)
	s.elect(2)
	s.step(raft.Submit{Command: []byte("x=1")})
	last := raft.Index(len(s.log()))
	t.Want(s.commit() < last, "Commit rule: a majority must have the entry (LEAD-4)", "server 1 has appended entry %d, nobody else has it, and it is committed", last)
	s.ack(2, last)
	s.ack(2, last)
	t.Want(s.commit() < last, "Commit rule: a majority must have the entry (LEAD-4)", "two of five servers have entry %d, one of them has said so twice, and it is committed", last)
	s.receive(3, raft.AppendEntriesReply{Term: s.term(), Success: true, AskedTerm: s.term() - 1, MatchIndex: last})
	t.Want(s.commit() < last, "Commit rule: replies to an earlier leadership do not count", "server 3 has confirmed entry %d of another term's leader; it may have lost it since, and it is committed", last)
	s.receive(3, raft.AppendEntriesReply{Term: s.term(), AskedTerm: s.term(), PrevLogIndex: last})
	t.Want(s.commit() < last, "Commit rule: a refusal is no confirmation", "server 3 has refused, and entry %d is committed", last)
	s.ack(4, last)
	t.Want(s.commit() == last, "Commit rule: a majority is enough (LEAD-4)", "three of five servers have entry %d, and commitIndex is %d", last, s.commit())

	four := start(t, 4)
	four.elect(2)
	four.step(raft.Submit{Command: []byte("x=1")})
	last = raft.Index(len(four.log()))
	four.ack(2, last)
	t.Want(four.commit() < last, "Commit rule: half is no majority (LEAD-4)", "two of four servers have entry %d, and it is committed", last)

	c := cluster(t, 3)
	leader := c.CheckSingleLeader()
	c.RunFor(time.Second)
	c.Lose(1)
	sub := leader.Submit("x=1")
	c.RunFor(2 * time.Second)
	t.Want(!sub.Committed(), "Commit rule: a majority must have the entry (LEAD-4)", "every message is lost, and x=1 is committed")
}

func figure8(t *run.T) {
	s := start(t, 5)
	s.append(2, 2, 0, 0, 0, entries(1, 2))
	s.elect(2)
	s.ack(2, 2)
	s.ack(3, 2)
	t.Want(s.commit() == 0, "Commit rule: copies of an older term's entry commit nothing (§5.4.2, Figure 8)",
		"server 1 leads term %d; three of five servers have entry 2 of term 2, and commitIndex is %d", s.term(), s.commit())
	s.step(raft.Submit{Command: []byte("x=1")})
	last := raft.Index(len(s.log()))
	s.ack(2, last)
	s.ack(3, last)
	t.Want(s.commit() == last, "Commit rule: an entry of the leader's own term commits all before it (§5.4.2)",
		"three of five servers have entry %d of the leader's own term, and commitIndex is %d", last, s.commit())
}

// inherited lets clients be silent: what a dead leader has left is committed all
// the same, by an entry of the new one.
func inherited(t *run.T) {
	s := start(t, 3)
	s.append(2, 1, 0, 0, 0, entries(1, 1))
	s.elect(1)
	last := raft.Index(len(s.log()))
	s.ack(2, last)
	s.ack(3, last)
	t.Want(s.commit() >= 2, "Liveness: a leader begins with an entry of its own, which commits those before it (§8)",
		"server 1 has two entries of term 1 and leads term %d; no client asks for anything, all servers have all of its %d entries, and commitIndex is %d", s.term(), last, s.commit())
}

func followersCommit(t *run.T) {
	s := start(t, 3)
	s.append(2, 1, 0, 0, 0, entries(1, 1, 1))
	s.append(3, 2, 1, 1, 3, nil) // a new leader that shares only the first entry, as far as this message tells
	t.Want(s.commit() <= 1, "Commit rule: a follower commits up to the last entry of the message (AE-5)",
		"server 1 has three entries; the leader of term 2 says commit 3, and that the logs are equal up to 1; now commitIndex is %d", s.commit())
	s.append(3, 2, 1, 1, 3, entries(2, 2, 2))
	t.Want(s.commit() == 3, "Commit rule: a follower learns from the leader what is committed (AE-5)", "the leader says commit 3, and the message reaches up to index 4; commitIndex is %d", s.commit())
	s.append(3, 2, 1, 1, 2, nil) // late
	t.Want(s.commit() == 3, "Committed stays committed", "an older message says commit 2, and commitIndex has gone from 3 to %d", s.commit())

	var applied []raft.Index
	s = start(t, 3)
	for commit := range raft.Index(4) {
		out := s.step(raft.Message{From: 2, To: 1, Body: raft.AppendEntriesArgs{Term: 1, LeaderID: 2, Entries: entries(1, 1, 1), LeaderCommit: commit}})
		for _, e := range out.Commit {
			applied = append(applied, e.Index)
		}
	}
	t.Want(slices.Equal(applied, []raft.Index{1, 2, 3}), "What is committed is applied, each entry once and in order (ALL-1)", "commitIndex went from 0 to 3, and these entries were applied: %v", applied)
}

func chaos(t *run.T) {
	c := cluster(t, 5)
	c.StartChaos(4*time.Second, rafttest.IsolateServers, rafttest.CutLinks, rafttest.LoseMessages, rafttest.DelayMessages)
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
