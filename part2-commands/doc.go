// Package raft, part 2: commands. The leader takes commands into its log and
// brings all servers to have the same log, even while some of them are away.
//
// [ConsensusModule] is the algorithm. Give it an [Event] with Step and carry
// out the [Effects] it returns. It starts no goroutine, takes no lock and reads
// no clock: the same events always give the same run. [Server] is the loop that
// feeds it from a network and a clock, and hands what is committed to the
// program that it is part of.
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
//	server.go         the loop: an inbox, two timers, Submit, commitChan, and TCP
//
// What still fails (the files are in testdata/scenarios):
//
//   - A server that crashes comes back without its term and its vote, and may
//     vote a second time in one term: vote-survives-crash.txt.
//   - It comes back without its log, too. What it has acknowledged may be lost
//     with the next crash, and the leader, who believes that it has it, will not
//     send it again: restart.txt.
//   - A log that has gone astray is repaired by one entry in a round trip; with
//     the logs of figure7.txt that takes up to eight of them.
//
// Labels such as AE-1 are the rules of Figure 2, listed in docs/figure2.md.
// § means the extended Raft paper.
package raft
