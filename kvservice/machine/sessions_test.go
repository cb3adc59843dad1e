package machine

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/api"
)

// The post's foobarbar: the answer to an append is lost, the client asks again,
// and again much later.
func TestRetryOfAnAppend(t *testing.T) {
	l := newLog(t)
	c := l.opened('C')
	l.apply(appending(c, 1, "x", "foo"))
	first := l.apply(appending(c, 2, "x", "bar"))
	require.Equal(t, Result{Status: api.StatusOK, Outcome: api.OutcomeApplied, KeyFound: true, Value: "foo", Version: 2}, first)

	require.Equal(t, repeated(first), l.apply(appending(c, 2, "x", "bar")))
	l.set("x", "other")
	require.Equal(t, repeated(first), l.apply(appending(c, 2, "x", "bar")))
	require.Equal(t, "other", l.get("x"))
}

// The post's five steps: a late retry does not undo a newer write.
func TestLateRetryDoesNotUndoANewerWrite(t *testing.T) {
	l := newLog(t)
	a, b := l.opened('A'), l.opened('B')
	late := Command{Kind: KindPut, ClientID: a, RequestID: 1, Key: "foo", Value: "1"}
	first := l.apply(late)
	l.apply(Command{Kind: KindPut, ClientID: b, RequestID: 1, Key: "foo", Value: "2"})
	require.Equal(t, repeated(first), l.apply(late))
	require.Equal(t, "2", l.get("foo"))
}

// A request of a session that is not there could be the second copy of one that
// was executed (pitfall SE-09).
func TestLateCopyOfAnUnknownOrForeignSession(t *testing.T) {
	l := newLog(t)
	l.set("x", "v")
	before := l.a.Hash()
	for _, tc := range []struct {
		name    string
		c       Command
		outcome api.Outcome
	}{
		// Issued by this cluster and forgotten, or by another cluster.
		{"issued", appending(issued('Z'), 1, "x", "!"), api.OutcomeNotApplied},
		{"issued, later number", appending(issued('Z'), 5, "x", "!"), api.OutcomeNotApplied},
		{"chosen, later number", appending("laptop", 5, "x", "!"), api.OutcomeUnknown},
		{"chosen, all in flight", appending("laptop", 2, "x", "!").inFlight(0), api.OutcomeUnknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			requireRefused(t, l.apply(tc.c), api.StatusSessionExpired, tc.outcome)
			require.Equal(t, before, l.a.Hash())
			require.Equal(t, 0, l.a.Sessions())
		})
	}
}

func TestOpening(t *testing.T) {
	l := newLog(t)
	c := l.opened('C')
	l.apply(appending(c, 1, "x", "a"))
	before := l.a.Hash()
	require.Equal(t, api.StatusOK, l.apply(Command{Kind: KindOpenSession, ClientID: c, Nonce: l.nonce()}).Status)
	require.Equal(t, before, l.a.Hash(), "registering a known id changes nothing")

	require.Equal(t, api.StatusOK, l.apply(appending("laptop", 1, "x", "b")).Status, "a chosen id opens its session with request 1")
	require.Equal(t, api.StatusOK, l.apply(appending("laptop", 2, "x", "c")).Status)
	require.Equal(t, "abc", l.get("x"))
	require.Equal(t, 2, l.a.Sessions())
}

func TestIsIssued(t *testing.T) {
	text := "ABCDEFGHIJKLMNOPQRSTUVWX27"
	require.True(t, IsIssued(NewIssuedID(text)))
	for _, id := range []api.ClientID{
		"", "s-", "laptop", api.ClientID(text), "S-" + api.ClientID(text), NewIssuedID(text[1:]), NewIssuedID(text + "A"),
		NewIssuedID(strings.ToLower(text)), NewIssuedID(text[1:] + "1"), NewIssuedID(text[2:] + "é"),
	} {
		require.False(t, IsIssued(id), "%q", id)
	}
}

// Request n-1 arriving late must not be given the answer of request n (SE-05).
func TestStaleRequestIsNotAnotherRequestsResult(t *testing.T) {
	l := newLog(t)
	c := l.opened('C')
	for r := uint64(5); r <= 7; r++ {
		l.apply(appending(c, r, "x", "a"))
	}
	for _, r := range []uint64{1, 5, 6} {
		requireRefused(t, l.apply(appending(c, r, "x", "a")), api.StatusStaleRequest, api.OutcomeUnknown)
	}
	require.Equal(t, "aaa", l.get("x"))
}

