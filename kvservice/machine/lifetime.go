package machine

import "raftkv/api"

// Sessions end in three ways: their client closes them, nobody uses them for the
// retention, or they must make room. All three follow from the entries alone:
// time is log time, and what goes first is decided by last use and then by id.

// class is how a session's id has come about. The classes differ in how their
// sessions may end.
type class int

const (
	// chosenID: the client's own choice. Its first request opens a new session, so
	// to forget it before the retention could execute a retry a second time.
	chosenID class = iota

	// issuedID: made by a server and registered. If it is forgotten, nothing is
	// executed under its name again, and the client learns that.
	issuedID

	// keyID: an Idempotency-Key, a session of one request, or of one batch. Like a
	// chosen id it keeps its promise for the retention; it has room of its own, so that programs
	// which make a key for every write drive out nobody's session.
	keyID

	classes
)

func classOf(id api.ClientID) class {
	switch {
	case IsIssued(id):
		return issuedID
	case IsKey(id):
		return keyID
	}
	return chosenID
}

// use says when a session was last used; in byUse, what its place is.
type use struct {
	at LogTime
	id api.ClientID
}

// before is the order in which sessions go. Sessions of one moment need an order
// too, and it must be the same on all servers.
func (u use) before(v use) bool {
	if u.at != v.at {
		return u.at < v.at
	}
	return u.id < v.id
}

// expiriesPerEntry bounds the work of one entry. When time jumps, because nobody
// has written for a day, a hundred thousand sessions are overdue at once. It is
// more than an entry can open, so the overdue ones become fewer. The number
// decides what the state is after each entry: changing it needs a new version of
// the encoding.
const expiriesPerEntry = 32

// expire forgets sessions that were not used for the retention, in the order of
// their last use. If more are overdue, the next entries go on; a session that is
// used before its turn comes stays.
func (m *Machine) expire(entry *Applied) {
	for c := range classes {
		n := 0
		for n < expiriesPerEntry && m.forgetOverdue(c, entry) {
			n++
		}
	}
}

// overdue returns the first session of a class that nobody has used for the retention.
func (m *Machine) overdue(c class) (oldest use, ok bool) {
	if !m.settings.hasLifetimes() || uint64(m.now) < m.settings.RetentionMillis {
		return use{}, false
	}
	return m.sessions.leastUsed(c, m.now-LogTime(m.settings.RetentionMillis))
}

// makeRoom sees to it that a session can be opened for the client of c. If there are as many
// as may be, one goes that is overdue, or else the least recently used one with
// an issued id. It reports false if there is none: chosen ids and keys are not
// forgotten before their time, whatever the need.
//
// One comes and one goes. A store that had more when the bound came keeps them
// until they expire.
func (m *Machine) makeRoom(c *Command, entry *Applied) bool {
	if !m.settings.hasLifetimes() {
		return true
	}
	if c.isKeyed() {
		return m.makeRoomForKey(max(1, len(c.Operations)), entry)
	}
	if uint64(m.Sessions()) < m.settings.MaxSessions || m.forgetOverdue(chosenID, entry) || m.forgetOverdue(issuedID, entry) {
		return true
	}
	oldest, ok := m.sessions.leastUsed(issuedID, m.now)
	if ok {
		m.sessions.forget(oldest.id)
		entry.Evicted++
	}
	return ok
}

// makeRoomForKey is makeRoom for a key with n records: all together may have as
// many as MaxKeys. If they have more, as many must go as come.
func (m *Machine) makeRoomForKey(n int, entry *Applied) bool {
	most := max(m.settings.MaxKeys, uint64(m.sessions.keyRecords))
	for uint64(m.sessions.keyRecords+n) > most {
		if !m.forgetOverdue(keyID, entry) {
			return false
		}
	}
	return true
}

// forgetOverdue forgets the first overdue session of a class, if there is one.
func (m *Machine) forgetOverdue(c class, entry *Applied) bool {
	oldest, ok := m.overdue(c)
	if ok {
		m.sessions.forget(oldest.id)
		entry.Expired++
	}
	return ok
}

// noRoom refuses to open a session.
func noRoom(outcome api.Outcome) Result {
	return refuse(api.StatusBusy, outcome, "there is no room for another session until an old one expires; nothing was done now")
}

// applyOpenSession registers an id. A server submits it once; if it were there
// already, nothing would change.
func (m *Machine) applyOpenSession(c *Command, entry *Applied) Result {
	if _, known := m.sessions.get(c.ClientID); !known {
		if !m.makeRoom(c, entry) {
			return noRoom(api.OutcomeNotApplied) // nobody submits it again
		}
		m.sessions.open(c.ClientID, m.now)
	}
	return Result{Status: api.StatusOK, Outcome: api.OutcomeApplied}
}

// applyCloseSession forgets a client, whether it is known or not. An issued id
// has no session again. A chosen one has, if a copy of its request 1 is still
// under way: to close it is the client's promise that there is none.
func (m *Machine) applyCloseSession(id api.ClientID) Result {
	m.sessions.forget(id)
	return Result{Status: api.StatusOK, Outcome: api.OutcomeApplied}
}
