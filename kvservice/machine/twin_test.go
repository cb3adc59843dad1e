package machine

import (
	"cmp"
	"maps"
	"reflect"
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
	now      LogTime
	history  []event
}

// event is a command and what it came to, or the end of a session.
type event struct {
	c        Command
	at       LogTime
	executed bool
	batch    *Command // of an operation of a batch with a key
	opens    bool     // a session begins
	ends     bool     // a session ends; c has only the id
	result   Result
}

func (w *twin) apply(c Command) Applied {
	w.now = max(w.now, c.Stamp)
	var entry Applied
	for _, id := range w.clients() {
		if w.settings.hasLifetimes() && w.now-w.lastUse(id) >= LogTime(w.settings.RetentionMillis) {
			w.end(id)
			entry.Expired++
		}
	}
	switch {
	case c.Kind != KindBatch:
		entry.Result = w.applyOne(c, &entry)
		return entry
	case c.isKeyed():
		w.applyKeyedBatch(c, &entry)
		return entry
	}
	entry.Result = Result{Status: api.StatusOK, Outcome: api.OutcomeApplied}
	for _, o := range c.Operations {
		entry.Operations = append(entry.Operations, Applied{Result: w.applyOne(o, &entry)})
	}
	return entry
}

// applyKeyedBatch takes a batch with a key for the requests 1, 2, 3 … of the key,
// which are known together or not at all.
func (w *twin) applyKeyedBatch(c Command, entry *Applied) {
	n := len(c.Operations)
	known := w.session(c.ClientID) != nil
	switch {
	case n > int(w.settings.Window), w.settings.hasLifetimes() && n > int(w.settings.MaxKeys):
		entry.Result.Status, entry.Result.Outcome = api.StatusTooLarge, api.OutcomeNotApplied
		return
	case !known && !w.makeRoom(c.ClientID, n, entry):
		entry.Result.Status, entry.Result.Outcome = api.StatusBusy, api.OutcomeUnknown
		return
	}
	entry.Result.Status, entry.Result.Outcome, entry.Result.Duplicate = api.StatusOK, api.OutcomeApplied, known
	first := w.executed(c.ClientID, 1)
	use := event{c: Command{ClientID: c.ClientID, RequestID: 1}, at: w.now}
	if known && (first.batch == nil || !reflect.DeepEqual(first.batch.Operations, c.Operations)) {
		entry.Result = Result{Status: api.StatusRequestMismatch, Outcome: api.OutcomeNotApplied}
		w.history = append(w.history, use)
		return
	}
	for i, o := range c.Operations {
		o.ClientID, o.RequestID = c.ClientID, uint64(i+1)
		e := event{c: o, at: w.now, batch: &c}
		if known {
			e.result = w.again(w.executed(o.ClientID, o.RequestID))
		} else {
			e.result, e.executed, e.opens = w.execute(o), true, i == 0
		}
		w.history = append(w.history, e)
		entry.Operations = append(entry.Operations, Applied{Result: e.result})
	}
}

func (w *twin) applyOne(c Command, entry *Applied) Result {
	e := event{c: c, at: w.now}
	ok := Result{Status: api.StatusOK, Outcome: api.OutcomeApplied}
	opens := c.Kind == KindOpenSession || c.RequestID == 1 && !IsIssued(c.ClientID)
	switch {
	case c.Kind == KindCloseSession:
		w.end(c.ClientID)
		return ok
	case c.Kind == KindGet || c.RequestID == 0 && c.Kind != KindOpenSession:
		e.result, e.executed = w.execute(c), true
	case w.session(c.ClientID) == nil && !opens:
		e.result.Status, e.result.Outcome = api.StatusSessionExpired, api.OutcomeUnknown
		if IsIssued(c.ClientID) {
			e.result.Outcome = api.OutcomeNotApplied
		}
	case w.session(c.ClientID) == nil && !w.makeRoom(c.ClientID, 1, entry):
		e.result.Status, e.result.Outcome = api.StatusBusy, api.OutcomeUnknown
		if c.Kind == KindOpenSession {
			e.result.Outcome = api.OutcomeNotApplied
		}
	default:
		e.opens = w.session(c.ClientID) == nil
		if e.result = ok; c.Kind != KindOpenSession {
			w.write(&e)
		}
	}
	w.history = append(w.history, e)
	return e.result
}

