package sim

import (
	"encoding/json"
	"fmt"
	"time"

	"raftkv/api"
	"raftkv/internal/lincheck"
	"raftkv/kvclient/numbering"
	"raftkv/kvservice/machine"
	"raftkv/raft"
)

// manner is how a client identifies its writes.
type manner uint8

const (
	registered manner = iota // a session that the servers gave it
	simple                   // an id of its own choosing, one call at a time (the posts' client)
	anonymous                // none: a write is never sent twice
	sharing                  // as simple, but another client has the same id by mistake
	filed                    // a session in a file: the process may die, and the next one goes on (the CLI)
	keyed                    // no session; an Idempotency-Key for each write
)

// client is a program that uses the store. What it may believe and what it may
// send again follows kvclient; the numbers and the outcomes are the same code.
type client struct {
	index  int
	manner manner
	random *source
	net    *source // what happens on its way to the servers and back
	levels *source // how fresh its reads are, and whom it asks
	ends   *source // when it closes its session, and what conditions it makes

	id          api.ClientID // "" before it has a session
	registering bool
	doubtful    bool // a write of this session has ended unknown: somebody may want to resume it
	numbers     numbering.Numbers
	waiting     []*clientCall // writes that wait for the session, or for room in the window
	gathering   []part        // attempts that wait for others, to travel as a batch
	keys        int           // Idempotency-Keys that it has made

	leader int                           // whom to ask first: an index of simulation.nodes
	seen   map[string]lincheck.Operation // what was seen last of each key; never ranged over
	tokens int

	script []lincheck.Operation // of the probe: what it does, one after the other
}

// clientCall is one call, from its beginning to what its caller is told.
type clientCall struct {
	client  *client
	number  int // for the watcher
	op      lincheck.Operation
	level   level           // of a read
	command machine.Command // without what each attempt makes anew

	outcome  numbering.Call
	doubted  bool // some attempt was unknown
	attempt  int  // counts; an answer to an earlier one comes too late
	asked    int  // the server of the present attempt
	waits    bool // it has not been answered
	patience time.Duration
	pause    time.Duration
	ended    bool
	register bool // it opens the session
	closes   bool // it closes the session
	resumed  bool // another process than the one that began it goes on with it
	doubled  bool // somebody on the way has sent a copy
	renewed  bool // its session had ended, and it was sent once more under another

	// The calls that share its Idempotency-Key and travel with it as one batch; and
	// of each of these, the one that makes the attempts for all.
	key     api.ClientID
	members []*clientCall
	lead    *clientCall

	refused bool // the last answer was that its condition does not hold

	places  []spot     // under which it may stand in the log
	settled raft.Index // of the entry that has answered it

	told func(machine.Result) // who wants to know what the log answers, instead of the client
}

// once reports whether the call may not be repeated after an unknown attempt.
func (c *clientCall) once() bool {
	return c.client.manner == anonymous && c.op.Kind != lincheck.Get
}

// Line is what a client did, for whoever reads along. It follows from the
// steps, so it is no part of the hash.
type Line struct {
	At     time.Duration
	Client int
	Text   string
}

func (l Line) String() string {
	return fmt.Sprintf("     %.3fs client %d | %s", l.At.Seconds(), l.Client, l.Text)
}

// MarshalJSON returns the line as one JSON object.
func (l Line) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		AtNanos int64
		Client  int
		Note    string
	}{int64(l.At), l.Client, l.Text})
}

func (s *simulation) tell(c *client, format string, args ...any) {
	if s.config.Observe != nil {
		s.config.Observe(Line{s.now, c.index, fmt.Sprintf(format, args...)})
	}
}

func (s *simulation) newClient(index int, m manner) *client {
	c := &client{
		index:  index,
		manner: m,
		random: newSource(s.seed, fmt.Sprint("client ", index)),
		net:    newSource(s.seed, fmt.Sprint("client network ", index)),
		levels: newSource(s.seed, fmt.Sprint("client levels ", index)),
		ends:   newSource(s.seed, fmt.Sprint("client ends ", index)),
		seen:   map[string]lincheck.Operation{},
	}
	c.leader = c.random.below(s.plan.nodes)
	switch m {
	case simple:
		c.newSimpleID()
	case sharing:
		c.id = "shared"
	}
	return c
}

func (c *client) newSimpleID() {
	c.manner = simple
	c.id = api.ClientID(fmt.Sprintf("simple-%d-%d", c.index, c.random.below(1_000_000)))
	c.numbers = numbering.Numbers{}
}

