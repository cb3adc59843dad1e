package machine

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"raftkv/api"
	"raftkv/raft"
)

// snapshotOf returns the bytes of m's snapshot.
func snapshotOf(t require.TestingT, m *Machine) []byte {
	var b bytes.Buffer
	require.NoError(t, m.WriteSnapshot(&b))
	return b.Bytes()
}

// restored returns what a server makes of m's snapshot, and demands that it
// equals m as far as can be seen from outside.
func restored(t require.TestingT, m *Machine) *Machine {
	b := snapshotOf(t, m)
	r, err := ReadSnapshot(bytes.NewReader(b))
	require.NoError(t, err)
	require.Equal(t, m.Hash(), r.Hash())
	require.Equal(t, m.AppliedIndex(), r.AppliedIndex())
	require.Equal(t, m.Now(), r.Now())
	require.Equal(t, m.settings, r.settings)
	require.Equal(t, m.Sessions(), r.Sessions())
	require.Equal(t, b, snapshotOf(t, r))
	return r
}

// A server that began with a snapshot gives the same answers as one that has
// applied every entry, whatever clients send and wherever the snapshot was taken.
func TestRestoredMachineGoesOn(t *testing.T) {
	seen := map[api.Status]int{}
	rapid.Check(t, func(t *rapid.T) {
		settings := drawSettings(t)
		l := newLogWith(t, settings)
		l.opened('A')
		w := &twin{settings: settings}
		sent := []Command{appending("laptop", 1, "x", "a")}
		for range 50 {
			c := drawCommand(t, l, w)
			if rapid.Bool().Draw(t, "copy") {
				c = rapid.SampledFrom(sent[max(0, len(sent)-20):]).Draw(t, "copied")
			}
			sent = append(sent, c)
			w.apply(c) // drawCommand asks it what the clients have acknowledged
			if rapid.IntRange(0, 4).Draw(t, "restore") == 0 {
				l.b = restored(t, l.b)
				requireInvariants(t, l.b)
			}
			for _, r := range results(l.applyRaw(c.Encode())) { // on both, with equal results and hashes
				seen[r.Status]++
			}
		}
	})
	for _, status := range []api.Status{
		api.StatusOK, api.StatusSessionExpired, api.StatusStaleRequest, api.StatusDuplicateRequest,
		api.StatusRequestMismatch, api.StatusWindowExceeded, api.StatusTooLarge,
	} {
		require.NotZero(t, seen[status], status)
	}
}

// The answer to a write was lost, and before the client asks again every server
// has thrown away the log that held the write (SN-05). Failures are answered as
// the first time, too.
func TestRetryAfterRestore(t *testing.T) {
	l := newLogWith(t, Settings{Window: 10, SessionBytes: 10, ValueBytes: 20})
	c := l.opened('C')
	l.set("x", "foo")
	l.set("long", strings.Repeat("v", 15))
	writes := []Command{
		appending(c, 2, "x", "bar").inFlight(1),
		Command{Kind: KindCAS, ClientID: c, RequestID: 3, Key: "x", CompareValue: "no", Value: "y"}.inFlight(1),
		Command{Kind: KindCAS, ClientID: c, RequestID: 4, Key: "swap", CompareValue: "", Value: "z"}.inFlight(1),
		appending(c, 5, "long", "more than there is room").inFlight(1),
		Command{Kind: KindDelete, ClientID: c, RequestID: 6, Key: "long"}.inFlight(1), // 15 bytes: not kept
		appending("laptop", 1, "y", "1"),
	}
	l.set("swap", "")
	var first []Result
	for _, w := range writes {
		first = append(first, l.apply(w))
	}
	l.a, l.b = restored(t, l.a), restored(t, l.b)
	before := l.a.Hash()
	for i, w := range writes {
		again := l.apply(w)
		if w.Kind == KindDelete {
			require.Equal(t, api.StatusDuplicateRequest, again.Status)
			require.Equal(t, api.OutcomeApplied, again.Outcome)
			continue
		}
		require.Equal(t, repeated(first[i]), again, "%+v", w)
	}
	require.Equal(t, "foobar", l.get("x"))
	requireRefused(t, l.apply(appending(c, 1, "x", "late").inFlight(0)), api.StatusStaleRequest, api.OutcomeUnknown)
	requireRefused(t, l.apply(appending(c, 2, "x", "other").inFlight(1)), api.StatusRequestMismatch, api.OutcomeNotApplied)
	requireRefused(t, l.apply(appending(c, 12, "x", "far").inFlight(1)), api.StatusWindowExceeded, api.OutcomeUnknown)
	require.Equal(t, before, l.a.Hash())
	require.Equal(t, api.StatusOK, l.apply(appending(c, 7, "x", "!").inFlight(1)).Status)
	require.Equal(t, "foobar!", l.get("x"))
}

