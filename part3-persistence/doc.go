// Package raft, part 3: persistence. What a server has promised it still knows
// after a crash, and a log that has gone astray is repaired in few steps.
//
// [ConsensusModule] is the algorithm. Give it an [Event] with Step and carry
// out the [Effects] it returns. It starts no goroutine, takes no lock and reads
// no clock: the same events always give the same run. [Server] is the loop that
// feeds it from a network, a disk and a clock, and hands what is committed to
// the program that it is part of.
//
// Reading order:
//
//	raft.go           the state of Figure 2, NewConsensusModule, Step
//	events.go         what can happen (Event) and what must be done then (Effects)
//	messages.go       RequestVote, AppendEntries and their replies
//	log.go            the log; index 1 is the first entry
//	election.go       §5.2 and §5.4.1: timeouts, votes, becoming leader
//	replication.go    §5.3: sending entries, checking them, repairing a log
//	commit.go         §5.3, §5.4.2 and Figure 8: when an entry is committed
//	status.go         what others may see
//	storage.go        where term, vote and log survive a crash
//	server.go         the loop: an inbox, two timers, Submit, commitChan, and TCP
//
// What still fails (the files are in testdata/scenarios):
//
//   - A server that was cut off comes back with a higher term and deposes a
//     leader that works: prevote.txt.
//   - A leader that is cut off stays leader and takes commands without end:
//     quorum-check.txt and backlog.txt.
//   - Until an answer comes, the same entries are sent again with each command:
//     window.txt.
//   - The only Storage is in memory, and the log grows for ever.
//
// Labels such as AE-1 are the rules of Figure 2, listed in docs/figure2.md.
// § means the extended Raft paper.
package raft
