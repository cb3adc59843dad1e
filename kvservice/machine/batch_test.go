package machine

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/api"
)

func (l *log) batch(operations ...Command) Applied {
	return l.applyRaw(Command{Kind: KindBatch, Nonce: l.nonce(), Operations: operations}.Encode())
}

// The operations are carried out in their order, and none of them minds what
// became of another.
func TestBatch(t *testing.T) {
	l := newLog(t)
	c := l.opened('C')
	l.set("x", "a")
	operations := []Command{
		appending(c, 1, "x", "b").inFlight(0),
		appending(c, 1, "x", "other").inFlight(0),
		{Kind: KindGet, Key: "x"},
		{Kind: KindPut, Key: "y", Value: "1", IfVersion: new(uint64(7))},
		appending(issued('Z'), 1, "x", "!"),
		appending(c, 3, "x", "c").inFlight(0),
		{Kind: KindDelete, Key: "nowhere"},
		appending(c, 1, "x", "b").inFlight(0),
	}
	got := l.batch(operations...)
	require.Equal(t, Result{Status: api.StatusOK, Outcome: api.OutcomeApplied}, got.Result)
	require.Equal(t, EventCommitted, got.Event)
	first := Result{Status: api.StatusOK, Outcome: api.OutcomeApplied, KeyFound: true, Value: "a", Version: 2}
	var statuses []api.Status
	var events []Event
	for i, o := range got.Operations {
		require.Equal(t, operations[i].Identity(), o.Identity)
		statuses, events = append(statuses, o.Result.Status), append(events, o.Event)
	}
	require.Equal(t, []api.Status{
		api.StatusOK, api.StatusRequestMismatch, api.StatusOK, api.StatusConditionFailed,
		api.StatusSessionExpired, api.StatusOK, api.StatusOK, api.StatusOK,
	}, statuses)
	require.Equal(t, []Event{
		EventCommitted, EventRefused, EventCommitted, EventRefused,
		EventRefused, EventCommitted, EventCommitted, EventDuplicate,
	}, events)
	require.Equal(t, first, got.Operations[0].Result)
	require.Equal(t, repeated(first), got.Operations[7].Result)
	require.Equal(t, "ab", got.Operations[2].Result.Value, "it sees what stands before it in the batch")
	require.True(t, got.Operations[4].Premature())
	require.Equal(t, Identity{}, got.Operations[2].Identity, "nobody waits for it by itself")
	require.Equal(t, "abc", l.get("x"))

	// A copy is the same request, alone or in another batch.
	require.Equal(t, repeated(first), l.apply(operations[0]))
	require.Equal(t, repeated(first), l.batch(operations[0]).Operations[0].Result)
	l.a, l.b = restored(t, l.a), restored(t, l.b)
	require.True(t, l.batch(operations[5]).Operations[0].Result.Duplicate)
	require.Equal(t, "abc", l.get("x"))
}

func TestBatchBeforeTheSettings(t *testing.T) {
	l := &log{t: t, a: New(), b: New()}
	got := l.batch(appending("laptop", 1, "x", "a"), Command{Kind: KindPut, Key: "x"}, Command{Kind: KindGet, Key: "x"})
	requireRefused(t, got.Operations[0].Result, api.StatusBusy, api.OutcomeUnknown)
	requireRefused(t, got.Operations[1].Result, api.StatusBusy, api.OutcomeNotApplied)
	require.Equal(t, api.StatusOK, got.Operations[2].Result.Status)
}

// What may not stand in a batch is refused as a whole, so that no half of it is
// carried out.
func TestWhatIsNoBatch(t *testing.T) {
	l := newLog(t)
	put := Command{Kind: KindPut, Key: "x", Value: "v"}
	before := l.a.Hash()
	for name, operations := range map[string][]Command{
		"nothing":        {},
		"too many":       make([]Command, MaxBatchOperations+1),
		"a batch":        {put, {Kind: KindBatch, Operations: []Command{put}}},
		"a registration": {put, opening(issued('C'))},
		"a close":        {put, closing("laptop")},
		"settings":       {put, {Kind: KindSettings, Settings: short}},
		"unknown kind":   {put, {Kind: 99}},
		"no client":      {put, {Kind: KindPut, RequestID: 1}},
	} {
		for i := range operations {
			if operations[i].Kind == 0 {
				operations[i] = put
			}
		}
		batch := Command{Kind: KindBatch, Operations: operations}
		require.Panics(t, func() { batch.Encode() }, name)

		b := Command{Kind: KindCloseSession, ClientID: "c"}.Encode()
		b = append([]byte{2, 0, 0, 0}, b[5:5+len(Nonce{})]...)
		requireRefused(t, l.applyRaw(batch.appendOperation(b)).Result, api.StatusBadRequest, api.OutcomeNotApplied)
		require.Equal(t, before, l.a.Hash(), name)
	}
	require.Panics(t, func() { Command{Kind: KindBatch, Operations: []Command{put.at(1)}}.Encode() })

	most := make([]Command, MaxBatchOperations)
	for i := range most {
		most[i] = Command{Kind: KindAppend, Key: "x", Value: "v"}
	}
	require.Len(t, l.batch(most...).Operations, MaxBatchOperations)
	require.Len(t, l.get("x"), MaxBatchOperations)
}

