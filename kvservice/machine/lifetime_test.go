package machine

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/api"
	"raftkv/raft"
)

// at is c, submitted at another time.
func (c Command) at(t LogTime) Command {
	c.Stamp = t
	return c
}

// short has room for three sessions and two keys, for 100 ms.
var short = Settings{Window: 8, SessionBytes: 100, ValueBytes: 100, RetentionMillis: 100, MaxSessions: 3, MaxKeys: 2}

func opening(id api.ClientID) Command { return Command{Kind: KindOpenSession, ClientID: id} }
func closing(id api.ClientID) Command { return Command{Kind: KindCloseSession, ClientID: id} }

// clients returns who has a session, in the order of their ids.
func (l *log) clients() (ids []api.ClientID) {
	l.a.sessions.byClient.Scan(func(id api.ClientID, _ *session) bool {
		ids = append(ids, id)
		return true
	})
	return ids
}

// SE-09: a client asks again when its session has ended. If that looked new, it
// would be executed a second time.
func TestRetryAfterExpiry(t *testing.T) {
	l := newLogWith(t, short)
	c := issued('C')
	l.apply(opening(c).at(1000))
	write := appending(c, 1, "x", "a")
	first := l.apply(write.at(1010))
	require.Equal(t, repeated(first), l.apply(write.at(1109)), "99 ms after the last use")
	require.Equal(t, repeated(first), l.apply(write.at(1208)), "a retry is a use as well")

	l.a, l.b = restored(t, l.a), restored(t, l.b)
	late := l.applyRaw(write.at(1308).Encode())
	requireRefused(t, late.Result, api.StatusSessionExpired, api.OutcomeNotApplied)
	require.Equal(t, 1, late.Expired)
	require.True(t, late.Premature())
	require.Zero(t, l.applyRaw(write.at(1308).Encode()).Expired, "it can go only once")
	require.Equal(t, "a", l.get("x"))
	require.Zero(t, l.a.Sessions())
}

// The promise of a chosen id ends with the retention: nobody can tell its
// request 1 from a new client's.
func TestChosenIDAfterExpiry(t *testing.T) {
	l := newLogWith(t, short)
	l.apply(appending("laptop", 1, "x", "a").at(1000))
	l.apply(appending("laptop", 2, "x", "b").at(1000))
	requireRefused(t, l.apply(appending("laptop", 2, "x", "b").at(1100)), api.StatusSessionExpired, api.OutcomeUnknown)
	again := l.apply(appending("laptop", 1, "x", "a").at(1100))
	require.Equal(t, api.StatusOK, again.Status)
	require.False(t, again.Duplicate)
	require.Equal(t, "aba", l.get("x"))
}

// Every write that comes for a session keeps it, whatever becomes of it; reads,
// other clients and a second registration do not.
func TestWhatKeepsASession(t *testing.T) {
	for name, tc := range map[string]struct {
		c     Command
		keeps bool
	}{
		"stale":         {appending(issued('C'), 1, "x", "a"), true},
		"mismatch":      {appending(issued('C'), 2, "x", "other"), true},
		"window":        {appending(issued('C'), 99, "x", "a").inFlight(1), true},
		"new":           {appending(issued('C'), 3, "x", "a"), true},
		"read":          {Command{Kind: KindGet, Key: "x", Nonce: Nonce{1}}, false},
		"other client":  {appending("laptop", 1, "x", "a"), false},
		"no session":    {Command{Kind: KindPut, Key: "x", Nonce: Nonce{1}}, false},
		"registered":    {opening(issued('C')), false},
		"settings":      {Command{Kind: KindSettings, Settings: short}, false},
		"another close": {closing(issued('D')), false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLogWith(t, short)
			l.apply(opening(issued('C')).at(1000))
			l.apply(appending(issued('C'), 2, "x", "a").at(1000))
			l.apply(tc.c.at(1099))
			l.apply(Command{Kind: KindGet, Key: "x", Stamp: 1100, Nonce: Nonce{2}})
			_, kept := l.a.sessions.get(issued('C'))
			require.Equal(t, tc.keeps, kept)
		})
	}
}

