package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/api"
	"raftkv/kvclient"
)

// loseAnswers carries every write out and cuts the connection.
func loseAnswers(w http.ResponseWriter, r request, forward func() (int, []byte)) {
	if !isWrite(r.path) {
		pass(w, forward)
		return
	}
	forward()
	cut(w)
}

// loseRequests cuts the connection before a write reaches the node.
func loseRequests(w http.ResponseWriter, r request, forward func() (int, []byte)) {
	if !isWrite(r.path) {
		pass(w, forward)
		return
	}
	cut(w)
}

// The command line times out, the user repeats it: nothing is sent under a new
// number. Resume brings the original result, once.
func TestUnknownWriteIsResumed(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]hook{"answer lost": loseAnswers, "request lost": loseRequests} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t, startNode(t).HTTPAddr())
			s := newShell(t, g.URL)
			require.Equal(t, 0, s.run("put", "k", "a").code)
			g.set(fault)
			got := s.run("append", "k", "x", "--timeout", "300ms")
			require.Equal(t, 5, got.code)
			require.Contains(t, got.stderr, "raftkv session resume")
			require.Contains(t, got.stderr, "raftkv session drop")
			require.Equal(t, kvclient.Write{Op: kvclient.OpAppend, Key: "k", Value: "x"}, *s.section().Pending)

			g.set(nil)
			sent := g.count(api.PathAppend)
			for _, args := range [][]string{{"append", "k", "x"}, {"put", "k", "y"}, {"delete", "k"}, {"cas", "k", "a", "b"}} {
				got = s.run(args...)
				require.Equal(t, 5, got.code, "raftkv %q", args)
				require.Contains(t, got.stderr, "nothing was sent")
			}
			require.Equal(t, sent, g.count(api.PathAppend))
			require.Contains(t, s.run("session", "show").stdout, `append "k"`)

			got = s.run("session", "resume", "-w", "json")
			require.Equal(t, 0, got.code, got.stderr)
			var result struct {
				Outcome, PrevValue string
				KeyFound           bool
				Duplicate          bool
			}
			require.NoError(t, json.Unmarshal([]byte(got.stdout), &result))
			require.Equal(t, "a", result.PrevValue, "the original result")
			require.Equal(t, name == "answer lost", result.Duplicate)
			require.Nil(t, s.section().Pending)
			require.Equal(t, "ax\n", s.run("get", "k").stdout)
			require.Equal(t, 1, s.run("session", "resume").code)

			require.Equal(t, 0, s.run("append", "k", "y").code)
			require.Equal(t, "axy\n", s.run("get", "k").stdout)
			g.checkIdentities()
		})
	}
}

// A compare-and-set whose answer was lost: resume tells what it found then.
func TestResumedCASTellsWhatItDid(t *testing.T) {
	t.Parallel()
	g := newGate(t, startNode(t).HTTPAddr())
	s := newShell(t, g.URL)
	require.Equal(t, 0, s.run("put", "k", "a").code)
	g.set(loseAnswers)
	require.Equal(t, 5, s.run("cas", "k", "wrong", "b", "--timeout", "300ms").code)
	g.set(nil)
	require.Equal(t, 0, s.run("put", "k", "wrong", "--session", "none").code) // someone else
	require.Equal(t, 3, s.run("session", "resume").code)
	require.Equal(t, "wrong\n", s.run("get", "k").stdout)
}

// A dropped write may take effect until the next write is applied, not after.
func TestDroppedWrite(t *testing.T) {
	t.Parallel()
	g := newGate(t, startNode(t).HTTPAddr())
	s := newShell(t, g.URL)
	require.Equal(t, 0, s.run("put", "k", "a").code)
	held := make(chan func() (int, []byte), 100)
	g.set(func(w http.ResponseWriter, r request, forward func() (int, []byte)) {
		if isWrite(r.path) {
			held <- forward
			cut(w)
			return
		}
		pass(w, forward)
	})
	require.Equal(t, 5, s.run("append", "k", "old", "--timeout", "300ms").code)
	g.set(nil)
	got := s.run("session", "drop")
	require.Equal(t, 0, got.code, got.stderr)
	require.Contains(t, got.stdout, `append "k"`)
	require.Nil(t, s.section().Pending)
	require.Equal(t, 0, s.run("append", "k", "new").code)

	_, answer := (<-held)() // the copy arrives at last
	require.Contains(t, string(answer), "StaleRequest")
	require.Equal(t, "anew\n", s.run("get", "k").stdout)
	require.Equal(t, 1, s.run("session", "drop").code)
	g.checkIdentities()
}

