package kvservice

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/api"
	"raftkv/kvservice/machine"
	"raftkv/raft"
	"raftkv/raft/server"
	"raftkv/raft/storage"
)

// docs/upgrades.md says what becomes of the files of older programs, and which test
// shows it. The directories in testdata/datadirs are whole data directories of a
// cluster of one server. They are never written anew: when there is a newer format,
// another directory is added, and these must still open.

// goldenDirectory is how one of them was made.
type goldenDirectory struct {
	name     string // after the newest version of a command in it
	settings machine.Settings
	before   []machine.Command // and then a snapshot
	after    []machine.Command
	asks     []ask
}

// ask is a request to a server that was started on a directory, and a part of the answer.
type ask struct{ path, key, body, want string }

var goldenIssued = machine.NewIssuedID(strings.Repeat("C", 26))

func goldenDirectories() []goldenDirectory {
	write := func(kind machine.Kind, stamp machine.LogTime, id api.ClientID, number uint64, key, value string) machine.Command {
		c := machine.Command{Kind: kind, Stamp: stamp, ClientID: id, RequestID: number, Key: key, Value: value}
		if number == 0 {
			c.Nonce = machine.Nonce{byte(stamp)}
		}
		return c
	}
	registration := machine.Command{Kind: machine.KindOpenSession, Stamp: 1000, ClientID: goldenIssued, Nonce: machine.Nonce{1}}
	batch := []machine.Command{{Kind: machine.KindAppend, Key: "y", Value: "b"}, {Kind: machine.KindPut, Key: "y", Value: "c", IfVersion: new(uint64(9))}, {Kind: machine.KindGet, Key: "y"}}
	const askBatch = `{"Operations":[{"Append":{"Key":"y","Value":"b"}},{"Put":{"Key":"y","Value":"c","IfVersion":9}},{"Get":{"Key":"y"}}]}`
	reported := machine.DefaultSettings()
	reported.ReportDuplicates = true
	return []goldenDirectory{
		{
			name:     "commands-1", // and a snapshot of version 1, from machine/testdata
			settings: machine.Settings{Window: 8, SessionBytes: 8, ValueBytes: 300},
			after: []machine.Command{
				write(machine.KindAppend, 3000, "laptop", 2, "x", "!"),
				write(machine.KindPut, 3001, "", 0, "new", "1"),
			},
			asks: []ask{
				{"/get", "", `{"Key":"x"}`, `"Value":"y!"`},
				{"/get", "", `{"Key":"new"}`, `"Value":"1"`},
				{"/append", "", `{"Key":"x","Value":"!","ClientID":"laptop","RequestID":2}`, `"PrevValue":"y","Version":7,"Duplicate":true`},
				{"/cas", "", `{"Key":"x","CompareValue":"foobar","Value":"y","ClientID":"` + string(goldenIssued) + `","RequestID":5,"AckedThrough":2}`, `"PrevValue":"foobar","Swapped":true,"Version":5,"Duplicate":true`},
				{"/append", "", `{"Key":"x","Value":"bar","ClientID":"` + string(goldenIssued) + `","RequestID":3}`, `"RespStatus":"DuplicateRequest","Outcome":"applied"`},
			},
		},
		{
			name:     "commands-2",
			settings: machine.DefaultSettings(),
			before: []machine.Command{
				registration,
				write(machine.KindAppend, 1001, goldenIssued, 1, "x", "a"),
				write(machine.KindPut, 1002, machine.NewKeyID("order 7"), 1, "y", "a"),
				{Kind: machine.KindPut, Stamp: 1003, ClientID: "laptop", RequestID: 1, Key: "x", Value: "z", IfVersion: new(uint64(9))},
			},
			after: []machine.Command{
				{Kind: machine.KindBatch, Stamp: 1004, Nonce: machine.Nonce{4}, Operations: []machine.Command{
					{Kind: machine.KindAppend, ClientID: goldenIssued, RequestID: 2, Key: "x", Value: "b"},
					{Kind: machine.KindCAS, Key: "absent", ExpectAbsent: true, Value: "1"},
				}},
				{Kind: machine.KindMark, Stamp: 1005, Nonce: machine.Nonce{5}},
				{Kind: machine.KindCloseSession, Stamp: 1006, ClientID: "laptop", Nonce: machine.Nonce{6}},
			},
			asks: []ask{
				{"/get", "", `{"Key":"x"}`, `"Value":"ab"`},
				{"/append", "", `{"Key":"x","Value":"a","ClientID":"` + string(goldenIssued) + `","RequestID":1}`, `"KeyFound":false,"PrevValue":"","Version":1,"Duplicate":true`},
				{"/append", "", `{"Key":"x","Value":"b","ClientID":"` + string(goldenIssued) + `","RequestID":2,"AckedThrough":0}`, `"PrevValue":"a","Version":3,"Duplicate":true`},
				{"/put", "order 7", `{"Key":"y","Value":"a"}`, `"Version":2,"Duplicate":true`},
				{"/put", "order 7", `{"Key":"y","Value":"b"}`, `RequestMismatch`},
				{"/append", "", `{"Key":"x","Value":"c","ClientID":"laptop","RequestID":2}`, `SessionExpired`},
			},
		},
		{
			name:     "commands-3",
			settings: reported,
			before: []machine.Command{
				registration,
				write(machine.KindAppend, 1001, goldenIssued, 1, "x", "a"),
				{Kind: machine.KindBatch, Stamp: 1002, ClientID: machine.NewKeyID("order 7"), RequestID: 1, Operations: batch},
			},
			after: []machine.Command{
				{Kind: machine.KindBatch, Stamp: 1003, ClientID: machine.NewKeyID("order 8"), RequestID: 1, Operations: batch},
			},
			asks: []ask{
				{"/get", "", `{"Key":"y"}`, `"Value":"bb"`},
				{"/append", "", `{"Key":"x","Value":"a","ClientID":"` + string(goldenIssued) + `","RequestID":1}`, `"RespStatus":"DuplicateRequest","Outcome":"applied"`},
				{"/batch", "order 7", askBatch, `"Results":[{"RespStatus":"DuplicateRequest","Outcome":"applied"`},
				{"/batch", "order 8", askBatch, `{"RespStatus":"DuplicateRequest","Outcome":"not_applied"`},
				{"/batch", "order 8", strings.Replace(askBatch, "b", "d", 1), `RequestMismatch`},
			},
		},
	}
}