// A snapshot taken before anything was applied, or before the settings.
func TestSnapshotOfTheBeginning(t *testing.T) {
	m := restored(t, New())
	_, err := m.Apply(raft.CommitEntry{Index: 1, Kind: raft.EntryEmpty})
	require.NoError(t, err)
	m = restored(t, m)
	early := Command{Kind: KindGet, Stamp: 7, Key: "x", Nonce: Nonce{1}}
	_, err = m.Apply(raft.CommitEntry{Index: 2, Command: early.Encode()})
	require.NoError(t, err)
	m = restored(t, m)
	require.EqualValues(t, 7, m.Now())
	settings := Command{Kind: KindSettings, Settings: DefaultSettings(), Nonce: Nonce{2}}
	_, err = m.Apply(raft.CommitEntry{Index: 3, Command: settings.Encode()})
	require.NoError(t, err)
	restored(t, m)
	require.Panics(t, func() { restored(t, m).Apply(raft.CommitEntry{Index: 5, Kind: raft.EntryEmpty}) })
}

// The state does not say in which order it came about: sessions opened the other
// way round, and a tree that was filled by a snapshot instead of by writes.
func TestSnapshotDoesNotDependOnTheOrder(t *testing.T) {
	build := func(clients []int, keys func(i int) int) *Machine {
		m := New()
		apply := func(c Command) {
			_, err := m.Apply(raft.CommitEntry{Index: m.AppliedIndex() + 1, Command: c.Encode()})
			require.NoError(t, err)
		}
		apply(Command{Kind: KindSettings, Settings: DefaultSettings()})
		for _, i := range clients {
			apply(Command{Kind: KindDelete, ClientID: api.ClientID(fmt.Sprint("client ", i)), RequestID: 1, Key: "absent"})
		}
		for i := range 1000 {
			key := fmt.Sprint("key ", keys(i))
			m.store.items.Set(key, item{value: key, version: uint64(keys(i) + 1)})
		}
		m.store.writes = 1000
		return m
	}
	var up, down []int
	for i := range 200 {
		up, down = append(up, i), append(down, 199-i)
	}
	a := build(up, func(i int) int { return i })
	b := build(down, func(i int) int { return 1000 - 1 - i*7%1000 })
	require.Equal(t, a.Hash(), b.Hash())
	require.True(t, bytes.Equal(snapshotOf(t, a), snapshotOf(t, b)))
	restored(t, b)
}

// goldenMachine has something of everything that a snapshot can hold.
func goldenMachine(t require.TestingT) *Machine {
	l := newLogWith(t, Settings{Window: 8, SessionBytes: 8, ValueBytes: 300, RetentionMillis: 5000, MaxSessions: 5, MaxKeys: 2})
	goldenHistory(l)
	require.Equal(t, api.StatusOK, l.apply(Command{Kind: KindDelete, Stamp: 2000, ClientID: NewKeyID("order 17"), RequestID: 1, Key: "y"}).Status)
	return l.a
}

// goldenHistory is what an older program can do as well.
func goldenHistory(l *log) {
	l.set("", "empty key")
	l.set("ключ", "\x00")
	l.set("x", "foo")
	c := l.opened('C')
	stamped := func(stamp LogTime, c Command) {
		c.Stamp = stamp
		l.apply(c)
	}
	stamped(1000, appending(c, 3, "x", "bar").inFlight(2))
	stamped(1001, Command{Kind: KindCAS, ClientID: c, RequestID: 5, AckedThrough: 2, Key: "x", CompareValue: "foobar", Value: "y"})
	stamped(1002, appending(c, 6, "z", strings.Repeat("v", 301)).inFlight(2))
	stamped(1500, Command{Kind: KindPut, ClientID: "laptop", RequestID: 1, Key: "z"})
	l.opened('D')
	stamped(2000, Command{Kind: KindGet, Key: "x", Nonce: l.nonce()})
}

