// Package cores shows the algorithms of the tutorial's parts to rafttest, for
// what is outside their folders: rafttest's own tests, the tests of parts 4 and
// 5, and raftlab play. (The tests in a part's folder bring their own adapter,
// because a student's folder has to.)
package cores

import "raftkv/rafttest"

// Leading is a rafttest.LogNode that also tells what it knows of its followers.
type Leading interface {
	rafttest.LogNode

	// Progress returns a leader's nextIndex and matchIndex for a follower; ok is
	// false if the node does not lead.
	Progress(peer int) (next, match int, ok bool)
}
