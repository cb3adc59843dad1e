package machine

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/api"
	"raftkv/raft"
)

// One command of each kind and shape. Their bytes stand in testdata; a change
// there breaks every log on every disk.
var goldenCommands = []struct {
	name string
	c    Command
}{
	{"settings", Command{Kind: KindSettings, Stamp: 1, Nonce: Nonce{1, 2, 3}, Settings: Settings{Window: 1024, SessionBytes: 64 << 10, ValueBytes: 1 << 20}}},
	{"open session", Command{Kind: KindOpenSession, Stamp: 300, ClientID: NewIssuedID("ABCDEFGHIJKLMNOPQRSTUVWX27"), Nonce: Nonce{15: 0xff}}},
	{"put", Command{Kind: KindPut, Stamp: 1 << 40, ClientID: "laptop", RequestID: 1, Key: "k", Value: "v"}},
	{"put without a session", Command{Kind: KindPut, Nonce: Nonce{9}, Key: "k"}},
	{"append", Command{Kind: KindAppend, Stamp: 2, ClientID: "7", RequestID: 300, AckedThrough: 299, Key: "ключ", Value: "\x00"}},
	{"compare-and-set", Command{Kind: KindCAS, Stamp: 2, ClientID: "c", RequestID: 2, Key: "k", CompareValue: "old", Value: "new"}},
	{"delete", Command{Kind: KindDelete, Stamp: 2, ClientID: "c", RequestID: 3, AckedThrough: 1, Key: "k"}},
	{"get", Command{Kind: KindGet, Stamp: 2, Nonce: Nonce{4, 5}, Key: "k"}},

	// Version 2.
	{"settings with lifetimes", Command{Kind: KindSettings, Stamp: 1, Nonce: Nonce{1, 2, 3}, Settings: DefaultSettings()}},
	{"close session", Command{Kind: KindCloseSession, Stamp: 2, ClientID: "laptop", Nonce: Nonce{7}}},
	{"put with a key", Command{Kind: KindPut, Stamp: 2, ClientID: NewKeyID("order 17"), RequestID: 1, Key: "k", Value: "v"}},
	{"put if version", Command{Kind: KindPut, Stamp: 2, ClientID: "c", RequestID: 4, Key: "k", Value: "v", IfVersion: new(uint64(300))}},
	{"delete if absent", Command{Kind: KindDelete, Stamp: 2, Nonce: Nonce{8}, Key: "k", IfVersion: new(uint64(0))}},
	{"compare-and-set if absent", Command{Kind: KindCAS, Stamp: 2, ClientID: "c", RequestID: 5, AckedThrough: 4, Key: "k", ExpectAbsent: true, Value: "v"}},
	{"batch", Command{Kind: KindBatch, Stamp: 2, Nonce: Nonce{9}, Operations: []Command{
		{Kind: KindPut, ClientID: "c", RequestID: 6, AckedThrough: 5, Key: "k", Value: "v"},
		{Kind: KindAppend, Key: "k", Value: "w", IfVersion: new(uint64(1))},
		{Kind: KindCAS, ClientID: NewKeyID("order 18"), RequestID: 1, Key: "k", CompareValue: "old", Value: "new"},
		{Kind: KindGet, Key: "k"},
	}}},
	{"mark", Command{Kind: KindMark, Stamp: 2, Nonce: Nonce{10}}},

	// Version 3.
	{"settings that report duplicates", Command{Kind: KindSettings, Stamp: 1, Nonce: Nonce{1, 2, 3}, Settings: reporting(DefaultSettings())}},
	{"batch with a key", Command{Kind: KindBatch, Stamp: 2, ClientID: NewKeyID("order 19"), RequestID: 1, Operations: []Command{
		{Kind: KindPut, Key: "k", Value: "v"},
		{Kind: KindDelete, Key: "k", IfVersion: new(uint64(1))},
		{Kind: KindGet, Key: "k"},
	}}},
}

func TestGoldenBytes(t *testing.T) {
	var lines strings.Builder
	for _, g := range goldenCommands {
		fmt.Fprintf(&lines, "%s: %x\n", g.name, g.c.Encode())
	}
	want, err := os.ReadFile("testdata/commands.txt")
	require.NoError(t, err)
	require.Equal(t, string(want), lines.String())

	for _, line := range strings.Split(strings.TrimSpace(string(want)), "\n") {
		name, text, _ := strings.Cut(line, ": ")
		b, err := hex.DecodeString(text)
		require.NoError(t, err)
		c, err := Decode(b)
		require.NoError(t, err, name)
		for _, g := range goldenCommands {
			if g.name == name {
				require.Equal(t, g.c, c)
			}
		}
	}
}

