package kvservice

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	raft "raftkv/part3-persistence"
	"raftkv/part5-dedup/api"
)

// Client A appends "bar" and hears nothing. Its request was carried out, but the
// answer died with the leader. So it asks again. The next leader has carried out
// the same log, so it knows this request, and x is foobar.
func TestAnswerLostWithTheLeader(t *testing.T) {
	c := newCluster(t, 3, 1)
	a := c.client()
	a.put("x", "foo")
	call := a.startAppend("x", "bar")
	c.runUntil("bar is committed", call.committed) // the answer is not sent yet
	c.crash(c.leader())
	call.wait() // from the next leader
	require.True(t, call.result.IsDuplicate)
	c.expect("x", "foobar")
}

// Client A's put gets no answer, and client B's put comes after it. When A asks
// again, its put is old, and B's stays.
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
	c.expect("foo", "2")
}

// A duplicate is a duplicate on every server, whether or not it has seen the
// request before: the log has brought it to all.
func TestDuplicateWhoeverLeads(t *testing.T) {
	for id := raft.ServerID(1); id <= 3; id++ {
		t.Run(fmt.Sprint("server ", id), func(t *testing.T) {
			c := newCluster(t, 3, 1)
			c.waitApplied()
			bar := Command{Kind: CommandAppend, Key: "x", Value: "bar", Identity: api.Identity{ClientID: 7, RequestID: 1}}
			first, _ := c.submit(c.leader(), bar)
			c.waitApplied()
			_, answer := told(first)
			require.Equal(t, "OK", answer)

			if c.leader() != id {
				c.nodes[id].step(raft.ElectionTimeout{})
				c.runUntil("it leads", func() bool { return c.leader() == id })
			}
			again, _ := c.submit(id, bar)
			c.waitApplied()
			_, answer = told(again)
			require.Equal(t, "duplicate", answer)
			c.expect("x", "bar")
		})
	}
}

// A compare-and-set fails, and its answer is lost. Then another client makes the
// comparison true. The retry must not be luckier than the request: what was
// carried out and changed nothing was carried out all the same.
func TestFailedCASIsNotTriedAgain(t *testing.T) {
	c := newCluster(t, 3, 1)
	c.waitApplied()
	send := func(cmd Command) string {
		t.Helper()
		sent, _ := c.submit(c.leader(), cmd)
		c.waitApplied()
		_, answer := told(sent)
		return answer
	}
	cas := Command{Kind: CommandCAS, Key: "x", CompareValue: "1", Value: "2", Identity: api.Identity{ClientID: 7, RequestID: 1}}
	require.Equal(t, "OK", send(cas), "x is absent, nothing is set")
	put := Command{Kind: CommandPut, Key: "x", Value: "1", Identity: api.Identity{ClientID: 8, RequestID: 1}}
	require.Equal(t, "OK", send(put))
	require.Equal(t, "duplicate", send(cas))
	c.expect("x", "1")
}

// The leader crashes with an entry that is not committed yet, and the client asks
// the next one, which has that entry in its log. So the first copy is carried out
// after all, in a place where nobody waits, and the second is the duplicate. The
// client gets the result all the same: its answer goes by whose request it is.
func TestAnswerOfTheFirstCopy(t *testing.T) {
	c := newCluster(t, 3, 1)
	c.waitApplied()
	old := c.leader()
	bar := Command{Kind: CommandAppend, Key: "x", Value: "bar", Identity: api.Identity{ClientID: 7, RequestID: 1}}
	_, first := c.submit(old, bar)
	c.runUntil("all have the entry", func() bool {
		return c.nodes[1].cm.Status().LastIndex+c.nodes[2].cm.Status().LastIndex+c.nodes[3].cm.Status().LastIndex == 3*first.Index
	})
	require.Less(t, c.nodes[old].cm.Status().CommitIndex, first.Index)
	c.crash(old)
	sub, second := c.submit(c.waitForLeader(), bar)
	require.Greater(t, second.Term, first.Term)
	c.waitApplied()
	_, answer := told(sub)
	require.Equal(t, "OK", answer)
	c.expect("x", "bar")
}

// The client asks the same leader again while its first copy is on its way. The
// first that comes out of the log is carried out and answers both.
func TestTwoCopiesOneResult(t *testing.T) {
	c := newCluster(t, 3, 1)
	c.waitApplied()
	bar := Command{Kind: CommandAppend, Key: "x", Value: "bar", Identity: api.Identity{ClientID: 7, RequestID: 1}}
	first, _ := c.submit(c.leader(), bar)
	second, _ := c.submit(c.leader(), bar)
	c.waitApplied()
	for _, sub := range []*commitSub{first, second} {
		_, answer := told(sub)
		require.Equal(t, "OK", answer)
	}
	c.expect("x", "bar")
}

// Request 2 is carried out before request 1, which no KVClient lets happen. Then
// 1 will never be, and its answer does not claim that it was.
func TestLowerNumberIsNotCarriedOut(t *testing.T) {
	c := newCluster(t, 3, 1)
	c.waitApplied()
	append := func(number int64) *commitSub {
		sub, _ := c.submit(c.leader(), Command{
			Kind: CommandAppend, Key: "x", Value: fmt.Sprint(number),
			Identity: api.Identity{ClientID: 7, RequestID: number},
		})
		return sub
	}
	append(2)
	late := append(1)
	c.expect("x", "2")
	_, answer := told(late)
	require.Equal(t, "duplicate", answer)
	require.ErrorContains(t, errDuplicateRequest, "this request, or a later one")
}

// Clients come and go, and the service remembers them all. It does not know which
// of them may still ask again.
func TestNobodyIsForgotten(t *testing.T) {
	c := newCluster(t, 1, 1)
	for range 100 {
		c.client().put("x", "1")
	}
	require.Len(t, c.nodes[1].kvs.lastRequestIDPerClient, 100)
}

// A get that is asked again is answered again.
func TestGetIsNoDuplicate(t *testing.T) {
	c := newCluster(t, 3, 1)
	a := c.client()
	a.put("x", "1")
	a.deaf = true
	get := a.start(Command{Kind: CommandGet, Key: "x"})
	c.runUntil("the get is committed", get.committed)
	c.client().put("x", "2")
	a.deaf = false
	get.wait()
	require.False(t, get.result.IsDuplicate)
	require.Equal(t, "2", get.result.ResultValue)
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

// Leaders crash and messages get lost. Every word that a client was told is
// written is there, once, and each client's words are in their order.
func TestChaosExactlyOnce(t *testing.T) {
	duplicates := 0
	for seed := range uint64(100) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			words, found := chaos(t, seed)
			require.Len(t, words, chaosClients*chaosWords, "%v", words)
			requireOnceInOrder(t, words)
			duplicates += found
		})
	}
	require.Greater(t, duplicates, 20, "the seeds have found too few duplicates to show anything")
}

// A seed gives one run.
func TestChaosRepeats(t *testing.T) {
	words, duplicates := chaos(t, 13)
	again, duplicatesAgain := chaos(t, 13)
	require.Equal(t, words, again)
	require.Equal(t, duplicates, duplicatesAgain)
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
