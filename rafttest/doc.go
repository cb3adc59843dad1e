// Package rafttest runs a cluster of Raft servers in virtual time, for tests
// that read like stories:
//
//	func TestCommittedCommandSurvivesItsLeader(t *testing.T) {
//		c := rafttest.New(t, 3, NewNode)
//		old := c.WaitForLeader()
//		c.Submit("x=1").WaitCommitted()
//		c.Crash(old)
//		c.WaitForLeader().Submit("x=2").WaitCommitted()
//		c.Restart(old)
//		c.WaitApplied(old, "x=1", "x=2")
//	}
//
// It knows an implementation through one small interface, [Node], and carries
// its messages without looking into them. [NewKV] does the same for servers
// that have a key/value store on top, and brings clients that ask again when
// they hear nothing.
//
// A call blocks until what it says has happened; a minute of the cluster's time
// passes in a moment of ours. What begins with Start only sets something going.
// Nothing here starts a goroutine or reads a clock: timeouts, delays and losses
// are drawn from a seed, and one seed gives one run.
//
// After every step of every server the rules are checked that no schedule may
// break: at most one leader in a term, one vote in a term, logs that match, only
// committed what a majority holds, committed entries in every later leader's
// log, the same entries applied everywhere, nothing taken back. A failure says
// what was broken, the last steps in words, and how to see the same run again:
//
//	go test -run '^TestX$' -rafttest.seed=7
//
// With -rafttest.trace and -v every step is printed.
//
// The files, in the order in which to read them:
//
//	node.go      what an implementation has to offer
//	cluster.go   a cluster, its servers, what a test can ask of them
//	time.go      virtual time: what happens next
//	faults.go    crashes, cut links, lost messages, chaos
//	check.go     the rules
//	trace.go     what happened, in words
//	kv.go        key/value servers and their clients
//	seeds.go     one number, one run
package rafttest
