package raft

// handleElectionTimeout runs when no leader was heard for an election timeout
// (FOL-2) or an election brought no result (CAN-4).
func (cm *ConsensusModule) handleElectionTimeout() {
	cm.assertf(cm.state != Leader, "a leader waits for nobody, yet its election timer fired")
	switch {
	case !cm.mayCampaign(): // a learner, or a server that is not in the cluster (any more)
		cm.leaderID = None
		cm.restartTimer(ElectionTimer)
	case cm.config.DisablePreVote:
		cm.startElection(false)
	default:
		cm.startPreVote()
	}
}

// startElection is the conversion to candidate (§5.2, CAN-1). transfer says
// that the leader has asked for it.
func (cm *ConsensusModule) startElection(transfer bool) {
	cm.state = Candidate
	cm.leaderID = None
	cm.heardRound = 0
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
			Transfer:     transfer,
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
	if cm.meansAnother(cm.configuration) {
		grant = false // the other one may have voted
	}
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
	if cm.savedTerm == cm.currentTerm && cm.configuration.quorum(func(id ServerID) bool { return cm.votesReceived[id] }) {
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
	cm.windows = make(map[ServerID]*window, len(cm.peerIDs))
	for _, peerID := range cm.peerIDs {
		cm.startFollowing(peerID)
	}
	cm.reads = reads{acked: map[ServerID]Round{}}
	// Entries of earlier terms are committed only by committing one of ours
	// (§5.4.2), and the first client may come late. So every leadership begins
	// with an entry that says nothing (§8).
	cm.appendToLog(LogEntry{Term: cm.currentTerm, Kind: EntryEmpty})
	cm.startQuorumCheck()
	cm.leaderSendAEs() // LEAD-1: at once, the others are about to time out
}

// startFollowing begins to keep account of a follower. What it has is not known yet.
func (cm *ConsensusModule) startFollowing(id ServerID) {
	cm.nextIndex[id] = cm.log.lastIndex() + 1
	cm.matchIndex[id] = 0
	cm.windows[id] = &window{}
}

// stopFollowing forgets a server that has left. Should it come back, it may have
// lost everything.
func (cm *ConsensusModule) stopFollowing(id ServerID) {
	delete(cm.nextIndex, id)
	delete(cm.matchIndex, id)
	delete(cm.windows, id)
	delete(cm.reads.acked, id)
	delete(cm.preVote.heard, id)
	delete(cm.preVote.heardBefore, id)
}

// becomeFollower is the way back, in the same term or a newer one. leader is
// who leads that term, or None.
func (cm *ConsensusModule) becomeFollower(term Term, leader ServerID) {
	if term > cm.currentTerm {
		// Only a new term clears the vote. Within a term the vote stands, or a
		// second candidate could get it and the term have two leaders.
		cm.currentTerm, cm.votedFor = term, None
		cm.heardRound = 0
	}
	wasLeader := cm.state == Leader
	cm.state = Follower
	cm.leaderID = leader
	if wasLeader {
		cm.stopTimer(HeartbeatTimer)
		cm.stopTimer(QuorumCheckTimer)
		cm.nextIndex, cm.matchIndex, cm.windows = nil, nil, nil
		cm.restartTimer(ElectionTimer) // it was not running
		cm.failReads()
		cm.endTransfer()
	}
	cm.votesReceived = nil
	cm.preVote.votes = nil
}
