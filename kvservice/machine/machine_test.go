package machine

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/api"
	"raftkv/raft"
)

// Absent is not empty (pitfall UX-05), and a retry finds the first answer.
func TestCompareAndSet(t *testing.T) {
	const absent = "(absent)"
	for _, tc := range []struct {
		name    string
		holds   *string
		compare string
		swapped bool
	}{
		{"absent, expected absent", nil, absent, true},
		{"empty, expected absent", new(""), absent, false},
		{"other, expected absent", new("b"), absent, false},
		{"absent, expected empty", nil, "", false},
		{"absent, expected a value", nil, "a", false},
		{"empty, expected empty", new(""), "", true},
		{"empty, expected a value", new(""), "a", false},
		{"equal", new("a"), "a", true},
		{"other", new("b"), "a", false},
		{"other, expected empty", new("b"), "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLog(t)
			c := l.opened('C')
			want := Result{Status: api.StatusOK, Outcome: api.OutcomeApplied, Swapped: tc.swapped}
			holds := ""
			if tc.holds != nil {
				l.set("x", *tc.holds)
				holds = *tc.holds
				want.KeyFound, want.Value, want.Version = true, holds, 1
			}
			if tc.swapped {
				want.Version, holds = want.Version+1, "new"
			}
			cas := Command{Kind: KindCAS, ClientID: c, RequestID: 1, Key: "x", CompareValue: tc.compare, Value: "new"}
			if tc.compare == absent {
				cas.CompareValue, cas.ExpectAbsent = "", true
			}
			require.Equal(t, want, l.apply(cas))
			require.Equal(t, repeated(want), l.apply(cas))
			require.Equal(t, holds, l.get("x"))
		})
	}
}

// The version of a key is the count of executed writes at its last write.
func TestVersions(t *testing.T) {
	l := newLog(t)
	version := func(c Command) uint64 {
		c.Nonce = l.nonce()
		return l.apply(c).Version
	}
	require.EqualValues(t, 0, version(Command{Kind: KindGet, Key: "x"}))
	require.EqualValues(t, 1, version(Command{Kind: KindPut, Key: "x", Value: "a"}))
	require.EqualValues(t, 2, version(Command{Kind: KindAppend, Key: "y", Value: "a"}))
	require.EqualValues(t, 1, version(Command{Kind: KindGet, Key: "x"}))
	require.EqualValues(t, 1, version(Command{Kind: KindCAS, Key: "x", CompareValue: "b"}), "nothing written")
	require.EqualValues(t, 0, version(Command{Kind: KindDelete, Key: "nowhere"}), "nothing written")
	require.EqualValues(t, 3, version(Command{Kind: KindCAS, Key: "x", CompareValue: "a", Value: "b"}))
	require.EqualValues(t, 0, version(Command{Kind: KindDelete, Key: "x"}), "the key is gone")
	require.EqualValues(t, 5, version(Command{Kind: KindPut, Key: "x", Value: "a"}), "a key that comes back has a new version")
}

func TestDelete(t *testing.T) {
	l := newLog(t)
	l.set("x", "a")
	gone := l.apply(Command{Kind: KindDelete, Key: "x", Nonce: l.nonce()})
	require.Equal(t, Result{Status: api.StatusOK, Outcome: api.OutcomeApplied, KeyFound: true, Value: "a"}, gone)
	read := l.apply(Command{Kind: KindGet, Key: "x", Nonce: l.nonce()})
	require.Equal(t, Result{Status: api.StatusOK, Outcome: api.OutcomeApplied}, read)
}

func TestSettingsStandInTheLog(t *testing.T) {
	l := newLogWith(t, Settings{Window: 1, SessionBytes: 2, ValueBytes: 3})
	before := l.a.Hash()
	settings := func(s Settings) Result {
		return l.apply(Command{Kind: KindSettings, Settings: s, Nonce: l.nonce()})
	}
	require.Equal(t, api.StatusOK, settings(Settings{Window: 1, SessionBytes: 2, ValueBytes: 3}).Status)
	requireRefused(t, settings(DefaultSettings()), api.StatusBadRequest, api.OutcomeNotApplied)
	require.Equal(t, before, l.a.Hash())
	got, written := l.a.Settings()
	require.Equal(t, Settings{Window: 1, SessionBytes: 2, ValueBytes: 3}, got)
	require.True(t, written)
}