// The cluster was started anew in an empty folder, under the same addresses and
// so with the same id. The session in the file is unknown there; the next put
// works and sends nothing twice.
func TestClusterStartedAnewUnderASessionFile(t *testing.T) {
	t.Parallel()
	g := newGate(t, startNode(t).HTTPAddr())
	s := newShell(t, g.URL)
	require.Equal(t, 0, s.run("put", "k", "a").code)
	require.Equal(t, 0, s.run("put", "k", "b").code)
	before := *s.section()
	require.Equal(t, uint64(2), before.LastRequestID)

	g.setTarget(startNode(t).HTTPAddr())
	require.Equal(t, 0, s.run("append", "k", "c").code)
	after := *s.section()
	require.NotEqual(t, before.ClientID, after.ClientID)
	require.Equal(t, uint64(1), after.LastRequestID)
	require.Equal(t, "c\n", s.run("get", "k").stdout)
	require.Equal(t, 2, g.count(api.PathSession))
	g.checkIdentities()
}

// The same, but with a write whose end is not known: a new session could do it
// again, so only the user may decide.
func TestUnknownWriteAndAClusterStartedAnew(t *testing.T) {
	t.Parallel()
	g := newGate(t, startNode(t).HTTPAddr())
	s := newShell(t, g.URL)
	g.set(loseAnswers)
	require.Equal(t, 5, s.run("append", "k", "x", "--timeout", "1s").code)
	g.set(nil)
	g.setTarget(startNode(t).HTTPAddr())
	got := s.run("session", "resume")
	require.Equal(t, 5, got.code)
	require.Contains(t, got.stderr, "SessionExpired")
	require.NotNil(t, s.section().Pending)
	require.Equal(t, 0, s.run("session", "drop").code)
	require.Equal(t, 0, s.run("append", "k", "y").code)
	require.Equal(t, "y\n", s.run("get", "k").stdout)
}

// What is about to be sent stands in the file when it is sent.
func TestNotedBeforeSending(t *testing.T) {
	t.Parallel()
	g := newGate(t, startNode(t).HTTPAddr())
	s := newShell(t, g.URL)
	g.set(func(w http.ResponseWriter, r request, forward func() (int, []byte)) {
		if isWrite(r.path) {
			all, err := readSections(s.path(defaultSessionFile))
			if err != nil || len(all) != 1 {
				t.Errorf("the session file: %v, %v", all, err)
			}
			for _, only := range all {
				if only.ClientID != r.body.ClientID || only.LastRequestID != r.body.RequestID || only.Pending == nil || only.Pending.Value != r.body.Value {
					t.Errorf("sent %+v, but the file says %+v", r.body, only)
				}
			}
		}
		pass(w, forward)
	})
	for i := range 3 {
		require.Equal(t, 0, s.run("append", "k", fmt.Sprint(i)).code)
	}
	info, err := os.Stat(s.path(defaultSessionFile))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

// Twenty processes append at once through one session file: twenty effects,
// twenty numbers.
func TestSystemTwentyProcessesOneSessionFile(t *testing.T) {
	t.Parallel()
	g := newGate(t, startNode(t).HTTPAddr())
	s := newShell(t, g.URL)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			cmd := s.command("append", "k", fmt.Sprintf("<%d>", i), "--timeout", "30s")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("append %d: %v: %s", i, err, out)
			}
		})
	}
	wg.Wait()
	value := s.run("get", "k").stdout
	for i := range 20 {
		require.Equal(t, 1, strings.Count(value, fmt.Sprintf("<%d>", i)))
	}
	require.Equal(t, 20, g.checkIdentities())
	require.Equal(t, uint64(20), s.section().LastRequestID)
	require.Equal(t, 1, g.count(api.PathSession))
}

