// Package part4 is the checks of part 4: a key/value service over the log.
//
// Stories run whole clusters with clients; rafttest looks after the rules that no
// schedule may break. Where a schedule would seldom come to the point, one service
// is given a log in which we commit what we like.
package part4

import (
	"fmt"
	"strings"
	"time"

	"raftkv/internal/labs/checks/web"
	"raftkv/internal/labs/run"
	raft "raftkv/part3-persistence"
	"raftkv/part4-kvservice/api"
	"raftkv/part4-kvservice/kvservice"
)

// Funcs are the checks by their ids in labs/part4/checks.txt.
var Funcs = map[string]run.Func{
	"store/1":    results,
	"store/2":    compareAndSet,
	"replicas/1": replicasAgree,
	"refuse/1":   refused,
	"waiters/1":  whoseEntry,
	"waiters/2":  lostCommands,
	"waiters/3":  fastCommit,
	"answers/1":  told,
	"answers/2":  clientsGo,
	"reads/1":    reads,
	"crash/1":    crashes,
	"chaos/1":    chaos,
}

func results(t *run.T) {
	s := start(t)
	want := func(cmd kvservice.Command, value string, found bool) {
		r := s.do(cmd)
		t.Want(r.ResultValue == value && r.ResultFound == found, "Results: every command answers the value before it",
			"%s answers %q, found %t, and not %q, found %t", words(cmd), r.ResultValue, r.ResultFound, value, found)
	}
	get := kvservice.Command{Kind: kvservice.CommandGet, Key: "x"}
	want(get, "", false)
	want(put("x", ""), "", false)
	want(get, "", true) // an empty value is a value
	want(put("x", "1"), "", true)
	want(kvservice.Command{Kind: kvservice.CommandAppend, Key: "x", Value: "2"}, "1", true)
	want(kvservice.Command{Kind: kvservice.CommandAppend, Key: "y", Value: "2"}, "", false)
	want(get, "12", true)
	t.Want(s.kvs.Data()["y"] == "2", "Results: an append begins with nothing", "y was absent, 2 was appended, and it is %q", s.kvs.Data()["y"])
}

func compareAndSet(t *run.T) {
	s := start(t)
	cas := func(compare, value string) kvservice.Result {
		return s.do(kvservice.Command{Kind: kvservice.CommandCAS, Key: "x", CompareValue: compare, Value: value})
	}
	want := func(value string, found bool, why string) {
		got, there := s.kvs.Data()["x"]
		t.Want(got == value && there == found, "Compare and set", "%s: x is %q, there %t, and not %q, there %t", why, got, there, value, found)
	}
	cas("", "1")
	want("", false, "x is absent, and absent is not empty")
	s.do(put("x", "1"))
	r := cas("2", "3")
	want("1", true, "x has 1, and 2 was to be replaced by 3")
	t.Want(r.ResultValue == "1" && r.ResultFound, "Compare and set answers the value before it", "x had 1, and the answer is %q", r.ResultValue)
	cas("1", "3")
	want("3", true, "x has 1, and 1 was to be replaced by 3")
}

func replicasAgree(t *run.T) {
	c := cluster(t)
	a, b := c.Client(), c.Client()
	for i := range 5 {
		one, two := a.StartAppend("x", fmt.Sprint("a", i)), b.StartPut("y", fmt.Sprint("b", i))
		one.Wait()
		two.Wait()
	}
	data := c.WaitDataEqual()
	t.Want(data["x"] == "a0a1a2a3a4" && data["y"] == "b4", "State machine safety: all servers hold the same", "all servers hold x=%q y=%q", data["x"], data["y"])
	c.Expect("x", "a0a1a2a3a4")
}

func refused(t *run.T) {
	s := start(t)
	s.log.refuse = true
	answer := s.call(put("x", "1"))
	status, _, ok := answer()
	t.Want(ok && status == api.StatusNotLeader, "A server that does not lead says so at once", "Submit has refused x=1; the answer is there: %t, %s", ok, status)
	t.Want(len(s.kvs.Data()) == 0, "Only what is committed is carried out", "Submit has refused x=1, and the store holds %v", s.kvs.Data())
}