// write is the table of docs/sessions.md, row by row.
func (w *twin) write(e *event) {
	acked := max(w.acked(e.c.ClientID), e.c.AckedThrough)
	first := w.executed(e.c.ClientID, e.c.RequestID)
	e.result = Result{}
	switch {
	case e.c.RequestID <= acked:
		e.result.Status, e.result.Outcome = api.StatusStaleRequest, api.OutcomeUnknown
	case first != nil && first.batch == nil && sameOperation(first.c, e.c):
		e.result = w.again(first)
	case first != nil:
		e.result.Status, e.result.Outcome = api.StatusRequestMismatch, api.OutcomeNotApplied
	case e.c.RequestID > acked+w.settings.Window:
		e.result.Status, e.result.Outcome = api.StatusWindowExceeded, api.OutcomeUnknown
	default:
		e.result, e.executed = w.execute(e.c), true
	}
}

// again is what a repetition is answered.
func (w *twin) again(first *event) (r Result) {
	if !w.settings.ReportDuplicates && w.hasRoom(first.c.ClientID, first.c.RequestID) {
		r = first.result
	} else {
		r.Status, r.Outcome = api.StatusDuplicateRequest, first.result.Outcome
	}
	r.Duplicate = true
	return r
}

// session returns what has happened to a client since its session began; nothing
// if it has none.
func (w *twin) session(id api.ClientID) (events []event) {
	for _, e := range w.history {
		switch {
		case e.c.ClientID != id:
		case e.ends:
			events = nil
		case e.opens || events != nil:
			events = append(events, e)
		}
	}
	return events
}

func (w *twin) end(id api.ClientID) {
	w.history = append(w.history, event{c: Command{ClientID: id}, ends: true})
}

// clients returns who has a session, the longest unused first.
func (w *twin) clients() []api.ClientID {
	known := map[api.ClientID]bool{}
	for _, e := range w.history {
		known[e.c.ClientID] = w.session(e.c.ClientID) != nil
	}
	maps.DeleteFunc(known, func(_ api.ClientID, has bool) bool { return !has })
	return slices.SortedFunc(maps.Keys(known), func(a, b api.ClientID) int {
		return cmp.Or(cmp.Compare(w.lastUse(a), w.lastUse(b)), cmp.Compare(a, b))
	})
}

// lastUse is the log time of a client's last write since its session began, or
// of the beginning.
func (w *twin) lastUse(id api.ClientID) (last LogTime) {
	for _, e := range w.session(id) {
		if e.opens || e.c.RequestID > 0 {
			last = e.at
		}
	}
	return last
}

func (w *twin) makeRoom(id api.ClientID, n int, entry *Applied) bool {
	var sessions []api.ClientID
	keys := 0
	for _, other := range w.clients() {
		if IsKey(other) {
			for number := uint64(1); w.executed(other, number) != nil; number++ {
				keys++
			}
		} else {
			sessions = append(sessions, other)
		}
	}
	switch {
	case !w.settings.hasLifetimes():
		return true
	case IsKey(id):
		return keys+n <= int(w.settings.MaxKeys)
	case len(sessions) < int(w.settings.MaxSessions):
		return true
	}
	i := slices.IndexFunc(sessions, IsIssued)
	if i < 0 {
		return false
	}
	w.end(sessions[i])
	entry.Evicted++
	return true
}

// acked is the greatest mark that the client has declared, in whatever command.
func (w *twin) acked(id api.ClientID) (acked uint64) {
	for _, e := range w.session(id) {
		acked = max(acked, e.c.AckedThrough)
	}
	return acked
}

