package raft

import "errors"

// ErrTransferAborted reports that a transfer of leadership did not come about
// within an election timeout. This server leads on; the transfer may be asked
// for again.
var ErrTransferAborted = errors.New("raft: the other server did not take over in time; this one leads on")

// ErrTransferring reports that nothing is taken in because leadership is being
// handed over. Nothing was appended; try again after a pause.
var ErrTransferring = errors.New("raft: leadership is being handed over, try again")

// ErrNotVoter reports a transfer to a server that has no vote, or none any more.
var ErrNotVoter = errors.New("raft: only a voter can lead")

// transfer is a hand-over in progress (thesis 3.10). It belongs to one
// leadership and ends with it.
type transfer struct {
	to      ServerID // None if there is no transfer
	sent    bool     // TimeoutNow has left
	waiting []RequestID
}

// handleTransferLeadership begins to hand over. From now on no command is taken
// in, so that the other one's log can become as long as ours.
func (cm *ConsensusModule) handleTransferLeadership(ev TransferLeadership) {
	switch to := cm.transferTarget(ev.To); {
	case cm.state != Leader:
		cm.answer(&NotLeaderError{Leader: cm.leaderID, Term: cm.currentTerm}, ev.Request)
	case ev.To == cm.id:
		cm.answer(nil, ev.Request)
	case !cm.configuration.IsVoter(to):
		cm.answer(ErrNotVoter, ev.Request)
	case cm.transfer.to == to:
		cm.transfer.waiting = append(cm.transfer.waiting, ev.Request)
	case cm.transfer.to != None:
		cm.answer(ErrTransferring, ev.Request)
	default:
		cm.transfer = transfer{to: to, waiting: []RequestID{ev.Request}}
		cm.restartTimer(TransferTimer)
		cm.advanceTransfer()
	}
}

// transferTarget returns who shall lead: the one that was asked for, or else the
// voter whose log is known to be the longest.
func (cm *ConsensusModule) transferTarget(asked ServerID) ServerID {
	if asked != None {
		return asked
	}
	best := None
	for _, id := range cm.configuration.Voters {
		if id != cm.id && (best == None || cm.matchIndex[id] > cm.matchIndex[best]) {
			best = id
		}
	}
	return best
}

// advanceTransfer sends TimeoutNow once the other's log is as long as ours.
func (cm *ConsensusModule) advanceTransfer() {
	t := &cm.transfer
	switch {
	case t.to == None:
	case !cm.configuration.IsVoter(t.to):
		cm.abortTransfer(ErrNotVoter) // its vote was taken from it meanwhile
	case !t.sent && cm.matchIndex[t.to] == cm.log.lastIndex():
		t.sent = true
		cm.reads.released = true // before it leaves, see leaseRound
		cm.sendNow(t.to, TimeoutNowArgs{Term: cm.currentTerm, LeaderID: cm.id, Round: cm.reads.round})
	}
}

// abortTransfer ends a transfer and goes on leading. If TimeoutNow has left, the
// other one may still be elected; that is an election like any other.
func (cm *ConsensusModule) abortTransfer(err error) {
	cm.answer(err, cm.transfer.waiting...)
	cm.transfer = transfer{}
	cm.stopTimer(TransferTimer)
}

// handleTransferTimeout ends a transfer that has not come about. A leader that
// hands over because it has no vote any more steps down without it.
func (cm *ConsensusModule) handleTransferTimeout() {
	if cm.configuration.IsVoter(cm.id) {
		cm.abortTransfer(ErrTransferAborted)
		return
	}
	cm.becomeFollower(cm.currentTerm, None)
}

// endTransfer answers those who asked for a transfer when this server does not
// lead any more, whoever does.
func (cm *ConsensusModule) endTransfer() {
	if cm.transfer.to != None {
		cm.abortTransfer(nil)
	}
}

// handleTimeoutNow starts an election without waiting and without asking first,
// for the leader wants it. A late copy would only depose a leader that works: it
// is of an older term, or of a round after which this server has answered the
// leader again. After a restart the leader must have been heard first, because
// what was answered before is forgotten.
func (cm *ConsensusModule) handleTimeoutNow(from ServerID, args TimeoutNowArgs) {
	if args.Term == cm.currentTerm && from == cm.leaderID && args.Round >= cm.heardRound && cm.mayCampaign() {
		cm.startElection(true)
	}
}