// Without bounds nothing can be judged. The outcome is honest about copies that
// come after the settings.
func TestBeforeTheSettings(t *testing.T) {
	l := &log{t: t, a: New(), b: New()}
	_, written := l.a.Settings()
	require.False(t, written)
	chosen := appending("laptop", 1, "x", "a")
	requireRefused(t, l.apply(chosen), api.StatusBusy, api.OutcomeUnknown)
	requireRefused(t, l.apply(appending(issued('A'), 1, "x", "a")), api.StatusBusy, api.OutcomeNotApplied)
	requireRefused(t, l.apply(Command{Kind: KindPut, Key: "x", Nonce: l.nonce()}), api.StatusBusy, api.OutcomeNotApplied)
	requireRefused(t, l.apply(Command{Kind: KindOpenSession, ClientID: issued('A'), Nonce: l.nonce()}), api.StatusBusy, api.OutcomeNotApplied)
	require.Equal(t, api.StatusOK, l.apply(Command{Kind: KindGet, Key: "x", Nonce: l.nonce()}).Status)
	require.Equal(t, New().Hash(), l.a.Hash())

	l.apply(Command{Kind: KindSettings, Settings: DefaultSettings()})
	require.Equal(t, api.StatusOK, l.apply(chosen).Status)
	requireRefused(t, l.apply(appending(issued('A'), 1, "x", "a")), api.StatusSessionExpired, api.OutcomeNotApplied)
}

// A leader's empty entry is no command (pitfall LM-09), nor is anything else
// that raft writes for itself, even if its bytes look like one.
func TestEntriesOfRaft(t *testing.T) {
	l := newLog(t)
	before := l.a.Hash()
	for kind := raft.EntryCommand + 1; kind < 10; kind++ {
		e := raft.CommitEntry{Index: l.a.AppliedIndex() + 1, Term: 2, Kind: kind}
		if kind != raft.EntryEmpty {
			e.Command = Command{Kind: KindPut, Stamp: 9, Key: "x", Value: "v", Nonce: Nonce{1}}.Encode()
		}
		applied, err := l.a.Apply(e)
		require.NoError(t, err)
		require.Equal(t, Applied{}, applied)
		require.Equal(t, e.Index, l.a.AppliedIndex())
		require.Equal(t, before, l.a.Hash())
	}
}

func TestEntriesComeInOrder(t *testing.T) {
	m := New()
	require.Panics(t, func() { m.Apply(raft.CommitEntry{Index: 2, Kind: raft.EntryEmpty}) })
	m.Apply(raft.CommitEntry{Index: 1, Kind: raft.EntryEmpty})
	require.Panics(t, func() { m.Apply(raft.CommitEntry{Index: 1, Kind: raft.EntryEmpty}) })
}

