package machine

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"raftkv/api"
)

// twin is the session table done slowly: it forgets nothing, and answers every
// question by reading the whole history again.
type twin struct {
	settings Settings
	history  []event
}

// event is a command and what it came to.
type event struct {
	c        Command
	executed bool
	opens    bool // a session begins
	result   Result
}

func (w *twin) apply(c Command) Result {
	e := event{c: c}
	switch {
	case c.Kind == KindOpenSession:
		e.opens = true
		e.result = Result{Status: api.StatusOK, Outcome: api.OutcomeApplied}
	case c.Kind == KindGet || c.RequestID == 0:
		e.result, e.executed = w.execute(c), true
	case !w.known(c.ClientID) && (IsIssued(c.ClientID) || c.RequestID != 1):
		e.result.Status, e.result.Outcome = api.StatusSessionExpired, api.OutcomeUnknown
		if IsIssued(c.ClientID) {
			e.result.Outcome = api.OutcomeNotApplied
		}
	default:
		e.opens = !w.known(c.ClientID)
		w.write(&e)
	}
	w.history = append(w.history, e)
	return e.result
}

// write is the table of docs/sessions.md, row by row.
func (w *twin) write(e *event) {
	acked := max(w.acked(e.c.ClientID), e.c.AckedThrough)
	first := w.executed(e.c.ClientID, e.c.RequestID)
	switch {
	case e.c.RequestID <= acked:
		e.result.Status, e.result.Outcome = api.StatusStaleRequest, api.OutcomeUnknown
	case first != nil && sameOperation(first.c, e.c) && w.hasRoom(e.c.ClientID, e.c.RequestID):
		e.result = first.result
		e.result.Duplicate = true
	case first != nil && sameOperation(first.c, e.c):
		e.result.Status, e.result.Outcome, e.result.Duplicate = api.StatusDuplicateRequest, first.result.Outcome, true
	case first != nil:
		e.result.Status, e.result.Outcome = api.StatusRequestMismatch, api.OutcomeNotApplied
	case e.c.RequestID > acked+w.settings.Window:
		e.result.Status, e.result.Outcome = api.StatusWindowExceeded, api.OutcomeUnknown
	default:
		e.result, e.executed = w.execute(e.c), true
	}
}

func (w *twin) known(id api.ClientID) bool {
	return slices.ContainsFunc(w.history, func(e event) bool { return e.opens && e.c.ClientID == id })
}

// acked is the greatest mark that the client has declared, in whatever command.
func (w *twin) acked(id api.ClientID) uint64 {
	var acked uint64
	open := false
	for _, e := range w.history {
		if e.c.ClientID == id {
			open = open || e.opens
			if open {
				acked = max(acked, e.c.AckedThrough)
			}
		}
	}
	return acked
}

func (w *twin) executed(id api.ClientID, number uint64) *event {
	for i, e := range w.history {
		if e.executed && e.c.ClientID == id && e.c.RequestID == number {
			return &w.history[i]
		}
	}
	return nil
}

// hasRoom follows the values of a client's results through history: which were
// kept after each command.
func (w *twin) hasRoom(id api.ClientID, number uint64) bool {
	kept := map[uint64]string{}
	size := func() (n int) {
		for _, v := range kept {
			n += len(v)
		}
		return n
	}
	for _, e := range w.history {
		if e.c.ClientID != id {
			continue
		}
		maps.DeleteFunc(kept, func(n uint64, _ string) bool { return n <= e.c.AckedThrough })
		if !e.executed || len(e.result.Value) > int(w.settings.SessionBytes) {
			continue
		}
		kept[e.c.RequestID] = e.result.Value
		for size() > int(w.settings.SessionBytes) {
			for _, n := range slices.Sorted(maps.Keys(kept)) {
				if kept[n] != "" {
					delete(kept, n)
					break
				}
			}
		}
	}
	_, has := kept[number]
	return has
}

func sameOperation(a, b Command) bool {
	return a.Kind == b.Kind && a.Key == b.Key && a.Value == b.Value && a.CompareValue == b.CompareValue
}

// execute runs all executed writes again, from an empty store.
func (w *twin) execute(c Command) Result {
	values, versions, writes := map[string]string{}, map[string]uint64{}, uint64(0)
	for _, e := range w.history {
		if e.executed {
			w.step(values, versions, &writes, e.c)
		}
	}
	return w.step(values, versions, &writes, c)
}

func (w *twin) step(values map[string]string, versions map[string]uint64, writes *uint64, c Command) Result {
	value, found := values[c.Key]
	r := Result{Status: api.StatusOK, Outcome: api.OutcomeApplied, KeyFound: found, Value: value}
	next := c.Value
	if c.Kind == KindAppend {
		next = value + c.Value
	}
	writesValue := c.Kind == KindPut || c.Kind == KindAppend || c.Kind == KindCAS && found && value == c.CompareValue
	switch {
	case writesValue && len(next) > int(w.settings.ValueBytes):
		return Result{Status: api.StatusTooLarge, Outcome: api.OutcomeNotApplied}
	case writesValue:
		*writes++
		values[c.Key], versions[c.Key] = next, *writes
		r.Swapped = c.Kind == KindCAS
	case c.Kind == KindDelete && found:
		*writes++
		delete(values, c.Key)
		delete(versions, c.Key)
	}
	r.Version = versions[c.Key]
	return r
}

