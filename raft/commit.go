package raft

import "slices"

// MaxUnapplied bounds the entries that are given to the state machine before it
// reports the earlier ones as applied. What is committed and not yet given out
// simply stays in the log; there is no second queue to grow.
const MaxUnapplied = 4096

// advanceCommitIndex is LEAD-4: "if there exists an N such that N > commitIndex,
// a majority of matchIndex[i] >= N, and log[N].term == currentTerm".
//
// The last condition is the one that is easily missed (§5.4.2, Figure 8). An
// entry of an older term on a majority of servers can still be overwritten. It
// becomes safe only when an entry of the leader's own term stands on a majority
// behind it, because no server without that entry can win an election then.
func (cm *ConsensusModule) advanceCommitIndex() {
	n := quorumReached(cm.configuration, func(id ServerID) Index {
		if id == cm.id {
			return cm.savedIndex // the leader's own copy counts once it is durable
		}
		return cm.matchIndex[id]
	})
	// Terms never fall along the log: if the entry at n is older than our term,
	// so is every one before it, and no smaller N will do either.
	if n > cm.commitIndex && cm.log.matches(n, cm.currentTerm) {
		cm.commitTo(n)
		cm.finishChange()
		cm.beginReads()
	}
}

// commitTo raises commitIndex. An old message may name a lower one: what is
// committed stays committed.
func (cm *ConsensusModule) commitTo(index Index) {
	if index > cm.commitIndex {
		cm.assertf(index <= cm.log.lastIndex(), "commit index %d lies behind the end of the log at %d", index, cm.log.lastIndex())
		cm.commitIndex = index
		cm.forgetConfiguration()
	}
}

// deliverCommitted gives newly committed entries to the state machine (ALL-1).
func (cm *ConsensusModule) deliverCommitted() {
	limit := min(cm.commitIndex, cm.lastApplied+MaxUnapplied)
	if cm.delivered >= limit {
		return
	}
	cm.out.Commit = slices.Grow(cm.out.Commit, int(limit-cm.delivered))
	for cm.delivered < limit {
		cm.delivered++
		e := cm.log.entry(cm.delivered)
		cm.out.Commit = append(cm.out.Commit, CommitEntry{
			Index:   cm.delivered,
			Term:    e.Term,
			Kind:    e.Kind,
			Command: e.Command,
		})
	}
}
