package raft

import "sort"

// EntryKind says whose business an entry is.
type EntryKind uint8

const (
	EntryCommand EntryKind = iota // a client's command
	EntryEmpty                    // a new leader's first entry, see startLeader

	// EntryConfiguration holds an encoded Configuration (membership.go).
	EntryConfiguration

	// EntrySnapshot is never in a log: it brings an installed snapshot to the state
	// machine (CommitEntry.Installed).
	EntrySnapshot
)

// LogEntry is one place in the log. Two logs that agree on the term at an
// index agree on everything up to it (Figure 3, Log Matching). An entry is
// never changed once it is in a log.
type LogEntry struct {
	Term    Term
	Kind    EntryKind
	Command []byte
}

// log is the sequence of entries. It begins at index 1, or behind what a snapshot
// stands for, and knows the term of the place before its first entry, so that
// the first entry has a predecessor like all others.
//
// All arithmetic between indexes and slice positions is in this file.
type log struct {
	// entries[0] is no entry: its Term is that of the place before the first
	// entry, which stands at index first-1.
	entries []LogEntry
	first   Index

	// changedFrom is the lowest index that was written since Step began; 0 if none.
	// reset: since Step began the log was replaced by one that begins elsewhere.
	changedFrom Index
	reset       bool
}

// newLog returns the log that follows a place: the zero LogPosition, or one that
// a snapshot covers.
func newLog(prev LogPosition, entries []LogEntry) log {
	l := log{entries: make([]LogEntry, 1, 1+len(entries)), first: prev.Index + 1}
	l.entries[0].Term = prev.Term
	l.entries = append(l.entries, entries...)
	return l
}

// compact drops the entries up to index i, which the log must hold. The rest is
// copied, because it would keep the memory of all.
func (l *log) compact(i Index) {
	*l = log{
		entries:     append([]LogEntry{{Term: l.entries[l.at(i)].Term}}, l.entries[l.at(i)+1:]...),
		first:       i + 1,
		changedFrom: l.changedFrom,
		reset:       l.reset,
	}
}

func (l *log) at(i Index) int         { return int(i - l.first + 1) }
func (l *log) lastIndex() Index       { return l.first - 1 + Index(len(l.entries)-1) }
func (l *log) lastTerm() Term         { return l.entries[len(l.entries)-1].Term }
func (l *log) holds(i Index) bool     { return i+1 >= l.first && i <= l.lastIndex() }
func (l *log) entry(i Index) LogEntry { return l.entries[l.at(i)] }

// term returns the term at index i; known is false if the log does not reach
// there. A missing entry has no term: answering 0 would make it equal to the
// place before the first entry.
func (l *log) term(i Index) (t Term, known bool) {
	if !l.holds(i) {
		return 0, false
	}
	return l.entries[l.at(i)].Term, true
}

// matches reports whether the log has an entry of term t at index i (AE-2).
func (l *log) matches(i Index, t Term) bool {
	term, known := l.term(i)
	return known && term == t
}

// upToDate reports whether a log that ends with (index, term) is at least as
// up-to-date as this one (end of §5.4.1): a later last term wins, and only
// between equal terms does the length decide.
func (l *log) upToDate(index Index, term Term) bool {
	if term != l.lastTerm() {
		return term > l.lastTerm()
	}
	return index >= l.lastIndex()
}

// append adds entries at the end.
func (l *log) append(entries ...LogEntry) {
	if len(entries) == 0 {
		return
	}
	l.changed(l.lastIndex() + 1)
	l.entries = append(l.entries, entries...)
}

// appendAfter makes entries follow index prev, up to which the logs agree, and
// returns the index of the last of them (AE-3 and AE-4). It cuts the log only
// where an entry conflicts, and keeps what stands behind entries if none does:
// an old, shorter message must not remove what a newer one brought. Entries from
// before the log's beginning are committed, so they are the same as these.
func (l *log) appendAfter(prev Index, entries []LogEntry) Index {
	for n, e := range entries {
		i := prev + 1 + Index(n)
		if i < l.first || l.matches(i, e.Term) {
			continue
		}
		if i <= l.lastIndex() {
			// The cap forces the append to copy: messages under way and a Save not yet
			// written may share the entries that are dropped here.
			l.entries = l.entries[:l.at(i):l.at(i)]
		}
		l.append(entries[n:]...)
		break
	}
	return prev + Index(len(entries))
}

// slice returns the entries from index lo to hi, both included. The result
// shares memory with the log and must not be changed.
func (l *log) slice(lo, hi Index) []LogEntry {
	if lo > hi {
		return nil
	}
	return l.entries[l.at(lo) : l.at(hi)+1 : l.at(hi)+1]
}

// firstOfTerm returns the lowest index that carries the term found at index i.
func (l *log) firstOfTerm(i Index) Index {
	t := l.entries[l.at(i)].Term
	n := sort.Search(len(l.entries), func(n int) bool { return l.entries[n].Term >= t })
	return max(l.first, l.first-1+Index(n))
}

// lastOfTerm returns the highest index, at most limit, whose entry has term t;
// 0 if there is none. Terms never fall along a log, so a binary search finds it.
func (l *log) lastOfTerm(t Term, limit Index) Index {
	last := min(limit, l.lastIndex())
	if last < l.first {
		return 0
	}
	n := sort.Search(l.at(last)+1, func(n int) bool { return l.entries[n].Term > t }) - 1
	if n < 1 || l.entries[n].Term != t {
		return 0
	}
	return l.first - 1 + Index(n)
}

func (l *log) changed(from Index) {
	if l.changedFrom == 0 || from < l.changedFrom {
		l.changedFrom = from
	}
}
