// Package raft, part 1: elections. Several servers choose one leader, and
// another one when it is lost.
//
// [ConsensusModule] is the algorithm. Give it an [Event] with Step and carry
// out the [Effects] it returns. It starts no goroutine, takes no lock and reads
// no clock: the same events always give the same run. [Server] is the loop that
// feeds it from a network and a clock.
//
// Reading order:
//
//	raft.go           the state of Figure 2, NewConsensusModule, Step
//	events.go         what can happen (Event) and what must be done then (Effects)
//	messages.go       RequestVote, AppendEntries and their replies
//	election.go       §5.2: timeouts, votes, becoming leader
//	replication.go    heartbeats
//	status.go         what others may see
//	server.go         the loop: an inbox, two timers, and TCP
//
// What still fails (the files are in testdata/scenarios):
//
//   - There is no log and no command that a leader could take: submit.txt.
//   - A server that crashes comes back without its term and its vote, and may
//     vote a second time in one term: vote-survives-crash.txt.
//
// Labels such as AE-1 are the rules of Figure 2, listed in docs/figure2.md.
// § means the extended Raft paper.
package raft
