// Package core is the one thing that the simulator, the scenarios and the
// invariants know about an implementation of Raft: it takes events and returns
// effects. Package raft satisfies it as it is; each part of the tutorial does
// through a small adapter in its tests.
package core

import "raftkv/raft"

// Core is one server's algorithm. It is used by one goroutine at a time.
//
// A core may add these methods of [raft.ConsensusModule]:
//
//	Progress(peer raft.ServerID) (next, match raft.Index, ok bool)
//	Configuration() raft.Configuration
//
// With the first, a leader's view of its followers is checked too; with the
// second, the simulator can change the members.
type Core interface {
	// Step takes one event in and returns what must be done about it.
	Step(raft.Event) raft.Effects

	// Status reports the present state. A core without a log or a disk leaves
	// the fields it does not have at zero.
	Status() raft.Status

	// Entry returns the entry at an index; ok is false if the log has none there.
	Entry(raft.Index) (e raft.LogEntry, ok bool)
}

// New starts a server's algorithm from what its disk holds. The effects are
// those of starting: timers to run.
type New func(raft.Config, raft.PersistentState) (Core, raft.Effects, error)

// Raft is New for package raft.
func Raft(config raft.Config, saved raft.PersistentState) (Core, raft.Effects, error) {
	cm, effects, err := raft.NewConsensusModule(config, saved)
	if err != nil {
		return nil, raft.Effects{}, err // not a Core that holds a nil pointer
	}
	return cm, effects, nil
}
