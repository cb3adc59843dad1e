package raft

// A Snapshot describes the state of a state machine after the entry at Index
// (§7). It stands for the log up to there. Its bytes are the storage's; they
// never come through this package, except a part at a time on their way to a
// follower.
type Snapshot struct {
	Index Index
	Term  Term // of the entry at Index

	// The latest configuration up to Index, and where it stood in the log.
	Configuration      Configuration
	ConfigurationIndex Index

	Size     uint64 // in bytes; at least 1, or no part would bring it
	Checksum uint32 // CRC32C of the bytes
}

// Same reports whether the bytes of two snapshots are equal: a part of the one
// is a part of the other.
func (s Snapshot) Same(t Snapshot) bool {
	return s.Index == t.Index && s.Term == t.Term && s.Size == t.Size && s.Checksum == t.Checksum
}

// Chunk is a part of a snapshot that is being received. Chunks come in order and
// without a hole; Offset 0 begins a snapshot anew, whatever came before.
type Chunk struct {
	Snapshot Snapshot
	Offset   uint64
	Data     []byte
}

// Last reports whether this chunk completes the snapshot.
func (c Chunk) Last() bool { return c.Offset+uint64(len(c.Data)) == c.Snapshot.Size }

// receiving is what a follower has of a snapshot. It is lost in a crash; the
// leader is then told to begin at 0.
type receiving struct {
	snapshot Snapshot
	next     uint64 // how many bytes have come
}

// startSnapshot takes up the snapshot that was found on the disk. The state
// machine begins with it.
func (cm *ConsensusModule) startSnapshot(s Snapshot) {
	if s.Index == 0 {
		return
	}
	cm.snapshot = s
	cm.deliverSnapshot(s)
}

// deliverSnapshot gives the state machine a snapshot to go on from, as an
// element of the same stream in which the entries come.
func (cm *ConsensusModule) deliverSnapshot(s Snapshot) {
	cm.commitIndex, cm.delivered = s.Index, s.Index
	cm.out.Commit = append(cm.out.Commit, CommitEntry{Index: s.Index, Term: s.Term, Kind: EntrySnapshot, Installed: &InstalledSnapshot{Snapshot: s}})
}

// handleSnapshotStored goes on from a snapshot: this server's own, after which
// the log may be cut short, or one from a leader, which replaces what the log
// does not have.
func (cm *ConsensusModule) handleSnapshotStored(ev SnapshotStored) {
	s := ev.Snapshot
	if s.Index <= cm.snapshot.Index {
		return // one that took long, and a newer one was faster
	}
	if s.Index > cm.commitIndex {
		cm.install(s)
	}
	cm.snapshot = s
	cm.countBacklog()
	cm.compact()
}

// install makes the log begin behind a snapshot that this server did not take
// (Figure 13, InstallSnapshot RPC, receiver rules 6 to 8).
func (cm *ConsensusModule) install(s Snapshot) {
	if cm.log.matches(s.Index, s.Term) {
		// The log has all of it, and what stands behind it may have been
		// acknowledged: that the snapshot exists only tells what is committed.
		cm.commitTo(s.Index)
		return
	}
	// An entry of another term at the last index, or none. Nothing here is
	// committed, and nothing of it fits behind the snapshot.
	cm.log = newLog(LogPosition{s.Index, s.Term}, nil)
	cm.log.reset = true
	cm.savedIndex = s.Index
	cm.baseConfiguration(s.ConfigurationIndex, s.Configuration)
	cm.deliverSnapshot(s)
}

// compact drops the beginning of the log, which the snapshot stands for. It
// keeps a tail for followers that were away for a moment, and what one that is
// catching up needs next: else that one would have to be sent a snapshot, and
// when it has it another one, and again (pitfall SN-10). It never drops what the
// state machine has yet to take in.
func (cm *ConsensusModule) compact() {
	upTo := min(cm.snapshot.Index, cm.lastApplied)
	for tail := 0; upTo >= cm.log.first; upTo-- {
		tail += cm.log.entry(upTo).EncodedSize()
		if tail > cm.config.TrailingBytes {
			break
		}
	}
	for _, peerID := range cm.peerIDs {
		if has, follows := cm.catchingUp(peerID); follows && cm.affords(has) {
			upTo = min(upTo, has)
		}
	}
	if upTo >= cm.log.first {
		cm.log.compact(upTo)
		cm.out.Compact = upTo
	}
}

// catchingUp returns up to where a follower has the log, or will have it when it
// has got the snapshot that it is being sent, and whether anything is kept for
// it: not for one that has been silent.
func (cm *ConsensusModule) catchingUp(id ServerID) (has Index, follows bool) {
	w := cm.windows[id]
	switch {
	case w == nil:
		return 0, false
	case w.sending:
		return w.snapshot.Index, true
	}
	return cm.matchIndex[id], cm.preVote.heard[id] || cm.preVote.heardBefore[id]
}