// A second process waits for the first one's call, up to its --timeout.
func TestSecondProcessWaits(t *testing.T) {
	t.Parallel()
	g := newGate(t, startNode(t).HTTPAddr())
	s := newShell(t, g.URL)
	require.Equal(t, 0, s.run("put", "k", "a").code)
	before, err := os.ReadFile(s.path(defaultSessionFile))
	require.NoError(t, err)

	held, err := openSessionFile(t.Context(), s.path(defaultSessionFile), time.Second)
	require.NoError(t, err)
	got := s.run("put", "k", "b", "--timeout", "100ms")
	require.Equal(t, 4, got.code)
	require.Contains(t, got.stderr, "another raftkv")
	require.Equal(t, 4, s.run("session", "drop", "--timeout", "100ms").code)
	after, err := os.ReadFile(s.path(defaultSessionFile))
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
	require.Equal(t, 0, s.run("session", "show").code, "looking needs no lock")

	cmd := s.command("put", "k", "b", "--timeout", "30s")
	require.NoError(t, cmd.Start())
	held.close()
	require.NoError(t, cmd.Wait())
	require.Equal(t, "b\n", s.run("get", "k").stdout)
}

// The program is killed when a chosen request has reached the gate, before or
// after it is carried out. The file stays readable, and what follows neither
// loses a write nor does one twice.
func TestKilledAtEachRequest(t *testing.T) {
	t.Parallel()
	for _, path := range []string{api.PathStatus, api.PathSession, api.PathAppend} {
		for _, carriedOut := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s carried out %v", path[1:], carriedOut), func(t *testing.T) {
				g := newGate(t, startNode(t).HTTPAddr())
				s := newShell(t, g.URL)
				cmd := s.command("append", "k", "<1>", "--timeout", "30s")
				started, killed := make(chan struct{}), make(chan struct{})
				g.set(func(w http.ResponseWriter, r request, forward func() (int, []byte)) {
					if r.path != path {
						pass(w, forward)
						return
					}
					if carriedOut {
						forward()
					}
					<-started
					cmd.Process.Kill()
					<-killed
				})
				require.NoError(t, cmd.Start())
				close(started)
				cmd.Wait()
				close(killed)
				g.set(nil)
				s.recover()
				require.Equal(t, 0, s.run("append", "k", "<2>").code)
				value := s.run("get", "k").stdout
				require.Equal(t, 1, strings.Count(value, "<2>"), value)
				first := 0
				if path == api.PathAppend {
					first = 1 // noted before it was sent, so resumed
				}
				require.Equal(t, first, strings.Count(value, "<1>"), value)
				g.checkIdentities()
			})
		}
	}
}

// recover finishes what a killed process has left pending, if anything.
func (s *shell) recover() {
	s.t.Helper()
	for _, only := range s.sections() {
		if only.Pending != nil {
			got := s.run("session", "resume")
			require.Equal(s.t, 0, got.code, got.stderr)
		}
	}
}

// The program is killed at random moments, 60 times, and resumed.
func TestSystemKilledAtRandom(t *testing.T) {
	t.Parallel()
	g := newGate(t, startNode(t).HTTPAddr())
	s := newShell(t, g.URL)
	require.Equal(t, 0, s.run("put", "k", "").code)
	chance := rand.New(rand.NewPCG(3, 4))
	sent := map[int]bool{}
	for i := range 60 {
		cmd := s.command("append", "k", fmt.Sprintf("<%d>", i), "--timeout", "30s")
		require.NoError(t, cmd.Start())
		killer := time.AfterFunc(time.Duration(chance.IntN(20000))*time.Microsecond, func() { cmd.Process.Kill() })
		cmd.Wait()
		killer.Stop()
		only := s.section()
		sent[i] = cmd.ProcessState.Success() || only.Pending != nil && only.Pending.Value == fmt.Sprintf("<%d>", i)
		s.recover()
	}
	value := s.run("get", "k").stdout
	killed := 0
	for i := range 60 {
		n := strings.Count(value, fmt.Sprintf("<%d>", i))
		require.LessOrEqual(t, n, 1, "append %d", i)
		if sent[i] {
			require.Equal(t, 1, n, "append %d was acknowledged or resumed", i)
		} else {
			killed++
		}
	}
	g.checkIdentities()
	t.Logf("%d of 60 were killed before they were noted, or after they were done", killed)
}