// A batch may not make results without end. What has no room is not carried out,
// and may be sent again.
func TestResultsOfABatchHaveABound(t *testing.T) {
	l := newLog(t)
	c := l.opened('C')
	l.set("x", strings.Repeat("v", 1<<20))
	var operations []Command
	for i := range uint64(9) {
		operations = append(operations, Command{Kind: KindGet, Key: "x"}, appending(c, i+1, fmt.Sprint("y", i), "").inFlight(0))
	}
	operations = append(operations, Command{Kind: KindPut, Key: "z"})
	got := l.batch(operations...).Operations
	for i := range 15 { // 8 MiB are full with the eighth read
		require.Equal(t, api.StatusOK, got[i].Result.Status, i)
	}
	requireRefused(t, got[16].Result, api.StatusBusy, api.OutcomeNotApplied)
	requireRefused(t, got[17].Result, api.StatusBusy, api.OutcomeUnknown)
	requireRefused(t, got[18].Result, api.StatusBusy, api.OutcomeNotApplied)
	require.Equal(t, EventRefused, got[17].Event)
	again := l.batch(operations[17]).Operations[0].Result
	require.Equal(t, api.StatusOK, again.Status)
	require.False(t, again.Duplicate)
}

// One entry may open more sessions than have expired with it. Overdue ones give
// their room first.
func TestOverdueSessionsMakeRoomFirst(t *testing.T) {
	settings := short
	settings.MaxSessions = 2*expiriesPerEntry + 1
	l := newLogWith(t, settings)
	several := func(name string, n int) (operations []Command) {
		for i := range n {
			operations = append(operations, appending(api.ClientID(fmt.Sprint(name, i)), 1, "x", ""))
		}
		return operations
	}
	at := func(t LogTime, operations []Command) Applied {
		return l.applyRaw(Command{Kind: KindBatch, Stamp: t, Operations: operations}.Encode())
	}
	at(0, several("old ", 2*expiriesPerEntry))
	l.apply(opening(issued('C')).at(50))
	got := at(100, several("new ", expiriesPerEntry+10))
	require.Equal(t, expiriesPerEntry+10, got.Expired)
	require.Zero(t, got.Evicted)
	_, known := l.a.sessions.get(issued('C'))
	require.True(t, known)

	got = at(100, several("newer ", 60)) // 22 old ones are left
	require.Equal(t, 22, got.Expired)
	require.Equal(t, 1, got.Evicted)
	require.Equal(t, 2*expiriesPerEntry+1, l.a.Sessions())
	requireRefused(t, got.Operations[59].Result, api.StatusBusy, api.OutcomeUnknown)
	requireInvariants(t, l.a)
}

// A batch with an Idempotency-Key is one request. Its repetition gets every result
// of the first time, reads included, and executes nothing. A batch that differs in
// one operation, or has one more, is another request, and so is a write alone.
func TestBatchWithAKey(t *testing.T) {
	l := newLog(t)
	batch := func(operations ...Command) Command {
		return Command{Kind: KindBatch, ClientID: NewKeyID("order 7"), RequestID: 1, Operations: operations}
	}
	first := Command{Kind: KindAppend, Key: "x", Value: "a"}
	conditional := Command{Kind: KindPut, Key: "x", Value: "z", IfVersion: new(uint64(7))}
	read := Command{Kind: KindGet, Key: "x"}
	got := l.applyRaw(batch(first, conditional, read).Encode())
	require.Equal(t, api.StatusOK, got.Result.Status)
	require.Equal(t, EventCommitted, got.Event)
	require.Equal(t, api.StatusConditionFailed, got.Operations[1].Result.Status)
	require.Equal(t, "a", got.Operations[2].Result.Value)

	l.set("x", "other") // version 2
	before := l.a.Hash()
	l.b = restored(t, l.b)
	again := l.applyRaw(batch(first, conditional, read).Encode())
	require.Equal(t, got.Identity, again.Identity)
	require.Equal(t, repeated(got.Result), again.Result)
	require.Equal(t, EventDuplicate, again.Event)
	for i, o := range got.Operations {
		require.Equal(t, repeated(o.Result), again.Operations[i].Result)
	}
	for _, other := range []Command{
		batch(first, conditional),
		batch(first, conditional, read, read),
		batch(first, conditional, Command{Kind: KindGet, Key: "y"}),
		{Kind: KindAppend, ClientID: NewKeyID("order 7"), RequestID: 1, Key: "x", Value: "a"},
	} {
		requireRefused(t, l.apply(other), api.StatusRequestMismatch, api.OutcomeNotApplied)
	}
	require.Equal(t, before, l.a.Hash())
	require.Equal(t, 1, l.a.IdempotencyKeys())

	// The other way round: the key of a write is no batch's.
	l = newLog(t)
	l.apply(appending(NewKeyID("order 7"), 1, "x", "a"))
	requireRefused(t, l.apply(batch(first)), api.StatusRequestMismatch, api.OutcomeNotApplied)
}

