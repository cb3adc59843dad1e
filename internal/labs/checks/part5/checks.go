// Package part5 is the checks of part 5: every request takes effect once.
//
// Stories run whole clusters with clients; rafttest looks after the rules that no
// schedule may break. Where a schedule would seldom come to the point, one service
// is given a log in which we commit what we like.
package part5

import (
	"fmt"
	"maps"
	"time"

	"raftkv/internal/labs/run"
	"raftkv/part5-dedup/api"
	"raftkv/part5-dedup/kvservice"
	"raftkv/rafttest"
)

// Funcs are the checks by their ids in labs/part5/checks.txt.
var Funcs = map[string]run.Func{
	"store/1":   newRequests,
	"dedup/1":   duplicates,
	"dedup/2":   answerLost,
	"dedup/3":   lateRetry,
	"dedup/4":   everyReplica,
	"dedup/5":   gets,
	"waiters/1": byIdentity,
	"waiters/2": lostCommands,
	"crash/1":   notesSurvive,
	"chaos/1":   chaos,
}

func newRequests(t *run.T) {
	s := start(t)
	for i := range int64(3) {
		for client := int64(1); client <= 2; client++ { // both count from 1
			r := s.do(command(kvservice.CommandAppend, client, i+1, fmt.Sprint("x", client), "a"), api.StatusOK)
			t.Want(len(r.ResultValue) == int(i), "Results: every command answers the value before it", "client %d appends for the %d. time, and the value before it was %q", client, i+1, r.ResultValue)
		}
	}
	s.do(put(1, 9, "x1", "9"), api.StatusOK) // numbers grow; they need not be next to each other
	data := s.kvs.Data()
	t.Want(data["x1"] == "9" && data["x2"] == "aaa", "Exactly once: what is new is carried out", "the store holds x1=%q x2=%q", data["x1"], data["x2"])

	c := cluster(t)
	a, b := c.Client(), c.Client()
	for range 5 {
		one, two := a.StartAppend("x", "a"), b.StartAppend("y", "b")
		one.Wait()
		two.Wait()
	}
	c.Expect("x", "aaaaa")
	c.Expect("y", "bbbbb")
}

func duplicates(t *run.T) {
	s := start(t)
	s.do(command(kvservice.CommandAppend, 1, 1, "x", "a"), api.StatusOK)
	s.do(command(kvservice.CommandAppend, 1, 1, "x", "a"), api.StatusDuplicateRequest)
	s.do(command(kvservice.CommandAppend, 1, 2, "x", "b"), api.StatusOK)
	s.do(command(kvservice.CommandAppend, 1, 1, "x", "a"), api.StatusDuplicateRequest) // an old one comes late
	got := s.kvs.Data()["x"]
	t.Want(got == "ab", "Exactly once: a request that comes again changes nothing", "client 1 has appended a and b, a in three copies, and x is %q", got)
	s.do(command(kvservice.CommandAppend, 2, 1, "x", "c"), api.StatusOK)
}

func answerLost(t *run.T) {
	c := cluster(t)
	a := c.Client()
	a.Put("x", "foo")
	call := a.StartAppend("x", "bar")
	c.RunUntil(call.Committed) // the answer is not yet sent
	c.CrashLeader()
	call.Wait()
	c.Expect("x", "foobar")
}

func lateRetry(t *run.T) {
	c := cluster(t)
	a, b := c.Client(), c.Client()
	c.LoseAnswersTo(a)
	late := a.StartPut("x", "1")
	c.RunUntil(late.Committed)
	b.Put("x", "2")
	c.HearAgain(a)
	late.Wait()
	c.Expect("x", "2")
}

// everyReplica gives two services the same entries; the one has clients, the
// other has not.
func everyReplica(t *run.T) {
	leader, follower := start(t), start(t)
	requests := []kvservice.Command{
		put(1, 1, "x", "1"), put(1, 1, "x", "1"), command(kvservice.CommandAppend, 2, 1, "x", "2"),
		command(kvservice.CommandAppend, 2, 1, "x", "2"), put(1, 2, "y", "3"), command(kvservice.CommandAppend, 1, 1, "x", "1"),
	}
	for _, cmd := range requests {
		leader.call(cmd)
		leader.apply(leader.newest())
	}
	for _, e := range leader.log.entries {
		follower.apply(e)
	}
	t.Want(maps.Equal(leader.kvs.Data(), follower.kvs.Data()), "State machine safety: the same entries make the same store", "the server with the clients holds %v, the other one %v", leader.kvs.Data(), follower.kvs.Data())
	t.Want(maps.Equal(leader.kvs.LastRequestIDs(), follower.kvs.LastRequestIDs()), "State machine safety: the notes are part of what the log makes", "the server with the clients remembers %v, the other one %v", leader.kvs.LastRequestIDs(), follower.kvs.LastRequestIDs())

	s := start(t)
	s.call(put(1, 1, "x", "lost")) // never committed
	s.log.term = 2
	s.do(put(1, 1, "x", "1"), api.StatusOK)
}