var goldenIdentity = server.NewIdentity("raftkv", 1, []server.Member{{ID: 1, Addr: "127.0.0.1:9080"}})

// write makes the directory with today's program.
func (g goldenDirectory) write(t *testing.T, dir string) {
	s, err := storage.Open(dir, storage.Options{Identity: goldenIdentity, SegmentBytes: 4096, NewStoreID: func() raft.StoreID { return raft.StoreID{0x60, 15: 0x1d} }})
	require.NoError(t, err)
	defer s.Close()
	first := raft.Index(1)
	save := func(entries ...raft.LogEntry) {
		require.NoError(t, s.Save(raft.Save{CurrentTerm: 1, VotedFor: 1, FirstIndex: first, Entries: entries}))
		first += raft.Index(len(entries))
	}
	command := func(c machine.Command) raft.LogEntry {
		return raft.LogEntry{Term: 1, Kind: raft.EntryCommand, Command: c.Encode()}
	}

	save(raft.LogEntry{Term: 1, Kind: raft.EntryEmpty})
	save(command(machine.Command{Kind: machine.KindSettings, Stamp: 1, Nonce: machine.Nonce{9}, Settings: g.settings}))
	for _, c := range g.before {
		save(command(c))
	}
	var state []byte
	if len(g.before) == 0 {
		state, err = os.ReadFile("machine/testdata/snapshot-1.bin")
		require.NoError(t, err)
		for first <= raft.Index(state[1]) {
			save(raft.LogEntry{Term: 1, Kind: raft.EntryEmpty})
		}
	} else {
		state = goldenState(t, s)
	}
	w, err := s.CreateSnapshot(raft.Snapshot{Index: first - 1, Term: 1, Configuration: server.FirstConfiguration(goldenIdentity.Members)})
	require.NoError(t, err)
	_, err = w.Write(state)
	require.NoError(t, err)
	_, err = w.Commit()
	require.NoError(t, err)
	for _, c := range g.after {
		save(command(c))
	}
}

