// Package trace writes down what happens in a cluster: one [Record] per Step.
//
// A record has two forms. Text is for people, one line each; and [Hash] folds a
// whole run into one number, so that two runs can be compared without keeping
// either. Making a record and hashing it formats nothing, so a simulator can do
// both for every event.
//
// A [Line] is more: the lines of a trace file tell of servers, messages, clients
// and faults, all that is needed to show a run (lines.go).
package trace

import (
	"time"

	"raftkv/raft"
)

// Record says what one Step of one server did.
type Record struct {
	Number uint64        // counts the records of a run, from 1
	At     time.Duration // virtual time since the run began; 0 where time plays no part

	Server        raft.ServerID
	Before, After raft.Status // the server's state around the Step

	// Event is what was stepped. It is nil in a record of something that
	// happened to the server from outside; then Note says what: "crash", "restart".
	Event raft.Event
	Note  string

	Effects raft.Effects
}