func (w *twin) executed(id api.ClientID, number uint64) *event {
	for _, e := range w.session(id) {
		if e.executed && e.c.RequestID == number {
			return &e
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
	for _, e := range w.session(id) {
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
	return a.Kind == b.Kind && a.Key == b.Key && a.Value == b.Value && a.CompareValue == b.CompareValue &&
		a.ExpectAbsent == b.ExpectAbsent && reflect.DeepEqual(a.IfVersion, b.IfVersion)
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
	writesValue := c.Kind == KindPut || c.Kind == KindAppend ||
		c.Kind == KindCAS && (c.ExpectAbsent && !found || !c.ExpectAbsent && found && value == c.CompareValue)
	switch {
	case c.IfVersion != nil && *c.IfVersion != versions[c.Key]:
		return Result{Status: api.StatusConditionFailed, Outcome: api.OutcomeNotApplied}
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

// drawSettings draws small ones, a third of them without lifetimes.
func drawSettings(t *rapid.T) Settings {
	s := Settings{
		Window:       rapid.Uint64Range(2, 8).Draw(t, "window"),
		SessionBytes: rapid.Uint64Range(1, 8).Draw(t, "session bytes"),
		ValueBytes:   rapid.Uint64Range(2, 8).Draw(t, "value bytes"),
	}
	if rapid.IntRange(0, 2).Draw(t, "lifetimes") > 0 {
		s.RetentionMillis = rapid.OneOf(rapid.Uint64Range(1, 60), rapid.Uint64Range(placeMillis+1, 3*placeMillis)).Draw(t, "retention")
		s.MaxSessions = rapid.Uint64Range(1, 4).Draw(t, "sessions")
		s.MaxKeys = rapid.Uint64Range(1, 4).Draw(t, "keys")
		s.ReportDuplicates = rapid.IntRange(0, 3).Draw(t, "report") == 0
	}
	return s
}

// drawCommand draws anything that a log can hold.
func drawCommand(t *rapid.T, l *log, w *twin) Command {
	var c Command
	switch rapid.IntRange(0, 9).Draw(t, "what") {
	case 0:
		c.Kind = KindOpenSession
		c.ClientID = rapid.SampledFrom([]api.ClientID{issued('A'), issued('C'), issued('D')}).Draw(t, "registered") // B stays unknown
	case 1:
		c.Kind = rapid.SampledFrom([]Kind{KindCloseSession, KindGet, KindGet, KindGet}).Draw(t, "rare")
		if c.Kind == KindGet {
			c.Key = "x"
		} else {
			c.ClientID = rapid.SampledFrom([]api.ClientID{issued('A'), "laptop"}).Draw(t, "closed")
		}
	case 2:
		c.Kind = KindBatch
		for range rapid.IntRange(1, 4).Draw(t, "operations") {
			c.Operations = append(c.Operations, drawOperation(t, w))
		}
		if rapid.IntRange(0, 2).Draw(t, "keyed") == 0 {
			c.ClientID, c.RequestID = rapid.SampledFrom([]api.ClientID{NewKeyID("1"), NewKeyID("2"), NewKeyID("4")}).Draw(t, "key"), 1
			for i := range c.Operations {
				o := &c.Operations[i]
				o.ClientID, o.RequestID, o.AckedThrough = "", 0, 0
			}
		}
	default:
		c = drawOperation(t, w)
	}
	// Most of the time little passes, and clocks of leaders differ.
	passes := []int{0, 0, 1, 2, 5, 40}
	if settings, _ := l.a.Settings(); settings.RetentionMillis > placeMillis {
		passes = append(passes, placeMillis-1, placeMillis)
	}
	c.Stamp = l.a.Now() + LogTime(rapid.SampledFrom(passes).Draw(t, "passes"))
	c.Stamp -= min(c.Stamp, LogTime(rapid.IntRange(0, 3).Draw(t, "behind")))
	if c.RequestID == 0 {
		c.Nonce = l.nonce()
	}
	return c
}

// drawOperation draws what may stand in a batch or alone.
func drawOperation(t *rapid.T, w *twin) Command {
	clients := []api.ClientID{issued('A'), issued('A'), issued('A'), "laptop", "laptop", "phone", issued('B'), issued('C'), NewKeyID("1"), NewKeyID("2"), NewKeyID("3"), ""}
	c := Command{
		Kind:         rapid.SampledFrom([]Kind{KindPut, KindPut, KindAppend, KindAppend, KindCAS, KindDelete, KindGet}).Draw(t, "kind"),
		ClientID:     rapid.SampledFrom(clients).Draw(t, "client"),
		Key:          rapid.SampledFrom([]string{"x", "x", "y"}).Draw(t, "key"),
		Value:        rapid.SampledFrom([]string{"", "a", "b", "abc", "abcd"}).Draw(t, "value"),
		CompareValue: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "compare value"),
	}
	if c.Kind != KindCAS {
		c.CompareValue = ""
	} else if rapid.IntRange(0, 3).Draw(t, "expect absent") == 0 {
		c.CompareValue, c.ExpectAbsent = "", true
	}
	if c.Kind == KindDelete || c.Kind == KindGet {
		c.Value = ""
	}
	if c.Kind != KindCAS && c.Kind != KindGet && rapid.IntRange(0, 3).Draw(t, "condition") == 0 {
		c.IfVersion = new(rapid.SampledFrom([]uint64{0, 1, 2, w.execute(Command{Kind: KindGet, Key: c.Key}).Version}).Draw(t, "version"))
	}
	switch {
	case c.Kind == KindGet:
		c.ClientID = ""
	case IsKey(c.ClientID):
		c.RequestID = 1
	case c.ClientID != "":
		// Around the client's mark, where the rows of the table meet.
		acked := w.acked(c.ClientID)
		c.RequestID = max(1, acked+rapid.Uint64Range(0, 8).Draw(t, "ahead"))
		c.AckedThrough = min(c.RequestID-1, acked+rapid.SampledFrom([]uint64{0, 0, 0, 0, 1, 2}).Draw(t, "acknowledged"))
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
	var expired, evicted, premature, keyedAgain, keyedMismatch, reported int
	rapid.Check(t, func(t *rapid.T) {
		settings := drawSettings(t)
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
			got := l.applyRaw(c.Encode())
			require.Equal(t, results(want), results(got), "%+v", c)
			require.Equal(t, want.Expired, got.Expired, "%+v", c)
			require.Equal(t, want.Evicted, got.Evicted, "%+v", c)
			expired, evicted = expired+got.Expired, evicted+got.Evicted
			if got.Premature() {
				premature++
			}
			for _, r := range results(want) {
				seen[answered{r.Status, r.Duplicate}]++
				if r.Status == api.StatusDuplicateRequest && r.Outcome == api.OutcomeNotApplied {
					reported++
				}
			}
			if c.Kind == KindBatch && got.Result.Duplicate {
				keyedAgain++
			}
			if c.Kind == KindBatch && got.Result.Status == api.StatusRequestMismatch {
				keyedMismatch++
			}

			now = max(now, c.Stamp)
			require.Equal(t, now, l.a.Now())
			requireInvariants(t, l.a)
			require.ElementsMatch(t, w.clients(), l.clients())
			l.a.sessions.byClient.Scan(func(id api.ClientID, s *session) bool {
				require.Equal(t, w.lastUse(id), s.lastUse, "%s", id)
				return true
			})
		}
	})
	// A run that never reaches a row of the table has said nothing about it.
	for _, a := range []answered{
		{api.StatusSessionExpired, false}, {api.StatusBusy, false}, {api.StatusStaleRequest, false}, {api.StatusOK, true}, {api.StatusDuplicateRequest, true},
		{api.StatusRequestMismatch, false}, {api.StatusWindowExceeded, false}, {api.StatusOK, false}, {api.StatusTooLarge, false}, {api.StatusTooLarge, true},
		{api.StatusConditionFailed, false}, {api.StatusConditionFailed, true},
	} {
		require.NotZero(t, seen[a], "%+v", a)
	}
	require.NotZero(t, expired)
	require.NotZero(t, evicted)
	require.NotZero(t, premature)
	require.NotZero(t, keyedAgain)
	require.NotZero(t, keyedMismatch)
	require.NotZero(t, reported)
}

// results returns the result of an entry and those of its operations, without
// texts, which are for people.
func results(a Applied) []Result {
	all := []Result{a.Result}
	for _, o := range a.Operations {
		all = append(all, o.Result)
	}
	for i := range all {
		all[i].Error = ""
	}
	return all
}

// requireInvariants checks what sessions.go promises about a session.
func requireInvariants(t require.TestingT, m *Machine) {
	indexed, keyRecords := 0, 0
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
		if IsKey(id) {
			keyRecords += s.records.Len()
		}
		require.LessOrEqual(t, s.place, s.lastUse)
		require.Less(t, s.lastUse, s.place+placeMillis)
		_, found := m.sessions.byUse[classOf(id)].Get(use{s.place, id})
		require.True(t, found)
		return true
	})
	require.Equal(t, keyRecords, m.sessions.keyRecords)
}