// The bytes of format version 2. Old snapshots lie on disks, so a change here
// needs a new version, and code that still reads this one.
func TestGoldenSnapshot(t *testing.T) {
	m := goldenMachine(t)
	want, err := os.ReadFile("testdata/snapshot-2.bin")
	require.NoError(t, err)
	require.Equal(t, hex.Dump(want), hex.Dump(snapshotOf(t, m)))
	r, err := ReadSnapshot(bytes.NewReader(want))
	require.NoError(t, err)
	require.Equal(t, m.Hash(), r.Hash())
}

// reportingMachine has what version 2 of a snapshot cannot say: duplicates are only
// reported, and a key has a batch.
func reportingMachine(t require.TestingT) *Machine {
	settings := Settings{Window: 8, SessionBytes: 8, ValueBytes: 300, RetentionMillis: 5000, MaxSessions: 5, MaxKeys: 2, ReportDuplicates: true}
	l := newLogWith(t, settings)
	l.apply(appending("laptop", 1, "x", "foo"))
	refused := Command{Kind: KindPut, Key: "x", Value: "bar", IfVersion: new(uint64(7))}
	batch := Command{Kind: KindBatch, Stamp: 2000, ClientID: NewKeyID("order 17"), RequestID: 1, Operations: []Command{refused, {Kind: KindGet, Key: "x"}}}
	require.Equal(t, api.StatusOK, l.apply(batch).Status)
	return l.a
}

// The bytes of format version 3, which is written for such a state only.
func TestGoldenSnapshotOfVersion3(t *testing.T) {
	m := reportingMachine(t)
	want, err := os.ReadFile("testdata/snapshot-3.bin")
	require.NoError(t, err)
	require.Equal(t, hex.Dump(want), hex.Dump(snapshotOf(t, m)))
	r, err := ReadSnapshot(bytes.NewReader(want))
	require.NoError(t, err)
	require.Equal(t, m.Hash(), r.Hash())
	require.True(t, r.settings.ReportDuplicates)

	// One state has one version.
	plain := snapshotOf(t, goldenMachine(t))
	settings := len([]byte{2, 12, 0xd0, 0x0f, 8, 8, 0xac, 2, 0x88, 0x27, 5, 2})
	newer := slices.Concat([]byte{3}, plain[1:settings], []byte{0}, plain[settings:])
	_, err = ReadSnapshot(bytes.NewReader(newer))
	require.ErrorContains(t, err, "a state of version 2 stands under version 3")
	batch := bytes.Clone(want)
	batch[0] = 2
	batch = slices.Delete(batch, bytes.Index(batch, []byte{5, 2, 1})+2, bytes.Index(batch, []byte{5, 2, 1})+3)
	_, err = ReadSnapshot(bytes.NewReader(batch))
	require.ErrorContains(t, err, "a state of version 3 stands under version 2")
}

// A snapshot of version 1 is the state of a store whose sessions never end. From
// there a log goes on, and one day brings lifetimes.
func TestSnapshotOfVersion1(t *testing.T) {
	settings := Settings{Window: 8, SessionBytes: 8, ValueBytes: 300}
	l := newLogWith(t, settings)
	goldenHistory(l)
	old, err := os.ReadFile("testdata/snapshot-1.bin")
	require.NoError(t, err)
	l.b, err = ReadSnapshot(bytes.NewReader(old))
	require.NoError(t, err)
	require.Equal(t, l.a.Hash(), l.b.Hash())

	read := Command{Kind: KindGet, Stamp: 1 << 40, Key: "x", Nonce: l.nonce()}
	l.apply(read)
	require.Equal(t, 3, l.a.Sessions())
	settings.RetentionMillis, settings.MaxSessions, settings.MaxKeys = 10, 2, 1
	require.Equal(t, api.StatusOK, l.apply(Command{Kind: KindSettings, Stamp: 1 << 40, Settings: settings, Nonce: l.nonce()}).Status)
	require.Equal(t, 3, l.applyRaw(read.Encode()).Expired)
	restored(t, l.a)
}

