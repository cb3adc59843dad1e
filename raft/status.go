package raft

import "maps"

// Status is what others may see of a server, at one moment and as that server
// sees it: an old leader that is cut off still reports itself as leader.
type Status struct {
	ID       ServerID
	State    CMState
	Term     Term
	VotedFor ServerID
	LeaderID ServerID // None if unknown

	CommitIndex Index
	LastApplied Index
	SavedIndex  Index // the end of what is durable
	LastIndex   Index
	LastTerm    Term

	FirstIndex         Index // where the log begins; what was before is in a snapshot
	SnapshotIndex      Index // of the newest snapshot; 0 if there is none
	ConfigurationIndex Index // where the configuration in force stands; 0 for the first

	// On a leader, what a server needs to keep a lease (read.go): the latest round,
	// the latest that a lease may rest on, and up to where a read under the lease
	// must have been applied. 0 if there is none.
	Round      Round
	LeaseRound Round
	LeaseIndex Index

	TransferTo ServerID // who is to take over; None if no transfer is under way
}

// Status reports the present state. (The posts' Report.)
func (cm *ConsensusModule) Status() Status {
	leaseRound, leaseIndex := cm.leaseRound(), Index(0)
	if leaseRound != 0 {
		leaseIndex = cm.commitIndex
	}
	return Status{
		ID:          cm.id,
		State:       cm.state,
		Term:        cm.currentTerm,
		VotedFor:    cm.votedFor,
		LeaderID:    cm.leaderID,
		CommitIndex: cm.commitIndex,
		LastApplied: cm.lastApplied,
		SavedIndex:  cm.savedIndex,
		LastIndex:   cm.log.lastIndex(),
		LastTerm:    cm.log.lastTerm(),

		FirstIndex:         cm.log.first,
		SnapshotIndex:      cm.snapshot.Index,
		ConfigurationIndex: cm.configurationIndex,
		Round:              cm.reads.round,
		LeaseRound:         leaseRound,
		LeaseIndex:         leaseIndex,
		TransferTo:         cm.transfer.to,
	}
}

// Configuration returns the configuration in force: the latest in the log,
// committed or not. Its index is in Status.
func (cm *ConsensusModule) Configuration() Configuration { return cm.configuration }

// Entry returns the entry at index i; ok is false if the log has none there.
func (cm *ConsensusModule) Entry(i Index) (e LogEntry, ok bool) {
	if i == 0 || !cm.log.holds(i) || i < cm.log.first {
		return LogEntry{}, false
	}
	return cm.log.entry(i), true
}

// Matches returns how far each follower's log is known to equal this leader's; nil
// if this server does not lead.
func (cm *ConsensusModule) Matches() map[ServerID]Index { return maps.Clone(cm.matchIndex) }

// Progress returns a leader's nextIndex and matchIndex for a follower; ok is
// false if this server does not lead or peer is not a follower of it.
func (cm *ConsensusModule) Progress(peer ServerID) (next, match Index, ok bool) {
	next, ok = cm.nextIndex[peer]
	return next, cm.matchIndex[peer], ok
}