// The key of a batch takes the room of as many keys as the batch has operations,
// and gives it back when it expires. A batch that would never have room is told so.
func TestRoomForTheKeyOfABatch(t *testing.T) {
	l := newLogWith(t, short) // 2 keys
	batch := func(key string, at LogTime, operations int) Applied {
		c := Command{Kind: KindBatch, Stamp: at, ClientID: NewKeyID(key), RequestID: 1}
		for range operations {
			c.Operations = append(c.Operations, Command{Kind: KindAppend, Key: "x", Value: "a"})
		}
		return l.applyRaw(c.Encode())
	}
	require.Equal(t, api.StatusOK, batch("1", 0, 2).Result.Status)
	requireRefused(t, batch("2", 0, 1).Result, api.StatusBusy, api.OutcomeUnknown)
	requireRefused(t, batch("2", 0, 3).Result, api.StatusTooLarge, api.OutcomeNotApplied)
	requireRefused(t, l.apply(appending(NewKeyID("3"), 1, "x", "a")), api.StatusBusy, api.OutcomeUnknown)
	got := batch("2", 100, 2)
	require.Equal(t, api.StatusOK, got.Result.Status)
	require.Equal(t, 1, got.Expired)
	require.Equal(t, "aaaa", l.get("x"))
	requireInvariants(t, l.a)
	l.b = restored(t, l.b)
	requireInvariants(t, l.b)

	settings := short
	settings.Window, settings.MaxKeys = 2, 100
	l = newLogWith(t, settings)
	requireRefused(t, batch("1", 0, 3).Result, api.StatusTooLarge, api.OutcomeNotApplied)
	require.Zero(t, l.a.IdempotencyKeys())
}

// An issued session that is overdue has expired, even if it goes only because
// somebody needs its room: its client was not cut short.
func TestOverdueIsNotEvicted(t *testing.T) {
	settings := short
	settings.MaxSessions = expiriesPerEntry + 8
	l := newLogWith(t, settings)
	for i := range int(settings.MaxSessions) {
		l.apply(opening(NewIssuedID(text(i))))
	}
	var operations []Command
	for i := range settings.MaxSessions {
		operations = append(operations, appending(api.ClientID(fmt.Sprint("new ", i)), 1, "x", ""))
	}
	got := l.applyRaw(Command{Kind: KindBatch, Stamp: 100, Operations: operations}.Encode())
	require.EqualValues(t, settings.MaxSessions, got.Expired)
	require.Zero(t, got.Evicted)
}

// Every field counts, also those of an operation. The number of fields is here so
// that a new one is not forgotten.
func TestAppliedEqual(t *testing.T) {
	require.Equal(t, 6, reflect.TypeFor[Applied]().NumField())
	l := newLog(t)
	got := l.batch(appending("laptop", 1, "x", "a"), Command{Kind: KindGet, Key: "x"})
	for _, change := range []func(a *Applied){
		func(a *Applied) { a.Identity.Nonce[0]++ },
		func(a *Applied) { a.Result.Value = "other" },
		func(a *Applied) { a.Event = EventDuplicate },
		func(a *Applied) { a.Expired++ },
		func(a *Applied) { a.Evicted++ },
		func(a *Applied) { a.Operations = a.Operations[:1] },
		func(a *Applied) { a.Operations[1].Result.Version++ },
	} {
		other := got
		other.Operations = slices.Clone(got.Operations)
		require.True(t, got.Equal(other))
		change(&other)
		require.False(t, got.Equal(other))
	}
}