func whoseEntry(t *run.T) {
	s := start(t)
	mine := s.call(put("x", "mine"))
	_, _, early := mine()
	t.Want(!early && len(s.kvs.Data()) == 0, "Only what is committed is carried out", "x=mine is in the log of one server, not committed; answered: %t; the store holds %v", early, s.kvs.Data())
	// Another leader has put another command there.
	lost := s.log.entries[0]
	other := start(t)
	other.call(put("x", "other"))
	e := other.log.entries[0]
	e.Term = lost.Term + 1
	s.apply(e)
	status, _, ok := mine()
	t.Want(!ok || status != api.StatusOK, "Answers: an entry is known by its index and its term", "x=mine waits for entry 1 of term 1; entry 1 of term 2 is x=other, and x=mine is answered %s", status)

	s = start(t)
	one, two := s.call(put("x", "1")), s.call(put("y", "2"))
	s.apply(s.log.entries[0])
	_, _, first := one()
	_, _, second := two()
	t.Want(first && !second, "Answers: everybody waits for an entry of their own", "x=1 is committed, y=2 is not; answered are x: %t, y: %t", first, second)
}

func lostCommands(t *run.T) {
	s := start(t)
	s.log.term = 3
	lost := s.call(put("x", "1"))
	s.apply(raft.CommitEntry{Index: 1, Term: 2, Kind: raft.EntryEmpty})
	_, _, ok := lost()
	t.Want(!ok, "Waiting: an older entry says nothing about a newer one", "x=1 waits for an entry of term 3; one of term 2 is committed, and x=1 is answered")
	s.log.last = 1
	s.apply(s.empty(4))
	status, _, ok := lost()
	t.Want(ok && status == api.StatusFailedCommit, "Waiting: it ends when the leadership is over", "x=1 waits for an entry of term 3; an empty entry of term 4 is committed; answered: %t, %s (wanted: %s)", ok, status, api.StatusFailedCommit)
}

// fastCommit lets an entry be committed before Submit has returned, as a fast
// cluster can.
func fastCommit(t *run.T) {
	s := start(t)
	var applied func()
	s.log.atSubmit = func(e raft.CommitEntry) {
		applied = t.Beside(func() { s.kvs.Apply(e) })
	}
	answer := s.call(put("x", "1"))
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

func reads(t *run.T) {
	c := cluster(t)
	a, b := c.Client(), c.Client()
	a.Put("x", "old")
	c.Isolate(c.WaitForLeader())
	b.Put("x", "new")
	got := a.Get("x")
	t.Want(got == "new", "Linearizability: a get is a command, too", "x=new was written; a client that knows the old leader, which is cut off, reads x=%s", got)
	c.Heal()
	c.Expect("x", "new")
}

func crashes(t *run.T) {
	c := cluster(t)
	a := c.Client()
	a.Put("x", "1")
	old := c.CrashLeader()
	a.Put("y", "2")
	c.Restart(old)
	c.Expect("x", "1")
	c.Expect("y", "2")
	for _, s := range c.Servers() {
		c.Crash(s)
	}
	for _, s := range c.Servers() {
		c.Restart(s)
	}
	c.Expect("x", "1") // the stores were empty, the log was not
	c.Expect("y", "2")
}

// chaos wants what was acknowledged to be there, in any number: that it is there
// once is part 5.
func chaos(t *run.T) {
	c := cluster(t)
	a := c.Client()
	c.StartChaos(4 * time.Second)
	for i := range 10 {
		a.Append("x", fmt.Sprint(i, " "))
		c.RunFor(200 * time.Millisecond)
	}
	c.RunFor(4 * time.Second)
	value := c.Read("x")
	for i := range 10 {
		t.Want(strings.Contains(" "+value, fmt.Sprint(" ", i, " ")), "Committed stays committed", "%d was appended and acknowledged, and x is %q", i, value)
	}
	c.WaitDataEqual()
}
