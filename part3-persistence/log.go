package raft

// EntryKind says whose business an entry is.
type EntryKind uint8

const (
	EntryCommand EntryKind = iota // a client's command
	EntryEmpty                    // a new leader's first entry, see startLeader
)

// LogEntry is one place in the log. Two logs that agree on the term at an
// index agree on everything up to it (Figure 3, Log Matching). An entry is
// never changed once it is in a log.
type LogEntry struct {
	Term    Term
	Kind    EntryKind
	Command []byte
}

// log is the sequence of entries. Index 1 is the first entry and index 0 the
// empty place before it, so that the first entry has a predecessor like all others.
type log []LogEntry

func newLog(entries []LogEntry) log {
	return append(make(log, 1, 1+len(entries)), entries...)
}

func (l log) lastIndex() Index { return Index(len(l) - 1) }
func (l log) lastTerm() Term   { return l[len(l)-1].Term }

// matches reports whether the log has an entry of term t at index i (AE-2).
func (l log) matches(i Index, t Term) bool {
	return i <= l.lastIndex() && l[i].Term == t
}

// upToDate reports whether a log that ends with (index, term) is at least as
// up-to-date as this one (end of §5.4.1): a later last term wins, and only
// between equal terms does the length decide.
func (l log) upToDate(index Index, term Term) bool {
	if term != l.lastTerm() {
		return term > l.lastTerm()
	}
	return index >= l.lastIndex()
}

// appendAfter makes entries follow index prev, which the log must hold, and
// returns the index of the last of them (AE-3 and AE-4). It cuts the log only
// where an entry conflicts, and keeps what stands behind entries if none does:
// an old, shorter message must not remove what a newer one brought.
func (l *log) appendAfter(prev Index, entries []LogEntry) Index {
	for n, e := range entries {
		i := prev + 1 + Index(n)
		if l.matches(i, e.Term) {
			continue
		}
		if i <= l.lastIndex() {
			// The cap forces the append to copy: messages under way and a Save not yet
			// written may share the entries that are dropped here.
			*l = (*l)[:i:i]
		}
		*l = append(*l, entries[n:]...)
		break
	}
	return prev + Index(len(entries))
}

// firstOfTerm returns the lowest index that carries the term found at index i.
func (l log) firstOfTerm(i Index) Index {
	for i > 1 && l[i-1].Term == l[i].Term {
		i--
	}
	return i
}

// lastOfTerm returns the highest index, at most limit, whose entry has term t;
// 0 if there is none. Terms never fall along a log.
func (l log) lastOfTerm(t Term, limit Index) Index {
	i := min(limit, l.lastIndex())
	for l[i].Term > t {
		i--
	}
	if l[i].Term != t {
		return 0
	}
	return i
}

// changedFrom returns the lowest index at which the log is not as it was before;
// 0 if there is none. Where the terms agree, so does all up to there (Figure 3,
// Log Matching): two moments of one log are two logs.
func (l log) changedFrom(before log) Index {
	if len(l) == len(before) && l.lastTerm() == before.lastTerm() {
		return 0
	}
	i := min(l.lastIndex(), before.lastIndex())
	for l[i].Term != before[i].Term {
		i--
	}
	return i + 1
}