// A caller gave up on request 5 and has moved on; 5 was never executed, and now
// it must never be (pitfall CL-11).
func TestGivenUpRequestComesAfterTheNext(t *testing.T) {
	l := newLog(t)
	c := l.opened('C')
	l.apply(appending(c, 6, "x", "six"))
	requireRefused(t, l.apply(appending(c, 5, "x", "five")), api.StatusStaleRequest, api.OutcomeUnknown)
	require.Equal(t, "six", l.get("x"))
}

// With several calls in flight a smaller number may be committed later. It is
// new, not a duplicate (pitfall SE-04).
func TestSmallerNumberCommitsLate(t *testing.T) {
	l := newLog(t)
	c := l.opened('C')
	l.apply(appending(c, 3, "x", "3").inFlight(0))
	l.apply(appending(c, 1, "x", "1").inFlight(0))
	second := l.apply(appending(c, 2, "x", "2").inFlight(0))
	require.Equal(t, Result{Status: api.StatusOK, Outcome: api.OutcomeApplied, KeyFound: true, Value: "31", Version: 3}, second)
	require.Equal(t, "312", l.get("x"))

	// Each is still answered for itself.
	require.Equal(t, repeated(second), l.apply(appending(c, 2, "x", "2").inFlight(0)))
}

// What the client has acknowledged is forgotten, and only that.
func TestAckedThrough(t *testing.T) {
	l := newLog(t)
	c := l.opened('C')
	for r := uint64(1); r <= 4; r++ {
		l.apply(appending(c, r, "x", "a").inFlight(0))
	}
	l.apply(appending(c, 5, "x", "a").inFlight(2))
	requireRefused(t, l.apply(appending(c, 2, "x", "a").inFlight(0)), api.StatusStaleRequest, api.OutcomeUnknown)
	require.True(t, l.apply(appending(c, 3, "x", "a").inFlight(0)).Duplicate)
	require.Equal(t, "aaaaa", l.get("x"))

	// The mark counts even if the request that carries it is itself refused, and
	// an older message does not take it back.
	requireRefused(t, l.apply(appending(c, 4, "y", "other").inFlight(3)), api.StatusRequestMismatch, api.OutcomeNotApplied)
	requireRefused(t, l.apply(appending(c, 3, "x", "a").inFlight(0)), api.StatusStaleRequest, api.OutcomeUnknown)
	s, _ := l.a.sessions.get(c)
	require.Equal(t, 2, s.records.Len(), "4 and 5")
}

// Two programs share a ClientID, or one has a bug: the second is told so instead
// of being given an answer to a question that it did not ask.
func TestSameNumberOtherRequest(t *testing.T) {
	l := newLog(t)
	c := l.opened('C')
	original := Command{Kind: KindCAS, ClientID: c, RequestID: 1, Key: "x", CompareValue: "a", Value: "b"}
	l.apply(original)
	for name, change := range map[string]func(*Command){
		"key":           func(c *Command) { c.Key = "y" },
		"value":         func(c *Command) { c.Value = "c" },
		"compare value": func(c *Command) { c.CompareValue = "b" },
		"both values":   func(c *Command) { c.CompareValue, c.Value = "ab", "" },
		"kind":          func(c *Command) { c.Kind, c.CompareValue = KindPut, "" },
	} {
		other := original
		change(&other)
		requireRefused(t, l.apply(other), api.StatusRequestMismatch, api.OutcomeNotApplied)
		require.NotEqual(t, original.Identity(), other.Identity(), name)
	}
	require.True(t, l.apply(original).Duplicate, "the original still has its answer")
	require.Empty(t, l.get("x")+l.get("y"))

	// When and with which AckedThrough a copy was sent makes no other request.
	copied := appending(c, 9, "k", "v").inFlight(0)
	copied.Stamp = 77
	require.Equal(t, appending(c, 9, "k", "v").Identity(), copied.Identity())
}