func drawCommand(t *rapid.T, l *log, w *twin) Command {
	clients := []api.ClientID{issued('A'), issued('A'), issued('A'), "laptop", "laptop", "phone", issued('B'), ""}
	c := Command{
		Kind:         rapid.SampledFrom([]Kind{KindPut, KindPut, KindAppend, KindAppend, KindCAS, KindDelete, KindGet, KindOpenSession}).Draw(t, "kind"),
		ClientID:     rapid.SampledFrom(clients).Draw(t, "client"),
		Stamp:        LogTime(rapid.Uint64Max(100).Draw(t, "stamp")),
		Key:          rapid.SampledFrom([]string{"x", "x", "y"}).Draw(t, "key"),
		Value:        rapid.SampledFrom([]string{"", "a", "b", "abc", "abcd"}).Draw(t, "value"),
		CompareValue: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "compare value"),
	}
	if c.Kind != KindCAS {
		c.CompareValue = ""
	}
	if c.Kind == KindDelete {
		c.Value = ""
	}
	switch {
	case c.Kind == KindGet:
		c.ClientID = ""
	case c.Kind == KindOpenSession:
		c.ClientID = issued('A') // B stays unknown
	case c.ClientID != "":
		// Around the client's mark, where the rows of the table meet.
		acked := w.acked(c.ClientID)
		c.RequestID = max(1, acked+rapid.Uint64Range(0, 8).Draw(t, "ahead"))
		c.AckedThrough = min(c.RequestID-1, acked+rapid.SampledFrom([]uint64{0, 0, 0, 0, 1, 2}).Draw(t, "acknowledged"))
	}
	if c.RequestID == 0 {
		c.Nonce = l.nonce()
	}
	return c
}

// Whatever clients send, in whatever order and how often it is committed, the
// session table answers as its twin does, and two servers stay equal.
func TestSessionsBesideTheirTwin(t *testing.T) {
	type answered struct {
		status    api.Status
		duplicate bool
	}
	seen := map[answered]int{}
	rapid.Check(t, func(t *rapid.T) {
		settings := Settings{
			Window:       rapid.Uint64Range(2, 8).Draw(t, "window"),
			SessionBytes: rapid.Uint64Range(1, 8).Draw(t, "session bytes"),
			ValueBytes:   rapid.Uint64Range(2, 8).Draw(t, "value bytes"),
		}
		l := newLogWith(t, settings)
		w := &twin{settings: settings}
		var now LogTime
		var sent []Command
		for n := range 50 {
			var c Command
			switch {
			case n == 0:
				c = Command{Kind: KindOpenSession, ClientID: issued('A'), Nonce: l.nonce()}
			case n == 1:
				c = appending("laptop", 1, "x", "a")
			case rapid.Bool().Draw(t, "copy"):
				c = rapid.SampledFrom(sent[max(0, n-20):]).Draw(t, "copied")
			default:
				c = drawCommand(t, l, w)
			}
			sent = append(sent, c)
			want := w.apply(c)
			got := l.apply(c)
			got.Error = "" // texts are for people
			require.Equal(t, want, got, "%+v", c)
			seen[answered{want.Status, want.Duplicate}]++

			now = max(now, c.Stamp)
			require.Equal(t, now, l.a.Now())
			requireInvariants(t, l.a)
			l.a.sessions.byClient.Scan(func(id api.ClientID, s *session) bool {
				require.Equal(t, w.lastUse(id), s.lastUse, "%s", id)
				return true
			})
		}
	})
	// A run that never reaches a row of the table has said nothing about it.
	for _, a := range []answered{
		{api.StatusSessionExpired, false}, {api.StatusStaleRequest, false}, {api.StatusOK, true}, {api.StatusDuplicateRequest, true},
		{api.StatusRequestMismatch, false}, {api.StatusWindowExceeded, false}, {api.StatusOK, false}, {api.StatusTooLarge, false}, {api.StatusTooLarge, true},
	} {
		require.NotZero(t, seen[a], "%+v", a)
	}
}

// lastUse is the log time of a client's last write since its session began, or
// of the beginning.
func (w *twin) lastUse(id api.ClientID) (last LogTime) {
	var now LogTime
	open := false
	for _, e := range w.history {
		now = max(now, e.c.Stamp)
		if e.c.ClientID != id {
			continue
		}
		if begins := e.opens && !open; begins || open && e.c.RequestID > 0 {
			open, last = true, now
		}
	}
	return last
}

// requireInvariants checks what sessions.go promises about a session.
func requireInvariants(t require.TestingT, m *Machine) {
	indexed := 0
	for c := range classes {
		indexed += m.sessions.byUse[c].Len()
	}
	require.Equal(t, m.sessions.byClient.Len(), indexed)
	m.sessions.byClient.Scan(func(id api.ClientID, s *session) bool {
		var valueBytes uint64
		s.records.Scan(func(number uint64, r record) bool {
			valueBytes += r.valueBytes()
			require.Greater(t, number, s.acked)
			require.LessOrEqual(t, number-s.acked, m.settings.Window)
			return true
		})
		require.Equal(t, valueBytes, s.valueBytes)
		require.LessOrEqual(t, valueBytes, m.settings.SessionBytes)
		require.LessOrEqual(t, s.lastUse, m.now)
		_, found := m.sessions.byUse[classOf(id)].Get(use{s.lastUse, id})
		require.True(t, found)
		return true
	})
}
