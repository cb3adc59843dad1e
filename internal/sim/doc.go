// Package sim runs a whole cluster, its disks, its network and its clients in
// virtual time, from one number.
//
// [RunSeed] draws from its seed how large the cluster is, how bad its network
// and disks are, when servers crash and what clients do. Then it lets some
// twenty seconds pass, heals everything, and demands that the cluster works
// again. After every step the invariants of Raft are checked, at the end what
// the clients saw. The same seed gives the same run, byte for byte, on every
// machine, so a failure is repeated with one line.
//
// The algorithm under test is anything that satisfies internal/core. What is
// around it is the code that runs in production, as far as it has no goroutine:
// raft/storage on the files of internal/simdisk, kvservice/machine,
// kvservice/waiters and kvclient/numbering. The server's loop and the service's
// handlers are written again here, in virtual time; node.go and service.go
// follow raft/server and kvservice line by line.
//
// Reading order:
//
//	sim.go       RunSeed, Report, the loop over events
//	profile.go   how much of the system takes part
//	plan.go      what a seed draws before it starts
//	source.go    random numbers that are the same everywhere
//	decisions.go what a run might as well not have done, and running without it
//	queue.go     what happens when: the events, by virtual time
//	network.go   messages that are lost, doubled, late and overtaken
//	disk.go      what survives a crash, and how a save fails
//	node.go      a server: its loop, its timers, its crashes
//	service.go   the key/value service of a server
//	client.go    clients and their calls
//	attempts.go  clients that time out, retry and give up
//	faults.go    what goes wrong, and when
//	chapters.go  snapshots, reads, members, transfers (snapshots.go, reads.go, members.go, handover.go)
//	lifetimes.go sessions that end, conditions, keys, clocks that jump
//	batches.go   calls that travel together
//	book.go      who has a session: the promises of docs/sessions.md, done slowly
//	settle.go    everything is healed, and must work
//	verdict.go   what is checked when the run is over
//	day.go       three days of sessions that are kept for one, as a play
//	observe.go   the run as lines of a trace file
//	coverage.go  which interesting things happened
//	swarm.go     many seeds in a go test
package sim