// Whatever stands in a committed entry, all servers live and agree (LV-08).
func TestUnreadableCommands(t *testing.T) {
	good := appending(issued('C'), 2, "x", "v").Encode()
	unknownKind := Command{Kind: KindGet, Key: "x", Stamp: 9, Nonce: Nonce{1}}.Encode()
	unknownKind[bytes.LastIndexByte(unknownKind, byte(KindGet))] = 200
	l := newLog(t)
	before := l.a.Hash()
	for name, command := range map[string][]byte{
		"nothing":          {},
		"version 0":        {0, 1, 2, 3},
		"only a version":   {newestVersion},
		"half a command":   good[:len(good)/2],
		"one byte less":    good[:len(good)-1],
		"one byte more":    append(bytes.Clone(good), 0),
		"a huge length":    {1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		"a long number":    bytes.Replace(good, []byte{1, 0}, []byte{1, 0x80, 0}, 1),
		"no client":        encodeUnchecked(Command{Kind: KindPut, RequestID: 1}),
		"no request":       encodeUnchecked(Command{Kind: KindPut, ClientID: "c"}),
		"acked too much":   encodeUnchecked(Command{Kind: KindPut, ClientID: "c", RequestID: 1, AckedThrough: 1}),
		"opens a chosen":   encodeUnchecked(Command{Kind: KindOpenSession, ClientID: "c"}),
		"settings of zero": encodeUnchecked(Command{Kind: KindSettings}),
	} {
		applied := l.applyRaw(command)
		requireRefused(t, applied.Result, api.StatusBadRequest, api.OutcomeNotApplied)
		require.Equal(t, EventRefused, applied.Event)
		require.Equal(t, Identity{}, applied.Identity, name)
		require.Equal(t, before, l.a.Hash(), name)
	}
	requireRefused(t, l.applyRaw(unknownKind).Result, api.StatusBadRequest, api.OutcomeNotApplied)
	require.EqualValues(t, 9, l.a.Now(), "its stamp is readable, and time is everybody's")

	hugeKey := strings.Repeat("k", 1<<16)
	l.set(hugeKey, "v")
	require.Equal(t, "v", l.get(hugeKey))
	require.Equal(t, api.StatusOK, l.apply(appending("laptop", 1, "x", "v")).Status)
}

// encodeUnchecked is Encode for what no server submits.
func encodeUnchecked(c Command) []byte {
	valid := c
	valid.Kind, valid.ClientID, valid.RequestID, valid.AckedThrough = KindGet, "", 0, 0
	b := valid.Encode()[:2]
	b = appendText(b, string(c.ClientID))
	b = append(b, byte(c.RequestID))
	if c.RequestID > 0 {
		b = append(b, byte(c.AckedThrough))
	} else {
		b = append(b, c.Nonce[:]...)
	}
	return c.appendOperation(b)
}

func TestEncodeDemandsWhatDecodeDemands(t *testing.T) {
	require.Panics(t, func() { Command{Kind: KindPut, ClientID: "c"}.Encode() })
}

// A newer program's command stops this one before anything has changed.
func TestNewerVersion(t *testing.T) {
	l := newLog(t)
	before, index := l.a.Hash(), l.a.AppliedIndex()
	_, err := l.a.Apply(raft.CommitEntry{Index: index + 1, Term: 1, Command: []byte{newestVersion + 1, 1, 2}})
	require.ErrorIs(t, err, ErrNewerVersion)
	require.Equal(t, before, l.a.Hash())
	require.Equal(t, index, l.a.AppliedIndex())
}

func TestLogTime(t *testing.T) {
	l := newLog(t)
	for _, tc := range []struct{ stamp, now LogTime }{{5, 5}, {3, 5}, {0, 5}, {6, 6}} {
		l.apply(Command{Kind: KindGet, Key: "x", Stamp: tc.stamp, Nonce: l.nonce()})
		require.Equal(t, tc.now, l.a.Now())
	}

	var clock LogClock
	clock.Start(l.a.Now(), 1000)
	require.EqualValues(t, 6, clock.Stamp(1000))
	require.EqualValues(t, 31, clock.Stamp(1025))
	require.EqualValues(t, 6, clock.Stamp(900), "never before the base")
	clock.Start(40, 5000)
	require.EqualValues(t, 41, clock.Stamp(5001), "the time between two leaders does not count")
}

// A copy stays what it was while the original goes on, and the other way round,
// even if another goroutine reads it meanwhile.
func TestClone(t *testing.T) {
	l := newLog(t)
	c := l.opened('C')
	for i := range uint64(500) {
		l.a.Apply(raft.CommitEntry{Index: l.a.AppliedIndex() + 1, Command: appending(c, i+1, fmt.Sprint("k", i%100), "v").inFlight(0).Encode()})
	}
	copied := l.a.Clone()
	before := l.a.Hash()
	require.Equal(t, before, copied.Hash())

	var wg sync.WaitGroup
	wg.Go(func() {
		for range 20 {
			require.Equal(t, before, copied.Hash())
		}
	})
	for i := range uint64(200) {
		l.a.Apply(raft.CommitEntry{Index: l.a.AppliedIndex() + 1, Command: appending(c, i+501, fmt.Sprint("k", i), "w").inFlight(i).Encode()})
	}
	wg.Wait()
	after := l.a.Hash()
	require.NotEqual(t, before, after)
	require.Equal(t, before, copied.Hash())

	copied.Apply(raft.CommitEntry{Index: copied.AppliedIndex() + 1, Command: appending(c, 501, "k", "z").inFlight(0).Encode()})
	require.Equal(t, after, l.a.Hash())
}

// The hash of a long history is the same in every process, with every hash seed
// and on every architecture (SE-13).
func TestHashIsTheSameEverywhere(t *testing.T) {
	hash := longHistory(t).Hash()
	require.Equal(t, "0abaaeb6fc6400682ae75988d5262ec7e401798ea02b63419101e26e248a8cab", hex.EncodeToString(hash[:]))
}

// longHistory applies 10,000 writes of 50 clients, always the same ones.
func longHistory(t *testing.T) *Machine {
	m := New()
	random := rand.New(rand.NewPCG(1, 2))
	apply := func(c Command) {
		_, err := m.Apply(raft.CommitEntry{Index: m.AppliedIndex() + 1, Term: 1, Command: c.Encode()})
		require.NoError(t, err)
	}
	apply(Command{Kind: KindSettings, Settings: Settings{Window: 8, SessionBytes: 64, ValueBytes: 64}})
	next := map[api.ClientID]uint64{}
	for i := range 10_000 {
		id := api.ClientID(fmt.Sprint("client ", random.IntN(50)))
		if next[id] == 0 || random.IntN(3) > 0 {
			next[id]++
		}
		c := Command{
			Kind:      KindPut + Kind(random.IntN(4)),
			Stamp:     LogTime(i + random.IntN(5)),
			ClientID:  id,
			RequestID: next[id],
			Key:       fmt.Sprint("key ", random.IntN(200)),
			Value:     fmt.Sprint(random.IntN(3)),
		}
		if acked := uint64(random.IntN(3) + 1); acked <= c.RequestID {
			c.AckedThrough = c.RequestID - acked
		}
		if c.Kind == KindCAS {
			c.CompareValue = fmt.Sprint(random.IntN(3))
		}
		apply(c)
	}
	return m
}

// The answers have the fields of docs/http.md, and only an OK has a result.
func TestResponse(t *testing.T) {
	ok := Result{Status: api.StatusOK, Outcome: api.OutcomeApplied, KeyFound: true, Value: "a", Version: 7, Duplicate: true}
	put := api.PutResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, KeyFound: true, PrevValue: "a", Version: 7, Duplicate: true}
	require.Equal(t, &put, Command{Kind: KindPut}.Response(ok))
	require.Equal(t, (*api.AppendResponse)(&put), Command{Kind: KindAppend}.Response(ok))
	require.Equal(t, (*api.DeleteResponse)(&put), Command{Kind: KindDelete}.Response(ok))
	require.Equal(t, &api.GetResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, KeyFound: true, Value: "a", Version: 7},
		Command{Kind: KindGet}.Response(ok))
	require.Equal(t, &api.SessionResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, ClientID: "c"},
		Command{Kind: KindOpenSession, ClientID: "c"}.Response(ok))
	swapped := ok
	swapped.Swapped = true
	require.Equal(t, &api.CASResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, KeyFound: true, PrevValue: "a", Swapped: true, Version: 7, Duplicate: true},
		Command{Kind: KindCAS}.Response(swapped))

	stale := refuse(api.StatusStaleRequest, api.OutcomeUnknown, "why")
	require.Equal(t, &api.ErrorResponse{RespStatus: api.StatusStaleRequest, Outcome: api.OutcomeUnknown, Error: "why"},
		Command{Kind: KindPut}.Response(stale))
	require.Equal(t, &api.ErrorResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied}, Command{Kind: KindSettings}.Response(Result{Status: api.StatusOK, Outcome: api.OutcomeApplied}))
}
