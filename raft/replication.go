package raft

// leaderSendAEs sends every follower what it lacks, and at least a heartbeat
// (§5.2, §5.3, LEAD-1).
func (cm *ConsensusModule) leaderSendAEs() {
	cm.reads.round++
	for _, peerID := range cm.peerIDs {
		if !cm.sendEntries(peerID) {
			cm.sendHeartbeat(peerID)
		}
	}
	cm.restartTimer(HeartbeatTimer)
	cm.confirmRound() // whoever votes alone has nobody to wait for
}

// handleSubmit appends clients' commands to the leader's log (LEAD-2). That
// they are appended promises nothing yet; what a client may be told is decided
// when the entry is applied.
func (cm *ConsensusModule) handleSubmit(ev Submit) {
	if cm.state != Leader {
		cm.refuseSubmit(&NotLeaderError{Leader: cm.leaderID, Term: cm.currentTerm})
		return
	}
	if cm.transfer.to != None {
		cm.refuseSubmit(ErrTransferring)
		return
	}
	if cm.backlogBytes >= cm.config.MaxBacklogBytes {
		cm.refuseSubmit(ErrBusy)
		return
	}
	cm.out.Submitted = append(cm.out.Submitted, Submitted{FirstIndex: cm.log.lastIndex() + 1, Term: cm.currentTerm})
	for _, command := range ev.Commands {
		cm.appendToLog(LogEntry{Term: cm.currentTerm, Command: command})
	}
	for _, peerID := range cm.peerIDs {
		cm.sendEntries(peerID)
	}
}

func (cm *ConsensusModule) refuseSubmit(err error) {
	cm.out.Submitted = append(cm.out.Submitted, Submitted{Term: cm.currentTerm, Err: err})
}

// appendToLog adds an entry of our own (Figure 3, Leader Append-Only).
func (cm *ConsensusModule) appendToLog(e LogEntry) {
	cm.log.append(e)
	cm.backlogBytes += e.EncodedSize()
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
	cm.heardFromLeader(args.Round)

	// AE-2. What our log does not hold any more is committed, so the leader has
	// the same there.
	if args.PrevLogIndex+1 >= cm.log.first && !cm.log.matches(args.PrevLogIndex, args.PrevLogTerm) {
		cm.send(from, cm.refuseAppend(args))
		return
	}
	// AE-3 and AE-4. An old message must not cut off newer entries, so
	// appendAfter truncates only where the terms differ.
	last := cm.followerAppend(args.PrevLogIndex, args.Entries)
	// AE-5. Up to the last new entry, not the end of our log: what lies
	// beyond may be a dead leader's and is not known to match.
	cm.commitTo(min(args.LeaderCommit, last))
	cm.send(from, AppendEntriesReply{
		Term:         cm.currentTerm,
		Success:      true,
		AskedTerm:    args.Term,
		PrevLogIndex: args.PrevLogIndex,
		MatchIndex:   last,
		Round:        args.Round,
	})
}

// followerAppend makes entries follow prev and returns the last one's index.
func (cm *ConsensusModule) followerAppend(prev Index, entries []LogEntry) Index {
	lastBefore := cm.log.lastIndex()
	last := cm.log.appendAfter(prev, entries)
	if from := cm.log.changedFrom; from != 0 {
		cm.assertf(from > cm.commitIndex, "would overwrite index %d, but %d is committed", from, cm.commitIndex)
		cm.recountBacklog(lastBefore)
		cm.findConfigurations(from)
	}
	return last
}

// refuseAppend tells the leader where the logs may still agree (end of §5.3).
func (cm *ConsensusModule) refuseAppend(args AppendEntriesArgs) AppendEntriesReply {
	reply := AppendEntriesReply{
		Term:         cm.currentTerm,
		AskedTerm:    args.Term,
		PrevLogIndex: args.PrevLogIndex,
		Round:        args.Round,
	}
	if term, known := cm.log.term(args.PrevLogIndex); known {
		reply.ConflictTerm = term
		reply.ConflictIndex = cm.log.firstOfTerm(args.PrevLogIndex)
	} else {
		reply.ConflictIndex = cm.log.lastIndex() + 1
	}
	return reply
}

// handleAppendEntriesReply is the leader's side (LEAD-3). Replies come late,
// doubled and out of order, so each is judged by what it says it answers.
func (cm *ConsensusModule) handleAppendEntriesReply(from ServerID, reply AppendEntriesReply) {
	if !cm.takesReply(from, reply.AskedTerm, reply.Round, reply.MatchIndex) {
		return
	}
	if reply.Success {
		cm.handleMatch(from, reply.MatchIndex)
	} else {
		cm.handleConflict(from, reply)
	}
}

// takesReply reports whether a reply counts, by what every follower's reply
// says. If so, the follower has been heard.
func (cm *ConsensusModule) takesReply(from ServerID, askedTerm Term, round Round, match Index) bool {
	if cm.state != Leader || askedTerm != cm.currentTerm {
		return false // about another leadership
	}
	w := cm.windows[from]
	if w == nil || round < w.since || match > cm.log.lastIndex() {
		return false // no follower of ours can say that
	}
	cm.heardFromFollower(from, round)
	return true
}

// handleMatch notes how far a follower's log is known to equal ours.
func (cm *ConsensusModule) handleMatch(from ServerID, match Index) {
	w := cm.windows[from]
	found := w.probing && match+1 >= cm.nextIndex[from]
	if match <= cm.matchIndex[from] && !found {
		return // an old reply; matchIndex never goes back in a leadership
	}
	cm.matchIndex[from] = max(cm.matchIndex[from], match)
	cm.nextIndex[from] = max(cm.nextIndex[from], match+1)
	if found {
		w.probing = false
	}
	w.sending = w.sending && cm.lacksLog(from)
	w.free(match)
	cm.advanceCommitIndex() // LEAD-4
	cm.advanceTransfer()
	if cm.windows[from] != nil { // we still lead, and it is still a follower
		cm.sendEntries(from)
	}
}

// handleConflict steps back to where the follower's log may agree with ours.
//
//	index     1 2 3 4 5 6
//	ours      1 1 4 4 5 5     asked at 5: the follower has term 3 there,
//	theirs    1 1 2 3 3       from index 4 on. We have no term 3: ask at 3.
func (cm *ConsensusModule) handleConflict(from ServerID, reply AppendEntriesReply) {
	w := cm.windows[from]
	switch {
	case reply.PrevLogIndex <= cm.matchIndex[from]:
		return // an old reply: that place is known to match
	case reply.PrevLogIndex >= cm.nextIndex[from]:
		return // an old reply: we have stepped back already
	case w.probing && reply.PrevLogIndex != cm.nextIndex[from]-1:
		return // not the question we last asked
	}
	next := reply.ConflictIndex
	if reply.ConflictTerm != 0 {
		// If we have that term too, the logs may agree up to our last entry of it.
		if i := cm.log.lastOfTerm(reply.ConflictTerm, reply.PrevLogIndex); i != 0 {
			next = i + 1
		}
	}
	// Every refusal brings us back at least one place, never below what matches.
	cm.nextIndex[from] = max(min(next, reply.PrevLogIndex), cm.matchIndex[from]+1)
	w.probe()
	cm.sendHeartbeat(from)
}
