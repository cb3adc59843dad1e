package sim

import (
	"time"

	"raftkv/api"
	"raftkv/internal/lincheck"
	"raftkv/kvclient/numbering"
	"raftkv/kvservice/machine"
	"raftkv/raft"
)

// How a client's call goes on until there is an answer that ends it: attempts that
// are lost, late or doubled, and what each answer means for the call.

// try makes one attempt at a call, alone or together with others.
func (s *simulation) try(call *clientCall) {
	call.attempt++
	if s.plan.batching && call.level == byLog && !call.register && !call.closes && call.members == nil {
		s.gather(call)
		return
	}
	parts := []part{{call, call.attempt}}
	for _, m := range call.members {
		m.attempt = call.attempt
		parts = append(parts, part{m, m.attempt})
	}
	s.request(call.client, parts)
}

// part is an attempt at a call, as a request carries it. If the call has gone on
// to another attempt, or has ended, nobody is interested any more.
type part struct {
	call    *clientCall
	attempt int
}

func (p part) waits() bool { return !p.call.ended && p.call.attempt == p.attempt }

// request sends a request with attempts of one client. There are several only in a batch.
func (s *simulation) request(c *client, parts []part) {
	call := parts[0].call
	asked := c.leader
	// When everything is healed only the leader's word counts: most servers may have
	// left by then, and asking one of those at random proves nothing.
	if call.level != byLog && c.levels.chance(s.plan.anywhere) && !s.healed {
		if other := c.levels.below(len(s.nodes)); !s.nodes[other].spared {
			asked = other
		}
	}
	r := &request{client: c, parts: parts, level: call.level, command: call.command}
	if len(parts) > 1 {
		r.command = batchOf(parts)
	}
	if call.members != nil {
		r.command = call.keyedBatch()
	}
	if r.command.RequestID == 0 {
		r.command.Nonce = s.nonce() // names this attempt only
	}
	for i, p := range parts {
		p.call.asked, p.call.waits = asked, true
		if r.command.RequestID == 0 && p.call.command.RequestID == 0 {
			p.call.places = append(p.call.places, spot{machine.Identity{Nonce: r.command.Nonce}, i})
		}
	}
	if call.register {
		r.command.ClientID = machine.NewIssuedID(s.idText())
	}
	server := s.nodes[asked]
	s.watcher.tried(r, server)
	time := s.requestTime(c)
	if !s.decide(loseRequest, c.index, 0, c.net.chance(s.clientLoss())) {
		s.after(time, func() { s.reach(server, r) })
	}
	if c.manner == filed {
		dies, at := c.net.oneIn(5), c.net.span(0, call.patience)
		if !call.register && s.decide(killClient, c.index, 0, dies && !s.healed) {
			s.after(at, func() { s.processDies(call) })
		}
	}
	s.double(r)
	for _, p := range parts {
		s.after(p.call.patience, func() {
			if p.waits() {
				s.attempted(p.call, api.OutcomeUnknown)
				p.call.patience = min(2*p.call.patience, 8*s.plan.electionTimeout)
				s.again(p.call, raft.None)
			}
		})
	}
}

// reach is called when a request comes to where a server should be. That nobody
// listens there is known: it was not sent.
func (s *simulation) reach(n *node, r *request) {
	if n.up {
		s.requested(n, r)
		return
	}
	if r.client.net.oneIn(2) {
		return // an address that does not even refuse
	}
	s.after(s.clientTime(r.client), func() { s.answered(r, refusal(api.StatusNotLeader, raft.None)) })
}

// requestTime draws how long a request is under way. One that comes late finds
// its client gone; the client may have sent it again, or may have given it up.
func (s *simulation) requestTime(c *client) time.Duration {
	t := s.clientTime(c)
	late, more := c.net.chance(s.plan.late), c.net.span(0, 2*s.plan.giveUp)
	if s.decide(delayRequest, c.index, 0, late && !s.healed) {
		t += more
	}
	return t
}

func (s *simulation) clientTime(c *client) time.Duration { return c.net.around(s.plan.clientDelay) }

// losesAnswer draws whether an answer is lost on its way to a client.
func (s *simulation) losesAnswer(c *client) bool {
	return s.decide(loseAnswer, c.index, 0, c.net.chance(s.clientLoss()))
}

func (s *simulation) clientLoss() int {
	if s.healed {
		return 0
	}
	return s.plan.clientLoss
}

// idText is what a server would take from crypto/rand.Text.
func (s *simulation) idText() string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	text := make([]byte, 26)
	for i := range text {
		text[i] = alphabet[s.ids.below(len(alphabet))]
	}
	return string(text)
}

func (s *simulation) attempted(call *clientCall, outcome api.Outcome) {
	call.waits = false
	call.outcome.Add(outcome)
	if outcome == api.OutcomeUnknown {
		call.doubted = true
	}
}

// answered is called when an answer reaches the client: one to each operation of a
// batch, unless the batch as a whole was refused.
func (s *simulation) answered(r *request, a answer) {
	for i, p := range r.parts {
		result := a.result
		if a.operations != nil {
			result = a.operations[i].Result
		}
		switch {
		case p.waits():
			s.answeredCall(r, p.call, result, a)
		case result.Status == api.StatusSessionExpired:
			s.count(EndedMeetsLateCopy)
		}
	}
}

