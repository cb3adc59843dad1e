// Package raft keeps one log of commands identical on several servers, even
// while some of them crash and the network loses messages.
//
// [ConsensusModule] is the algorithm. Give it an [Event] with Step and carry
// out the [Effects] it returns, in their order. It starts no goroutine, takes
// no lock and reads no clock: the same events always give the same run.
// Package raft/server is the loop that feeds it from a network, a disk and a
// clock; internal/sim feeds it from a random generator.
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
//	configuration.go  who votes, and the one function that counts a quorum
//	snapshot.go       §7: a snapshot in place of the log's beginning
//	membership.go     §6: other servers, by way of a joint configuration
//
// and then what the paper's Figure 2 leaves out:
//
//	prevote.go        pre-vote, quorum check and stickiness (thesis 4.2.3, 6.2, 9.6)
//	window.go         pipelining, batches and the limit on unfinished work
//	read.go           §8: linearizable reads and leases (thesis 6.4)
//	transfer.go       handing leadership over (thesis 3.10)
//	status.go         what others may see
//	clone.go          copies and packed states, for tools that explore
//	encoding.go       the bytes of an entry, the same on disk and on the wire
//
// Labels such as AE-3 are the rules of Figure 2, listed in docs/figure2.md.
// § means the extended Raft paper; "thesis" means Ongaro's dissertation.
package raft
