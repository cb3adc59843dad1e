package rafttest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"raftkv/internal/lincheck"
)

// Service is a server of a key/value store: a node and the state machine on
// top of it.
type Service interface {
	LogNode

	// Call takes a client's request. answer is asked after each step of the
	// server whether the answer is there; it may say so at once, to refuse.
	// Effects.Index and Effects.Term say where the request went into the log.
	Call(r Request) (answer func() (a Answer, ok bool), e Effects)

	// Apply gives a committed entry to the state machine. It is called for each
	// of Effects.Commit, in order.
	Apply(e Entry)

	// Data returns the keys and values that the state machine holds.
	Data() map[string]string
}

// Request is what a client asks for.
type Request struct {
	Op         string // "get", "put" or "append"
	Key, Value string

	// Who asks, and which of its requests it is, both from 1 on. A request that
	// is sent again has the same two numbers.
	ClientID, RequestID int
}

func (r Request) String() string {
	if r.Op == "get" {
		return r.Op + " " + r.Key
	}
	return fmt.Sprintf("%s %s %s", r.Op, r.Key, r.Value)
}

// Answer is what a server says to a request.
type Answer struct {
	Result Result
	Value  string // of the key: before a put or append
	Found  bool   // whether there was one
}

// Result says what became of a request.
type Result string

// What can become of a request.
const (
	OK           Result = "OK"               // carried out; the answer has the result
	Duplicate    Result = "DuplicateRequest" // carried out before; the result is not told
	NotLeader    Result = "NotLeader"        // nothing has happened
	FailedCommit Result = "FailedCommit"     // nobody can say
)

// How long a client waits for an answer before it asks the next server, and how
// long before it asks the next server if it was refused.
const (
	answerTimeout = 400 * time.Millisecond
	refusedPause  = 10 * time.Millisecond
)

// KV is a cluster of key/value servers, and their clients.
type KV struct {
	*Cluster
	clients []*Client
	calls   []*Call
	open    map[*Server][]*attempt // who waits for an answer of a server
	moments int64
}

// NewKV starts n key/value servers, like New.
func NewKV[ID ~uint64, D any, S Service](t TB, n int, start Start[ID, D, S]) *KV {
	return NewKVSeed(t, seedOf(t), n, start)
}

// NewKVSeed is NewKV with a seed of the caller's choice.
func NewKVSeed[ID ~uint64, D any, S Service](t TB, seed uint64, n int, start Start[ID, D, S]) *KV {
	kv := &KV{Cluster: newCluster(t, seed, n, start), open: map[*Server][]*attempt{}}
	kv.committed = func(s *Server, e Entry) { s.node.(Service).Apply(e) }
	kv.stepped = kv.answer
	kv.begin()
	return kv
}

// Client is a client of the servers. It asks one server after the other until
// one has carried out what it wants, and says each time that it is the same
// request. It makes one call at a time.
type Client struct {
	kv            *KV
	id            int
	assumedLeader int
	requests      int
	deaf          bool
	call          *Call // the latest
}

// Client returns a new client. The first is called A, the second B.
func (kv *KV) Client() *Client {
	a := &Client{kv: kv, id: len(kv.clients) + 1, assumedLeader: 1}
	kv.clients = append(kv.clients, a)
	return a
}

func (a *Client) String() string { return "client " + string(rune('A'+a.id-1)) }

// Call is something that a client wants done.
type Call struct {
	client  *Client
	request Request
	began   int64
	ended   int64 // 0 while it goes on
	answer  Answer
	places  []place // where its attempts went into a log
}

// attempt is a request that was sent to one server, once.
type attempt struct {
	call   *Call
	life   int
	answer func() (Answer, bool)
	over   bool // the client has the answer, or has given up on this one
}

// Put gives key a value. It waits for the answer, however many servers it takes.
func (a *Client) Put(key, value string) { a.kv.t.Helper(); a.StartPut(key, value).Wait() }

// Append puts value behind what key has, like Put.
func (a *Client) Append(key, value string) { a.kv.t.Helper(); a.StartAppend(key, value).Wait() }