// The example of docs/snapshot-format.md is that file, byte by byte.
func TestExampleOfTheFormatPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/snapshot-format.md")
	require.NoError(t, err)
	var b []byte
	for _, line := range regexp.MustCompile(`(?m)^    ([0-9a-f]{2}(?: [0-9a-f]{2})*)(?:  .*)?$`).FindAllStringSubmatch(string(page), -1) {
		part, err := hex.DecodeString(strings.ReplaceAll(line[1], " ", ""))
		require.NoError(t, err)
		b = append(b, part...)
	}
	want, err := os.ReadFile("testdata/snapshot-2.bin")
	require.NoError(t, err)
	require.Equal(t, hex.Dump(want), hex.Dump(b))
}

// Every field of the state is in the hash and in the snapshot. The numbers of
// fields are here so that a new one is not forgotten.
func TestEveryFieldIsInTheSnapshot(t *testing.T) {
	require.Equal(t, 5, reflect.TypeFor[Machine]().NumField())
	require.Equal(t, 2, reflect.TypeFor[DataStore]().NumField())
	require.Equal(t, 2, reflect.TypeFor[item]().NumField())
	require.Equal(t, 3, reflect.TypeFor[sessions]().NumField(), "two of them follow from the first")
	require.Equal(t, 7, reflect.TypeFor[Settings]().NumField())
	require.Equal(t, 5, reflect.TypeFor[session]().NumField(), "place decides nothing")
	require.Equal(t, 3, reflect.TypeFor[record]().NumField())
	require.Equal(t, 8, reflect.TypeFor[Result]().NumField(), "Duplicate is never recorded")

	before := goldenMachine(t)
	changed := func(name string, change func(m *Machine, s *session, r *record)) {
		m := goldenMachine(t)
		s, _ := m.sessions.get(issued('C'))
		r, _ := s.records.Get(5)
		change(m, s, &r)
		s.records.Set(5, r)
		require.NotEqual(t, snapshotOf(t, before), snapshotOf(t, m), name)
		if name == "applied index" {
			require.Equal(t, before.Hash(), m.Hash(), "raft's empty entries do not change the state")
		} else {
			require.NotEqual(t, before.Hash(), m.Hash(), name)
		}
		restored(t, m)
	}
	changed("applied index", func(m *Machine, _ *session, _ *record) { m.appliedIndex++ })
	changed("log time", func(m *Machine, _ *session, _ *record) { m.now++ })
	changed("window", func(m *Machine, _ *session, _ *record) { m.settings.Window++ })
	changed("session bytes", func(m *Machine, _ *session, _ *record) { m.settings.SessionBytes++ })
	changed("value bytes", func(m *Machine, _ *session, _ *record) { m.settings.ValueBytes++ })
	changed("retention", func(m *Machine, _ *session, _ *record) { m.settings.RetentionMillis++ })
	changed("sessions", func(m *Machine, _ *session, _ *record) { m.settings.MaxSessions++ })
	changed("keys", func(m *Machine, _ *session, _ *record) { m.settings.MaxKeys++ })
	changed("report", func(m *Machine, _ *session, _ *record) { m.settings.ReportDuplicates = true })
	changed("writes", func(m *Machine, _ *session, _ *record) { m.store.writes++ })
	changed("a key", func(m *Machine, _ *session, _ *record) { m.store.items.Set("new", item{version: 1}) })
	changed("a value", func(m *Machine, _ *session, _ *record) { m.store.items.Set("x", item{"other", 5}) })
	changed("a version", func(m *Machine, _ *session, _ *record) { m.store.items.Set("x", item{"y", 4}) })
	changed("a session", func(m *Machine, _ *session, _ *record) { m.sessions.open("new", 1) })
	changed("acked", func(_ *Machine, s *session, _ *record) { s.acked-- })
	changed("last use", func(_ *Machine, s *session, _ *record) { s.lastUse++ })
	changed("a record", func(_ *Machine, s *session, _ *record) { s.records.rows = s.records.rows[:s.records.Len()-1] })
	changed("fingerprint", func(_ *Machine, _ *session, r *record) { r.fingerprint[31]++ })
	changed("status", func(_ *Machine, _ *session, r *record) { r.result.Status = "?" })
	changed("outcome", func(_ *Machine, _ *session, r *record) { r.result.Outcome = "?" })
	changed("key found", func(_ *Machine, _ *session, r *record) { r.result.KeyFound = false })
	changed("result's value", func(_ *Machine, _ *session, r *record) { r.result.Value = "FOOBAR" })
	changed("result's version", func(_ *Machine, _ *session, r *record) { r.result.Version++ })
	changed("swapped", func(_ *Machine, _ *session, r *record) { r.result.Swapped = false })
	changed("error", func(_ *Machine, _ *session, r *record) { r.result.Error = "why" })
	changed("dropped", func(_ *Machine, s *session, r *record) { s.valueBytes -= r.valueBytes(); r.drop() })
}