// goldenState is the snapshot of what is in the log.
func goldenState(t *testing.T, s storage.Storage) []byte {
	saved, err := s.Load()
	require.NoError(t, err)
	m := machine.New()
	for i, e := range saved.Entries {
		_, err := m.Apply(raft.CommitEntry{Index: raft.Index(i + 1), Term: e.Term, Kind: e.Kind, Command: e.Command})
		require.NoError(t, err)
	}
	var b bytes.Buffer
	require.NoError(t, m.WriteSnapshot(&b))
	return b.Bytes()
}

const goldenFolder = "testdata/datadirs"

func filesOf(t *testing.T, dir string) map[string]string {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	files := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		if e.Name() != "lock" {
			files[e.Name()] = string(b)
		}
	}
	return files
}

// copied returns a copy of a golden directory, for a server to run on.
func copied(t *testing.T, name string) string {
	dir := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.Mkdir(dir, 0o700))
	for file, content := range filesOf(t, filepath.Join(goldenFolder, name)) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600))
	}
	return dir
}

func startOn(dir string) (*Node, error) {
	return Start(NodeConfig{ID: 1, Data: dir, HTTPAddr: "127.0.0.1:0", RaftAddr: "127.0.0.1:0", ElectionTimeout: 20 * time.Millisecond})
}

// Every directory that an earlier program has left opens, and answers as that program
// did: keys and values, retries of every kind. What is written today is the same,
// byte for byte, if nothing newer is asked for.
func TestGoldenDirectories(t *testing.T) {
	for _, g := range goldenDirectories() {
		t.Run(g.name, func(t *testing.T) {
			today := t.TempDir()
			g.write(t, today)
			require.Equal(t, filesOf(t, filepath.Join(goldenFolder, g.name)), filesOf(t, today))

			n, err := startOn(copied(t, g.name))
			require.NoError(t, err)
			defer n.Stop()
			for _, a := range g.asks {
				req, err := http.NewRequest(http.MethodPost, "http://"+n.HTTPAddr()+a.path, strings.NewReader(a.body))
				require.NoError(t, err)
				req.Header.Set("Content-Type", "application/json")
				if a.key != "" {
					req.Header.Set(api.HeaderIdempotencyKey, `"`+a.key+`"`)
				}
				require.Contains(t, n.ask(t, req), a.want, "%s %s", a.path, a.body)
			}
			n.service.mu.Lock()
			got, _ := n.service.machine.Settings()
			n.service.mu.Unlock()
			require.Equal(t, g.settings.WithDefaults(), got)
		})
	}
}

// ask sends a request until there is a leader to answer it.
func (n *Node) ask(t *testing.T, req *http.Request) string {
	deadline := time.Now().Add(20 * time.Second)
	for {
		resp, err := http.DefaultClient.Do(req.Clone(t.Context()))
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable {
			return string(body)
		}
		require.True(t, time.Now().Before(deadline), string(body))
		req.Body, _ = req.GetBody()
	}
}

// The versions that docs/upgrades.md names are those of the golden files, which other
// tests compare with what is written today.
func TestVersionsOfTheUpgradesPage(t *testing.T) {
	read := func(path string) string {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(b)
	}
	newest := func(pattern, text string) (v string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			v = max(v, strings.TrimLeft(m[1], "0"))
		}
		require.NotEmpty(t, v, pattern)
		return v
	}
	snapshots, err := filepath.Glob("machine/testdata/snapshot-*.bin")
	require.NoError(t, err)
	page := read("../docs/upgrades.md")
	for row, want := range map[string]string{
		"files of a data directory":    newest(`data directory, format (\d+)`, read("testdata/datadirs/commands-3/identity")),
		"commands in the log":          newest(`(?m): ([0-9a-f]{2})[0-9a-f]*$`, read("machine/testdata/commands.txt")),
		"snapshots of the store":       newest(`snapshot-(\d+)\.bin`, strings.Join(snapshots, " ")),
		"snapshot files for people":    "`" + snapshotFormat + "`",
		"messages between servers":     newest(`version (\d+)`, read("../raft/transport/testdata/frames/hello.hex")),
		"session files of the command": newest(`"Format": (\d+)`, read("../cmd/raftkv/testdata/session-1.json")),
	} {
		require.Regexp(t, `(?m)^\| `+row+`[^|]*\|[^|]*\| `+want+` \|`, page)
	}
}