// Get returns the value of key, "" if there is none.
func (a *Client) Get(key string) string {
	a.kv.t.Helper()
	call := a.StartGet(key)
	call.Wait()
	return call.Value()
}

// StartPut is Put, but returns at once.
func (a *Client) StartPut(key, value string) *Call { return a.start("put", key, value) }

// StartAppend is Append, but returns at once.
func (a *Client) StartAppend(key, value string) *Call { return a.start("append", key, value) }

// StartGet is Get, but returns at once.
func (a *Client) StartGet(key string) *Call { return a.start("get", key, "") }

func (a *Client) start(op, key, value string) *Call {
	a.kv.t.Helper()
	if a.call != nil && !a.call.Done() {
		a.kv.fail("%v still waits for %v: make another client", a, a.call.request)
	}
	a.requests++
	a.call = &Call{client: a, request: Request{op, key, value, a.id, a.requests}, began: a.kv.moment()}
	a.kv.calls = append(a.kv.calls, a.call)
	a.try(a.call)
	return a.call
}

// moment numbers what happens to clients: the history's order of time.
func (kv *KV) moment() int64 {
	kv.moments++
	return kv.moments
}

// Done reports whether the client has its answer.
func (call *Call) Done() bool { return call.ended != 0 }

func (call *Call) String() string { return call.request.String() }

// Value returns what the answer says: the value of the key, before it was
// written. It is "" if there was none, if the request was a duplicate whose
// result the server has not told, and as long as there is no answer.
func (call *Call) Value() string { return call.answer.Value }

// Duplicate reports whether the server has said that it had carried out the
// request before.
func (call *Call) Duplicate() bool { return call.answer.Result == Duplicate }

// Committed reports whether the request is committed, by any of its attempts.
// When it becomes so, the answer is not yet sent.
func (call *Call) Committed() bool {
	for _, p := range call.places {
		if e := call.client.kv.check.committed[p.index]; e.by != nil && e.Term == p.term {
			return true
		}
	}
	return false
}

// Wait waits until the client has its answer.
func (call *Call) Wait() {
	kv := call.client.kv
	kv.t.Helper()
	kv.runUntil(call.Done, func() string { return fmt.Sprintf("%v has no answer to %v", call.client, call.request) })
}

// LoseAnswersTo lets every answer to a client get lost, until HearAgain.
func (kv *KV) LoseAnswersTo(a *Client) {
	kv.note("answers to %v get lost", a)
	a.deaf = true
}

// HearAgain ends LoseAnswersTo.
func (kv *KV) HearAgain(a *Client) {
	kv.note("%v hears again", a)
	a.deaf = false
}

// try sends a call's request to the assumed leader, and to the next server if
// nothing comes of it.
func (a *Client) try(call *Call) {
	kv, s := a.kv, a.kv.Server(a.assumedLeader)
	at := &attempt{call: call}
	next := func(wait time.Duration) {
		kv.client(wait, fmt.Sprintf("%v asks the next server if %v has not answered", a, s), func() bool { return !at.over && !call.Done() }, func() {
			at.over = true
			kv.note("%v has no answer from %v", a, s)
			a.assumedLeader = a.assumedLeader%len(kv.servers) + 1
			a.try(call)
		})
	}
	next(answerTimeout)
	if kv.rng.Float64() < kv.loss {
		kv.note("%v asks %v: %v; lost on the way", a, s, call.request)
		return
	}
	kv.client(kv.delay(), fmt.Sprintf("%v asks %v: %v", a, s, call.request), nil, func() {
		kv.t.Helper()
		if s.node == nil {
			kv.note("%v asks %v, which is down", a, s)
			next(refusedPause)
			return
		}
		at.life = s.life
		kv.step(s, fmt.Sprintf("%v asks: %v", a, call.request), nil, func() Effects {
			var effects Effects
			at.answer, effects = s.node.(Service).Call(call.request)
			if effects.Index != 0 {
				call.places = append(call.places, place{effects.Index, effects.Term})
			}
			kv.open[s] = append(kv.open[s], at)
			return effects
		})
	})
}