// startClients lets each client make calls, as many at a time as it is wide.
func (s *simulation) startClients() {
	for i := range s.plan.clients {
		m := registered
		if i < s.plan.anonymous {
			m = anonymous
		} else if i < s.plan.anonymous+s.plan.simple {
			m = simple
		}
		width := s.plan.width
		if m == simple {
			width = 1
		}
		s.startClient(s.newClient(i+1, m), width)
	}
	// Behind the probe's number, so that the others do what they would without them.
	for i, m := range s.plan.oddClients {
		s.startClient(s.newClient(s.plan.clients+2+i, m), 1)
	}
}

func (s *simulation) startClient(c *client, width int) {
	for range width {
		s.lanes++
		s.nextCall(c)
	}
}

// nextCall lets a client think and then call again, until the run has enough.
// Until everything is healed the calls are spread over the time there is; then
// those that are still wanted follow quickly.
func (s *simulation) nextCall(c *client) {
	mean := s.plan.healAt * time.Duration(s.plan.clients*s.plan.width) / time.Duration(max(1, s.plan.operations))
	think := c.random.around(mean)
	if burst := s.plan.burst; burst > 0 {
		think += burst - (s.now+think)%burst
	}
	think = min(think, max(0, s.healAt-s.now))
	think += c.random.around(5 * time.Millisecond)
	s.after(think, func() {
		switch {
		case c.script != nil:
			if len(c.script) == 1 { // the empty operation at its end
				s.probed = true
				return
			}
			op := c.script[0]
			c.script = c.script[1:]
			s.begin(c, op)
		case s.operations >= s.plan.operations:
			s.lanes--
		default:
			s.operations++
			if op := s.drawOperation(c); s.decide(makeCall, c.index, 0, true) {
				s.because("%s", describeOperation(&op))
				s.begin(c, op)
			} else {
				s.nextCall(c)
			}
		}
	})
}

// token returns a text that no other write of the run contains.
func (c *client) token() string {
	c.tokens++
	return fmt.Sprintf("%d.%d;", c.index, c.tokens)
}

func (s *simulation) drawOperation(c *client) lincheck.Operation {
	if s.plan.ledgers > 0 && c.random.oneIn(4) {
		op := lincheck.Operation{Kind: lincheck.Append, Key: ledger(c.random.below(s.plan.ledgers)), Value: c.token()}
		if c.random.oneIn(4) {
			op.Kind, op.Value = lincheck.Get, ""
		}
		return op
	}
	// The smaller of two draws: some keys are hot.
	op := lincheck.Operation{
		Kind: lincheck.Kind(c.random.weighted(s.plan.mix)),
		Key:  key(min(c.random.below(s.plan.keys), c.random.below(s.plan.keys))),
	}
	switch op.Kind {
	case lincheck.CAS:
		seen := c.seen[op.Key]
		op.Expect = seen.Before
		op.Value = c.token()
	case lincheck.Put, lincheck.Append:
		op.Value = c.token()
	case lincheck.Delete:
		// Two clients of one session that delete the same key under the same number
		// ask for the same thing: one would be told of what the other has done.
		if c.manner == sharing {
			op.Kind, op.Value = lincheck.Append, c.token()
		}
	}
	s.drawCondition(c, &op)
	return op
}

func key(i int) string    { return fmt.Sprint("k", i) }
func ledger(i int) string { return fmt.Sprint("ledger", i) }

// begin starts a call.
func (s *simulation) begin(c *client, op lincheck.Operation) {
	call := s.newCall(c, op)
	if op.Kind != lincheck.Get && c.manner == keyed {
		s.giveKey(call)
	}
	if op.Kind == lincheck.Get || c.manner == anonymous || c.manner == keyed {
		s.try(call)
		return
	}
	c.waiting = append(c.waiting, call)
	if c.id == "" {
		s.registerClient(c)
		return
	}
	s.sendWaiting(c)
}

// newCall returns a call whose caller gives it up after a while.
func (s *simulation) newCall(c *client, op lincheck.Operation) *clientCall {
	op.Client = c.index
	op.Call = s.tick()
	call := &clientCall{client: c, op: op, patience: s.plan.patience, pause: s.plan.electionTimeout / 8}
	call.command = commandOf(&op)
	call.level = s.drawLevel(call)
	s.watcher.called(call)
	if c.script == nil {
		s.after(s.plan.giveUp, func() {
			if call.ended {
				return
			}
			if call.waits {
				s.attempted(call, api.OutcomeUnknown) // the answer may still be under way
			}
			s.end(call)
		})
	}
	return call
}

