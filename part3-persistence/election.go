package raft

// startElection runs when no leader was heard for an election timeout (FOL-2)
// or an election brought no result (CAN-4). It is the conversion to candidate
// (§5.2, CAN-1).
func (cm *ConsensusModule) startElection() {
	cm.assertf(cm.state != Leader, "a leader waits for nobody, yet its election timer fired")
	cm.state = Candidate
	cm.leaderID = None
	cm.currentTerm++
	cm.votedFor = cm.id
	cm.votesReceived = map[ServerID]bool{} // our own vote arrives when it is durable, see handleSaved
	cm.restartTimer(ElectionTimer)         // CAN-4: a split vote ends in another try
	for _, peerID := range cm.peerIDs {
		cm.send(peerID, RequestVoteArgs{
			Term:         cm.currentTerm,
			CandidateID:  cm.id,
			LastLogIndex: cm.log.lastIndex(),
			LastLogTerm:  cm.log.lastTerm(),
		})
	}
}

// handleRequestVote is Figure 2, RequestVote RPC, receiver rules RV-1 and RV-2.
// Step has applied ALL-2 already, so args.Term is at most currentTerm.
func (cm *ConsensusModule) handleRequestVote(from ServerID, args RequestVoteArgs) {
	// RV-1 is the first condition. A vote given stays given for the whole term:
	// asked again by the same candidate, the answer is the same.
	grant := args.Term == cm.currentTerm &&
		(cm.votedFor == None || cm.votedFor == from) &&
		cm.log.upToDate(args.LastLogIndex, args.LastLogTerm) // RV-2
	if grant {
		cm.votedFor = from
		// FOL-2. Only for a vote we gave: a candidate that cannot win must not keep
		// quiet those who can.
		cm.restartTimer(ElectionTimer)
	}
	cm.send(from, RequestVoteReply{
		Term:        cm.currentTerm,
		VoteGranted: grant,
		AskedTerm:   args.Term,
	})
}

// handleRequestVoteReply counts a vote, unless it belongs to an election that
// is over. Where the posts compare savedCurrentTerm, the reply itself tells
// which election it is about.
func (cm *ConsensusModule) handleRequestVoteReply(from ServerID, reply RequestVoteReply) {
	if cm.state == Candidate && reply.AskedTerm == cm.currentTerm && reply.VoteGranted {
		cm.receiveVote(from)
	}
}

func (cm *ConsensusModule) receiveVote(from ServerID) {
	cm.votesReceived[from] = true
	// CAN-2. The first condition is a guard: requests leave after the save, so a
	// majority of others cannot answer before our disk has confirmed our vote.
	if cm.savedTerm == cm.currentTerm && cm.quorum(len(cm.votesReceived)) {
		cm.startLeader()
	}
}

// startLeader is the conversion to leader (Figure 2, Leaders).
func (cm *ConsensusModule) startLeader() {
	cm.state = Leader
	cm.leaderID = cm.id
	cm.votesReceived = nil
	cm.stopTimer(ElectionTimer) // a leader waits for nobody
	cm.nextIndex = make(map[ServerID]Index, len(cm.peerIDs))
	cm.matchIndex = make(map[ServerID]Index, len(cm.peerIDs))
	for _, peerID := range cm.peerIDs {
		cm.nextIndex[peerID] = cm.log.lastIndex() + 1
		cm.matchIndex[peerID] = 0
	}
	// Entries of earlier terms are committed only by committing one of ours
	// (§5.4.2), and the first client may come late. So every leadership begins
	// with an entry that says nothing (§8).
	cm.appendToLog(LogEntry{Term: cm.currentTerm, Kind: EntryEmpty})
	cm.leaderSendAEs() // LEAD-1: at once, the others are about to time out
}

// becomeFollower is the way back, in the same term or a newer one. leader is
// who leads that term, or None.
func (cm *ConsensusModule) becomeFollower(term Term, leader ServerID) {
	if term > cm.currentTerm {
		// Only a new term clears the vote. Within a term the vote stands, or a
		// second candidate could get it and the term have two leaders.
		cm.currentTerm, cm.votedFor = term, None
	}
	if cm.state == Leader {
		cm.stopTimer(HeartbeatTimer)
		cm.nextIndex, cm.matchIndex = nil, nil
		cm.restartTimer(ElectionTimer) // it was not running
	}
	cm.state = Follower
	cm.leaderID = leader
	cm.votesReceived = nil
}

// quorum reports whether n servers are a majority. Every decision that needs
// one asks here: with four servers it takes three.
func (cm *ConsensusModule) quorum(n int) bool { return n > (len(cm.peerIDs)+1)/2 }