// What a crash or a broken connection has left is not taken for a smaller state.
func TestSnapshotCutOff(t *testing.T) {
	whole := snapshotOf(t, goldenMachine(t))
	for n := range whole {
		_, err := ReadSnapshot(bytes.NewReader(whole[:n]))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%d of %d bytes", n, len(whole))
	}
	_, err := ReadSnapshot(bytes.NewReader(append(slices.Clone(whole), 0)))
	require.ErrorContains(t, err, "more bytes follow")
}

func TestSnapshotOfANewerVersion(t *testing.T) {
	whole := snapshotOf(t, goldenMachine(t))
	whole[0] = newestSnapshotVersion + 1
	_, err := ReadSnapshot(bytes.NewReader(whole))
	require.ErrorIs(t, err, ErrNewerVersion)
	require.EqualError(t, err, "machine: a snapshot of version 4, and this program knows versions up to 3: a newer program has written this; replace raftkv by a newer one")
	_, err = ReadSnapshot(bytes.NewReader(whole[:1]))
	require.ErrorIs(t, err, ErrNewerVersion, "nothing behind the version is looked at")
	whole[0] = 0
	_, err = ReadSnapshot(bytes.NewReader(whole))
	require.ErrorContains(t, err, "no version")
}

// What would break an invariant is refused, so that the machine never starts
// from a state that it could not have come to.
func TestImpossibleSnapshots(t *testing.T) {
	for name, damage := range map[string]func(m *Machine, s *session){
		"half the settings":        func(m *Machine, _ *session) { m.settings.Window = 0 },
		"half the lifetimes":       func(m *Machine, _ *session) { m.settings.MaxKeys = 0 },
		"keys without settings":    func(m *Machine, _ *session) { m.settings = Settings{}; m.sessions = newSessions() },
		"writes without settings":  func(m *Machine, _ *session) { *m = *New(); m.store.writes = 1 },
		"clients without settings": func(m *Machine, _ *session) { *m = *New(); m.sessions.open("c", 0) },
		"a version of 0":           func(m *Machine, _ *session) { m.store.items.Set("x", item{"y", 0}) },
		"a version of the future":  func(m *Machine, _ *session) { m.store.items.Set("x", item{"y", m.store.writes + 1}) },
		"a client without an id":   func(m *Machine, _ *session) { m.sessions.open("", 0) },
		"used in the future":       func(m *Machine, s *session) { s.lastUse = m.now + 1 },
		"acknowledged and kept":    func(_ *Machine, s *session) { s.acked = 3 },
		"beyond the window":        func(_ *Machine, s *session) { s.records.Set(s.acked+9, record{}) },
		"far beyond the window":    func(_ *Machine, s *session) { s.records.Set(math.MaxUint64, record{}) },
		"too many values":          func(_ *Machine, s *session) { s.records.Set(7, record{result: Result{Value: "1234"}}) },
		"dropped and found":        func(_ *Machine, s *session) { s.records.Set(7, record{result: Result{KeyFound: true}, dropped: true}) },
	} {
		m := goldenMachine(t)
		s, _ := m.sessions.get(issued('C'))
		damage(m, s)
		r, err := ReadSnapshot(bytes.NewReader(snapshotOf(t, m)))
		require.ErrorContains(t, err, "not a snapshot", name)
		require.Nil(t, r)
	}

	// Bytes that no machine writes, whatever is in it.
	empty := []byte{snapshotVersion, 0, 0, 8, 6, 100, 50, 40, 30, 9}
	for name, rest := range map[string][]byte{
		"keys the wrong way round": {2, 1, 'b', 0, 1, 1, 'a', 0, 2, 0},
		"a key twice":              {2, 1, 'a', 0, 1, 1, 'a', 0, 2, 0},
		"a client twice":           {0, 2, 1, 'c', 0, 0, 0, 1, 'c', 0, 0, 0},
		"a long zero":              {0x80, 0, 0},
		"an endless number":        {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0},
		"unknown flags":            slices.Concat([]byte{0, 1, 1, 'c', 0, 0, 1, 1}, make([]byte, 32), []byte{8, 0, 0, 0, 0, 0}),
	} {
		_, err := ReadSnapshot(bytes.NewReader(slices.Concat(empty, rest)))
		require.ErrorContains(t, err, "not a snapshot", name)
	}
	_, err := ReadSnapshot(bytes.NewReader(slices.Concat(empty, []byte{0, 0})))
	require.NoError(t, err)
}

