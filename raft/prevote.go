package raft

// preVote is the state of three rules that keep a working leader in office.
//
// Pre-vote (thesis 9.6): a server that could not win an election does not
// start one, so a server that was cut off comes back without a higher term.
// Stickiness (thesis 4.2.3): whoever hears a leader ignores requests for votes.
// Quorum check (thesis 6.2): a leader that a majority does not answer resigns,
// so that its clients look elsewhere and the others' stickiness protects nobody.
// Each needs the next one. Without the quorum check a leader whose replies are
// lost would be protected for ever.
type preVote struct {
	// leaderContact: a leader was heard within the minimum election timeout.
	leaderContact bool

	round uint64            // counts our own attempts
	votes map[ServerID]bool // who answered yes to the attempt in progress

	// On a leader: who answered since the last check, and between it and the one before.
	heard, heardBefore map[ServerID]bool
}

// startPreVote asks the others whether an election could be won.
func (cm *ConsensusModule) startPreVote() {
	cm.state = PreCandidate
	cm.leaderID = None
	cm.preVote.round++
	cm.preVote.votes = map[ServerID]bool{cm.id: true} // no promise, so nothing to wait for
	cm.restartTimer(ElectionTimer)                    // an attempt without result is repeated
	for _, peerID := range cm.peerIDs {
		cm.send(peerID, PreVoteArgs{
			Term:         cm.currentTerm,
			CandidateID:  cm.id,
			Round:        cm.preVote.round,
			LastLogIndex: cm.log.lastIndex(),
			LastLogTerm:  cm.log.lastTerm(),
		})
	}
	cm.countPreVotes() // a cluster of one
}

// handlePreVote answers as handleRequestVote would answer in the next term,
// and changes nothing. In particular no timer: a question is not a vote.
func (cm *ConsensusModule) handlePreVote(from ServerID, args PreVoteArgs) {
	cm.send(from, PreVoteReply{
		Term:        cm.currentTerm,
		VoteGranted: args.Term == cm.currentTerm && cm.log.upToDate(args.LastLogIndex, args.LastLogTerm),
		AskedTerm:   args.Term,
		Round:       args.Round,
	})
}

func (cm *ConsensusModule) handlePreVoteReply(from ServerID, reply PreVoteReply) {
	if cm.state == PreCandidate && reply.AskedTerm == cm.currentTerm && reply.Round == cm.preVote.round && reply.VoteGranted {
		cm.preVote.votes[from] = true
		cm.countPreVotes()
	}
}

func (cm *ConsensusModule) countPreVotes() {
	if cm.configuration.quorum(func(id ServerID) bool { return cm.preVote.votes[id] }) {
		cm.preVote.votes = nil
		cm.startElection(false)
	}
}

// ignoresVoteRequest reports whether m asks for a vote while this server hears
// a leader, or is one that a majority answers. The request is then dropped
// together with its term; it would only depose a leader that works. The leader
// itself may ask, for then it has resigned, and whoever it has asked to.
func (cm *ConsensusModule) ignoresVoteRequest(m Message) bool {
	if cm.config.DisableQuorumCheck {
		return false
	}
	switch body := m.Body.(type) {
	case RequestVoteArgs:
		return !body.Transfer && cm.protectsLeader(m.From)
	case PreVoteArgs:
		return cm.protectsLeader(m.From)
	}
	return false
}

func (cm *ConsensusModule) protectsLeader(from ServerID) bool {
	return cm.state == Leader || cm.preVote.leaderContact && from != cm.leaderID
}

// heardFromLeader notes a valid message of the current leader.
func (cm *ConsensusModule) heardFromLeader(round Round) {
	cm.heardRound = max(cm.heardRound, round)
	cm.restartTimer(ElectionTimer) // FOL-2
	if !cm.config.DisableQuorumCheck {
		cm.preVote.leaderContact = true
		cm.restartTimer(LeaderContactTimer)
	}
}

// startContact lets a server that has been here before vote for nobody for an
// election timeout. It may have answered a leader right before it stopped, and
// that leader may rely on its patience (thesis 6.4.1).
func (cm *ConsensusModule) startContact() {
	if cm.currentTerm > 0 && !cm.config.DisableQuorumCheck {
		cm.preVote.leaderContact = true
		cm.restartTimer(LeaderContactTimer)
	}
}

func (cm *ConsensusModule) startQuorumCheck() {
	if cm.config.DisableQuorumCheck {
		return
	}
	// A leader hears nobody lead; without this it would still believe in its
	// predecessor when it has resigned.
	cm.preVote.leaderContact = false
	cm.stopTimer(LeaderContactTimer)
	cm.preVote.heard, cm.preVote.heardBefore = map[ServerID]bool{}, map[ServerID]bool{}
	cm.restartTimer(QuorumCheckTimer)
}

// checkQuorum lets a leader resign that a majority has not answered for a
// whole election timeout. The term stays: nobody else has led it.
func (cm *ConsensusModule) checkQuorum() {
	if cm.configuration.quorum(func(id ServerID) bool { return id == cm.id || cm.preVote.heard[id] }) {
		cm.preVote.heard, cm.preVote.heardBefore = cm.preVote.heardBefore, cm.preVote.heard
		clear(cm.preVote.heard)
		cm.restartTimer(QuorumCheckTimer)
		return
	}
	cm.becomeFollower(cm.currentTerm, None)
}

// heardFromFollower notes that a follower has answered a message of a round.
func (cm *ConsensusModule) heardFromFollower(id ServerID, round Round) {
	if !cm.config.DisableQuorumCheck {
		cm.preVote.heard[id] = true
	}
	if round > cm.reads.acked[id] && round <= cm.reads.round {
		cm.reads.acked[id] = round
		cm.confirmRound()
	}
}

// heardLately reports whether a follower has answered within the last one to
// two election timeouts.
func (cm *ConsensusModule) heardLately(id ServerID) bool {
	return cm.config.DisableQuorumCheck || cm.preVote.heard[id] || cm.preVote.heardBefore[id]
}
