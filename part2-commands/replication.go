package raft

// leaderSendAEs sends every follower what it lacks, and at least a heartbeat
// (§5.2, §5.3, LEAD-1).
func (cm *ConsensusModule) leaderSendAEs() {
	for _, peerID := range cm.peerIDs {
		cm.sendEntries(peerID)
	}
	cm.restartTimer(HeartbeatTimer)
}

// sendEntries sends a follower everything from its nextIndex on.
func (cm *ConsensusModule) sendEntries(to ServerID) {
	prev := cm.nextIndex[to] - 1
	cm.send(to, AppendEntriesArgs{
		Term:         cm.currentTerm,
		LeaderID:     cm.id,
		PrevLogIndex: prev,
		PrevLogTerm:  cm.log[prev].Term,
		Entries:      cm.log[prev+1:],
		LeaderCommit: cm.commitIndex,
	})
}

// handleSubmit appends a client's command to the leader's log (LEAD-2). That
// it is appended promises nothing yet; what a client may be told is decided
// when the entry is applied.
func (cm *ConsensusModule) handleSubmit(ev Submit) {
	if cm.state != Leader {
		cm.out.Submitted.Err = &NotLeaderError{Leader: cm.leaderID, Term: cm.currentTerm}
		return
	}
	cm.appendToLog(LogEntry{Term: cm.currentTerm, Command: ev.Command})
	cm.out.Submitted = Submitted{Index: cm.log.lastIndex(), Term: cm.currentTerm}
	cm.leaderSendAEs()
}

// appendToLog adds an entry of our own (Figure 3, Leader Append-Only).
func (cm *ConsensusModule) appendToLog(e LogEntry) {
	cm.log = append(cm.log, e)
	cm.advanceCommitIndex() // LEAD-4: in a cluster of one, our copy is the majority
}

// handleAppendEntries is the follower's side of replication: Figure 2,
// AppendEntries RPC, receiver rules AE-1 to AE-5 (§5.3). Step has applied
// ALL-2 already, so args.Term is at most currentTerm.
func (cm *ConsensusModule) handleAppendEntries(from ServerID, args AppendEntriesArgs) {
	// AE-1. The deposed leader learns the newer term from the reply.
	if args.Term < cm.currentTerm {
		cm.send(from, cm.refuseAppend(args))
		return
	}
	// The sender leads this term, so nobody else does (Figure 3, Election Safety).
	cm.assertf(cm.state != Leader, "this term is also led by server %d", from)
	cm.becomeFollower(args.Term, from) // CAN-3; same term, so the vote stands
	cm.restartTimer(ElectionTimer)     // FOL-2

	// AE-2.
	if !cm.log.matches(args.PrevLogIndex, args.PrevLogTerm) {
		cm.send(from, cm.refuseAppend(args))
		return
	}
	// AE-3 and AE-4. An old message must not cut off newer entries, so
	// appendAfter truncates only where the terms differ.
	last := cm.log.appendAfter(args.PrevLogIndex, args.Entries)
	// AE-5. Up to the last new entry, not the end of our log: what lies
	// beyond may be a dead leader's and is not known to match.
	cm.commitTo(min(args.LeaderCommit, last))
	cm.send(from, AppendEntriesReply{
		Term:         cm.currentTerm,
		Success:      true,
		AskedTerm:    args.Term,
		PrevLogIndex: args.PrevLogIndex,
		MatchIndex:   last,
	})
}

func (cm *ConsensusModule) refuseAppend(args AppendEntriesArgs) AppendEntriesReply {
	return AppendEntriesReply{
		Term:         cm.currentTerm,
		AskedTerm:    args.Term,
		PrevLogIndex: args.PrevLogIndex,
	}
}

// handleAppendEntriesReply is the leader's side (LEAD-3). Replies come late,
// doubled and out of order, so each is judged by what it says it answers.
func (cm *ConsensusModule) handleAppendEntriesReply(from ServerID, reply AppendEntriesReply) {
	if cm.state != Leader || reply.AskedTerm != cm.currentTerm {
		return // about another leadership
	}
	if reply.MatchIndex > cm.log.lastIndex() {
		return // no follower of ours can say that
	}
	if reply.Success {
		cm.handleMatch(from, reply.MatchIndex)
	} else {
		cm.handleConflict(from, reply)
	}
}

// handleMatch notes how far a follower's log is known to equal ours.
func (cm *ConsensusModule) handleMatch(from ServerID, match Index) {
	if match <= cm.matchIndex[from] {
		return // an old reply; matchIndex never goes back in a leadership
	}
	cm.matchIndex[from] = match
	cm.nextIndex[from] = match + 1
	cm.advanceCommitIndex() // LEAD-4
}

// handleConflict steps back to where the follower's log may agree with ours.
func (cm *ConsensusModule) handleConflict(from ServerID, reply AppendEntriesReply) {
	switch {
	case reply.PrevLogIndex <= cm.matchIndex[from]:
		return // an old reply: that place is known to match
	case reply.PrevLogIndex != cm.nextIndex[from]-1:
		return // not the question we last asked
	}
	cm.nextIndex[from] = reply.PrevLogIndex
	cm.sendEntries(from)
}
