package raft

// leaderSendAEs sends every follower a heartbeat (§5.2, LEAD-1).
func (cm *ConsensusModule) leaderSendAEs() {
	for _, peerID := range cm.peerIDs {
		cm.send(peerID, AppendEntriesArgs{
			Term:     cm.currentTerm,
			LeaderID: cm.id,
		})
	}
	cm.restartTimer(HeartbeatTimer)
}

// handleAppendEntries is the follower's side: Figure 2, AppendEntries RPC,
// receiver rule AE-1 (§5.2). Step has applied ALL-2 already, so args.Term is at
// most currentTerm.
func (cm *ConsensusModule) handleAppendEntries(from ServerID, args AppendEntriesArgs) {
	// AE-1. The deposed leader learns the newer term from the reply.
	if args.Term < cm.currentTerm {
		cm.send(from, AppendEntriesReply{Term: cm.currentTerm})
		return
	}
	// The sender leads this term, so nobody else does (Figure 3, Election Safety).
	cm.assertf(cm.state != Leader, "this term is also led by server %d", from)
	cm.becomeFollower(args.Term, from) // CAN-3; same term, so the vote stands
	cm.restartTimer(ElectionTimer)     // FOL-2
	cm.send(from, AppendEntriesReply{
		Term:    cm.currentTerm,
		Success: true,
	})
}
