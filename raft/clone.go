package raft

import (
	"encoding/binary"
	"maps"
	"slices"
)

// Clone returns an independent copy, so that a simulator can step back or try
// two futures. Entries are shared; nobody changes them.
func (cm *ConsensusModule) Clone() *ConsensusModule {
	c := *cm
	c.log.entries = slices.Clip(cm.log.entries)
	c.votesReceived = maps.Clone(cm.votesReceived)
	c.nextIndex = maps.Clone(cm.nextIndex)
	c.matchIndex = maps.Clone(cm.matchIndex)
	c.preVote.votes = maps.Clone(cm.preVote.votes)
	c.preVote.heard = maps.Clone(cm.preVote.heard)
	c.preVote.heardBefore = maps.Clone(cm.preVote.heardBefore)
	c.reads.acked = maps.Clone(cm.reads.acked)
	c.reads.waiting = slices.Clip(cm.reads.waiting)
	c.reads.asked = slices.Clip(cm.reads.asked)
	c.transfer.waiting = slices.Clip(cm.transfer.waiting)
	if cm.windows != nil {
		c.windows = make(map[ServerID]*window, len(cm.windows))
		for _, p := range cm.peerIDs {
			w := *cm.windows[p]
			w.ends = slices.Clone(w.ends)
			c.windows[p] = &w
		}
	}
	return &c
}

// AppendState appends everything that decides what this module will do, for
// tools that must know whether they have been in a state before. Servers are
// called by what name says, so that states which differ only in who is who can
// be found equal. Left out is what only tells one run of a timer, or one round,
// from the next; and what only reads, transfers, snapshots and changes of the
// configuration use, which such tools do not ask for.
func (cm *ConsensusModule) AppendState(b []byte, name func(ServerID) ServerID) []byte {
	number := func(v uint64) { b = binary.AppendUvarint(b, v) }
	set := func(has map[ServerID]bool) {
		var bits uint64
		for _, id := range cm.configuration.Members() {
			if has[id] {
				bits |= 1 << name(id)
			}
		}
		number(bits)
	}
	someone := func(id ServerID) {
		if id != None {
			id = name(id)
		}
		number(uint64(id))
	}
	someone(cm.id)
	number(uint64(cm.state))
	someone(cm.leaderID)
	number(uint64(cm.currentTerm))
	someone(cm.votedFor)
	number(uint64(cm.log.first))
	number(uint64(len(cm.log.entries)))
	for _, e := range cm.log.entries {
		number(uint64(e.Term))
		number(uint64(e.Kind))
		number(uint64(len(e.Command)))
		b = append(b, e.Command...)
	}
	for _, i := range [...]Index{cm.commitIndex, cm.lastApplied, cm.delivered, cm.savedIndex} {
		number(uint64(i))
	}
	number(uint64(cm.savedTerm))
	set(cm.votesReceived)
	number(cm.preVote.round)
	set(cm.preVote.votes)
	set(cm.preVote.heard)
	if cm.preVote.leaderContact {
		number(1)
	} else {
		number(0)
	}
	for kind := range cm.timers {
		number(uint64(min(cm.timers[kind], 1))) // whether it runs
	}
	if cm.state != Leader {
		return b
	}
	peers := slices.Clone(cm.peerIDs)
	slices.SortFunc(peers, func(x, y ServerID) int { return int(name(x)) - int(name(y)) })
	for _, p := range peers {
		number(uint64(cm.nextIndex[p]))
		number(uint64(cm.matchIndex[p]))
		w := cm.windows[p]
		if w.probing {
			number(1)
		} else {
			number(0)
		}
		number(uint64(len(w.ends)))
		for _, end := range w.ends {
			number(uint64(end))
		}
	}
	return b
}