// answeredCall takes the answer to an attempt at one call.
func (s *simulation) answeredCall(r *request, call *clientCall, result machine.Result, a answer) {
	s.attempted(call, result.Outcome)
	call.refused = result.Status == api.StatusConditionFailed
	if call.told != nil && a.index != 0 {
		call.ended = true
		call.told(result)
		return
	}
	switch result.Status {
	case api.StatusOK, api.StatusDuplicateRequest:
		if call.level == byLog {
			call.client.leader = call.asked
		}
		switch {
		case call.register:
			s.registeredAs(call, r.command.ClientID)
			return
		case call.closes:
			call.ended = true
			s.count(SessionClosed)
			return
		}
		s.result(call, result)
		call.settled = a.index
		if call.resumed && result.Duplicate {
			s.count(ResumedFound)
		}
		s.end(call)
	case api.StatusConditionFailed, api.StatusTooLarge: // more operations than keys may be
		s.end(call)
	case api.StatusWindowExceeded:
		// The next copy says how far the client has come by then. Else, with a window
		// smaller than the client's, the last calls could all wait for a mark that none
		// of them brings (seed 300420).
		call.command.AckedThrough = call.client.numbers.AckedThrough()
		s.again(call, a.leader)
	case api.StatusNotLeader, api.StatusBusy, api.StatusFailedCommit, api.StatusTimeout:
		s.again(call, a.leader)
	case api.StatusRequestMismatch, api.StatusStaleRequest:
		// The number is the other one's, or the other one has settled it.
		switch c := call.client; {
		case c.manner == sharing && result.Status == api.StatusRequestMismatch:
			s.count(NumberTaken)
		case c.manner == sharing:
			s.count(NumberSettled)
		case c.manner == keyed && result.Status == api.StatusRequestMismatch:
			s.count(KeyTaken)
		default:
			s.fail("answer", "client %d, request %d: %s: %s", c.index, call.command.RequestID, result.Status, result.Error)
			return
		}
		s.end(call)
	case api.StatusSessionExpired:
		s.sessionEnded(call, result)
	default:
		s.fail("answer", "client %d, request %d: %s: %s", call.client.index, call.command.RequestID, result.Status, result.Error)
	}
}

// again makes another attempt after a pause, if there may be one.
func (s *simulation) again(call *clientCall, hint raft.ServerID) {
	if call.lead != nil {
		return // who makes the attempts does so
	}
	if call.once() && call.outcome.Outcome() == api.OutcomeUnknown {
		s.end(call)
		return
	}
	c := call.client
	if hint != raft.None {
		c.leader = index(hint)
	} else if c.leader == call.asked {
		c.leader = (c.leader + 1) % len(s.nodes)
		for s.nodes[c.leader].spared {
			c.leader = (c.leader + 1) % len(s.nodes)
		}
	}
	call.attempt++ // no answer to the last attempt counts any more
	attempt := call.attempt
	s.after(c.random.span(call.pause/2, call.pause), func() {
		if !call.ended && call.attempt == attempt {
			s.try(call)
		}
	})
	call.pause = min(2*call.pause, 2*s.plan.electionTimeout)
}

// double sends a request once more, to any server, as a proxy on the way may do
// that does not hear an answer: whoever comes first is answered. Only what has an
// identity of its own may be treated so.
func (s *simulation) double(r *request) {
	c := r.client
	doubled, time := c.net.chance(s.plan.doubled), c.net.span(0, 2*r.parts[0].call.patience)
	other := s.nodes[c.net.below(len(s.nodes))]
	if !r.identified() || !s.decide(doubleRequest, c.index, 0, doubled && !s.healed) {
		return
	}
	second := &request{client: c, parts: r.parts, command: r.command}
	if second.command.RequestID == 0 { // each server makes its own
		second.command.Nonce = s.nonce()
	}
	for _, p := range r.parts {
		p.call.doubled = true
	}
	s.after(time, func() { s.reach(other, second) })
	s.count(RequestDoubled)
}

// processDies ends the process that has made a call, as Ctrl-C does. The next one
// finds in the session file who it is, and the write whose end it does not know:
// it sends that again under the same identity.
func (s *simulation) processDies(call *clientCall) {
	c := call.client
	if call.ended || call.op.Kind != lincheck.Get && call.command.RequestID == 0 {
		return // nothing of it is under way
	}
	s.count(ClientRestarted)
	s.tell(c, "its process dies")
	call.attempt++ // answers to the old process reach nobody
	call.waits = false
	c.leader = c.random.below(len(s.nodes))
	call.outcome = numbering.Call{}
	call.outcome.Add(api.OutcomeUnknown)
	call.doubted, call.resumed = true, true
	if call.op.Kind == lincheck.Get {
		s.end(call) // nobody wants to know any more
		return
	}
	c.numbers = numbering.Numbers{}
	for range call.command.RequestID {
		number, _ := c.numbers.Next()
		if number < call.command.RequestID {
			c.numbers.Settle(number)
		}
	}
	call.patience = s.plan.patience
	attempt := call.attempt
	s.after(c.random.around(s.plan.patience), func() {
		if !call.ended && call.attempt == attempt {
			s.try(call)
		}
	})
}
