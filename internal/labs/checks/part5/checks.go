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

	"raftkv/internal/labs/checks/web"
	"raftkv/internal/labs/run"
	raft "raftkv/part3-persistence"
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
	"dedup/6":   failedCAS,
	"waiters/1": byIdentity,
	"waiters/2": lostCommands,
	"waiters/3": fastCommit,
	"answers/1": told,
	"answers/2": clientsGo,
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
	s.call(put(1, 1, "x", "1")) // never committed
	s.log.term = 2
	s.call(put(1, 1, "x", "1"))
	s.apply(s.newest())
	t.Want(s.kvs.Data()["x"] == "1", "Exactly once: what is submitted and lost is not carried out, and leaves no note", "client 1 has put x=1; the first copy of its request is lost, the second one is committed; now x is %q", s.kvs.Data()["x"])
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

func failedCAS(t *run.T) {
	s := start(t)
	s.do(put(1, 1, "x", "1"), api.StatusOK)
	cas := command(kvservice.CommandCAS, 2, 1, "x", "3")
	cas.CompareValue = "2"
	s.do(cas, api.StatusOK) // x is 1, so nothing is put
	s.do(put(1, 2, "x", "2"), api.StatusOK)
	s.do(cas, api.StatusDuplicateRequest) // its answer was lost
	t.Want(s.kvs.Data()["x"] == "2", "Exactly once: a request that has failed is done, too", "client 2 wanted x=3 in the place of 2 when x was 1; later x is 2, its request comes again, and now x is %q", s.kvs.Data()["x"])
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

// fastCommit lets an entry be committed before Submit has returned, as a fast
// cluster can.
func fastCommit(t *run.T) {
	s := start(t)
	var applied func()
	s.log.atSubmit = func(e raft.CommitEntry) {
		applied = t.Beside(func() { s.kvs.Apply(e) })
	}
	answer := s.call(put(1, 1, "x", "1"))
	t.Do(1, "entry 1 is committed before Submit has returned", nil, applied)
	_, _, ok := answer()
	t.Want(ok, "Answers: Submit and subscribing under one lock", "entry 1 was committed and applied before anybody waited for it; its client waits for ever")
}

// told asks over HTTP, as a real client does, and reads what it is told.
func told(t *run.T) {
	s := serve(t)
	defer s.shutdown()
	status := s.put("x", "1", func() { s.log.Committed <- <-s.log.Submitted })
	t.Want(status == api.StatusOK, "Answers: OK if the entry is carried out", "a client puts x=1, and the entry is committed; the client is told %s", status)

	s.requests-- // and sends it again
	status = s.put("x", "1", func() { s.log.Committed <- <-s.log.Submitted })
	t.Want(status == api.StatusDuplicateRequest, "Answers: a duplicate is told that it is one", "a client puts x=1 once more, under the same number; it is told %s (wanted: %s)", status, api.StatusDuplicateRequest)

	status = s.put("x", "2", func() {
		lost := <-s.log.Submitted
		s.log.Committed <- raft.CommitEntry{Index: lost.Index, Term: lost.Term + 1, Kind: raft.EntryEmpty}
	})
	t.Want(status == api.StatusFailedCommit, "Answers: what is lost here is neither yes nor no",
		"a client puts x=2, and an entry of a newer term is committed in its place; the client is told %s (wanted: %s): the leader may have sent its command on, and nobody here knows whether it will be carried out", status, api.StatusFailedCommit)

	s.log.Refuse.Store(true)
	status = s.put("x", "3", func() {})
	t.Want(status == api.StatusNotLeader, "Answers: who does not lead has done nothing, and says so", "a client puts x=3, and Submit refuses it; the client is told %s (wanted: %s)", status, api.StatusNotLeader)
}

// clientsGo has clients ask a leader that can commit nothing, and go.
func clientsGo(t *run.T) {
	s := serve(t)
	defer s.shutdown()
	const clients = 500
	left := web.Left(clients, s.hangUp)
	t.Want(left < clients, "Waiting: it ends when the client goes", "%d clients have asked a leader that is cut off from the others, and have hung up; something is left of each of them in the service, for as long as nothing is committed", clients)
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
