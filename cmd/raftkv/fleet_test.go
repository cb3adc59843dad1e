//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/kvclient"
)

// fleet is the servers of a cluster, each a process that may be started, killed
// and started again.
type fleet struct {
	*shell
	base    int // server n has HTTP port base+n-1 and raft port 1000 higher
	running map[int]*serverProcess
}

type serverProcess struct {
	cmd    *exec.Cmd
	output *lockedBuffer
	exited chan struct{}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func newFleet(t *testing.T, servers int) *fleet {
	f := &fleet{shell: newShell(t), base: freePorts(t, servers), running: map[int]*serverProcess{}}
	t.Cleanup(func() {
		for id := range f.running {
			f.kill(id)
		}
	})
	return f
}

func (f *fleet) http(id int) string { return local(f.base + id - 1) }
func (f *fleet) raft(id int) string { return local(f.base + raftPortStep + id - 1) }

// knows makes the shell's commands ask these servers.
func (f *fleet) knows(ids ...int) {
	var endpoints []string
	for _, id := range ids {
		endpoints = append(endpoints, f.http(id))
	}
	f.endpoints = strings.Join(endpoints, ",")
}

// serveArgs is the command line of a server.
func (f *fleet) serveArgs(id int, more ...string) []string {
	return append([]string{"serve", "--id", strconv.Itoa(id), "--data", fmt.Sprintf("node-%d", id),
		"--http", f.http(id), "--raft", f.raft(id), "--election-timeout", "200ms"}, more...)
}

// begin starts the first servers of a cluster, and waits until it serves.
func (f *fleet) begin(servers int, more ...string) {
	f.t.Helper()
	var ids []int
	for id := 1; id <= servers; id++ {
		ids = append(ids, id)
		f.start(id, append([]string{"--cluster", f.members(servers)}, more...)...)
	}
	f.knows(ids...)
	f.must("get", "nothing", "absent")
}

// members is the first servers as --cluster takes them.
func (f *fleet) members(servers int) string {
	var members []string
	for id := 1; id <= servers; id++ {
		members = append(members, fmt.Sprintf("%d=%s", id, f.raft(id)))
	}
	return strings.Join(members, ",")
}

// start runs a server and waits until it listens.
func (f *fleet) start(id int, more ...string) {
	f.t.Helper()
	f.serve(id, f.serveArgs(id, more...))
}

// serve is start with a command line of one's own.
func (f *fleet) serve(id int, args []string) {
	f.t.Helper()
	p := &serverProcess{cmd: f.command(args...), output: &lockedBuffer{}, exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	require.NoError(f.t, p.cmd.Start())
	f.running[id] = p
	go func() {
		p.cmd.Wait()
		close(p.exited)
	}()
	f.eventually(fmt.Sprintf("server %d serves", id), func() bool {
		select {
		case <-p.exited:
			f.t.Fatalf("server %d has ended: %s", id, p.output)
		default:
		}
		return strings.Contains(p.output.String(), "serving: ")
	})
}

// kill ends a server as a crash would.
func (f *fleet) kill(ids ...int) {
	for _, id := range ids {
		f.running[id].cmd.Process.Kill()
		<-f.running[id].exited
		delete(f.running, id)
	}
}

// freeze stops servers where they stand, until SIGCONT. The signal alone promises
// nothing of the next moments: a server may still be writing, and answer.
func (f *fleet) freeze(ids ...int) {
	f.t.Helper()
	for _, id := range ids {
		require.NoError(f.t, f.running[id].cmd.Process.Signal(syscall.SIGSTOP))
	}
	for _, id := range ids {
		var status syscall.WaitStatus
		err := error(syscall.EINTR)
		for err == syscall.EINTR {
			_, err = syscall.Wait4(f.running[id].cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		}
		require.NoError(f.t, err)
		require.True(f.t, status.Stopped(), "server %d has ended", id)
	}
}

func (f *fleet) eventually(what string, ok func() bool) {
	f.t.Helper()
	require.Eventually(f.t, ok, 30*time.Second, 20*time.Millisecond, what)
}

// must runs a command that must succeed; "absent" at its end allows an absent key.
func (f *fleet) must(args ...string) string {
	f.t.Helper()
	codes := []int{0}
	if args[len(args)-1] == "absent" {
		args, codes = args[:len(args)-1], []int{2}
	}
	got := f.run(args...)
	require.Contains(f.t, codes, got.code, "%s: %s%s", args, got.stdout, got.stderr)
	return got.stdout
}

// refuses runs a command that must end with a code and say why.
func (f *fleet) refuses(code int, text string, args ...string) {
	f.t.Helper()
	got := f.run(args...)
	require.Equal(f.t, code, got.code, "%s: %s%s", args, got.stdout, got.stderr)
	require.Contains(f.t, got.stderr, text)
}

type fleetStatus struct {
	Leader        uint64
	Configuration configurationView
}

func (f *fleet) status() (s fleetStatus) {
	f.t.Helper()
	got := f.run("status", "-w", "json")
	require.NoError(f.t, json.Unmarshal([]byte(got.stdout), &s), got.stderr)
	return s
}

func (f *fleet) leader() (leader int) {
	f.t.Helper()
	f.eventually("a leader", func() bool {
		leader = int(f.status().Leader)
		return leader != 0
	})
	return leader
}

func (f *fleet) wipe(id int) {
	f.t.Helper()
	require.NoError(f.t, os.RemoveAll(f.path(fmt.Sprintf("node-%d", id))))
}

// One server becomes three, then five; three are replaced at once, the leader
// among them; then all go but one. Nothing is lost, and a retry of the first
// write still gets the first answer.
func TestSystemMembersGrowAndShrink(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 8)
	f.begin(1)
	f.must("append", "log", "a")
	for id := 2; id <= 5; id++ {
		f.start(id, "--join", f.http(1))
	}
	require.Contains(t, f.running[2].output.String(), "let it in with: raftkv member add 2="+f.raft(2))
	f.must("member", "add", "2="+f.raft(2), "3="+f.raft(3))
	f.knows(1, 2, 3)
	f.must("append", "log", "b")
	require.Equal(t, "OK: voters 1, 2, 3, learners 4\n", f.must("member", "add", "--learner", "4="+f.raft(4)))
	require.Equal(t, "OK: voters 1, 2, 3, 4\n", f.must("member", "promote", "4"))
	require.Equal(t, "OK: voters 1, 2, 3, 4, 5\n", f.must("member", "add", "5="+f.raft(5)))
	require.Equal(t, "OK: voters 1, 2, 3, 4, 5\n", f.must("member", "add", "5="+f.raft(5)), "again")
	f.must("append", "log", "c")

	for id := 6; id <= 8; id++ {
		f.start(id, "--join", f.http(1)+","+f.http(2))
	}
	f.must("leader", "transfer", "1")
	require.Equal(t, 1, f.leader())
	require.Equal(t, "OK: voters 4, 5, 6, 7, 8\n", f.must("member", "replace", "1=6@"+f.raft(6), "2=7@"+f.raft(7), "3=8@"+f.raft(8)))
	f.must("append", "log", "d")
	f.kill(1, 2, 3)
	f.knows(4, 5, 6, 7, 8)
	f.must("append", "log", "e")

	require.Equal(t, "OK: voters 4, 5, 6, 7, learners 8\n", f.must("member", "demote", "8"))
	require.Equal(t, "OK: voters 7\n", f.must("member", "remove", "4", "5", "6", "8"))
	f.kill(4, 5, 6, 8)
	f.knows(7)
	require.Equal(t, "abcde\n", f.must("get", "log"))
	f.refuses(1, "no voter would be left", "member", "remove", "7")
	f.kill(7)
	f.start(7) // from its files alone
	require.Equal(t, "abcde\n", f.must("get", "log"))
}

// What a member command cannot do it says in one line, with the exit code that
// fits.
func TestSystemMemberRefusals(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	f.begin(3)
	for _, tc := range []struct {
		code int
		text string
		args []string
	}{
		{1, "no voter would be left", []string{"remove", "1", "2", "3"}},
		{1, "server 9 is not a member; add it first", []string{"promote", "9"}},
		{1, `"x" is no server id`, []string{"remove", "x"}},
		{1, `"0" is no server id`, []string{"remove", "0"}},
		{1, `"4" is not ID=ADDR`, []string{"add", "4"}},
		{1, `it has no port`, []string{"add", "4=host"}},
		{1, "server 2 is a member at " + f.raft(2), []string{"add", "2=" + f.raft(4)}},
		{1, "is that of server 2", []string{"add", "4=" + f.raft(2)}},
		{1, "server 4 is named twice", []string{"add", "4=" + f.raft(4), "4=" + f.raft(4)}},
		{1, `"1=4" is not OLD=NEW@ADDR`, []string{"replace", "1=4"}},
		{1, "server 1 cannot take the place", []string{"replace", "1=1@" + f.raft(1)}},
		{1, "requires at least 1 arg", []string{"add"}},
		{1, "unknown command", []string{"destroy", "1"}},
		{1, "unknown flag: --voter", []string{"add", "--voter", "4=" + f.raft(4)}},
		{4, "nothing has come for 1s: server 4 has got nothing yet; is raftkv serve --join running there?", []string{"add", "--timeout", "1s", "4=" + f.raft(4)}},
	} {
		f.refuses(tc.code, tc.text, append([]string{"member"}, tc.args...)...)
	}
	// The last one has left a learner, as it said; the command would go on with it.
	require.Contains(t, f.must("member", "list"), "server 4: learner, raft "+f.raft(4))
	require.Equal(t, "OK: voters 1, 2, 3\n", f.must("member", "remove", "4"))
	require.Equal(t, "OK: voters 1, 2, 3\n", f.must("member", "remove", "4"), "again")

	f.refuses(1, "server 9 cannot lead", "leader", "transfer", "9")
	f.refuses(1, `"-" is no server id`, "leader", "transfer", "-")
	var now struct {
		Index   uint64
		Voters  []uint64
		Members []map[string]any
	}
	require.NoError(t, json.Unmarshal([]byte(f.must("member", "list", "-w", "json")), &now))
	require.Equal(t, []uint64{1, 2, 3}, now.Voters)
	require.Len(t, now.Members, 3)
	require.Regexp(t, `(?m)^ID +ROLE +RAFT +HTTP +MATCH +LEADER$`, f.must("member", "list", "-w", "table"))

	f.kill(2, 3)
	f.eventually("the leader has noticed that it is alone", func() bool {
		got := f.run("member", "list", "--timeout", "1s")
		return got.code == 4 && strings.Contains(got.stderr, "cannot learn who the members are")
	})
}

// Who may join, and who is told why not.
func TestSystemJoinRefusals(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	f.begin(1)
	refuses := func(text string, id int, more ...string) {
		t.Helper()
		f.refuses(1, text, f.serveArgs(id, more...)...)
		require.NoDirExists(t, f.path(fmt.Sprintf("node-%d", id)))
	}
	refuses("the cluster cannot be reached at "+f.http(3), 2, "--join", f.http(3))
	refuses("give one of them", 2, "--join", f.http(1), "--cluster", "2="+f.raft(2))
	refuses(`is called "raftkv", not "other"`, 2, "--join", f.http(1), "--cluster-name", "other")
	f.refuses(1, "server 1 has been in the cluster before, at ", "serve", "--id", "1", "--data", "fresh", "--http", f.http(2), "--raft", f.raft(2), "--join", f.http(1))
	f.refuses(1, "is that of server 1", "serve", "--id", "2", "--data", "fresh", "--http", f.http(2), "--raft", f.raft(1), "--join", f.http(1))
	require.NoDirExists(t, f.path("fresh"))

	f.start(2, "--join", f.http(1))
	refuses("waits to be added itself", 3, "--join", f.http(2))
	f.must("member", "add", "2="+f.raft(2))
	// Later it asks nobody: the same command line works while the others are down.
	f.kill(1, 2)
	f.start(2, "--join", f.http(1))
	f.kill(2)
	f.refuses(1, "node-2 belongs to server 2, not to server 3", "serve", "--id", "3", "--data", "node-2", "--http", f.http(3), "--raft", f.raft(3))
}

// The new voters die before they could agree to be voters: nothing is committed
// any more, status says who is missing, and when they come back the change ends
// (pitfall MB-12).
func TestSystemJointPhaseWithoutTheNewMajority(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 6)
	f.begin(3)
	for id := 4; id <= 6; id++ {
		f.start(id, "--join", f.http(1))
	}
	f.must("member", "add", "--learner", "4="+f.raft(4), "5="+f.raft(5), "6="+f.raft(6))
	leader := f.leader()
	require.Contains(t, f.must("member", "list"), "learner")
	f.eventually("the learners have caught up", func() bool {
		var now struct {
			Members []struct {
				Role  string
				Match uint64
			}
		}
		require.NoError(t, json.Unmarshal([]byte(f.must("member", "list", "-w", "json")), &now))
		for _, m := range now.Members {
			if m.Match < now.Members[leader-1].Match {
				return false
			}
		}
		return true
	})
	// They fall silent at once. The leader has heard them lately, so it begins.
	f.freeze(4, 5, 6)
	got := f.run("member", "replace", "--timeout", "2s", "1=4@"+f.raft(4), "2=5@"+f.raft(5), "3=6@"+f.raft(6))
	require.Equal(t, 5, got.code, got.stderr)
	require.Contains(t, got.stderr, "the change may have been made, or may still be")

	got = f.run("status")
	require.Contains(t, got.stdout, "voters change from 1, 2, 3 to 4, 5, 6")
	require.Contains(t, got.stdout, "not finished: 2 of the new voters 4, 5, 6 must have it, 0 have; missing: 4, 5, 6")
	require.Regexp(t, `not finished: 2 of the old voters 1, 2, 3 must have it, [23] have\n`, got.stdout)
	write := f.run("append", "log", "x", "--timeout", "2s")
	require.Contains(t, []int{4, 5}, write.code, "no write is acknowledged: %s%s", write.stdout, write.stderr)

	for _, id := range []int{4, 5, 6} {
		f.running[id].cmd.Process.Signal(syscall.SIGCONT)
	}
	f.knows(1, 2, 3, 4, 5, 6)
	require.Equal(t, "OK: voters 4, 5, 6\n", f.must("member", "replace", "1=4@"+f.raft(4), "2=5@"+f.raft(5), "3=6@"+f.raft(6)), "the same command, again")
	if write.code == 4 {
		f.must("append", "log", "x")
	} else {
		f.must("session", "resume")
	}
	require.Equal(t, "x\n", f.must("get", "log"), "once")
	s := f.status().Configuration
	require.True(t, s.Committed)
	require.Empty(t, s.Halves)
}

// Leadership moves while writes go on: nobody sees an error, and every append is
// there once (pitfall TR-05).
func TestSystemTransfersUnderWrites(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	f.begin(3)
	writes := make(chan output)
	stop := make(chan struct{})
	go func() {
		var all output
		for n := 0; ; n++ {
			select {
			case <-stop:
				writes <- all
				return
			default:
			}
			got := f.run("append", "log", fmt.Sprintf("%d.", n))
			all.stdout += fmt.Sprintf("%d.", n)
			all.code += got.code
			all.stderr += got.stderr
		}
	}()
	for n := range 20 {
		to := n%3 + 1
		require.Equal(t, fmt.Sprintf("OK: server %d leads\n", to), f.must("leader", "transfer", strconv.Itoa(to)))
	}
	require.NotEqual(t, f.leader(), func() int { f.must("leader", "transfer"); return f.leader() }())
	close(stop)
	all := <-writes
	require.Zero(t, all.code, all.stderr)
	require.Equal(t, all.stdout+"\n", f.must("get", "log"))
}

func TestSystemLevelsOfGet(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	f.begin(3)
	f.must("put", "k", "v")
	for _, level := range []string{"linearizable", "lease", "log"} {
		require.Equal(t, "v\n", f.must("get", "k", "--consistency", level))
		require.NotContains(t, f.must("get", "k", "--consistency", level, "-w", "json"), "Stale")
	}
	f.eventually("every server has it", func() bool {
		return strings.Count(f.run("status").stdout, "applied ") == 3 && f.run("get", "k", "--consistency", "stale").code == 0
	})
	require.Regexp(t, `"Value":"v","Version":1,"Stale":true,"AppliedIndex":\d+,"AgeMillis":\d+`, f.must("get", "k", "--consistency", "stale", "-w", "json"))
	f.refuses(1, `--consistency "fresh" is no level`, "get", "k", "--consistency", "fresh")

	// Alone, a server has only old news, and says so.
	leader := f.leader()
	alone := leader%3 + 1
	for _, id := range []int{1, 2, 3} {
		if id != alone {
			f.kill(id)
		}
	}
	f.knows(alone)
	f.refuses(4, "cannot read", "get", "k", "--timeout", "1s")
	f.eventually("a stale answer", func() bool { return f.run("get", "k", "--consistency", "stale").stdout == "v\n" })
}

// The store comes back from a file: with every write that was acknowledged, with
// its sessions, and as another cluster.
func TestSystemSnapshotSaveAndRestore(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	f.begin(3)
	f.must("append", "log", "a")
	f.must("put", "k", "v")
	require.Equal(t, 3, strings.Count(f.must("snapshot", "take"), ": snapshot of index "))
	f.must("append", "log", "b")
	saved := f.must("snapshot", "save", "store.snap")
	require.Regexp(t, `^store\.snap: the store of cluster [0-9a-f]{16} \(raftkv\) at index \d+, by server \d: 2 keys, 1 sessions, \d+ bytes; voters 1, 2, 3\n$`, saved)
	require.Equal(t, saved, f.must("snapshot", "inspect", "store.snap"))
	require.NoFileExists(t, f.path("store.snap.tmp"))
	var inspected map[string]any
	require.NoError(t, json.Unmarshal([]byte(f.must("snapshot", "inspect", "store.snap", "-w", "json")), &inspected))
	require.EqualValues(t, 2, inspected["Keys"])

	f.refuses(1, "is no level for a snapshot", "snapshot", "save", "x", "--consistency", "log")
	f.refuses(1, "cannot use nothing", "snapshot", "inspect", "nothing")
	f.refuses(1, "nothing was restored: node-1 is not empty", "snapshot", "restore", "store.snap", "--data", "node-1", "--id", "1")
	f.refuses(1, "in use by another process", "snapshot", "save", "x", "--data", "node-1")
	f.refuses(1, "is no data directory", "snapshot", "save", "x", "--data", "elsewhere")
	file, err := os.ReadFile(f.path("store.snap"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(f.path("cut.snap"), file[:len(file)-1], 0o600))
	f.refuses(1, "is damaged or was cut short", "snapshot", "restore", "cut.snap", "--data", "node-4", "--id", "4", "--raft", f.raft(4))
	require.NoDirExists(t, f.path("node-4"))

	// A new cluster of one, which others can join, while the old one still runs.
	require.Regexp(t, `^OK: node-4 holds cluster [0-9a-f]{16} with 2 keys and 1 sessions, as of index \d+ of cluster`,
		f.must("snapshot", "restore", "store.snap", "--data", "node-4", "--id", "4", "--raft", f.raft(4)))
	f.start(4)
	f.must("append", "log", "c") // on the old one
	f.knows(4)
	require.Equal(t, "ab\n", f.must("get", "log"))
	require.Equal(t, "v\n", f.must("get", "k"))
	f.must("append", "log", "x")
	f.kill(3)
	f.wipe(3)
	f.start(3, "--join", f.http(4))
	require.Equal(t, "OK: voters 3, 4\n", f.must("member", "add", "3="+f.raft(3)))
	f.knows(3)
	require.Equal(t, "abx\n", f.must("get", "log"))
	f.knows(1, 2)
	require.Equal(t, "abc\n", f.must("get", "log"))
}

// A server that does not run, and nobody to tell it what is committed: its
// directory holds what was acknowledged, behind a snapshot as well.
func TestSystemSnapshotSaveFromADirectory(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	f.begin(1)
	f.must("append", "log", "a")
	f.must("snapshot", "take")
	f.must("append", "log", "b")
	f.kill(1)
	require.Contains(t, f.must("snapshot", "save", "rescue.snap", "--data", "node-1"), "1 keys, 1 sessions")
	f.must("snapshot", "restore", "rescue.snap", "--data", "node-2", "--id", "2", "--raft", f.raft(2))
	f.start(2)
	f.knows(2)
	require.Equal(t, "ab\n", f.must("get", "log"))
	f.must("append", "log", "c")
	f.kill(2)
	f.start(2)
	require.Equal(t, "abc\n", f.must("get", "log"))
}

// Interrupted while it waits, the command says how far it has come; the same
// command goes on from there.
func TestSystemMemberAddInterrupted(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	f.begin(1)
	cmd := f.command("member", "add", "2="+f.raft(2))
	stderr := &lockedBuffer{}
	cmd.Stderr = stderr
	require.NoError(t, cmd.Start())
	f.eventually("it waits", func() bool { return strings.Contains(stderr.String(), "waiting: server 2 has got nothing yet") })
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait()
	require.Equal(t, 4, cmd.ProcessState.ExitCode(), stderr)
	require.Regexp(t, `\nraftkv: (interrupted: server 2|[^\n]*\(interrupted)[^\n]*\n$`, stderr.String())
	f.start(2, "--join", f.http(1))
	require.Contains(t, f.running[2].output.String(), "joining: server 2 is a member of cluster")
	require.Equal(t, "OK: voters 1, 2\n", f.must("member", "add", "2="+f.raft(2)))
}

// A program that runs all the time was given the first three addresses. All
// three are replaced while it writes now and then: it never notices.
func TestSystemClientOutlivesTheServersItWasGiven(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 6)
	f.begin(3)
	client := kvclient.New(strings.Split(f.endpoints, ","))
	defer client.Close()
	write := func(value string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := client.Append(ctx, "log", value)
		require.NoError(t, err)
	}
	write("a")
	for id := 4; id <= 6; id++ {
		f.start(id, "--join", f.http(1))
	}
	f.must("member", "replace", "1=4@"+f.raft(4), "2=5@"+f.raft(5), "3=6@"+f.raft(6))
	f.eventually("the client learns of it in use", func() bool {
		write(".")
		return slices.Contains(client.Endpoints(), "http://"+f.http(4))
	})
	f.kill(1, 2, 3)
	write("b")
	f.knows(4, 5, 6)
	require.Regexp(t, `^a\.+b\n$`, f.must("get", "log"))
}
