package raft

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
}

// Status reports the present state. (The posts' Report.)
func (cm *ConsensusModule) Status() Status {
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
	}
}

// Entry returns the entry at index i; ok is false if the log has none there.
func (cm *ConsensusModule) Entry(i Index) (e LogEntry, ok bool) {
	if i == 0 || i > cm.log.lastIndex() {
		return LogEntry{}, false
	}
	return cm.log[i], true
}

// Progress returns a leader's nextIndex and matchIndex for a follower; ok is
// false if this server does not lead or peer is not a follower of it.
func (cm *ConsensusModule) Progress(peer ServerID) (next, match Index, ok bool) {
	next, ok = cm.nextIndex[peer]
	return next, cm.matchIndex[peer], ok
}