func gets(t *run.T) {
	s := start(t)
	s.do(put(1, 1, "x", "1"), api.StatusOK)
	for range 2 { // sent again: it changes nothing, and its client wants the value
		r := s.do(command(kvservice.CommandGet, 1, 2, "x", ""), api.StatusOK)
		t.Want(r.ResultValue == "1" && r.ResultFound, "Results: a get has a value, also the second time", "x is 1, and the get answers %q", r.ResultValue)
	}
	s.do(command(kvservice.CommandAppend, 1, 3, "x", "2"), api.StatusOK)
}

func byIdentity(t *run.T) {
	s := start(t)
	waits := s.call(put(1, 1, "x", "1"))
	// The client has asked another leader meanwhile. Its copy comes out first.
	e := s.newest()
	e.Index += 5
	s.apply(e)
	status, _, ok := waits()
	t.Want(ok && status == api.StatusOK, "Answers: a request is known by its identity, wherever it stands", "request 1 of client 1 waits; it is committed at another index than this server had put it; answered: %t, %s", ok, status)

	s = start(t)
	one, two := s.call(put(1, 1, "x", "1")), s.call(put(1, 1, "x", "1"))
	s.apply(s.log.entries[0])
	_, _, first := one()
	_, _, second := two()
	t.Want(first && second, "Answers: all who wait for a request get its answer", "two copies of request 1 of client 1 wait, and it is committed; answered are the first: %t, the second: %t", first, second)

	s = start(t)
	a, b := s.call(put(1, 1, "x", "1")), s.call(put(2, 1, "y", "2"))
	s.apply(s.log.entries[0])
	_, _, first = a()
	_, _, second = b()
	t.Want(first && !second, "Answers: everybody waits for a request of their own", "request 1 of client 1 is committed, that of client 2 is not; answered are client 1: %t, client 2: %t", first, second)
}

func lostCommands(t *run.T) {
	s := start(t)
	s.log.term = 3
	lost := s.call(put(1, 1, "x", "1"))
	s.log.last = 0
	s.apply(s.empty(2))
	_, _, ok := lost()
	t.Want(!ok, "Waiting: an older entry says nothing about a newer one", "a request waits for an entry of term 3; one of term 2 is committed, and it is answered")
	s.apply(s.empty(4))
	status, _, ok := lost()
	t.Want(ok && status == api.StatusFailedCommit, "Waiting: it ends when the leadership is over", "a request waits for an entry of term 3; an empty entry of term 4 is committed; answered: %t, %s (wanted: %s)", ok, status, api.StatusFailedCommit)

	s = start(t)
	s.log.refuse = true
	status, _, ok = s.call(put(1, 1, "x", "1"))()
	t.Want(ok && status == api.StatusNotLeader, "A server that does not lead says so at once", "Submit has refused; the answer is there: %t, %s", ok, status)
	s.log.refuse = false
	s.do(put(1, 1, "x", "1"), api.StatusOK) // and has noted nothing
}

func notesSurvive(t *run.T) {
	c := cluster(t)
	a := c.Client()
	c.LoseAnswersTo(a)
	call := a.StartAppend("x", "once")
	c.RunUntil(call.Committed)
	for _, s := range c.Servers() {
		c.Crash(s)
	}
	c.HearAgain(a)
	for _, s := range c.Servers() {
		c.Restart(s)
	}
	call.Wait()
	c.Expect("x", "once")

	want := "once"
	for i := range 5 {
		want += fmt.Sprint(" ", i)
		call := a.StartAppend("x", fmt.Sprint(" ", i))
		c.RunUntil(call.Committed)
		dead := c.CrashLeader()
		call.Wait()
		c.Restart(dead)
	}
	c.Expect("x", want)
}

func chaos(t *run.T) {
	c := cluster(t)
	a, b := c.Client(), c.Client()
	c.StartChaos(4 * time.Second)
	want := ""
	for i := range 10 {
		word := fmt.Sprint(i, " ")
		want += word
		calls := []*rafttest.Call{a.StartAppend("x", word), b.StartAppend("y", word)}
		for _, call := range calls {
			call.Wait()
		}
		c.RunFor(200 * time.Millisecond)
	}
	c.RunFor(4 * time.Second)
	c.Expect("x", want)
	c.Expect("y", want)
}