// A length is only a claim until the bytes have come.
func TestSnapshotWithHugeLengths(t *testing.T) {
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}
	for name, b := range map[string][]byte{
		"keys":     slices.Concat([]byte{snapshotVersion, 0, 0, 8, 6, 100, 50, 40, 30, 9}, huge),
		"key":      slices.Concat([]byte{snapshotVersion, 0, 0, 8, 6, 100, 50, 40, 30, 9, 1}, huge),
		"value":    slices.Concat([]byte{snapshotVersion, 0, 0, 8, 6, 100, 50, 40, 30, 9, 1, 0}, huge),
		"sessions": slices.Concat([]byte{snapshotVersion, 0, 0, 8, 6, 100, 50, 40, 30, 9, 0}, huge),
		"records":  slices.Concat([]byte{snapshotVersion, 0, 0, 8, 6, 100, 50, 40, 30, 9, 0, 1, 1, 'c', 0, 0}, huge),
	} {
		used := allocated(func() {
			_, err := ReadSnapshot(bytes.NewReader(b))
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, name)
		})
		require.Less(t, used, uint64(8*snapshotPiece), name)
	}
}

// allocated returns how many bytes f takes from the heap, freed ones included.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestSnapshotIsWrittenInBoundedMemory(t *testing.T) {
	m := goldenMachine(t)
	value := strings.Repeat("v", 100)
	for i := range 100_000 {
		m.store.put(fmt.Sprint("key ", i), value)
	}
	require.Less(t, allocated(func() { require.NoError(t, m.WriteSnapshot(io.Discard)) }), uint64(4*snapshotPiece))
}

// The disk is full, or the server stops: then the rest is not written either.
func TestSnapshotWriterFails(t *testing.T) {
	m := goldenMachine(t)
	for i := range 10_000 {
		m.store.put(fmt.Sprint("key ", i), strings.Repeat("v", 100))
	}
	full := errors.New("the disk is full")
	w := &failingWriter{room: 100_000, err: full}
	require.Equal(t, full, m.WriteSnapshot(w))
	require.Equal(t, 1, w.failures)
	require.Equal(t, full, goldenMachine(t).WriteSnapshot(&failingWriter{err: full}), "all of it fits into the buffer")
}

// failingWriter takes room bytes and then fails.
type failingWriter struct {
	room, failures int
	err            error
}

func (w *failingWriter) Write(b []byte) (int, error) {
	if w.room -= len(b); w.room < 0 {
		w.failures++
		return 0, w.err
	}
	return len(b), nil
}

func TestSnapshotReaderFails(t *testing.T) {
	m := goldenMachine(t)
	whole := snapshotOf(t, m)
	lost := errors.New("the connection is lost")
	for n := range whole {
		_, err := ReadSnapshot(io.MultiReader(bytes.NewReader(whole[:n]), iotest.ErrReader(lost)))
		require.ErrorIs(t, err, lost)
	}
	_, err := ReadSnapshot(io.MultiReader(bytes.NewReader(whole), iotest.ErrReader(lost)))
	require.ErrorIs(t, err, lost, "whether more bytes would have followed is not known")

	for _, r := range []io.Reader{iotest.OneByteReader(bytes.NewReader(whole)), iotest.DataErrReader(bytes.NewReader(whole))} {
		got, err := ReadSnapshot(r)
		require.NoError(t, err)
		require.Equal(t, m.Hash(), got.Hash())
	}
}

