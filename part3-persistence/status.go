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
