package raft

import (
	"errors"
	"fmt"
	"slices"
)

// Errors of ChangeConfiguration. Nothing was appended.
var (
	// ErrChanged reports that another configuration is in force than the change
	// was made for. Look at the present one; the change may have been made already.
	ErrChanged = errors.New("raft: the configuration has changed meanwhile; look at it again")

	// ErrChanging reports that an earlier change is not finished, or that a new
	// leader is not ready to begin one. Try again after a pause.
	ErrChanging = errors.New("raft: another change of the configuration is under way, try again")

	// ErrNotCaughtUp reports that a server shall vote which lacks much of the log,
	// or has not been heard lately. Add it as a learner first, and wait.
	ErrNotCaughtUp = errors.New("raft: a server must have caught up as a learner before it votes")
)

// placedConfiguration is a configuration and where it stands in the log.
type placedConfiguration struct {
	index Index
	Configuration
}

// startConfiguration finds out what is in force when this server starts.
func (cm *ConsensusModule) startConfiguration(s Snapshot) {
	if s.Index == 0 {
		cm.baseConfiguration(0, cm.config.Configuration)
	} else {
		cm.baseConfiguration(s.ConfigurationIndex, s.Configuration)
	}
	cm.findConfigurations(s.Index + 1)
}

// baseConfiguration makes c, which stands at index and is committed, the only
// configuration that is known.
func (cm *ConsensusModule) baseConfiguration(index Index, c Configuration) {
	cm.configurations = []placedConfiguration{{index, c}}
	cm.useConfiguration()
}

// findConfigurations looks at the log from index on, which has changed. A
// configuration is in force as soon as it is in the log, committed or not (§6);
// if its entry is overwritten, the one before it is in force again. No more are
// kept, because a leader begins a change only when the last one is committed.
func (cm *ConsensusModule) findConfigurations(from Index) {
	found := slices.Clip(cm.configurations)                            // what is found is appended to a copy
	gone := slices.IndexFunc(found, func(c placedConfiguration) bool { // indexes rise, so the rest goes, too
		return c.index >= from && c.index > cm.commitIndex
	})
	changed := gone >= 0
	if changed {
		found = found[:gone:gone]
	}
	for i := from; i <= cm.log.lastIndex(); i++ {
		if e := cm.log.entry(i); e.Kind == EntryConfiguration {
			c, err := DecodeConfiguration(e.Command)
			cm.assertf(err == nil, "entry %d holds no configuration", i) // DecodeEntry checks it
			found, changed = append(found, placedConfiguration{i, c}), true
		}
	}
	if changed {
		cm.configurations = found[max(0, len(found)-2):]
		cm.useConfiguration()
	}
}

// forgetConfiguration drops the configuration before the latest when that one is
// committed. Those who are not in it hear of the leader once more: so they learn
// that they have left.
func (cm *ConsensusModule) forgetConfiguration() {
	if len(cm.configurations) < 2 || cm.configurationIndex > cm.commitIndex {
		return
	}
	if cm.state == Leader {
		cm.leaderSendAEs()
	}
	cm.configurations = cm.configurations[1:]
	cm.useConfiguration()
}

// useConfiguration puts the latest configuration in force. Entries go to everyone
// who is in it, or in the one before as long as that may still count.
func (cm *ConsensusModule) useConfiguration() {
	latest := cm.configurations[len(cm.configurations)-1]
	cm.configuration, cm.configurationIndex = latest.Configuration, latest.index
	var members []ServerID
	for _, c := range cm.configurations {
		members = append(members, c.Members()...)
	}
	before := cm.peerIDs
	cm.peerIDs = slices.DeleteFunc(sortedIDs(members), func(id ServerID) bool { return id == cm.id })
	if cm.state != Leader {
		return
	}
	for _, id := range before {
		if !slices.Contains(cm.peerIDs, id) {
			cm.stopFollowing(id)
		}
	}
	for _, id := range cm.peerIDs {
		if !slices.Contains(before, id) {
			cm.startFollowing(id)
			cm.windows[id].since = cm.reads.round + 1
		}
	}
}

// mayCampaign reports whether this server may stand for election: it is a voter,
// or was one before a change that is not known to be committed. In that case it
// may be the only one whose log is long enough to win, and it counts the votes of
// those whom the latest configuration names, not its own (pitfall MB-04).
func (cm *ConsensusModule) mayCampaign() bool {
	for _, c := range cm.configurations {
		if c.IsVoter(cm.id) && !cm.meansAnother(c.Configuration) {
			return true
		}
	}
	return false
}

// meansAnother reports whether what a configuration says of this server's id is
// about the one whose place it has taken (Config.AddedAfter). What that one has
// promised is lost, so this one neither leads nor votes for it.
func (cm *ConsensusModule) meansAnother(c Configuration) bool {
	return cm.config.AddedAfter != 0 && c.Address(cm.id).Since <= cm.config.AddedAfter
}

