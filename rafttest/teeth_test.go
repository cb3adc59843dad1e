package rafttest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/internal/cores"
	election "raftkv/part1-election"
	raft "raftkv/part3-persistence"
	"raftkv/rafttest"
)

// Does rafttest notice anything? Here part 3's core gets one bug after the
// other, and each of them must be found.

// bug says what is wrong with a core; what is nil is right.
type bug struct {
	name    string
	servers int
	found   string // what the failure says

	reads  func(n broken, m raft.Message) []raft.Message // what it makes of a message
	says   func(body raft.Body) raft.Body                // what becomes of its own
	forget func(disk *raft.MapStorage, saved raft.PersistentState)
}

var bugs = []bug{{
	name: "votes for everyone", servers: 3, found: "leads term",
	says: func(body raft.Body) raft.Body {
		if reply, ok := body.(raft.RequestVoteReply); ok {
			reply.VoteGranted = true
			return reply
		}
		return body
	},
}, {
	name: "has forgotten its vote after a restart", servers: 5, found: "double vote: in term",
	forget: func(disk *raft.MapStorage, saved raft.PersistentState) {
		disk.Save(raft.Save{CurrentTerm: saved.CurrentTerm})
	},
}, {
	name: "has lost an entry after a restart", servers: 3, found: "without entry",
	forget: func(disk *raft.MapStorage, saved raft.PersistentState) {
		if n := len(saved.Entries); n > 0 {
			disk.Save(raft.Save{CurrentTerm: saved.CurrentTerm, VotedFor: saved.VotedFor, FirstIndex: raft.Index(n)})
		}
	},
}, {
	name: "counts each copy twice", servers: 5, found: "commit without a majority",
	reads: func(_ broken, m raft.Message) []raft.Message {
		if reply, ok := m.Body.(raft.AppendEntriesReply); ok && reply.Success {
			again := m
			again.From = m.From%5 + 1
			return []raft.Message{m, again}
		}
		return []raft.Message{m}
	},
}, {
	name: "votes for short logs", servers: 3, found: "without entry",
	reads: func(_ broken, m raft.Message) []raft.Message {
		if args, ok := m.Body.(raft.RequestVoteArgs); ok {
			args.LastLogTerm++
			m.Body = args
		}
		return []raft.Message{m}
	},
}, {
	name: "does not compare the entry before", servers: 5, found: "applies",
	reads: func(n broken, m raft.Message) []raft.Message {
		if args, ok := m.Body.(raft.AppendEntriesArgs); ok {
			if log := n.Log(); args.PrevLogIndex > 0 && int(args.PrevLogIndex) <= len(log) {
				args.PrevLogTerm = raft.Term(log[args.PrevLogIndex-1].Term)
				m.Body = args
			}
		}
		return []raft.Message{m}
	},
}}

// broken is part 3's core with a bug.
type broken struct {
	cores.Part3
	bug *bug
}

func (b *bug) start(id raft.ServerID, peerIDs []raft.ServerID, disk *raft.MapStorage) (broken, rafttest.Effects) {
	if b.forget != nil {
		saved, _ := disk.Load()
		b.forget(disk, saved)
	}
	n, effects := cores.NewPart3(id, peerIDs, disk)
	return broken{n, b}, effects
}

func (n broken) Receive(body any) (all rafttest.Effects) {
	messages := []raft.Message{body.(raft.Message)}
	if n.bug.reads != nil {
		messages = n.bug.reads(n, messages[0])
	}
	for i, m := range messages {
		e := n.Part3.Receive(m)
		if i == 0 {
			all = e
			continue
		}
		all.Send, all.SendAfter = append(all.Send, e.Send...), append(all.SendAfter, e.SendAfter...)
		all.Commit = append(all.Commit, e.Commit...)
	}
	if n.bug.says != nil {
		for i, m := range all.SendAfter {
			said := m.Body.(raft.Message)
			said.Body = n.bug.says(said.Body)
			all.SendAfter[i].Body = said
		}
	}
	return all
}

// chaos is what every core is put through.
func (b *bug) chaos(t rafttest.TB) {
	c := rafttest.New(t, b.servers, b.start)
	c.StartChaos(5 * time.Second)
	for i := range 20 {
		c.Commit(fmt.Sprint("x=", i))
		c.RunFor(200 * time.Millisecond)
	}
	c.RunFor(5 * time.Second)
	c.WaitAllEqual()
}

func TestBugsAreFound(t *testing.T) {
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) {
			right := &bug{servers: b.servers}
			for seed := 1; seed <= 200; seed++ {
				require.Empty(t, failureOf(seed, right.chaos))
				failure := failureOf(seed, b.chaos)
				if failure == "" {
					continue
				}
				t.Logf("seed %d: %s", seed, failure)
				require.Contains(t, failure, b.found)
				require.Equal(t, failure, failureOf(seed, b.chaos), "the same seed, another run")
				return
			}
			t.Fatal("not found with 200 seeds")
		})
	}
}

// forgetful is part 1's core, and votes for everyone who asks.
type forgetful struct{ cores.Part1 }

func newForgetful(id election.ServerID, peerIDs []election.ServerID, disk *struct{}) (forgetful, rafttest.Effects) {
	n, effects := cores.NewPart1(id, peerIDs, disk)
	return forgetful{n}, effects
}

func (n forgetful) Receive(body any) rafttest.Effects {
	e := n.Part1.Receive(body)
	for i, m := range e.Send {
		said := m.Body.(election.Message)
		if reply, ok := said.Body.(election.RequestVoteReply); ok {
			reply.VoteGranted = true
			said.Body = reply
			e.Send[i].Body = said
		}
	}
	return e
}

func TestTwoLeadersAreFound(t *testing.T) {
	for seed := 1; seed <= 50; seed++ {
		failure := failureOf(seed, func(t rafttest.TB) {
			c := rafttest.New(t, 3, newForgetful)
			c.Chaos(5*time.Second, rafttest.IsolateServers, rafttest.CutLinks)
		})
		if failure != "" {
			t.Logf("seed %d: %s", seed, failure)
			require.Regexp(t, `^two leaders: term|has panicked: raft: server . term .*also led by`, failure)
			return
		}
	}
	t.Fatal("not found with 50 seeds")
}

// recorder is a test that may fail.
type recorder struct {
	name    string
	failure string
}

func (r *recorder) Helper()             {}
func (r *recorder) Name() string        { return r.name }
func (r *recorder) Logf(string, ...any) {}
func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	panic(r)
}

// failureOf runs a test and returns what it failed with, "" if it did not.
func failureOf(seed int, test func(t rafttest.TB)) string {
	r := &recorder{name: fmt.Sprintf("TestX/seed=%d", seed)}
	func() {
		defer func() {
			if broken := recover(); broken != nil && broken != any(r) {
				panic(broken)
			}
		}()
		test(r)
	}()
	return r.failure
}
