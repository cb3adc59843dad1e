package raft

// Round numbers the occasions on which a leader asks its followers whether it
// still leads. Every message of a leader carries its latest round, and every
// reply brings it back. Rounds begin at 1 in each term.
type Round uint64

// reads is a leader's knowledge of whether it still leads, and who waits for it
// (thesis 6.4). An answered message proves that the follower was in the
// leader's term when it answered, so that nobody else led a newer one with its
// vote, after the message was sent. Once a quorum has answered messages of a
// round, the server led when that round began, and had then committed
// everything that any client had been told of.
type reads struct {
	round     Round // the latest; it is in every message
	confirmed Round // a quorum has answered this one, and so all before it

	acked   map[ServerID]Round // the latest each follower has answered
	waiting []RequestID        // for the next round to begin
	asked   []RequestID        // for round askedIn to be confirmed
	askedIn Round
	index   Index // what those may read

	released bool // TimeoutNow has left in this leadership, see leaseRound
}

// handleRead begins a round for reads, or lets them wait for the next one:
// while a round is under way all reads gather, so that they share it.
func (cm *ConsensusModule) handleRead(ev Read) {
	if cm.state != Leader {
		cm.answer(&NotLeaderError{Leader: cm.leaderID, Term: cm.currentTerm}, ev.Requests...)
		return
	}
	cm.reads.waiting = append(cm.reads.waiting, ev.Requests...)
	cm.beginReads()
}

// beginReads begins a round if reads wait for one and none is under way. A new
// leader does not know what its predecessors have committed until an entry of
// its own is (§8); then advanceCommitIndex calls this again.
func (cm *ConsensusModule) beginReads() {
	r := &cm.reads
	if len(r.waiting) == 0 || len(r.asked) > 0 || !cm.committedOwn() {
		return
	}
	r.asked, r.waiting = r.waiting, nil
	r.index, r.askedIn = cm.commitIndex, r.round+1
	cm.leaderSendAEs() // at once: a read must not wait for the next heartbeat
}

// committedOwn reports whether an entry of the current term is committed.
func (cm *ConsensusModule) committedOwn() bool {
	term, known := cm.log.term(cm.commitIndex)
	return known && term == cm.currentTerm
}

// confirmRound answers the reads whose round a quorum has answered.
func (cm *ConsensusModule) confirmRound() {
	r := &cm.reads
	r.confirmed = quorumReached(cm.configuration, func(id ServerID) Round {
		if id == cm.id {
			return r.round
		}
		return r.acked[id]
	})
	if len(r.asked) == 0 || r.confirmed < r.askedIn {
		return
	}
	for _, request := range r.asked {
		cm.out.Answers = append(cm.out.Answers, Answer{Request: request, Index: r.index})
	}
	r.asked = nil
	cm.beginReads()
}

// leaseRound returns the latest round that a lease may rest on; 0 if none. The
// voters that have answered it elect nobody for an election timeout after they
// did (thesis 6.4.1). When the round began is for the server to know: this
// package has no clock.
//
// There is one exception. A server to which TimeoutNow was sent may be elected at
// any time, even long afterwards if the message was slow. It ignores it once it
// has answered a later round, but not if it has restarted since and heard from
// this leader only what is older still. So a leadership that has once sent
// TimeoutNow has no lease any more; its reads take a round.
func (cm *ConsensusModule) leaseRound() Round {
	if cm.state != Leader || cm.config.DisableQuorumCheck || cm.reads.released || !cm.committedOwn() {
		return 0
	}
	return cm.reads.confirmed
}

// failReads tells everyone who waits that this server does not lead any more.
func (cm *ConsensusModule) failReads() {
	cm.answer(&NotLeaderError{Leader: cm.leaderID, Term: cm.currentTerm}, append(cm.reads.asked, cm.reads.waiting...)...)
	cm.reads = reads{}
}

// answer gives requests an error.
func (cm *ConsensusModule) answer(err error, requests ...RequestID) {
	for _, request := range requests {
		cm.out.Answers = append(cm.out.Answers, Answer{Request: request, Err: err})
	}
}
