package machine

import (
	"errors"
	"fmt"

	"raftkv/api"
	"raftkv/raft"
)

// Machine is the state that all servers share. The same entries in the same
// order make the same state and give the same results, on every server and
// again after every restart. It is not safe for concurrent use; the updater of
// kvservice owns it.
type Machine struct {
	store        DataStore
	sessions     sessions
	settings     Settings
	now          LogTime
	appliedIndex raft.Index
}

// New returns the machine before the first entry.
func New() *Machine {
	return &Machine{store: newDataStore(), sessions: newSessions()}
}

// Settings are the bounds that decide what happens to a write. They stand in the
// log and nowhere else: a flag that differs between servers would make their
// states differ. The first command that brings them wins.
type Settings struct {
	// Window is how far above its Acked a client's numbers may go. It bounds the
	// records of a session.
	Window uint64

	// SessionBytes bounds the values in the recorded results of one session.
	SessionBytes uint64

	// ValueBytes bounds the value of one key, in particular after an append.
	ValueBytes uint64

	// RetentionMillis is how long a session is kept after its last use, in
	// milliseconds of log time. This and the next two are 0 together in a log whose
	// settings an older program has written: there every session is kept for good.
	RetentionMillis uint64

	// MaxSessions bounds the number of sessions. If there is no room for a new one
	// the least recently used of those with an issued id goes.
	MaxSessions uint64

	// MaxKeys bounds the number of Idempotency-Keys, apart from the sessions; the key
	// of a batch counts as many as that has operations. If there is no room for a
	// new one, it is refused.
	MaxKeys uint64

	// ReportDuplicates says what the repetition of a request is answered: false, the
	// result of the first time; true, that it is one and what its outcome was, and
	// then no results are kept. Only settings with lifetimes can have it.
	ReportDuplicates bool
}

// DefaultSettings returns what a first leader writes into the log: a window of
// 1024 numbers, 64 KiB of recorded values a session and values of 1 MiB; sessions
// are kept for a day, and there are at most 100,000, and as many Idempotency-Keys
// (docs/sessions.md says why).
func DefaultSettings() Settings {
	return Settings{
		Window: 1024, SessionBytes: 64 << 10, ValueBytes: 1 << 20,
		RetentionMillis: 24 * 60 * 60 * 1000, MaxSessions: 100_000, MaxKeys: 100_000,
	}
}

// complete reports whether every bound is there. None may be 0, but lifetimes
// may be absent.
func (s Settings) complete() bool {
	if s.Window == 0 || s.SessionBytes == 0 || s.ValueBytes == 0 {
		return false
	}
	lifetimes := s.RetentionMillis > 0 && s.MaxSessions > 0 && s.MaxKeys > 0
	return lifetimes || s == s.withoutLifetimes() && !s.ReportDuplicates
}

// hasLifetimes reports whether sessions end.
func (s Settings) hasLifetimes() bool { return s.RetentionMillis > 0 }

func (s Settings) withoutLifetimes() Settings {
	s.RetentionMillis, s.MaxSessions, s.MaxKeys = 0, 0, 0
	return s
}

// WithDefaults returns s with the defaults for all that is absent: what a leader
// adds to settings without lifetimes, or writes where there are none. What a
// repetition is answered stays as it is.
func (s Settings) WithDefaults() Settings {
	d := DefaultSettings()
	if !s.complete() {
		d.ReportDuplicates = s.ReportDuplicates
		return d
	}
	if !s.hasLifetimes() {
		s.RetentionMillis, s.MaxSessions, s.MaxKeys = d.RetentionMillis, d.MaxSessions, d.MaxKeys
	}
	return s
}

// Settings returns the settings in force; written is false, and they are zero,
// before the first command that brings them.
func (m *Machine) Settings() (s Settings, written bool) { return m.settings, m.settings.complete() }

// Now returns the log time: the greatest stamp of all entries so far.
func (m *Machine) Now() LogTime { return m.now }

// AppliedIndex returns the index of the last entry taken in; 0 if none.
func (m *Machine) AppliedIndex() raft.Index { return m.appliedIndex }

// Keys returns how many keys there are.
func (m *Machine) Keys() int { return m.store.items.Len() }

// Sessions returns how many sessions there are, without Idempotency-Keys.
func (m *Machine) Sessions() int { return m.sessions.byClient.Len() - m.IdempotencyKeys() }

// IdempotencyKeys returns how many Idempotency-Keys are remembered.
func (m *Machine) IdempotencyKeys() int { return m.sessions.byUse[keyID].Len() }

// Clone returns an independent copy. It takes the same short time however much
// there is; what the two share is copied when one of them changes it. From then
// on the copy may belong to another goroutine, which writes a snapshot of it
// while m goes on.
func (m *Machine) Clone() *Machine {
	c := *m
	c.store = m.store.clone()
	c.sessions = m.sessions.clone()
	return &c
}

