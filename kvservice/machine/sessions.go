package machine

import (
	"strings"

	"github.com/tidwall/btree"

	"raftkv/api"
)

// sessions are the posts' lastRequestIDPerClient, plus what lets a client have
// many calls in flight and get a lost answer again: instead of the last number,
// the low-water mark Acked and, for each number above it that was executed, a
// fingerprint and the result.
type sessions struct {
	byClient *btree.Map[api.ClientID, *session]

	// byUse has the sessions of each class about in the order in which they go: to
	// move a session at each use would cost more than all else that a use changes.
	// So each stands where it was put last, and leastUsed puts those right that have
	// come to the front.
	// Invariant: it holds (place, id) of every session, and nothing else.
	byUse [classes]*btree.BTreeG[use]

	// keyRecords is how many records the sessions of Idempotency-Keys have.
	keyRecords int
}

// session is what the machine remembers of one client.
type session struct {
	// acked is the low-water mark: for every number up to it the client has its
	// answer or has given it up. Those numbers are never executed again.
	acked uint64

	// records has the numbers that were executed.
	// Invariant: acked < number <= acked + Settings.Window for each of them.
	records records

	// valueBytes is the length of all values in the recorded results.
	// Invariant: valueBytes <= Settings.SessionBytes.
	valueBytes uint64

	// lastUse is the log time of the last write that came for the session,
	// whatever became of it; before the first, of the registration.
	// Invariant: lastUse <= Machine.now.
	lastUse LogTime

	// place is the time under which the session stands in byUse.
	// Invariant: place <= lastUse < place + placeMillis.
	place LogTime
}

// placeMillis is how far, in milliseconds of log time, a session may have been used
// behind its place. It decides nothing but how much work is done when. Were it
// longer, more sessions might have to be moved at once.
const placeMillis = 1000

// record is an executed request. Its result is kept as long as there is room;
// the fingerprint and the outcome until the number is acknowledged.
type record struct {
	fingerprint Fingerprint
	result      Result
	dropped     bool // the result but for its outcome is gone, or was never kept (Settings.ReportDuplicates)
}

func newSessions() sessions {
	t := sessions{byClient: new(btree.Map[api.ClientID, *session])}
	for c := range t.byUse {
		t.byUse[c] = btree.NewBTreeGOptions(use.before, btree.Options{NoLocks: true})
	}
	return t
}

func (t *sessions) clone() sessions {
	c := sessions{byClient: t.byClient.IsoCopy(), keyRecords: t.keyRecords}
	for i := range t.byUse {
		c.byUse[i] = t.byUse[i].IsoCopy()
	}
	return c
}

// get returns a client's session, ready to be changed.
func (t *sessions) get(id api.ClientID) (s *session, known bool) { return t.byClient.GetMut(id) }

// open makes a session for a client that has none.
func (t *sessions) open(id api.ClientID, now LogTime) *session {
	s := &session{lastUse: now, place: now}
	id = api.ClientID(strings.Clone(string(id))) // see Decode
	t.byClient.Set(id, s)
	t.byUse[classOf(id)].Set(use{now, id})
	return s
}

// touch notes that a session is used now.
func (t *sessions) touch(id api.ClientID, s *session, now LogTime) {
	s.lastUse = now
	if now-s.place >= placeMillis {
		t.move(id, s)
	}
}

// move puts a session where it belongs in byUse.
func (t *sessions) move(id api.ClientID, s *session) {
	byUse := t.byUse[classOf(id)]
	u, _ := byUse.Delete(use{s.place, id})
	s.place = s.lastUse
	byUse.Set(use{s.place, u.id}) // its own id, which is no part of a command
}

// leastUsed returns the session of a class that goes first, if it was last used at
// or before a time: among them the one that was not used for the longest. No session
// stands behind its last use, so if the first one stands right, it is the first.
func (t *sessions) leastUsed(c class, until LogTime) (first use, ok bool) {
	for {
		first, ok = t.byUse[c].Min()
		if !ok || first.at > until {
			return use{}, false
		}
		s, _ := t.byClient.Get(first.id)
		if s.place == s.lastUse {
			return first, true
		}
		s, _ = t.get(first.id)
		t.move(first.id, s)
	}
}

// forget ends a session. If there is none, nothing changes.
func (t *sessions) forget(id api.ClientID) {
	if s, known := t.byClient.Delete(id); known {
		t.byUse[classOf(id)].Delete(use{s.place, id})
		if IsKey(id) {
			t.keyRecords -= s.records.Len()
		}
	}
}

// IsoCopy returns a copy that may be changed without changing s. The tree of
// sessions calls it when it copies the node that s is in, after a clone. From
// then on nobody changes s, but another goroutine may be reading it.
func (s *session) IsoCopy() *session {
	c := *s
	c.records = s.records.lend()
	return &c
}

