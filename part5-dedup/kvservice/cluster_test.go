package kvservice

import (
	"container/heap"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	raft "raftkv/part3-persistence"
	"raftkv/part5-dedup/api"
)

// Virtual time. What a server waits for, a client waits longer for.
const (
	electionTimeout = 150 * time.Millisecond
	heartbeat       = 50 * time.Millisecond
	answerTimeout   = 400 * time.Millisecond
	maxDelay        = 10 * time.Millisecond // of a message
)

// cluster is the services of a cluster over part 3's ConsensusModule, in virtual
// time: no goroutine, no clock, and a seed gives one run. go test -v shows it.
type cluster struct {
	t      *testing.T
	rng    *rand.Rand
	now    time.Duration
	queue  queue
	serial int

	nodes    map[raft.ServerID]*node
	cut      map[raft.ServerID]bool // no message from there arrives, nor one to there
	loss     float64                // how many of the messages get lost
	clients  int
	found    int        // duplicates that clients were told of
	attempts []*attempt // of all clients, in the order in which they were made
}

// node is one server. cm and kvs are nil while it is down.
type node struct {
	c       *cluster
	id      raft.ServerID
	storage *raft.MapStorage
	cm      *raft.ConsensusModule
	kvs     *KVService
	pending raft.Effects // what Submit has asked for and flush is to carry out
	life    int          // counts its starts
	timers  map[raft.TimerKind]int
}

func newCluster(t *testing.T, n int, seed uint64) *cluster {
	c := &cluster{
		t:     t,
		rng:   rand.New(rand.NewPCG(seed, 0)),
		nodes: map[raft.ServerID]*node{},
		cut:   map[raft.ServerID]bool{},
	}
	for id := raft.ServerID(1); int(id) <= n; id++ {
		c.nodes[id] = &node{c: c, id: id, storage: raft.NewMapStorage()}
	}
	for _, id := range c.ids() {
		c.restart(id)
	}
	return c
}

func (c *cluster) ids() []raft.ServerID { return slices.Sorted(maps.Keys(c.nodes)) }

// crash ends a server and everything that it knew but for its storage.
func (c *cluster) crash(id raft.ServerID) {
	c.logf("server %d crashes", id)
	c.nodes[id].cm, c.nodes[id].kvs = nil, nil
}

// restart starts a server over what its storage holds.
func (c *cluster) restart(id raft.ServerID) {
	n := c.nodes[id]
	var peerIDs []raft.ServerID
	for _, peerID := range c.ids() {
		if peerID != id {
			peerIDs = append(peerIDs, peerID)
		}
	}
	saved, err := n.storage.Load()
	require.NoError(c.t, err)
	n.life++
	n.timers = map[raft.TimerKind]int{}
	n.kvs = New(id, n, nil)
	n.kvs.Log = c.logf
	var out raft.Effects
	n.cm, out = raft.NewConsensusModule(id, peerIDs, saved)
	n.carryOut(out)
}

// Submit makes a node the Raft of its service. The service holds its lock, so
// that nothing can be applied before flush.
func (n *node) Submit(command []byte) (raft.Index, raft.Term, error) {
	n.pending = n.cm.Step(raft.Submit{Command: command})
	return n.pending.Submitted.Index, n.pending.Submitted.Term, n.pending.Submitted.Err
}

func (n *node) flush() {
	out := n.pending
	n.pending = raft.Effects{}
	n.carryOut(out)
}

func (n *node) step(event raft.Event) { n.carryOut(n.cm.Step(event)) }

func (n *node) carryOut(out raft.Effects) {
	for _, m := range out.Send {
		n.c.send(m)
	}
	if out.Save.Needed() {
		require.NoError(n.c.t, n.storage.Save(out.Save))
	}
	for _, m := range out.SendAfter {
		n.c.send(m)
	}
	for kind, action := range out.Timers {
		n.setTimer(raft.TimerKind(kind), action)
	}
	for _, entry := range out.Commit {
		n.kvs.apply(entry)
	}
	if out.Save.Needed() {
		s := n.cm.Status()
		n.step(raft.Saved{Index: s.LastIndex, Term: s.Term})
	}
}