// Ctrl-C during a call whose end is open is like its deadline.
func TestInterruptedWriteStaysPending(t *testing.T) {
	t.Parallel()
	g := newGate(t, startNode(t).HTTPAddr())
	s := newShell(t, g.URL)
	arrived := make(chan struct{}, 100)
	g.set(func(w http.ResponseWriter, r request, forward func() (int, []byte)) {
		loseAnswers(w, r, forward)
		if isWrite(r.path) {
			arrived <- struct{}{}
		}
	})
	cmd := s.command("append", "k", "x", "--timeout", "30s")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	<-arrived
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	cmd.Wait()
	require.Equal(t, 5, cmd.ProcessState.ExitCode(), stderr.String())
	require.Contains(t, stderr.String(), "interrupted")
	require.NotNil(t, s.section().Pending)
}

// A process that died while it replaced the file has left a temporary one.
func TestLeftoverTemporaryFile(t *testing.T) {
	t.Parallel()
	s := newShell(t, startNode(t).HTTPAddr())
	require.NoError(t, os.WriteFile(s.path(defaultSessionFile+".tmp"), []byte(`{"Format": 1, "Clu`), 0o600))
	require.Equal(t, 0, s.run("put", "k", "a").code)
	require.NoFileExists(t, s.path(defaultSessionFile+".tmp"))
	require.Equal(t, uint64(1), s.section().LastRequestID)
}

// A file that cannot be understood is left as it is, and nothing is sent.
func TestDamagedSessionFile(t *testing.T) {
	t.Parallel()
	g := newGate(t, "127.0.0.1:1")
	s := newShell(t, g.URL)
	for name, content := range map[string]string{
		"empty":             "",
		"half":              `{"Format": 1, "Clusters": {"a": {"Cli`,
		"newer":             `{"Format": 2, "Clusters": {}, "More": 1}`,
		"no format":         `{"Clusters": {}}`,
		"unknown field":     `{"Format": 1, "Clusters": {}, "Extra": 1}`,
		"section twice":     `{"Format": 1, "Clusters": {"a": {"ClientID": "s", "LastRequestID": 1}, "a": {"ClientID": "s", "LastRequestID": 1}}}`,
		"null section":      `{"Format": 1, "Clusters": {"a": null}}`,
		"no client":         `{"Format": 1, "Clusters": {"a": {"LastRequestID": 1}}}`,
		"no number":         `{"Format": 1, "Clusters": {"a": {"ClientID": "s"}}}`,
		"last number":       `{"Format": 1, "Clusters": {"a": {"ClientID": "s", "LastRequestID": 18446744073709551615}}}`,
		"negative number":   `{"Format": 1, "Clusters": {"a": {"ClientID": "s", "LastRequestID": -1}}}`,
		"pending nonsense":  `{"Format": 1, "Clusters": {"a": {"ClientID": "s", "LastRequestID": 1, "Pending": {"Op": "eat", "Key": "k"}}}}`,
		"pending, no key":   `{"Format": 1, "Clusters": {"a": {"ClientID": "s", "LastRequestID": 1, "Pending": {"Op": "put"}}}}`,
		"something else":    `[1, 2, 3]`,
		"text after it":     `{"Format": 1, "Clusters": {}} and more`,
		"not even text":     "\x00\xff\xfe",
		"a shell's history": "ls\ncd ..\n",
	} {
		require.NoError(t, os.WriteFile(s.path(defaultSessionFile), []byte(content), 0o600))
		for _, args := range [][]string{{"put", "k", "v"}, {"session", "show"}, {"session", "resume"}, {"session", "drop"}} {
			got := s.run(args...)
			require.Equal(t, 1, got.code, "%s: raftkv %q: %s", name, args, got.stderr)
		}
		after, err := os.ReadFile(s.path(defaultSessionFile))
		require.NoError(t, err)
		require.Equal(t, content, string(after))
	}
	require.Zero(t, g.count(""))
}

// The session file of format 1, with a pending write of every kind. A write may be
// pending in it while raftkv is replaced, so a newer program must read it; and what
// is written today is the same.
func TestGoldenSessionFile(t *testing.T) {
	golden, err := os.ReadFile("testdata/session-1.json")
	require.NoError(t, err)
	got, err := parseSections(golden)
	require.NoError(t, err)
	require.Len(t, got, 6)
	require.Nil(t, got["0000000000000001"].Pending)
	require.Equal(t, kvclient.Write{Op: kvclient.OpPut, Key: "k", Value: "\x00\xff"}, *got["0000000000000002"].Pending)
	require.Equal(t, kvclient.Write{Op: kvclient.OpAppend, Key: "k", Value: "v", IfVersion: new(uint64(0))}, *got["0000000000000003"].Pending)
	require.Equal(t, kvclient.Write{Op: kvclient.OpCAS, Key: "k", CompareValue: "old", Value: "new"}, *got["0000000000000004"].Pending)
	require.Equal(t, kvclient.Write{Op: kvclient.OpCAS, Key: "k", ExpectAbsent: true, Value: "new"}, *got["0000000000000005"].Pending)
	require.Equal(t, kvclient.Write{Op: kvclient.OpDelete, Key: "k"}, *got["0000000000000006"].Pending)
	today, err := got.bytes()
	require.NoError(t, err)
	require.Equal(t, string(golden), string(today)+"\n")
}

