package raft

import "slices"

// window says what is under way to one follower. A leader does not wait for
// an answer before it sends the next entries: it believes in nextIndex and
// moves it on (pipelining, thesis 10.2.1). A refusal proves it wrong; then the
// leader probes, one empty message at a time, until the logs agree again.
//
// Lost messages need no timer of their own. A heartbeat follows the last entry
// sent, so a follower that misses one refuses it.
type window struct {
	probing bool

	// since is the first of our rounds that a follower took part in which was added
	// in this term. An answer to an earlier one is that of a server which had the
	// same id, and whose disk may be lost.
	since Round

	// ends holds the last index of each message with entries that is not yet
	// answered. Derived from indexes, not counted, so a lost answer cannot leak
	// a place: any later match frees all up to it.
	ends []Index

	// A follower that lacks what is no longer in the log is sent this snapshot,
	// see snapshot.go. It stays the same until the follower has it.
	sending    bool
	snapshot   Snapshot
	sentOffset uint64 // the part that was sent last
	sentRound  Round  // and our round then
}

func (w *window) free(match Index) {
	n := 0
	for n < len(w.ends) && w.ends[n] <= match {
		n++
	}
	w.ends = slices.Delete(w.ends, 0, n)
}

func (w *window) probe() {
	w.probing = true
	w.ends = w.ends[:0]
}

// sendEntries sends a follower the entries that it lacks and its window
// admits, and reports whether that was any.
func (cm *ConsensusModule) sendEntries(to ServerID) (sent bool) {
	w := cm.windows[to]
	for !w.probing && !cm.lacksLog(to) && len(w.ends) < cm.config.MaxInflight && cm.nextIndex[to] <= cm.log.lastIndex() {
		entries := cm.batch(cm.nextIndex[to])
		cm.sendNow(to, cm.appendEntriesArgs(to, entries))
		cm.nextIndex[to] += Index(len(entries))
		w.ends = append(w.ends, cm.nextIndex[to]-1)
		sent = true
	}
	return sent
}

func (cm *ConsensusModule) sendHeartbeat(to ServerID) {
	if cm.lacksLog(to) {
		cm.askSnapshot(to)
		return
	}
	cm.sendNow(to, cm.appendEntriesArgs(to, nil))
}

func (cm *ConsensusModule) appendEntriesArgs(to ServerID, entries []LogEntry) AppendEntriesArgs {
	prev := cm.nextIndex[to] - 1
	prevTerm, known := cm.log.term(prev)
	cm.assertf(known, "the entry before nextIndex %d of server %d is not in the log", cm.nextIndex[to], to)
	return AppendEntriesArgs{
		Term:         cm.currentTerm,
		LeaderID:     cm.id,
		PrevLogIndex: prev,
		PrevLogTerm:  prevTerm,
		Entries:      entries,
		LeaderCommit: cm.commitIndex,
		Round:        cm.reads.round,
	}
}

// batch returns the entries from index lo on that fit into one message: at
// least one, and without a hole.
func (cm *ConsensusModule) batch(lo Index) []LogEntry {
	hi, bytes := lo, cm.log.entry(lo).EncodedSize()
	for hi < cm.log.lastIndex() {
		bytes += cm.log.entry(hi + 1).EncodedSize()
		if bytes > cm.config.MaxBatchBytes {
			break
		}
		hi++
	}
	return cm.log.slice(lo, hi)
}

// handleApplied notes how far the state machine is (lastApplied, Figure 2).
// What it has taken in no longer counts as backlog.
func (cm *ConsensusModule) handleApplied(ev Applied) {
	cm.assertf(ev.Index <= cm.delivered, "index %d was applied, but only %d was delivered", ev.Index, cm.delivered)
	if ev.Index <= cm.lastApplied {
		return
	}
	cm.backlogBytes -= encodedSize(cm.log.slice(cm.backlogStart(), ev.Index))
	tookSnapshot := cm.lastApplied < cm.snapshot.Index && ev.Index >= cm.snapshot.Index
	cm.lastApplied = ev.Index
	if tookSnapshot {
		cm.compact() // what it stands for is not needed any more
	}
}

// recountBacklog adjusts backlogBytes after entries from log.changedFrom on
// were appended or replaced.
func (cm *ConsensusModule) recountBacklog(lastBefore Index) {
	if cm.log.changedFrom > lastBefore {
		cm.backlogBytes += encodedSize(cm.log.slice(cm.log.changedFrom, cm.log.lastIndex()))
		return
	}
	// A conflict is rare, and what it dropped is gone: count afresh.
	cm.countBacklog()
}

func (cm *ConsensusModule) countBacklog() {
	cm.backlogBytes = encodedSize(cm.log.slice(cm.backlogStart(), cm.log.lastIndex()))
}

// backlogStart returns the first index that counts as backlog. What a snapshot
// stands for does not, even while the state machine still reads it.
func (cm *ConsensusModule) backlogStart() Index {
	return max(cm.lastApplied, cm.snapshot.Index) + 1
}

func encodedSize(entries []LogEntry) int {
	n := 0
	for _, e := range entries {
		n += e.EncodedSize()
	}
	return n
}