func (n *node) setTimer(kind raft.TimerKind, action raft.TimerAction) {
	if action == raft.LeaveTimer {
		return
	}
	n.timers[kind]++ // the one that was running is no more
	if action == raft.StopTimer {
		return
	}
	life, number := n.life, n.timers[kind]
	wait, event := heartbeat, raft.Event(raft.HeartbeatTimeout{})
	if kind == raft.ElectionTimer {
		wait, event = electionTimeout+n.c.upTo(electionTimeout), raft.ElectionTimeout{}
	}
	n.c.after(wait, func() {
		if n.cm != nil && n.life == life && n.timers[kind] == number {
			n.step(event)
		}
	})
}

// send brings a message to its server, or loses it. One that comes late may be
// overtaken.
func (c *cluster) send(m raft.Message) {
	if c.cut[m.From] || c.cut[m.To] || c.rng.Float64() < c.loss {
		return
	}
	c.after(1+c.upTo(maxDelay), func() {
		if n := c.nodes[m.To]; n.cm != nil && !c.cut[m.To] {
			n.step(m)
		}
	})
}

// leader returns the server that leads the newest term, as far as it goes.
func (c *cluster) leader() raft.ServerID {
	var leader raft.ServerID
	var term raft.Term
	for _, id := range c.ids() {
		if n := c.nodes[id]; n.cm != nil && n.cm.Status().State == raft.Leader && n.cm.Status().Term > term {
			leader, term = id, n.cm.Status().Term
		}
	}
	return leader
}

// waitForLeader waits until a server leads that is not cut off, and returns it.
func (c *cluster) waitForLeader() raft.ServerID {
	c.runUntil("there is a leader", func() bool { return c.leader() != raft.None && !c.cut[c.leader()] })
	return c.leader()
}

// waitApplied waits until all servers that run have applied all that is committed.
func (c *cluster) waitApplied() {
	leader := c.waitForLeader()
	last := c.nodes[leader].cm.Status().LastIndex
	c.runUntil("all have applied everything", func() bool {
		for _, id := range c.ids() {
			if n := c.nodes[id]; n.cm != nil && n.cm.Status().LastApplied < last {
				return false
			}
		}
		return true
	})
}

// expect reads key as a client does, and on every server that runs.
func (c *cluster) expect(key, value string) {
	c.t.Helper()
	call := c.client().start(Command{Kind: CommandGet, Key: key})
	call.wait()
	require.Equal(c.t, value, call.result.ResultValue)
	c.waitApplied()
	for _, id := range c.ids() {
		if n := c.nodes[id]; n.kvs != nil {
			got, _ := n.kvs.ds.Get(key)
			require.Equal(c.t, value, got, "on server %d", id)
		}
	}
}

// client is a client in virtual time. Like a KVClient it asks one server after
// the other until one has carried out its command.
type client struct {
	c             *cluster
	name          string
	assumedLeader raft.ServerID
	deaf          bool         // answers to it get lost
	identity      api.Identity // of its latest call
}

func (c *cluster) client() *client {
	c.clients++
	return &client{
		c: c, name: string(rune('A' + c.clients - 1)), assumedLeader: 1,
		identity: api.Identity{ClientID: int64(c.clients)},
	}
}

// call is a command that a client wants carried out.
type call struct {
	client *client
	cmd    Command
	place  raft.Submitted // of the latest attempt
	at     raft.ServerID
	done   bool
	result Result
}

// attempt is one request to one server.
type attempt struct {
	call *call
	n    *node
	life int
	sub  *commitSub
}

// start sends a command and returns at once.
func (a *client) start(cmd Command) *call {
	a.identity.RequestID++
	cmd.Identity = a.identity
	call := &call{client: a, cmd: cmd}
	a.try(call)
	return call
}

func (a *client) startPut(key, value string) *call {
	return a.start(Command{Kind: CommandPut, Key: key, Value: value})
}

func (a *client) startAppend(key, value string) *call {
	return a.start(Command{Kind: CommandAppend, Key: key, Value: value})
}

func (a *client) put(key, value string)    { a.startPut(key, value).wait() }
func (a *client) append(key, value string) { a.startAppend(key, value).wait() }

func (call *call) wait() {
	call.client.c.runUntil("client "+call.client.name+" has its answer", func() bool { return call.done })
}

// committed reports whether the entry of the latest attempt is committed. Its
// answer is not sent yet.
func (call *call) committed() bool {
	if call.at == raft.None || call.client.c.nodes[call.at].cm == nil {
		return false
	}
	s := call.client.c.nodes[call.at].cm.Status()
	return s.Term == call.place.Term && s.CommitIndex >= call.place.Index
}

