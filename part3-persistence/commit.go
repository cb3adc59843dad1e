package raft

// advanceCommitIndex is LEAD-4: "if there exists an N such that N > commitIndex,
// a majority of matchIndex[i] >= N, and log[N].term == currentTerm".
//
// The last condition is the one that is easily missed (§5.4.2, Figure 8). An
// entry of an older term on a majority of servers can still be overwritten. It
// becomes safe only when an entry of the leader's own term stands on a majority
// behind it, because no server without that entry can win an election then.
func (cm *ConsensusModule) advanceCommitIndex() {
	// Terms never fall along the log: if the entry at n is older than our term,
	// so is every one before it, and no smaller N will do either.
	for n := cm.log.lastIndex(); n > cm.commitIndex && cm.log[n].Term == cm.currentTerm; n-- {
		copies := 0
		if cm.savedIndex >= n {
			copies++ // the leader's own copy counts once it is durable
		}
		for _, peerID := range cm.peerIDs {
			if cm.matchIndex[peerID] >= n {
				copies++
			}
		}
		if cm.quorum(copies) {
			cm.commitTo(n)
			return
		}
	}
}

// commitTo raises commitIndex. An old message may name a lower one: what is
// committed stays committed.
func (cm *ConsensusModule) commitTo(index Index) {
	if index > cm.commitIndex {
		cm.assertf(index <= cm.log.lastIndex(), "commit index %d lies behind the end of the log at %d", index, cm.log.lastIndex())
		cm.commitIndex = index
	}
}

// deliverCommitted gives newly committed entries to the state machine (ALL-1).
func (cm *ConsensusModule) deliverCommitted() {
	for cm.lastApplied < cm.commitIndex {
		cm.lastApplied++
		e := cm.log[cm.lastApplied]
		cm.out.Commit = append(cm.out.Commit, CommitEntry{
			Index:   cm.lastApplied,
			Term:    e.Term,
			Kind:    e.Kind,
			Command: e.Command,
		})
	}
}