// A compare-and-set that was answered "not swapped" stays so, even if the value
// has become the expected one meanwhile (SE-10).
func TestRefusedCompareAndSetIsRecorded(t *testing.T) {
	l := newLog(t)
	c := l.opened('C')
	l.set("x", "a")
	cas := Command{Kind: KindCAS, ClientID: c, RequestID: 1, Key: "x", CompareValue: "b", Value: "c"}
	first := l.apply(cas)
	require.Equal(t, Result{Status: api.StatusOK, Outcome: api.OutcomeApplied, KeyFound: true, Value: "a", Version: 1}, first)
	l.set("x", "b")
	require.Equal(t, repeated(first), l.apply(cas))
	require.Equal(t, "b", l.get("x"))
}

// Commits were slow and the client asked five times (SE-12).
func TestFiveCopiesInTheLog(t *testing.T) {
	l := newLog(t)
	c := appending(l.opened('C'), 1, "x", "a")
	first := l.applyRaw(c.Encode())
	require.Equal(t, EventCommitted, first.Event)
	for range 4 {
		again := l.applyRaw(c.Encode())
		require.Equal(t, EventDuplicate, again.Event)
		require.Equal(t, first.Identity, again.Identity)
		require.Equal(t, repeated(first.Result), again.Result)
	}
	require.Equal(t, "a", l.get("x"))
}

func TestWindow(t *testing.T) {
	l := newLogWith(t, Settings{Window: 3, SessionBytes: 100, ValueBytes: 100})
	c := l.opened('C')
	require.Equal(t, api.StatusOK, l.apply(appending(c, 3, "x", "3").inFlight(0)).Status)
	four := appending(c, 4, "x", "4").inFlight(0)
	requireRefused(t, l.apply(four), api.StatusWindowExceeded, api.OutcomeUnknown)
	requireRefused(t, l.apply(appending(c, math.MaxUint64, "x", "!").inFlight(0)), api.StatusWindowExceeded, api.OutcomeUnknown)
	l.apply(appending(c, 2, "x", "2").inFlight(1))
	// That is why the refusal above was "unknown" and not "not applied".
	require.Equal(t, api.StatusOK, l.apply(four).Status)
	require.Equal(t, "324", l.get("x"))

	// Near the greatest number the sum of mark and window would wrap around.
	last := appending(c, math.MaxUint64, "x", "$")
	require.Equal(t, api.StatusOK, l.apply(last).Status)
	require.True(t, l.apply(last).Duplicate)
}

// Recorded values have a bound. The fingerprint and the outcome are kept, so a
// repetition still executes nothing and is told that it was done.
func TestRecordedValuesAreDroppedForRoom(t *testing.T) {
	l := newLogWith(t, Settings{Window: 10, SessionBytes: 10, ValueBytes: 100})
	c := l.opened('C')
	put := func(r uint64, value string) Command {
		return Command{Kind: KindPut, ClientID: c, RequestID: r, Key: "x", Value: value}
	}
	dropped := Result{Status: api.StatusDuplicateRequest, Outcome: api.OutcomeApplied, Duplicate: true}
	requireDropped := func(r uint64, value string) {
		t.Helper()
		got := l.apply(put(r, value))
		require.NotEmpty(t, got.Error)
		got.Error = ""
		require.Equal(t, dropped, got)
	}

	none := l.apply(put(1, "aaaa"))         // held nothing
	four := l.apply(put(2, "bbbb"))         // held 4 bytes
	eight := l.apply(put(3, "123456789ab")) // held 4 more
	require.Equal(t, repeated(four), l.apply(put(2, "bbbb")))

	l.apply(put(4, "dddd")) // held 11 bytes: more than there is room for at all
	requireDropped(4, "dddd")
	require.Equal(t, repeated(four), l.apply(put(2, "bbbb")), "a value that has no room drives out no other")

	l.apply(put(5, "e")) // held 4 bytes: 12 in all, so the lowest number's go
	requireDropped(2, "bbbb")
	require.Equal(t, repeated(none), l.apply(put(1, "aaaa")), "no value, no room needed")
	require.Equal(t, repeated(eight), l.apply(put(3, "123456789ab")))
	requireRefused(t, l.apply(put(2, "cccc")), api.StatusRequestMismatch, api.OutcomeNotApplied)
	require.Equal(t, "e", l.get("x"))
}