// try sends a call's request to the assumed leader. If the answer does not come
// in time, or is no answer, it goes to the next server.
func (a *client) try(call *call) {
	c := a.c
	n := c.nodes[a.assumedLeader]
	next := func() {
		a.assumedLeader = a.assumedLeader%raft.ServerID(len(c.nodes)) + 1
		a.try(call)
	}
	c.after(1+c.upTo(maxDelay), func() {
		if n.kvs == nil {
			c.after(maxDelay, next)
			return
		}
		sub, err := n.kvs.createCommitSubscription(call.cmd)
		if err != nil {
			c.after(maxDelay, next)
			return
		}
		c.logf("client %s asks server %d: %s %q %q", a.name, n.id, call.cmd.Kind, call.cmd.Key, call.cmd.Value)
		call.at, call.place = n.id, n.pending.Submitted
		at := &attempt{call: call, n: n, life: n.life, sub: sub}
		c.attempts = append(c.attempts, at)
		n.flush()
		c.after(answerTimeout, func() {
			if c.end(at); !call.done {
				c.logf("client %s has heard nothing, or nothing clear", a.name)
				next()
			}
		})
	})
}

// submit puts a command into the log of a server, for a client that does not ask again.
func (c *cluster) submit(id raft.ServerID, cmd Command) (*commitSub, raft.Submitted) {
	n := c.nodes[id]
	if cmd.ClientID == 0 { // one that has not asked before
		cmd.Identity = api.Identity{ClientID: c.client().identity.ClientID, RequestID: 1}
	}
	sub, err := n.kvs.createCommitSubscription(cmd)
	require.NoError(c.t, err)
	place := n.pending.Submitted
	n.flush()
	return sub, place
}

// end ends an attempt: the client waits for its answer no longer.
func (c *cluster) end(at *attempt) {
	if i := slices.Index(c.attempts, at); i >= 0 {
		c.attempts = slices.Delete(c.attempts, i, i+1)
	}
	if at.n.kvs != nil && at.n.life == at.life {
		at.n.kvs.cancelCommitSubscription(at.sub)
	}
}

// answer sends the results that have come to the clients that wait for them. A
// result whose server crashes before it has arrived never does.
func (c *cluster) answer() {
	c.attempts = slices.DeleteFunc(c.attempts, func(at *attempt) bool {
		result, what := told(at.sub)
		if what == "OK" || what == "duplicate" {
			c.after(1+c.upTo(maxDelay), func() {
				if call := at.call; at.n.life == at.life && at.n.kvs != nil && !call.client.deaf && !call.done {
					c.logf("client %s has its answer: %s, before, %q", call.client.name, what, result.ResultValue)
					call.done, call.result = true, result
					if result.IsDuplicate {
						c.found++
					}
				}
			})
		}
		return what != "nothing yet"
	})
}

// told returns what a subscriber has been told and takes it away.
func told(sub *commitSub) (Result, string) {
	select {
	case result, ok := <-sub.result:
		if !ok {
			return Result{}, "may or may not"
		}
		if result.IsDuplicate {
			return result, "duplicate"
		}
		return result, "OK"
	default:
		return Result{}, "nothing yet"
	}
}

// after has something happen later.
func (c *cluster) after(wait time.Duration, what func()) {
	c.serial++
	heap.Push(&c.queue, event{c.now + wait, c.serial, what})
}

// upTo draws a duration below limit.
func (c *cluster) upTo(limit time.Duration) time.Duration {
	return time.Duration(c.rng.Int64N(int64(limit)))
}

// runUntil lets things happen, one after the other, until it is true.
func (c *cluster) runUntil(what string, isTrue func() bool) {
	c.t.Helper()
	deadline := c.now + time.Minute
	for !isTrue() {
		e := heap.Pop(&c.queue).(event)
		require.Less(c.t, e.at, deadline, "not within a virtual minute: %s", what)
		c.now = e.at
		e.what()
		c.answer()
	}
}

// runFor lets a span of time pass.
func (c *cluster) runFor(span time.Duration) {
	over := false
	c.after(span, func() { over = true })
	c.runUntil("time passes", func() bool { return over })
}

func (c *cluster) logf(format string, args ...any) {
	if testing.Verbose() {
		c.t.Logf("%6.3f s  %s", c.now.Seconds(), fmt.Sprintf(format, args...))
	}
}

// event is something that happens at a time; of two at one time the older goes first.
type event struct {
	at     time.Duration
	serial int
	what   func()
}

type queue []event

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].serial < q[j].serial
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(e any)   { *q = append(*q, e.(event)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
