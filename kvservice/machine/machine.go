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
}

// DefaultSettings returns what a first leader writes into the log: a window of
// 1024 numbers, 64 KiB of recorded values a session and values of 1 MiB.
func DefaultSettings() Settings {
	return Settings{Window: 1024, SessionBytes: 64 << 10, ValueBytes: 1 << 20}
}

// complete reports whether every bound is there. None may be 0.
func (s Settings) complete() bool { return s.Window > 0 && s.SessionBytes > 0 && s.ValueBytes > 0 }

// Settings returns the settings in force; written is false, and they are zero,
// before the first command that brings them.
func (m *Machine) Settings() (s Settings, written bool) { return m.settings, m.settings.complete() }

// Now returns the log time: the greatest stamp of all entries so far.
func (m *Machine) Now() LogTime { return m.now }

// AppliedIndex returns the index of the last entry taken in; 0 if none.
func (m *Machine) AppliedIndex() raft.Index { return m.appliedIndex }

// Keys returns how many keys there are.
func (m *Machine) Keys() int { return m.store.items.Len() }

// Sessions returns how many sessions there are.
func (m *Machine) Sessions() int { return m.sessions.byClient.Len() }

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
	if err != nil {
		return Applied{
			Identity: c.Identity(),
			Result:   refuse(api.StatusBadRequest, api.OutcomeNotApplied, err.Error()),
			Event:    EventRefused,
		}, nil
	}
	applied := Applied{Identity: c.Identity(), Event: EventCommitted}
	switch {
	case c.Kind == KindSettings:
		applied.Result = m.applySettings(c.Settings)
	case c.Kind == KindGet:
		applied.Result = m.execute(c) // reads never enter the session table
	case !m.settings.complete():
		applied.Result = beforeSettings(c)
	case c.Kind == KindOpenSession:
		applied.Result = m.applyOpenSession(c.ClientID)
	default:
		applied.Result, applied.Event = m.applyWrite(c, applied.Identity)
	}
	if applied.Result.Status != api.StatusOK && applied.Event == EventCommitted {
		applied.Event = EventRefused
	}
	return applied, nil
}

// Get returns what a read sees now. It changes nothing.
func (m *Machine) Get(key string) Result { return m.execute(Command{Kind: KindGet, Key: key}) }

// applySettings takes the first settings and holds on to them.
func (m *Machine) applySettings(s Settings) Result {
	if m.settings.complete() && m.settings != s {
		return refuse(api.StatusBadRequest, api.OutcomeNotApplied,
			fmt.Sprintf("the log holds other settings: %+v, not %+v", m.settings, s))
	}
	m.settings = s
	return Result{Status: api.StatusOK, Outcome: api.OutcomeApplied}
}

// beforeSettings refuses what cannot be judged yet. A leader writes the settings
// before anything else, so nobody should see this.
func beforeSettings(c Command) Result {
	outcome := api.OutcomeNotApplied
	if c.RequestID > 0 && !IsIssued(c.ClientID) {
		// A chosen id opens its session with the first copy that comes after the
		// settings. That this copy was refused is not the last word.
		outcome = api.OutcomeUnknown
	}
	return refuse(api.StatusBusy, outcome, "the cluster's settings are not in the log yet; nothing was done now")
}

// applyOpenSession registers an id. A server submits it once; if it were there
// already, nothing would change.
func (m *Machine) applyOpenSession(id api.ClientID) Result {
	if _, known := m.sessions.get(id); !known {
		m.sessions.open(id, m.now)
	}
	return Result{Status: api.StatusOK, Outcome: api.OutcomeApplied}
}

// execute carries out an operation on the keys and values, for the first and
// only time.
func (m *Machine) execute(c Command) Result {
	old, found := m.store.get(c.Key)
	result := Result{
		Status:   api.StatusOK,
		Outcome:  api.OutcomeApplied,
		KeyFound: found,
		Value:    old.value,
		Version:  old.version,
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
		if !found || old.value != c.CompareValue {
			return result
		}
	}
	if uint64(len(value)) > m.settings.ValueBytes {
		return refuse(api.StatusTooLarge, api.OutcomeNotApplied,
			fmt.Sprintf("the value would have %d bytes; at most %d are allowed", len(value), m.settings.ValueBytes))
	}
	result.Version = m.store.put(c.Key, value)
	result.Swapped = c.Kind == KindCAS
	return result
}