// A file of a format that this program does not know is refused by one line that names
// the file and the version. Nothing is changed.
func TestNewerFormatsAreRefused(t *testing.T) {
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	text := func(b []byte) []byte { // identity and peers: the checksum is the last line
		changed := bytes.Replace(b[:len(b)-len("crc32c 00000000\n")], []byte("format 1"), []byte("format 2"), 1)
		return fmt.Appendf(changed, "crc32c %08x\n", crc32.Checksum(changed, castagnoli))
	}
	header := func(size func(b []byte) int) func(b []byte) []byte { // the checksum is behind the version
		return func(b []byte) []byte {
			binary.LittleEndian.PutUint32(b[8:], 2)
			covered := append(bytes.Clone(b[:12]), b[16:size(b)]...)
			binary.LittleEndian.PutUint32(b[12:], crc32.Checksum(covered, castagnoli))
			return b
		}
	}
	for file, change := range map[string]func(b []byte) []byte{
		"identity":                      text,
		"peers":                         text,
		"log-0000000001":                header(func([]byte) int { return 64 }),
		"snapshot-00000000000000000006": header(func(b []byte) int { return 72 + int(binary.LittleEndian.Uint32(b[52:])) }),
	} {
		dir := copied(t, "commands-2")
		path := filepath.Join(dir, file)
		whole, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, change(whole), 0o600))
		before := filesOf(t, dir)
		_, err = startOn(dir)
		require.EqualError(t, err, path+" was written by a newer version of raftkv (format 2; this program knows formats up to 1)", file)
		require.Equal(t, before, filesOf(t, dir))
	}
}

// A server that finds a command or a state of a newer version has missed its
// replacement. It stops there and says what it has found. It comes back to the same
// place however often it is started, with all that stands before it, and the program
// that knows the version goes on from there.
func TestNewerStateStopsTheServer(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, s storage.Storage)
		want   string
	}{
		"command": {func(t *testing.T, s storage.Storage) {
			newer := machine.Command{Kind: machine.KindPut, Stamp: 2000, Nonce: machine.Nonce{7}, Key: "x", Value: "newer"}.Encode()
			newer[0] = 4
			require.NoError(t, s.Save(raft.Save{CurrentTerm: 1, VotedFor: 1, FirstIndex: 10, Entries: []raft.LogEntry{{Term: 1, Kind: raft.EntryCommand, Command: newer}}}))
		}, "the store cannot go on: entry 10: machine: a command of version 4, and this program knows versions up to 3: a newer program has written this; replace raftkv by a newer one"},
		"snapshot": {func(t *testing.T, s storage.Storage) {
			state := goldenState(t, s)
			state[0] = 4
			w, err := s.CreateSnapshot(raft.Snapshot{Index: 9, Term: 1, Configuration: server.FirstConfiguration(goldenIdentity.Members)})
			require.NoError(t, err)
			_, err = w.Write(state)
			require.NoError(t, err)
			_, err = w.Commit()
			require.NoError(t, err)
		}, "the store cannot go on: entry 9: machine: a snapshot of version 4, and this program knows versions up to 3: a newer program has written this; replace raftkv by a newer one"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copied(t, "commands-2")
			s, err := storage.Open(dir, storage.Options{Identity: goldenIdentity})
			require.NoError(t, err)
			c.change(t, s)
			require.NoError(t, s.Close())
			for range 2 {
				n, err := startOn(dir)
				require.NoError(t, err)
				<-n.Done()
				require.EqualError(t, n.Err(), c.want)
			}
		})
	}
}