// applyWrite decides whether a write is new, and executes it if so. Check,
// execution and record are one step of one entry: nothing can come between.
// The cases stand in the order of the table in docs/sessions.md.
func (m *Machine) applyWrite(c *Command, id Identity, entry *Applied) (Result, Event) {
	if c.RequestID == 0 {
		return m.execute(c), EventCommitted // no session; nobody sends it again
	}
	s, known := m.sessions.get(c.ClientID)
	if !known {
		if IsIssued(c.ClientID) || c.RequestID != 1 {
			return sessionExpired(c.ClientID), EventRefused
		}
		if !m.makeRoom(c, entry) {
			// A later copy may find room, so this is not the last word.
			return noRoom(api.OutcomeUnknown), EventRefused
		}
		s = m.sessions.open(c.ClientID, m.now)
	}
	m.sessions.touch(c.ClientID, s, m.now)
	s.acknowledge(c.AckedThrough)
	if c.RequestID <= s.acked {
		return refuse(api.StatusStaleRequest, api.OutcomeUnknown,
			"the client has said that it is done with this number; nothing was done now, and what was done then is no longer known"), EventRefused
	}
	if r, recorded := s.records.Get(c.RequestID); recorded {
		if r.fingerprint != id.Fingerprint {
			return mismatch(), EventRefused
		}
		return r.again(), EventDuplicate
	}
	if c.RequestID-s.acked > m.settings.Window {
		// A later copy may be executed when the client has acknowledged more, so
		// this is not the last word on the request.
		return refuse(api.StatusWindowExceeded, api.OutcomeUnknown,
			"the number is too far above AckedThrough; nothing was done now; send the same number again later"), EventRefused
	}
	result := m.execute(c)
	m.record(c.ClientID, s, c.RequestID, record{fingerprint: id.Fingerprint, result: result})
	return result, EventCommitted
}

// record remembers an executed request of a session.
func (m *Machine) record(id api.ClientID, s *session, number uint64, r record) {
	if m.settings.ReportDuplicates {
		r.drop()
	}
	s.record(number, r, m.settings.SessionBytes)
	if IsKey(id) {
		m.sessions.keyRecords++
	}
}

// mismatch refuses a request whose number, or key, belongs to another one.
func mismatch() Result {
	return refuse(api.StatusRequestMismatch, api.OutcomeNotApplied,
		"this RequestID, or Idempotency-Key, belongs to another request already; nothing was done")
}

// sessionExpired refuses a write of a session that is not there. Executing it
// could be a second time. An issued id is never registered again, so no later
// copy of this request will be executed either; a chosen id may be opened again
// by its first request.
func sessionExpired(id api.ClientID) Result {
	if IsIssued(id) {
		return refuse(api.StatusSessionExpired, api.OutcomeNotApplied,
			"this cluster does not know the ClientID; nothing was done for this copy of the request; register again with "+api.PathSession)
	}
	return refuse(api.StatusSessionExpired, api.OutcomeUnknown,
		"this cluster does not know the ClientID, and only RequestID 1 opens a session; nothing was done now, and whether an earlier copy was executed is not known")
}

// acknowledge forgets the numbers that the client is done with.
func (s *session) acknowledge(through uint64) {
	s.acked = max(s.acked, through)
	s.valueBytes -= s.records.acknowledge(s.acked)
}

// record remembers an executed request, failures included: a retry must not be
// luckier than the first attempt (pitfall: a compare-and-set that was answered
// "false" and then succeeds). If the values outgrow the room for them, those of
// the lowest numbers go first. A value that has no room even alone is not kept
// and drives out no other.
func (s *session) record(number uint64, r record, room uint64) {
	if r.valueBytes() > room {
		r.drop()
	}
	s.records.Set(number, r)
	s.valueBytes += r.valueBytes()
	for s.valueBytes > room {
		s.dropLowest()
	}
}

// dropLowest drops the result of the lowest number that has a value.
func (s *session) dropLowest() {
	var number uint64
	var lowest record
	s.records.Scan(func(n uint64, r record) bool {
		number, lowest = n, r
		return r.valueBytes() == 0
	})
	s.valueBytes -= lowest.valueBytes()
	lowest.drop()
	s.records.Set(number, lowest)
}

func (r record) valueBytes() uint64 { return uint64(len(r.result.Value)) }

func (r *record) drop() {
	r.dropped = true
	r.result = Result{Outcome: r.result.Outcome}
}

// again returns the answer to a repetition: the result of the first time, or if
// that is gone, how it ended. The outcome is always that of the first time. A
// repetition that is told "not_applied" of a write that was applied makes its
// client do the write again, under another number.
func (r record) again() Result {
	result := r.result
	result.Duplicate = true
	if r.dropped {
		result.Status = api.StatusDuplicateRequest
		result.Error = "an earlier copy of this request was carried out; its result is not kept"
		if result.Outcome == api.OutcomeNotApplied {
			result.Error = "an earlier copy of this request was refused and did nothing; why is not kept"
		}
	}
	return result
}