// After a day without a write all sessions are overdue at once. No entry may
// take long, so they go in steps, the longest unused first.
func TestExpiryIsBoundedPerEntry(t *testing.T) {
	settings := short
	settings.MaxSessions = 1000
	l := newLogWith(t, settings)
	const n = 3 * expiriesPerEntry
	client := func(i int) api.ClientID { return api.ClientID(fmt.Sprintf("client %03d", n-1-i)) }
	for i := range n {
		l.apply(appending(client(i), 1, "x", "").at(LogTime(i)))
	}
	tick := Command{Kind: KindGet, Key: "x", Stamp: 10_000, Nonce: Nonce{1}}.Encode()
	for _, left := range []int{2 * expiriesPerEntry, expiriesPerEntry} {
		require.Equal(t, expiriesPerEntry, l.applyRaw(tick).Expired)
		require.Equal(t, left, l.a.Sessions())
		_, known := l.a.sessions.get(client(n - left - 1))
		require.False(t, known)
		_, known = l.a.sessions.get(client(n - left))
		require.True(t, known)
		l.b = restored(t, l.b)
	}

	last := l.applyRaw(appending(client(n-1), 1, "x", "").at(10_000).Encode())
	require.Equal(t, expiriesPerEntry, last.Expired)
	require.False(t, last.Result.Duplicate, "a new session")
}

// The same, for one whose turn has not come.
func TestOverdueSessionThatIsUsedStays(t *testing.T) {
	settings := short
	settings.MaxSessions = 1000
	l := newLogWith(t, settings)
	for i := range expiriesPerEntry + 1 {
		l.apply(appending(api.ClientID(fmt.Sprintf("client %03d", i)), 1, "x", "").at(LogTime(i)))
	}
	last := appending(api.ClientID(fmt.Sprintf("client %03d", expiriesPerEntry)), 1, "x", "")
	require.True(t, l.apply(last.at(10_000)).Duplicate)
	require.Equal(t, []api.ClientID{last.ClientID}, l.clients())
	require.True(t, l.apply(last.at(10_099)).Duplicate)
}

// Who has not been used for the longest time goes, and of those of one moment
// the one with the lowest id.
func TestEviction(t *testing.T) {
	l := newLogWith(t, short)
	for _, letter := range []byte{'B', 'C', 'A'} {
		l.apply(opening(issued(letter)).at(1000))
	}
	l.apply(appending(issued('A'), 1, "x", "").at(1001))

	fourth := l.applyRaw(opening(issued('D')).at(1002).Encode())
	require.Equal(t, api.StatusOK, fourth.Result.Status)
	require.Equal(t, 1, fourth.Evicted)
	require.Equal(t, []api.ClientID{issued('A'), issued('C'), issued('D')}, l.clients())

	// The client of B learns it at its next write, which does nothing.
	late := l.applyRaw(appending(issued('B'), 1, "x", "!").at(1003).Encode())
	requireRefused(t, late.Result, api.StatusSessionExpired, api.OutcomeNotApplied)
	require.True(t, late.Premature())

	// A chosen id takes the place of an issued one. The other way round a retry
	// of request 1 could be executed a second time.
	l.apply(appending("laptop", 1, "x", "a").at(1004))
	l.apply(appending("phone", 1, "x", "b").at(1005))
	l.apply(appending("tablet", 1, "x", "c").at(1006))
	require.Equal(t, []api.ClientID{"laptop", "phone", "tablet"}, l.clients())

	// Now there is no room, and whoever asks is told. An issued id that was
	// refused is never submitted again; a chosen one may find room later.
	requireRefused(t, l.apply(opening(issued('E')).at(1007)), api.StatusBusy, api.OutcomeNotApplied)
	requireRefused(t, l.apply(appending("watch", 1, "x", "d").at(1007)), api.StatusBusy, api.OutcomeUnknown)
	require.True(t, l.apply(appending("laptop", 1, "x", "a").at(1008)).Duplicate)
	require.Equal(t, "abc", l.get("x"))

	full := l.applyRaw(appending("watch", 1, "x", "d").at(1105).Encode())
	require.Equal(t, api.StatusOK, full.Result.Status, "phone has expired")
	require.Equal(t, 1, full.Expired)
	require.Equal(t, []api.ClientID{"laptop", "tablet", "watch"}, l.clients())
}

// A copy goes its own way: what is used, closed or evicted here stays as it was there.
func TestLifetimesInACopy(t *testing.T) {
	l := newLogWith(t, short)
	for i, letter := range []byte{'A', 'B', 'C'} {
		l.apply(opening(issued(letter)).at(LogTime(1000 + i)))
	}
	copied := l.a.Clone()
	before := snapshotOf(t, copied)
	l.apply(appending(issued('A'), 1, "x", "a").at(1010))
	l.apply(closing(issued('B')).at(1010))
	l.apply(opening(issued('D')).at(1011))
	l.apply(opening(issued('E')).at(1012))
	require.Equal(t, []api.ClientID{issued('A'), issued('D'), issued('E')}, l.clients())
	requireInvariants(t, l.a)
	requireInvariants(t, copied)
	require.Equal(t, before, snapshotOf(t, copied))

	applyTo(copied, opening(issued('F')).at(1020))
	_, known := copied.sessions.get(issued('A'))
	require.False(t, known)
	requireInvariants(t, copied)
	requireInvariants(t, l.a)
}