// Apply takes in the next entry. Entries come in the order of their indexes,
// each once; another order is a fault of the caller and panics.
//
// The only error is ErrNewerVersion: nothing has changed then, and the server
// must stop. Every other command has a result, an unreadable one too. Were it
// an error, or a panic, all servers would die of it and again at each restart.
func (m *Machine) Apply(e raft.CommitEntry) (Applied, error) {
	if e.Index != m.appliedIndex+1 {
		panic(fmt.Sprintf("machine: entry %d applied after entry %d", e.Index, m.appliedIndex))
	}
	if e.Kind != raft.EntryCommand {
		m.appliedIndex = e.Index // an entry of raft's own
		return Applied{}, nil
	}
	c, err := Decode(e.Command)
	if errors.Is(err, ErrNewerVersion) {
		return Applied{}, err
	}
	m.appliedIndex = e.Index
	// A new leader's clock may start a little before the last leader's ended.
	// Time does not go back with it.
	m.now = max(m.now, c.Stamp)
	applied := Applied{Identity: c.Identity()}
	m.expire(&applied)
	if err != nil {
		return Applied{
			Identity: applied.Identity,
			Result:   refuse(api.StatusBadRequest, api.OutcomeNotApplied, err.Error()),
			Event:    EventRefused,
			Expired:  applied.Expired,
		}, nil
	}
	if c.Kind == KindBatch {
		m.applyBatch(&c, &applied)
	} else {
		applied.Result, applied.Event = m.applyCommand(&c, applied.Identity, &applied)
	}
	return applied, nil
}

// applyCommand carries out a command, and notes in entry what was forgotten for it.
func (m *Machine) applyCommand(c *Command, id Identity, entry *Applied) (result Result, event Event) {
	event = EventCommitted
	switch {
	case c.Kind == KindSettings:
		result = m.applySettings(c.Settings)
	case c.Kind == KindMark:
		result, event = Result{Status: api.StatusOK, Outcome: api.OutcomeApplied}, EventMark
	case c.Kind == KindGet:
		result = m.execute(c) // reads never enter the session table
	case !m.settings.complete():
		result = beforeSettings(c)
	case c.Kind == KindOpenSession:
		result = m.applyOpenSession(c, entry)
	case c.Kind == KindCloseSession:
		result = m.applyCloseSession(c.ClientID)
	default:
		result, event = m.applyWrite(c, id, entry)
	}
	if result.Status != api.StatusOK && event == EventCommitted {
		event = EventRefused
	}
	return result, event
}

// Get returns what a read sees now. It changes nothing.
func (m *Machine) Get(key string) Result { return m.execute(&Command{Kind: KindGet, Key: key}) }

// applySettings takes the first settings and holds on to them. If an older
// program has written them, lifetimes may be added, once, and nothing else.
func (m *Machine) applySettings(s Settings) Result {
	adds := m.settings == s.withoutLifetimes()
	if m.settings.complete() && m.settings != s && !adds {
		return refuse(api.StatusBadRequest, api.OutcomeNotApplied,
			fmt.Sprintf("the log holds other settings: %+v, not %+v", m.settings, s))
	}
	m.settings = s
	return Result{Status: api.StatusOK, Outcome: api.OutcomeApplied}
}

// beforeSettings refuses what cannot be judged yet. A leader writes the settings
// before anything else, so nobody should see this.
func beforeSettings(c *Command) Result {
	outcome := api.OutcomeNotApplied
	if c.RequestID > 0 && !IsIssued(c.ClientID) {
		// A chosen id opens its session with the first copy that comes after the
		// settings. That this copy was refused is not the last word.
		outcome = api.OutcomeUnknown
	}
	return refuse(api.StatusBusy, outcome, "the cluster's settings are not in the log yet; nothing was done now")
}

// execute carries out an operation on the keys and values, for the first and
// only time.
func (m *Machine) execute(c *Command) Result {
	p := m.store.items.find(c.Key)
	old, found := p.item, p.found
	result := Result{
		Status:   api.StatusOK,
		Outcome:  api.OutcomeApplied,
		KeyFound: found,
		Value:    old.value,
		Version:  old.version,
	}
	if c.IfVersion != nil && *c.IfVersion != old.version {
		return refuse(api.StatusConditionFailed, api.OutcomeNotApplied,
			fmt.Sprintf("the key has version %d, not %d (0: it is absent); nothing was done", old.version, *c.IfVersion))
	}
	value := c.Value
	switch c.Kind {
	case KindGet:
		return result
	case KindDelete:
		m.store.delete(c.Key)
		result.Version = 0
		return result
	case KindAppend:
		value = old.value + c.Value
	case KindCAS:
		// An absent key holds nothing: not even the empty value equals it.
		fits := found && old.value == c.CompareValue
		if c.ExpectAbsent {
			fits = !found
		}
		if !fits {
			return result
		}
	}
	if uint64(len(value)) > m.settings.ValueBytes {
		return refuse(api.StatusTooLarge, api.OutcomeNotApplied,
			fmt.Sprintf("the value would have %d bytes; at most %d are allowed", len(value), m.settings.ValueBytes))
	}
	result.Version = m.store.putAt(p, value)
	result.Swapped = c.Kind == KindCAS
	return result
}