// What an older program has refused is refused for ever, or a server that was
// replaced early has another state than one that was replaced late. So a version
// stays as it was, also for kinds that a newer one has: they are unknown in it, and
// what is unknown is applied as an error, by all servers alike.
func TestOlderVersionsStayAsTheyWere(t *testing.T) {
	l := newLog(t)
	c := l.opened('C')
	for _, newer := range goldenCommands {
		b := newer.c.Encode()
		for version := b[0] - 1; version > 0; version-- {
			b[0] = version
			requireRefused(t, l.applyRaw(b).Result, api.StatusBadRequest, api.OutcomeNotApplied)
		}
	}
	closing := Command{Kind: KindCloseSession, Stamp: 9, ClientID: c, Nonce: l.nonce()}.Encode()
	closing[0] = 1
	require.Equal(t, errUnknownKind.Error(), l.applyRaw(closing).Result.Error)
	require.Equal(t, 1, l.a.Sessions())
	require.EqualValues(t, 9, l.a.Now())
}

// One command has one encoding: the newer version is not another for the same.
func TestTheOldestVersionThatCanSayIt(t *testing.T) {
	for _, g := range goldenCommands {
		b := g.c.Encode()
		for version := g.c.version() + 1; version <= newestVersion; version++ {
			b[0] = version
			_, err := Decode(b)
			require.ErrorIs(t, err, errMalformed, g.name)
		}
	}
}

// A command of a version that this program does not know is not applied, and the
// log stays where it was: the newer program goes on from there.
func TestNewerVersionStopsTheMachine(t *testing.T) {
	l := newLog(t)
	b := appending("laptop", 1, "x", "a").Encode()
	b[0] = newestVersion + 1
	before := l.a.Hash()
	_, err := l.a.Apply(raft.CommitEntry{Index: 2, Command: b})
	require.ErrorIs(t, err, ErrNewerVersion)
	require.EqualError(t, err, "machine: a command of version 4, and this program knows versions up to 3: a newer program has written this; replace raftkv by a newer one")
	require.Equal(t, before, l.a.Hash())
	require.EqualValues(t, 1, l.a.AppliedIndex())
}

// The fingerprint stands in the replicated state, so it is pinned as well.
func TestGoldenFingerprint(t *testing.T) {
	id := Command{Kind: KindPut, ClientID: "c", RequestID: 1, Key: "k", Value: "v"}.Identity()
	require.Equal(t, "73bef70fde1f0edfe7ca30086664bb64bfca8c9ceb92beee84533f7f5d6c4079", hex.EncodeToString(id.Fingerprint[:]))
}

func TestDecodeSharesNoMemory(t *testing.T) {
	b := Command{Kind: KindPut, ClientID: "client", RequestID: 1, Key: "key", Value: "value"}.Encode()
	c, err := Decode(b)
	require.NoError(t, err)
	clear(b)
	require.Equal(t, Command{Kind: KindPut, ClientID: "client", RequestID: 1, Key: "key", Value: "value"}, c)
}

// Any bytes either are exactly what Encode writes for the command they hold, or
// are refused; and a machine that finds them in its log goes on.
func FuzzCommand(f *testing.F) {
	for _, g := range goldenCommands {
		b := g.c.Encode()
		f.Add(b)
		f.Add(b[:len(b)-1])
		f.Add(append(bytes.Clone(b), 0))
	}
	f.Add([]byte{})
	f.Add([]byte{newestVersion + 1})
	f.Add([]byte{newestVersion, 0x80, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Decode(b)
		if err == nil && !bytes.Equal(b, c.Encode()) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", b, c, c.Encode())
		}
		m := New()
		settings := Command{Kind: KindSettings, Settings: DefaultSettings()}.Encode()
		for i, command := range [][]byte{settings, b, b} {
			applied, applyErr := m.Apply(raft.CommitEntry{Index: raft.Index(i + 1), Command: command})
			if applyErr != nil {
				require.ErrorIs(t, applyErr, ErrNewerVersion)
				require.Equal(t, err, applyErr)
				return
			}
			require.NotEmpty(t, applied.Result.Status)
			require.NotEmpty(t, applied.Result.Outcome)
		}
		applied, err := m.Apply(raft.CommitEntry{Index: 4, Command: settings})
		require.NoError(t, err)
		require.Equal(t, EventCommitted, applied.Event)
	})
}