// One of a newer format is not damaged, and nobody should move it away: a write may
// be pending in it.
func TestNewerSessionFile(t *testing.T) {
	t.Parallel()
	s := newShell(t, "127.0.0.1:1")
	require.NoError(t, os.WriteFile(s.path(defaultSessionFile), []byte(`{"Format": 2, "Clusters": [], "More": 1}`), 0o600))
	got := s.run("put", "k", "v")
	require.Equal(t, 1, got.code)
	require.Equal(t, "raftkv: cannot use the session file .raftkv-session: a newer raftkv has written it: its format is 2 and this program knows 1; use that raftkv, or another file with --session\n", got.stderr)
}

// Writes may be pending for two clusters; drop must be told which is meant, and
// resume goes to the cluster that is asked.
func TestPendingForTwoClusters(t *testing.T) {
	t.Parallel()
	s := newShell(t, startNode(t).HTTPAddr())
	file, err := openSessionFile(t.Context(), s.path(defaultSessionFile), time.Second)
	require.NoError(t, err)
	for _, cluster := range []string{"000000000000000a", "000000000000000b"} {
		file.sections[cluster] = &section{ClientID: "s-x", LastRequestID: 3, Pending: &kvclient.Write{Op: kvclient.OpDelete, Key: "k"}}
	}
	require.NoError(t, file.save())
	file.close()
	require.Equal(t, 0, s.run("put", "k", "v").code, "other clusters' pending writes do not matter here")
	got := s.run("session", "resume")
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, "000000000000000a")
	require.Equal(t, 1, s.run("session", "drop").code)
	require.Equal(t, 1, s.run("session", "drop", "nonsense").code)
	require.Equal(t, 0, s.run("session", "drop", "000000000000000b").code)
	require.Equal(t, 0, s.run("session", "drop").code)
	require.Equal(t, 1, s.run("session", "drop").code)
}

// A folder that cannot be written: nothing is sent.
func TestSessionFileThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	g := newGate(t, startNode(t).HTTPAddr())
	s := newShell(t, g.URL)
	require.NoError(t, os.MkdirAll(s.path(defaultSessionFile+".tmp"), 0o700)) // in the way of the temporary file
	got := s.run("put", "k", "v")
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, "nothing was sent")
	require.Zero(t, g.count(api.PathPut))
}

// Any bytes: readable or refused, and what is readable survives being written.
func FuzzSessionFile(f *testing.F) {
	f.Add([]byte(`{"Format":1,"Clusters":{}}`))
	f.Add([]byte(`{"Format":1,"Clusters":{"3b3666716c87eefd":{"ClientID":"s-MMCZJJFHD6PRLRXZWI5XF63OOT","LastRequestID":5}}}`))
	f.Add([]byte(`{"Format":1,"Clusters":{"a":{"ClientID":"7","LastRequestID":1,"Pending":{"Op":"cas","Key":"k","Value":"é","CompareValue":"\n"}}}}`))
	f.Add([]byte(`{"Format":1,"Clusters":{"a":{"ClientID":"7","LastRequestID":1,"Pending":{"Op":"put","Key":"k","Value":"AP8=","CompareValue":"","IfVersion":0,"Encoding":"base64"}}}}`))
	f.Add([]byte(`{"Format":2}`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := parseSections(data)
		if err != nil {
			return
		}
		dir := t.TempDir()
		file, err := openSessionFile(context.Background(), filepath.Join(dir, "s"), time.Second)
		require.NoError(t, err)
		defer file.close()
		file.sections = first
		require.NoError(t, file.save())
		second, err := readSections(file.path)
		require.NoError(t, err)
		require.Equal(t, first, second)
		for _, s := range second {
			require.Less(t, s.identity().AckedThrough, s.identity().RequestID)
		}
	})
}