// drawLevel draws how fresh a read has to be. The probe's have no choice.
func (s *simulation) drawLevel(call *clientCall) level {
	switch {
	case call.op.Kind != lincheck.Get || s.plan.levels == ([levels]int{}):
		return byLog
	case call.client.script != nil:
		return byRound
	}
	return level(call.client.levels.weighted(s.plan.levels[:]))
}

func commandOf(op *lincheck.Operation) machine.Command {
	return machine.Command{
		Kind: kindOf[op.Kind], Key: op.Key, Value: op.Value, CompareValue: op.Expect,
		IfVersion: op.IfVersion, ExpectAbsent: op.ExpectAbsent,
	}
}

var kindOf = [...]machine.Kind{
	lincheck.Get:    machine.KindGet,
	lincheck.Put:    machine.KindPut,
	lincheck.Append: machine.KindAppend,
	lincheck.CAS:    machine.KindCAS,
	lincheck.Delete: machine.KindDelete,
}

// sendWaiting gives the writes that wait their identity, which all attempts at
// them carry, and sends them, as many as the window admits.
func (s *simulation) sendWaiting(c *client) {
	for len(c.waiting) > 0 {
		write := c.waiting[0]
		if !write.ended {
			requestID, ok := c.numbers.Next()
			if !ok {
				return
			}
			write.command.ClientID, write.command.RequestID = c.id, requestID
			write.command.AckedThrough = c.numbers.AckedThrough()
			write.places = append(write.places, spot{identity: write.command.Identity()})
			s.try(write)
		}
		c.waiting = c.waiting[1:]
	}
}

// registerClient asks for a session, unless the client already does.
func (s *simulation) registerClient(c *client) {
	if c.registering {
		return
	}
	c.registering = true
	call := &clientCall{client: c, register: true, patience: s.plan.patience, pause: s.plan.electionTimeout / 8}
	call.command.Kind = machine.KindOpenSession
	s.try(call)
}

// registeredAs begins the session, and the writes that waited for it.
func (s *simulation) registeredAs(call *clientCall, id api.ClientID) {
	c := call.client
	call.ended = true
	c.registering, c.doubtful = false, false
	c.id = id
	s.tell(c, "has the session %s", id)
	s.sendWaiting(c)
}

// result notes what an applied call has answered.
func (s *simulation) result(call *clientCall, r machine.Result) {
	op := &call.op
	setResult(op, r)
	if op.Answered {
		seen := *op
		if op.Kind == lincheck.Put || op.Swapped {
			seen.Before = op.Value
		}
		call.client.seen[op.Key] = seen
	}
	if call.doubted {
		s.count(UnknownThenApplied)
	}
}

// setResult notes what a result says. One that was dropped for room says nothing.
func setResult(op *lincheck.Operation, r machine.Result) {
	op.Answered = r.Status == api.StatusOK
	op.KeyFound, op.Before, op.Swapped, op.Version = r.KeyFound, r.Value, r.Swapped, r.Version
}

// end tells the caller what may be said of the call, and goes on to the next.
func (s *simulation) end(call *clientCall) {
	c := call.client
	call.ended = true
	if call.command.RequestID != 0 && call.command.ClientID == c.id {
		c.numbers.Settle(call.command.RequestID)
		s.sendWaiting(c)
	}
	call.op.Return = s.tick()
	call.op.Outcome = outcomes[call.outcome.Outcome()]
	if call.doubled && call.op.Outcome == lincheck.NotApplied {
		// A refusal speaks of the copy that it answers. The client does not know of
		// the other, so what it says here is not true; docs/simulator.md.
		call.op.Outcome = lincheck.Unknown
	}
	switch call.op.Outcome {
	case lincheck.Unknown:
		s.count(CallUnknown)
	case lincheck.NotApplied:
		s.count(CallNotApplied)
	}
	c.doubtful = c.doubtful || call.op.Outcome == lincheck.Unknown && call.op.Kind != lincheck.Get
	s.watcher.answered(call)
	s.tell(c, "%s", call.op.Text())
	s.history = append(s.history, call)
	s.closeIfDone(c)
	if call.lead == nil {
		s.nextCall(c)
	}
}

var outcomes = map[api.Outcome]lincheck.Outcome{
	api.OutcomeApplied:    lincheck.Applied,
	api.OutcomeNotApplied: lincheck.NotApplied,
	api.OutcomeUnknown:    lincheck.Unknown,
}