// A closed session is forgotten at once. With an issued id nothing is executed
// afterwards; with a chosen id a late copy of request 1 is.
func TestClose(t *testing.T) {
	l := newLogWith(t, short)
	c := issued('C')
	l.apply(opening(c))
	l.apply(appending(c, 1, "x", "a"))
	l.apply(appending("laptop", 1, "x", "b"))
	ok := Result{Status: api.StatusOK, Outcome: api.OutcomeApplied}
	for range 2 { // closing what is closed is no error
		require.Equal(t, ok, l.apply(closing(c)))
		require.Equal(t, ok, l.apply(closing("laptop")))
	}
	require.Zero(t, l.a.Sessions())
	for _, number := range []uint64{1, 2} {
		requireRefused(t, l.apply(appending(c, number, "x", "a")), api.StatusSessionExpired, api.OutcomeNotApplied)
	}
	requireRefused(t, l.apply(appending("laptop", 2, "x", "b")), api.StatusSessionExpired, api.OutcomeUnknown)
	require.Equal(t, "ab", l.get("x"))
	require.Equal(t, api.StatusOK, l.apply(appending("laptop", 1, "x", "b")).Status)
	require.Equal(t, "abb", l.get("x"))
}

// An Idempotency-Key is a session of one request, in a room of its own.
func TestIdempotencyKeys(t *testing.T) {
	l := newLogWith(t, short)
	keyed := func(key, value string) Command { return appending(NewKeyID(key), 1, "x", value) }
	first := l.apply(keyed("a", "1").at(1000))
	require.Equal(t, repeated(first), l.apply(keyed("a", "1").at(1001)))
	requireRefused(t, l.apply(keyed("a", "2").at(1002)), api.StatusRequestMismatch, api.OutcomeNotApplied)
	l.apply(keyed("b", "2").at(1003))
	require.Equal(t, 2, l.a.IdempotencyKeys())
	require.Zero(t, l.a.Sessions())

	// Neither takes the other's room.
	requireRefused(t, l.apply(keyed("c", "3").at(1004)), api.StatusBusy, api.OutcomeUnknown)
	for _, letter := range []byte{'A', 'B', 'C', 'D'} {
		require.Equal(t, api.StatusOK, l.apply(opening(issued(letter)).at(1005)).Status)
	}
	require.Equal(t, 2, l.a.IdempotencyKeys())
	require.Equal(t, 3, l.a.Sessions())
	l.a, l.b = restored(t, l.a), restored(t, l.b)
	require.Equal(t, api.StatusOK, l.apply(keyed("c", "3").at(1102)).Status, "a has expired")
	require.True(t, l.apply(keyed("b", "2").at(1102)).Duplicate)
	require.Equal(t, 3, l.a.Sessions())
	require.Equal(t, "123", l.get("x"))

	// What is chosen is never a key: the mark is no UTF-8.
	require.False(t, IsKey("a"))
	require.True(t, IsKey(NewKeyID("a")))
	require.False(t, IsIssued(NewKeyID(string(issued('A')))))
	for _, c := range []Command{keyed("a", "1").at(0), closing(NewKeyID("a"))} {
		c.RequestID *= 2
		require.Panics(t, func() { c.Encode() })
	}
}

// An older program has written the settings. Lifetimes come with a later
// command, which must not change anything else, and only once.
func TestLifetimesAreAddedOnce(t *testing.T) {
	l := newLogWith(t, short.withoutLifetimes())
	settings := func(s Settings) Result {
		return l.apply(Command{Kind: KindSettings, Settings: s, Nonce: l.nonce()}.at(1_000_000))
	}
	l.apply(appending("laptop", 1, "x", "a"))
	other := short
	other.Window++
	requireRefused(t, settings(other), api.StatusBadRequest, api.OutcomeNotApplied)
	requireRefused(t, settings(reporting(short)), api.StatusBadRequest, api.OutcomeNotApplied)
	require.Equal(t, 1, l.a.Sessions(), "kept for good")
	require.Equal(t, api.StatusOK, settings(short).Status)
	other = short
	other.RetentionMillis++
	requireRefused(t, settings(other), api.StatusBadRequest, api.OutcomeNotApplied)
	requireRefused(t, settings(short.withoutLifetimes()), api.StatusBadRequest, api.OutcomeNotApplied)
	require.Zero(t, l.a.Sessions())
	got, _ := l.a.Settings()
	require.Equal(t, short, got)
}