// handleChangeConfiguration begins a change (§6). If the voters change it takes
// two steps: a joint configuration first, in which neither the old nor the new
// voters can decide alone, and the new one when that is committed.
func (cm *ConsensusModule) handleChangeConfiguration(ev ChangeConfiguration) {
	next, err := cm.planChange(ev)
	if err != nil {
		cm.answer(err, ev.Request)
		return
	}
	if !next.Equal(cm.configuration) {
		cm.appendConfiguration(next)
	}
	cm.out.Answers = append(cm.out.Answers, Answer{Request: ev.Request, Index: cm.configurationIndex})
}

// planChange returns the configuration that a change begins with, the present
// one if there is nothing to change.
func (cm *ConsensusModule) planChange(ev ChangeConfiguration) (Configuration, error) {
	now, next := cm.configuration, ev.Next
	next.Addresses = cm.sinceWhen(next.Addresses)
	switch {
	case cm.state != Leader:
		return now, &NotLeaderError{Leader: cm.leaderID, Term: cm.currentTerm}
	case cm.transfer.to != None:
		return now, ErrTransferring
	case !cm.committedOwn():
		// Whether the last change is committed, a new leader does not know yet. Changes
		// of one server at a time were even unsafe here (raft-dev 2015, pitfall MB-01);
		// joint ones have the majority of the old voters in their way.
		return now, ErrChanging
	case cm.configurationIndex > cm.commitIndex:
		// A joint one is never in force and committed here: finishChange has appended
		// the next.
		return now, ErrChanging
	case next.Equal(now):
		return now, nil // a repetition of what has been done
	case ev.Expected != cm.configurationIndex:
		return now, ErrChanged
	case next.Joint():
		return now, fmt.Errorf("%w: old voters are for this package to add", ErrConfig)
	}
	if !slices.Equal(next.Voters, now.Voters) {
		next.OldVoters = now.Voters
		next = next.WithAddresses(mergeAddresses(next.Addresses, now.Addresses)...)
	}
	for _, c := range []Configuration{ev.Next, next} {
		if err := c.check(); err != nil {
			return now, err
		}
	}
	for _, id := range next.Voters {
		if !now.IsVoter(id) && !cm.caughtUp(id) {
			return now, fmt.Errorf("server %d: %w", id, ErrNotCaughtUp)
		}
	}
	return next, nil
}

// sinceWhen returns the addresses with the place of the configuration that added
// each server: of an earlier one, or of the one that is being planned.
func (cm *ConsensusModule) sinceWhen(addresses []Address) []Address {
	addresses = slices.Clone(addresses)
	for i, a := range addresses {
		addresses[i].Since = cm.log.lastIndex() + 1
		if cm.configuration.Has(a.ID) {
			addresses[i].Since = cm.configuration.Address(a.ID).Since
		}
	}
	return addresses
}

// mergeAddresses adds to first what only second knows.
func mergeAddresses(first, second []Address) []Address {
	merged := slices.Clone(first)
	for _, a := range second {
		if !slices.ContainsFunc(first, func(b Address) bool { return a.ID == b.ID }) {
			merged = append(merged, a)
		}
	}
	return merged
}

// caughtUp reports whether a learner is there, knows that it takes part, and lacks
// no more of what is committed than one message can bring. One that came in the
// place of another does not vote before it knows; its vote may then be what is
// lacking (meansAnother; seed 600951).
func (cm *ConsensusModule) caughtUp(id ServerID) bool {
	match := cm.matchIndex[id]
	return cm.configuration.Has(id) && cm.heardLately(id) && match+1 >= cm.log.first && match > 0 &&
		match >= cm.configuration.Address(id).Since &&
		encodedSize(cm.log.slice(match+1, cm.commitIndex)) <= cm.config.MaxBatchBytes
}

// appendConfiguration puts a configuration into the log and into force.
func (cm *ConsensusModule) appendConfiguration(c Configuration) {
	cm.appendToLog(LogEntry{Term: cm.currentTerm, Kind: EntryConfiguration, Command: c.AppendTo(nil)})
	cm.findConfigurations(cm.log.lastIndex())
	cm.leaderSendAEs() // to new servers as well
}

// finishChange takes the next step of a change once its configuration is
// committed, whoever has begun it: every leader gets here when its first own
// entry is committed, for that commits the change as well.
func (cm *ConsensusModule) finishChange() {
	if cm.configurationIndex > cm.commitIndex {
		return
	}
	switch c := cm.configuration; {
	case c.Joint():
		next := c
		next.OldVoters = nil
		cm.appendConfiguration(next.WithAddresses(c.Addresses...))
	case !c.IsVoter(cm.id):
		// The voters can do without us now (pitfall MB-07): they have the entry that
		// says so. Leaving without a word would cost them an election timeout.
		cm.leave()
	}
}

// leave hands over to the voter that lacks least. If that does not come about
// this server steps down all the same, see handleTransferTimeout.
func (cm *ConsensusModule) leave() {
	cm.advanceTransfer() // one that is under way ends if its target leaves, too
	if cm.transfer.to == None {
		cm.transfer = transfer{to: cm.transferTarget(None)}
		cm.restartTimer(TransferTimer)
		cm.advanceTransfer()
	}
}