// A copy is written by one goroutine, again and again, while the original and
// another copy go on in two more. Nothing that they share is changed. (Under the
// race detector this is about memory, too.)
func TestSnapshotOfACloneWhileApplying(t *testing.T) {
	l := newLog(t)
	c := l.opened('C')
	for i := range uint64(500) {
		l.a.Apply(raft.CommitEntry{Index: l.a.AppliedIndex() + 1, Command: appending(c, i+1, fmt.Sprint("k", i%100), "v").inFlight(0).Encode()})
		chosen := api.ClientID(fmt.Sprint("client ", i))
		l.a.Apply(raft.CommitEntry{Index: l.a.AppliedIndex() + 1, Command: appending(chosen, 1, "x", "v").Encode()})
	}
	want := snapshotOf(t, l.a)
	written, second := l.a.Clone(), l.a.Clone()

	goOn := func(m *Machine) {
		apply := func(c Command) {
			_, err := m.Apply(raft.CommitEntry{Index: m.AppliedIndex() + 1, Command: c.Encode()})
			require.NoError(t, err)
		}
		for i := range uint64(500) {
			apply(appending(c, i+501, fmt.Sprint("k", i), "w").inFlight(i))
			apply(appending(api.ClientID(fmt.Sprint("client ", i)), 2, "x", "w").inFlight(i % 2))
			apply(appending(api.ClientID(fmt.Sprint("client ", i)), 1, "x", "v"))
			apply(Command{Kind: KindDelete, Key: fmt.Sprint("k", i), Nonce: Nonce{1}})
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { goOn(l.a) })
	wg.Go(func() { goOn(second) })
	for range 20 {
		require.True(t, bytes.Equal(want, snapshotOf(t, written)))
	}
	wg.Wait()
	require.True(t, bytes.Equal(want, snapshotOf(t, written)))
	require.Equal(t, l.a.Hash(), second.Hash())
	restored(t, l.a)
}

// A copy that is handed over lets go of the old blocks that it has written. The
// original replaces all of them when half is written; then the other half is in memory,
// and the node that the walk is in. Another copy of the same state keeps what it has.
func TestHandOverLetsGoOfWhatIsWritten(t *testing.T) {
	const keys = 6000 // three levels of nodes
	fill := func(m *Machine, letter string) {
		for i := range keys {
			m.store.put(fmt.Sprintf("%05d", i), strings.Repeat(letter, 1200)) // a block each
		}
	}
	for _, kept := range []bool{false, true} {
		m := New()
		applyTo(m, Command{Kind: KindSettings, Settings: DefaultSettings()})
		fill(m, "a")
		var blocks []weak.Pointer[byte]
		m.store.items.blocks.ascend("", func(_ string, b block) bool {
			blocks = append(blocks, weak.Make(&b.packed[0]))
			return true
		})
		require.Len(t, blocks, keys)
		require.NotNil(t, m.store.items.blocks.root.children[0].children)
		inMemory := func() (n int) {
			runtime.GC()
			for _, b := range blocks {
				if b.Value() != nil {
					n++
				}
			}
			return n
		}

		want, hash := snapshotOf(t, m), m.Hash()
		copied, other := m.Clone(), New()
		if kept {
			other = m.Clone()
		}
		var got bytes.Buffer
		half := -1 // how many blocks are there when half is written
		require.NoError(t, copied.HandOver(writerFunc(func(b []byte) (int, error) {
			if half < 0 && got.Len() >= len(want)/2 {
				fill(m, "b")
				half = inMemory()
			}
			return got.Write(b)
		})))
		require.True(t, bytes.Equal(want, got.Bytes()))
		require.Zero(t, copied.Keys())
		require.Equal(t, keys, m.Keys())
		if kept {
			require.Equal(t, keys, half)
			require.Equal(t, hash, other.Hash())
			continue
		}
		require.InDelta(t, keys/2, half, 2*nodeWidth)
		require.Zero(t, inMemory())
	}
}

// A copy is handed over while the original, a second copy and a scan go on in other
// goroutines. None notices. An error of the writer comes out of it as of WriteSnapshot.
func TestHandOverBesideOthers(t *testing.T) {
	l := newLog(t)
	c := l.opened('C')
	for i := range 20_000 {
		l.a.store.put(fmt.Sprintf("k%05d", i), strings.Repeat("v", 90))
	}
	l.a.store.put("large", strings.Repeat("l", 5000))
	l.a.Apply(raft.CommitEntry{Index: l.a.AppliedIndex() + 1, Command: appending(c, 1, "x", "v").Encode()})
	want, hash := snapshotOf(t, l.a), l.a.Hash()
	goOn := func(m *Machine) {
		for i := range 20_000 {
			m.store.put(fmt.Sprintf("k%05d", i*7%20_000), strings.Repeat("w", 90))
			if i%10 == 0 {
				m.store.delete(fmt.Sprintf("k%05d", i))
			}
		}
	}
	view, second, third := l.a.View(), l.a.Clone(), l.a.Clone()
	for range 3 {
		copied := l.a.Clone()
		var wg sync.WaitGroup
		wg.Go(func() { goOn(l.a) })
		wg.Go(func() { goOn(second) })
		wg.Go(func() {
			items, more := view.Scan("", "", 30_000, 1<<30)
			assert.Len(t, items, 20_002)
			assert.False(t, more)
		})
		var b bytes.Buffer
		require.NoError(t, copied.HandOver(&b))
		wg.Wait()
		require.True(t, bytes.Equal(want, b.Bytes()))
		require.Equal(t, hash, third.Hash())
		require.Equal(t, l.a.store.items.Len(), second.store.items.Len())
		l.a = third.Clone()
		second = third.Clone()
	}
	full := errors.New("the disk is full")
	require.ErrorIs(t, third.HandOver(&failingWriter{room: 100_000, err: full}), full)
}

// Any bytes either are exactly what WriteSnapshot writes for the state they
// hold, or are refused; and from such a state a machine goes on.
func FuzzSnapshot(f *testing.F) {
	whole := snapshotOf(f, goldenMachine(f))
	f.Add(whole)
	f.Add(snapshotOf(f, New()))
	f.Add(snapshotOf(f, newLog(f).a))
	old, err := os.ReadFile("testdata/snapshot-1.bin")
	require.NoError(f, err)
	f.Add(old)
	f.Add(whole[:len(whole)/2])
	f.Add(append(slices.Clone(whole), 0))
	f.Add([]byte{})
	f.Add(snapshotOf(f, reportingMachine(f)))
	f.Add([]byte{newestSnapshotVersion + 1})
	f.Add([]byte{snapshotVersion, 0, 0, 8, 6, 100, 50, 40, 30, 9, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ReadSnapshot(bytes.NewReader(b))
		if err != nil {
			require.Nil(t, m)
			return
		}
		if again := snapshotOf(t, m); b[0] >= snapshotVersion && !bytes.Equal(b, again) {
			t.Fatalf("%x is read as a state that is written as %x", b, again)
		}
		if m.AppliedIndex() > math.MaxUint64-10 {
			return // no room for more entries
		}
		for _, c := range []Command{
			{Kind: KindSettings, Settings: DefaultSettings()},
			{Kind: KindOpenSession, ClientID: issued('C')},
			appending(issued('C'), 3, "x", "bar").inFlight(2),
			appending(issued('C'), 7, "x", "bar"),
			{Kind: KindDelete, Key: "x"},
		} {
			applied, err := m.Apply(raft.CommitEntry{Index: m.AppliedIndex() + 1, Command: c.Encode()})
			require.NoError(t, err)
			require.NotEmpty(t, applied.Result.Status)
		}
		restored(t, m)
	})
}

// The bytes of a long history are the same in every process (SE-13).
func TestSnapshotIsTheSameEverywhere(t *testing.T) {
	hash := sha256.Sum256(snapshotOf(t, longHistory(t)))
	require.Equal(t, "ca42c8032891a2bfeca8094d3ad6374d502f044bba6f96a537ae240423cb382d", hex.EncodeToString(hash[:]))
}

// A value that is overwritten after a restore is let go.
func TestRestoredStoreLetsGoOfOldValues(t *testing.T) {
	before := heapBytes()
	overwrite := func(m *Machine) {
		for i := range 20_000 {
			m.store.put(fmt.Sprintf("key %08d", i), strings.Repeat("v", 1000))
		}
	}
	m := newLog(t).a
	overwrite(m)
	m = restored(t, m)
	overwrite(m)
	// 20 MB of values, and something for the tree; not 40.
	require.Less(t, int64(heapBytes())-int64(before), int64(27_000_000))
	runtime.KeepAlive(m)
}