// What a leader adds to settings that lack something is in place of what is absent
// and of nothing else.
func TestSettingsWithDefaults(t *testing.T) {
	require.Equal(t, DefaultSettings(), Settings{}.WithDefaults())
	require.Equal(t, reporting(DefaultSettings()), reporting(Settings{}).WithDefaults())
	require.Equal(t, short, short.WithDefaults())
	added := short.withoutLifetimes().WithDefaults()
	require.Equal(t, short.withoutLifetimes(), added.withoutLifetimes())
	require.Equal(t, DefaultSettings().RetentionMillis, added.RetentionMillis)
	require.Equal(t, DefaultSettings().MaxSessions, added.MaxSessions)
	require.Equal(t, DefaultSettings().MaxKeys, added.MaxKeys)

	l := newLogWith(t, short.withoutLifetimes())
	require.Equal(t, api.StatusOK, l.apply(Command{Kind: KindSettings, Settings: added, Nonce: l.nonce()}).Status)
}

// A log without lifetimes may have more keys than there may be later. For each that
// comes then one goes, and no more.
func TestMoreKeysThanThereMayBe(t *testing.T) {
	l := newLogWith(t, short.withoutLifetimes())
	for i := range expiriesPerEntry + 8 {
		l.apply(appending(NewKeyID(text(i)), 1, "x", ""))
	}
	l.apply(Command{Kind: KindSettings, Settings: short, Nonce: l.nonce()})
	got := l.applyRaw(appending(NewKeyID("new"), 1, "x", "").at(100).Encode())
	require.Equal(t, api.StatusOK, got.Result.Status)
	require.Equal(t, expiriesPerEntry+1, got.Expired)
	require.Equal(t, 8, l.a.IdempotencyKeys())
}

// Three days of log time: clients come, repeat themselves within the day and
// after it, and go without a word. One server applies every entry, one is a copy
// of itself again and again, one begins with a snapshot now and then.
func TestThreeDays(t *testing.T) {
	const hour = 60 * 60 * 1000
	settings := DefaultSettings()
	settings.MaxSessions = 300
	replicas := [3]*Machine{New(), New(), New()}
	random := rand.New(rand.NewPCG(1, 2))
	var now LogTime
	apply := func(c Command) Applied {
		c.Stamp = now
		e := raft.CommitEntry{Index: replicas[0].AppliedIndex() + 1, Command: c.Encode()}
		replicas[1] = replicas[1].Clone()
		if random.IntN(50) == 0 {
			replicas[2] = restored(t, replicas[2])
		}
		var results [3]Applied
		for i, m := range replicas {
			var err error
			results[i], err = m.Apply(e)
			require.NoError(t, err)
		}
		require.Equal(t, results[0], results[1])
		require.Equal(t, results[0], results[2])
		if e.Index%50 == 0 {
			require.Equal(t, replicas[0].Hash(), replicas[1].Hash())
			require.Equal(t, replicas[0].Hash(), replicas[2].Hash())
		}
		require.LessOrEqual(t, replicas[0].Sessions(), int(settings.MaxSessions))
		return results[0]
	}
	apply(Command{Kind: KindSettings, Settings: settings})

	type call struct {
		c    Command
		last LogTime // when its session was last used
		sent Result
	}
	var calls []call
	var within, after, expired, evicted int
	for n := 0; now < 3*24*hour; n++ {
		busy := LogTime(15)
		if now/(24*hour) == 1 {
			busy = 3 // on the second day few come, and there is room
		}
		now += LogTime(random.IntN(int(hour / busy)))
		if n%2 == 0 || len(calls) == 0 {
			id := NewIssuedID(text(n))
			opened := apply(opening(id))
			expired, evicted = expired+opened.Expired, evicted+opened.Evicted
			write := appending(id, 1, "of "+string(id), "a")
			calls = append(calls, call{c: write, last: now, sent: apply(write).Result})
			continue
		}
		i := random.IntN(len(calls))
		again := &calls[i]
		if n%50 == 1 {
			i, again = 0, &calls[0] // one that repeats itself all the time
		}
		age := now - again.last
		got := apply(again.c)
		expired += got.Expired
		switch {
		case age < 24*hour && !got.Premature():
			require.Equal(t, repeated(again.sent), got.Result)
			again.last = now
			within++
		case age >= 24*hour:
			require.Equal(t, api.StatusSessionExpired, got.Result.Status)
			after++
		}
		require.Equal(t, "a", replicas[0].Get(again.c.Key).Value)
	}
	t.Logf("%d calls: %d repetitions within a day, %d after it; %d sessions expired, %d evicted", len(calls), within, after, expired, evicted)
	require.NotZero(t, within)
	require.NotZero(t, after)
	require.NotZero(t, expired)
	require.NotZero(t, evicted)
}

// text is what crypto/rand.Text could have returned.
func text(n int) string {
	b := []byte("AAAAAAAAAAAAAAAAAAAAAAAAAA")
	for i := range b[:8] {
		b[i] = issuedIDAlphabet[n>>(4*i)&15]
	}
	return string(b)
}