// answer sends the answers that a server has ready. They leave a moment later,
// so that a test can crash it in between.
func (kv *KV) answer(s *Server) {
	kv.open[s] = slices.DeleteFunc(kv.open[s], func(at *attempt) bool {
		if at.life != s.life {
			return true // it was lost with the server
		}
		answer, ready := at.answer()
		if ready {
			text := fmt.Sprintf("%v answers %v: %s", s, at.call.client, answer.Result)
			kv.client(0, text, func() bool { return at.life == s.life }, func() { kv.sendAnswer(s, at, answer) })
		}
		return ready
	})
}

func (kv *KV) sendAnswer(s *Server, at *attempt, answer Answer) {
	a := at.call.client
	if a.deaf || kv.rng.Float64() < kv.loss {
		kv.note("%v answers %v: %s; lost on the way", s, a, answer.Result)
		return
	}
	kv.client(kv.delay(), fmt.Sprintf("%v hears from %v: %s", a, s, answer.Result), nil, func() {
		call := at.call
		if at.over || call.Done() {
			return // the client has gone on to another server
		}
		at.over = true
		kv.note("%v hears from %v: %s", a, s, answer.Result)
		if answer.Result == NotLeader || answer.Result == FailedCommit {
			a.assumedLeader = a.assumedLeader%len(kv.servers) + 1
			kv.client(refusedPause, fmt.Sprintf("%v asks the next server", a), func() bool { return !call.Done() }, func() { a.try(call) })
			return
		}
		call.answer, call.ended = answer, kv.moment()
	})
}

// client schedules something that a client does.
func (kv *KV) client(wait time.Duration, text string, valid func() bool, do func()) {
	kv.schedule(wait, Waiting{Kind: "client", Text: text}, valid, do)
}

// Read returns the value of key as a new client reads it.
func (kv *KV) Read(key string) string {
	kv.t.Helper()
	return kv.Client().Get(key)
}

// Expect reads key as a new client does and wants that value, also on every
// server that runs, and then that all answers so far can be explained
// (Linearizable).
func (kv *KV) Expect(key, value string) {
	kv.t.Helper()
	if got := kv.Read(key); got != value {
		kv.fail("%s is %q and not %q", key, got, value)
	}
	kv.WaitAllEqual()
	for _, s := range kv.Running() {
		if got := s.node.(Service).Data()[key]; got != value {
			kv.fail("on %v %s is %q and not %q", s, key, got, value)
		}
	}
	if err := kv.Linearizable(); err != nil {
		kv.fail("%v", err)
	}
}

// Linearizable returns nil if all that the clients have heard so far can be
// explained by one order of their calls, each of which took effect once, at a
// moment between its start and its answer. Otherwise the error says which calls
// do not fit.
func (kv *KV) Linearizable() error {
	var history []lincheck.Operation
	kinds := map[string]lincheck.Kind{"get": lincheck.Get, "put": lincheck.Put, "append": lincheck.Append}
	for _, call := range kv.calls {
		op := lincheck.Operation{
			Client: call.client.id,
			Kind:   kinds[call.request.Op],
			Key:    call.request.Key,
			Value:  call.request.Value,
			Call:   call.began,
			Return: call.ended,
		}
		if call.Done() {
			op.Outcome, op.Answered = lincheck.Applied, !call.Duplicate()
			op.KeyFound, op.Before = call.answer.Found, call.answer.Value
		}
		history = append(history, op)
	}
	return lincheck.Check(history, 1_000_000)
}

// WaitDataEqual waits until all running servers have applied the same, and
// returns the keys and values. It fails the test if they differ.
func (kv *KV) WaitDataEqual() map[string]string {
	kv.t.Helper()
	kv.WaitAllEqual()
	first := kv.Running()[0]
	data := first.node.(Service).Data()
	for _, s := range kv.Running()[1:] {
		if other := s.node.(Service).Data(); !maps.Equal(data, other) {
			kv.fail("%v holds %v, but %v holds %v", first, data, s, other)
		}
	}
	return data
}
