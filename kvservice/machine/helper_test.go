package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/api"
	"raftkv/raft"
)

// A log feeds two replicas entry by entry and demands after each that they gave
// the same result and are in the same state. One of them is replaced by a copy
// of itself all the time.
type log struct {
	t        require.TestingT
	a, b     *Machine
	lastName byte // makes nonces
}

// newLog begins with the default settings.
func newLog(t require.TestingT) *log { return newLogWith(t, DefaultSettings()) }

func newLogWith(t require.TestingT, s Settings) *log {
	l := &log{t: t, a: New(), b: New()}
	require.Equal(t, api.StatusOK, l.apply(Command{Kind: KindSettings, Settings: s}).Status)
	return l
}

// reporting is s for a cluster that only reports duplicates.
func reporting(s Settings) Settings {
	s.ReportDuplicates = true
	return s
}

func (l *log) apply(c Command) Result { return l.applyRaw(c.Encode()).Result }

func (l *log) applyRaw(command []byte) Applied {
	e := raft.CommitEntry{Index: l.a.AppliedIndex() + 1, Term: 1, Command: command}
	onA, err := l.a.Apply(e)
	require.NoError(l.t, err)
	l.b = l.b.Clone()
	onB, err := l.b.Apply(e)
	require.NoError(l.t, err)
	require.Equal(l.t, onA, onB)
	require.Equal(l.t, l.a.Hash(), l.b.Hash())
	return onA
}

// nonce returns a nonce that no other command of this log has.
func (l *log) nonce() Nonce {
	l.lastName++
	return Nonce{l.lastName}
}

// get reads a key as a client would.
func (l *log) get(key string) string {
	return l.apply(Command{Kind: KindGet, Key: key, Nonce: l.nonce()}).Value
}

// set writes a key as some client without a session.
func (l *log) set(key, value string) {
	require.Equal(l.t, api.StatusOK, l.apply(Command{Kind: KindPut, Key: key, Value: value, Nonce: l.nonce()}).Status)
}

// opened returns an issued id that is registered.
func (l *log) opened(letter byte) api.ClientID {
	id := issued(letter)
	require.Equal(l.t, api.StatusOK, l.apply(Command{Kind: KindOpenSession, ClientID: id, Nonce: l.nonce()}).Status)
	return id
}

func issued(letter byte) api.ClientID {
	text := make([]byte, issuedIDText)
	for i := range text {
		text[i] = letter
	}
	return NewIssuedID(string(text))
}

// appending is request number r of a client with one call at a time.
func appending(id api.ClientID, r uint64, key, value string) Command {
	return Command{Kind: KindAppend, ClientID: id, RequestID: r, AckedThrough: r - 1, Key: key, Value: value}
}

// inFlight says that the client has acknowledged no more than acked.
func (c Command) inFlight(acked uint64) Command {
	c.AckedThrough = acked
	return c
}

// repeated is the result that a repetition must have.
func repeated(first Result) Result {
	first.Duplicate = true
	return first
}

func requireRefused(t *testing.T, r Result, status api.Status, outcome api.Outcome) {
	t.Helper()
	require.Equal(t, status, r.Status)
	require.Equal(t, outcome, r.Outcome)
	require.NotEmpty(t, r.Error)
	require.Equal(t, Result{Status: status, Outcome: outcome, Error: r.Error}, r, "a refusal has no result, and nobody else's")
}
