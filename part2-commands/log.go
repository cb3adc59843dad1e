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

func newLog() log { return make(log, 1) }

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
			// The cap forces the append to copy: messages under way may share the
			// entries that are dropped here.
			*l = (*l)[:i:i]
		}
		*l = append(*l, entries[n:]...)
		break
	}
	return prev + Index(len(entries))
}