// affords reports whether the log from index on may be kept for a follower's sake.
func (cm *ConsensusModule) affords(index Index) bool {
	return encodedSize(cm.log.slice(max(index+1, cm.log.first), cm.log.lastIndex())) <= cm.config.MaxBacklogBytes
}

// lacksLog reports whether the entries that a follower needs next are gone.
func (cm *ConsensusModule) lacksLog(to ServerID) bool { return cm.nextIndex[to] < cm.log.first }

// askSnapshot asks a follower how much of a snapshot it has. Only its answer
// makes the leader send a part, so a lost part or a restart needs no rule of its
// own, and a dead follower costs nothing but this question.
func (cm *ConsensusModule) askSnapshot(to ServerID) {
	w := cm.windows[to]
	if !w.sending || w.snapshot.Index+1 < cm.log.first {
		w.sending, w.snapshot, w.sentRound = true, cm.snapshot, 0
	}
	w.probe()
	cm.sendSnapshot(to, 0, 0)
}

func (cm *ConsensusModule) sendSnapshot(to ServerID, offset, length uint64) {
	cm.sendNow(to, InstallSnapshotArgs{
		Term:     cm.currentTerm,
		LeaderID: cm.id,
		Snapshot: cm.windows[to].snapshot,
		Offset:   offset,
		Length:   length,
		Round:    cm.reads.round,
	})
}

// handleInstallSnapshot is the follower's side (Figure 13). Step has applied
// ALL-2 already, so args.Term is at most currentTerm.
func (cm *ConsensusModule) handleInstallSnapshot(from ServerID, args InstallSnapshotArgs) {
	reply := InstallSnapshotReply{
		AskedTerm:     args.Term,
		SnapshotIndex: args.Snapshot.Index,
		Round:         args.Round,
	}
	if args.Term == cm.currentTerm {
		cm.assertf(cm.state != Leader, "this term is also led by server %d", from)
		cm.becomeFollower(args.Term, from)
		cm.heardFromLeader(args.Round)
		if cm.log.matches(args.Snapshot.Index, args.Snapshot.Term) {
			cm.commitTo(args.Snapshot.Index) // see install
		}
		if args.Snapshot.Index <= cm.commitIndex {
			// Nothing is lacking: an old message, or the entries came another way. What
			// is committed the leader has too.
			reply.MatchIndex = cm.commitIndex
		} else {
			reply.NextOffset = cm.receive(args)
		}
	}
	reply.Term = cm.currentTerm
	cm.send(from, reply)
}

// receive takes a part if it is the next one, and returns where the next begins.
func (cm *ConsensusModule) receive(args InstallSnapshotArgs) (next uint64) {
	r := &cm.receiving
	if !r.snapshot.Same(args.Snapshot) {
		*r = receiving{snapshot: args.Snapshot}
	}
	length := uint64(len(args.Data))
	if length > 0 && args.Offset == r.next && length <= r.snapshot.Size-r.next {
		cm.out.Receive = append(cm.out.Receive, Chunk{r.snapshot, r.next, args.Data})
		r.next += length
	}
	return r.next
}

// handleSnapshotDamaged begins anew with a snapshot that has come with other
// bytes than its checksum says.
func (cm *ConsensusModule) handleSnapshotDamaged(ev SnapshotDamaged) {
	if cm.receiving.snapshot.Same(ev.Snapshot) {
		cm.receiving = receiving{}
	}
}

// handleInstallSnapshotReply is the leader's side: it sends the part that the
// follower wants, or goes back to sending entries.
func (cm *ConsensusModule) handleInstallSnapshotReply(from ServerID, reply InstallSnapshotReply) {
	if !cm.takesReply(from, reply.AskedTerm, reply.Round, reply.MatchIndex) {
		return
	}
	switch w := cm.windows[from]; {
	case reply.MatchIndex != 0:
		cm.handleMatch(from, reply.MatchIndex)
	case !w.sending || reply.SnapshotIndex != w.snapshot.Index || reply.NextOffset >= w.snapshot.Size:
		// an old reply, or all has come and is being installed
	case reply.NextOffset != w.sentOffset || reply.Round > w.sentRound:
		// The next part; or the last one again, because the follower has taken in a
		// later message of ours without it.
		w.sentOffset, w.sentRound = reply.NextOffset, cm.reads.round
		cm.sendSnapshot(from, reply.NextOffset, min(w.snapshot.Size-reply.NextOffset, uint64(cm.config.MaxBatchBytes)))
	}
}
