package kvservice

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	raft "raftkv/part3-persistence"
)

// Client A appends "bar" and hears nothing. Its request was carried out, but the
// answer died with the leader. So it asks again, and x is now foobarbar.
//
// This still fails here, and the test says so. Nothing is broken and nobody
// misbehaved: a service that keeps no note of who asked cannot do better.
func TestAnswerLostWithTheLeader(t *testing.T) {
	c := newCluster(t, 3, 1)
	a := c.client()
	a.put("x", "foo")
	call := a.startAppend("x", "bar")
	c.runUntil("bar is committed", call.committed) // the answer is not sent yet
	c.crash(c.leader())
	call.wait() // from the next leader
	c.expect("x", "foobarbar")
}

// To put 1 twice is to put 1, one would think. But client B's 2 came in between,
// and A's second time undoes it. This, too, still fails here.
func TestLateRetryDoesNotUndoANewerWrite(t *testing.T) {
	c := newCluster(t, 3, 1)
	a, b := c.client(), c.client()
	a.deaf = true
	late := a.startPut("foo", "1")
	c.runUntil("1 is committed", late.committed)
	b.put("foo", "2")
	c.expect("foo", "2")
	a.deaf = false
	late.wait()
	c.expect("foo", "1") // after somebody has read 2, and nobody has put 1 since
}

// What a client was told is there after a crash, whoever crashes.
func TestCommandSurvivesLeaderCrash(t *testing.T) {
	c := newCluster(t, 3, 1)
	a := c.client()
	a.put("x", "1")
	old := c.leader()
	c.crash(old)
	a.put("y", "2")
	c.restart(old)
	c.expect("x", "1")
	c.expect("y", "2")
}

// All servers crash at once. Their stores are empty then, and the log brings
// everything back.
func TestStoreComesBackFromTheLog(t *testing.T) {
	c := newCluster(t, 3, 1)
	a := c.client()
	a.put("x", "foo")
	a.append("x", "bar")
	for _, id := range c.ids() {
		c.crash(id)
	}
	for _, id := range c.ids() {
		c.restart(id)
		require.Empty(t, c.nodes[id].kvs.ds.data)
	}
	c.expect("x", "foobar")
}

// A leader that is cut off takes commands, and another leader puts another
// command in their place. When the old one hears of that, its clients must not
// hear "OK": an answer that goes by the index alone would be about B's command.
func TestTruncatedWriteIsNotOK(t *testing.T) {
	c := newCluster(t, 3, 1)
	c.waitApplied()
	old := c.leader()
	c.cut[old] = true
	c.submit(old, Command{Kind: CommandPut, Key: "x", Value: "lost"})
	lost, place := c.submit(old, Command{Kind: CommandPut, Key: "x", Value: "lost, too"})

	c.runUntil("another server leads", func() bool { return c.leader() != old })
	b := c.client()
	kept := b.startPut("x", "kept")
	kept.wait()
	require.Equal(t, place.Index, kept.place.Index) // behind the new leader's empty entry
	_, answer := told(lost)
	require.Equal(t, "nothing yet", answer) // the old leader has not heard of it

	delete(c.cut, old)
	c.expect("x", "kept")
	_, answer = told(lost)
	require.Equal(t, "may or may not", answer)
	require.Empty(t, c.nodes[old].kvs.commitSubs)
}

// A leader falls back and then leads again, in a newer term. Its entry has stayed
// in its log all the time and is committed after all. Its client hears "OK".
func TestLeadershipIsRegained(t *testing.T) {
	c := newCluster(t, 3, 1)
	c.waitApplied()
	leader := c.leader()
	n := c.nodes[leader]
	c.cut[leader] = true
	sub, place := c.submit(leader, Command{Kind: CommandPut, Key: "x", Value: "1"})
	delete(c.cut, leader)

	// A candidate of a newer term asks for its vote. Its log is too short to win.
	peer := leader%3 + 1
	n.step(raft.Message{From: peer, To: leader, Body: raft.RequestVoteArgs{
		Term: place.Term + 1, CandidateID: peer, LastLogIndex: 1, LastLogTerm: 1,
	}})
	require.Equal(t, raft.Follower, n.cm.Status().State)
	n.step(raft.ElectionTimeout{})
	require.Equal(t, leader, c.waitForLeader())
	require.Greater(t, n.cm.Status().Term, place.Term)
	c.expect("x", "1")
	_, answer := told(sub)
	require.Equal(t, "OK", answer)
}

// Three clients write to one key at the same time. Nothing gets lost, and what
// each of them has written is in its order.
func TestThreeClientsInParallel(t *testing.T) {
	c := newCluster(t, 3, 1)
	words := c.write(3, 5)
	require.Equal(t, 15, len(words))
	requireOnceInOrder(t, words)
}

// Leaders crash and messages get lost. No word that a client was told is written
// may be missing. To have it once is more than a service without notes can do.
func TestChaosNothingIsLost(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			words := chaos(t, seed)
			once := map[string]bool{}
			for _, word := range words {
				once[word] = true
			}
			require.Len(t, once, chaosClients*chaosWords, "%v", words)
			if len(words) > len(once) {
				t.Log("a word is written twice:", words)
			}
		})
	}
}

// With this seed a word is written twice. To see how:
//
//	go test -v -run TestChaosWritesTwice ./part4-kvservice/kvservice
func TestChaosWritesTwice(t *testing.T) {
	words := chaos(t, 13)
	require.Greater(t, len(words), chaosClients*chaosWords, "%v", words)
}

// A seed gives one run.
func TestChaosRepeats(t *testing.T) {
	require.Equal(t, chaos(t, 13), chaos(t, 13))
}

// What each command does and what it returns of the time before.
func TestDataStore(t *testing.T) {
	kvs := New(1, nil, nil)
	for _, step := range []struct {
		cmd   Command
		prev  string
		found bool
		after string
	}{
		{Command{Kind: CommandGet, Key: "x"}, "", false, ""},
		{Command{Kind: CommandCAS, Key: "x", CompareValue: "", Value: "1"}, "", false, ""}, // no value is not an empty one
		{Command{Kind: CommandAppend, Key: "x", Value: "foo"}, "", false, "foo"},
		{Command{Kind: CommandAppend, Key: "x", Value: "bar"}, "foo", true, "foobar"},
		{Command{Kind: CommandCAS, Key: "x", CompareValue: "foo", Value: "1"}, "foobar", true, "foobar"},
		{Command{Kind: CommandCAS, Key: "x", CompareValue: "foobar", Value: ""}, "foobar", true, ""},
		{Command{Kind: CommandGet, Key: "x"}, "", true, ""},
		{Command{Kind: CommandPut, Key: "x", Value: "1"}, "", true, "1"},
		{Command{Kind: CommandPut, Key: "x", Value: "2"}, "1", true, "2"},
	} {
		require.Equal(t, step.cmd, decodeCommand(step.cmd.encode()))
		require.Equal(t, Result{ResultValue: step.prev, ResultFound: step.found}, kvs.carryOut(step.cmd), "%+v", step.cmd)
		require.Equal(t, step.after, kvs.ds.data["x"], "%+v", step.cmd)
	}
}

// requireOnceInOrder checks that each client's words are there once, as it wrote
// them: A0 A1 A2 …
func requireOnceInOrder(t *testing.T, words []string) {
	t.Helper()
	next := map[string]int{}
	for _, word := range words {
		name := word[:1]
		require.Equal(t, fmt.Sprint(name, next[name]), word, "in %v", words)
		next[name]++
	}
}