// A cluster that only reports duplicates keeps outcomes and no results. What a
// repetition is told of its outcome is what became of the first copy, and nothing
// is executed for it.
func TestReportedDuplicates(t *testing.T) {
	l := newLogWith(t, reporting(DefaultSettings()))
	c := l.opened('C')
	l.set("x", "a")
	swap := Command{Kind: KindCAS, ClientID: c, RequestID: 2, AckedThrough: 0, Key: "x", CompareValue: "ab", Value: "z"}
	refused := Command{Kind: KindPut, ClientID: c, RequestID: 3, AckedThrough: 0, Key: "x", Value: "z", IfVersion: new(uint64(7))}
	for _, test := range []struct {
		c       Command
		status  api.Status
		outcome api.Outcome
	}{
		{appending(c, 1, "x", "b"), api.StatusOK, api.OutcomeApplied},
		{swap, api.StatusOK, api.OutcomeApplied},
		{refused, api.StatusConditionFailed, api.OutcomeNotApplied},
		{appending("laptop", 1, "y", "1"), api.StatusOK, api.OutcomeApplied},
		{appending(NewKeyID("order 7"), 1, "y", "2"), api.StatusOK, api.OutcomeApplied},
	} {
		first := l.apply(test.c)
		require.Equal(t, test.status, first.Status)
		require.Equal(t, test.outcome, first.Outcome)
		before := l.a.Hash()
		l.b = restored(t, l.b)
		for _, entry := range []Applied{l.applyRaw(test.c.Encode()), l.batch(test.c).Operations[0]} {
			again := entry.Result
			require.Equal(t, EventDuplicate, entry.Event)
			require.NotEmpty(t, again.Error)
			require.Equal(t, Result{Status: api.StatusDuplicateRequest, Outcome: test.outcome, Duplicate: true, Error: again.Error}, again)
		}
		require.Equal(t, before, l.a.Hash())
	}
	require.Equal(t, "z", l.get("x"))
	require.Equal(t, "12", l.get("y"))
	requireRefused(t, l.apply(appending(c, 1, "x", "other").inFlight(0)), api.StatusRequestMismatch, api.OutcomeNotApplied)
}

// A refusal at apply may be called "not applied" only if every later copy is
// refused as well. The refusal of a too large value would not hold by itself:
// the key may be shorter when the next copy comes.
func TestTooLargeIsRecorded(t *testing.T) {
	l := newLogWith(t, Settings{Window: 10, SessionBytes: 100, ValueBytes: 5})
	c := l.opened('C')
	l.set("x", "abc")
	long := appending(c, 1, "x", "def")
	first := l.apply(long)
	requireRefused(t, first, api.StatusTooLarge, api.OutcomeNotApplied)
	l.set("x", "")
	require.Equal(t, repeated(first), l.apply(long))
	require.Empty(t, l.get("x"))

	require.Equal(t, api.StatusOK, l.apply(appending(c, 2, "x", "abcde")).Status, "at the limit")
	requireRefused(t, l.apply(appending(c, 3, "x", "f")), api.StatusTooLarge, api.OutcomeNotApplied)
	requireRefused(t, l.apply(Command{Kind: KindPut, Key: "x", Value: "abcdef", Nonce: l.nonce()}), api.StatusTooLarge, api.OutcomeNotApplied)
	require.Equal(t, "abcde", l.get("x"))
}

// Without a session every copy is a write of its own.
func TestWritesWithoutASession(t *testing.T) {
	l := newLog(t)
	l.apply(Command{Kind: KindAppend, Key: "x", Value: "a", Nonce: Nonce{1}})
	l.apply(Command{Kind: KindAppend, Key: "x", Value: "a", Nonce: Nonce{1}})
	require.Equal(t, "aa", l.get("x"))
	require.Equal(t, 0, l.a.Sessions())
}

// What a session keeps of a command is its id, and not with the rest of it (see
// Decode).
func TestSessionsKeepNoCommands(t *testing.T) {
	m := New()
	applyTo(m, Command{Kind: KindSettings, Settings: DefaultSettings()})
	before := heapBytes()
	for round := range uint64(2) {
		for client := range 64 {
			applyTo(m, Command{
				Kind: KindPut, Key: "x", Value: strings.Repeat("v", 1<<20), Stamp: LogTime(2 * placeMillis * round),
				ClientID: api.ClientID(fmt.Sprint("client ", client)), RequestID: round + 1, AckedThrough: round,
			})
		}
		require.Less(t, int64(heapBytes())-int64(before), int64(8<<20), "round %d", round)
	}
	require.Equal(t, 64, m.Sessions())
}
