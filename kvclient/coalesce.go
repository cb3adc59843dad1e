package kvclient

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"raftkv/api"
	"raftkv/kvclient/numbering"
)

// Calls that are made while others are under way travel together, as one batch:
//
//	call 1         ──── /put ─────────▶ answer
//	calls 2 and 3    wait … ──── /batch 2 3 ─────────▶ answers
//	calls 4 to 7              wait …………………… ──── /batch 4 5 6 7 ────▶ answers
//
// A request costs both sides far more than a write does, and one entry of the log
// holds a whole batch. So a client shared by hundreds of goroutines makes a few
// requests with hundreds of writes each. A call goes at once while nobody is under way,
// and when a trip is over, those who wait go, however few they are. Beside one trip
// goes another only if it carries more: a small one costs the servers as much again,
// and those who come back from it would miss the large one.
//
// Reads travel alone: a batch takes a place in the log, and a read needs none.
//
// What a call promises is the same however it travels. It has an identity and an
// answer of its own; its context ends it, and no other.
//
//   - It has no number while it waits. If it is given up then, nothing was sent.
//   - If it is given up during a trip, the trip goes on without it. It is unknown if
//     an attempt is under way or one before was unknown, and not applied otherwise.
//   - A trip repeats its request as a call alone would. Servers that have carried
//     out some of the writes answer those with what they recorded. A trip that has
//     to repeat it gives its place to others: a server that hangs, or an election,
//     holds up only those who are aboard.
//   - A write whose own answer is not final goes on alone, under its identity; so
//     do all writes of a batch that was refused as a whole.

// maxTrips is how many trips have a place. With 1, large values, of which a few fill a
// batch, would wait for each other; with many, there would be many small batches.
const maxTrips = 2

// line is who waits for a trip. It is a plain value; the session's lock guards it.
//
// Invariant: if somebody waits, a place is taken. So who lets another one wait, or gives
// a place back, calls take.
type line struct {
	waiting  []*passenger // first come, first served
	places   int          // taken; at most maxTrips
	underWay int          // writes of the trips that have a place
}

// passenger is a write on its way. The session's lock guards all but write, until
// landed is closed.
type passenger struct {
	write Write

	trip *trip // from the time it boards
	id   Identity
	op   operation
	seat int // in the last attempt

	landed chan struct{}  // closed when what follows is set; nil if the trip's goroutine is the caller's own
	ended  bool           // it has ended with result; else it goes on alone
	result attempt        // what the trip has brought
	call   numbering.Call // what is known of it, result included
}

// mayBegin reports whether a trip with n writes may begin.
func (l *line) mayBegin(n int) bool {
	return n > 0 && (l.places == 0 || l.places < maxTrips && n > l.underWay)
}

// join says whether p may go at once, alone. Then it has a place; else it waits.
func (l *line) join(p *passenger) (goes bool) {
	if len(l.waiting) == 0 && l.mayBegin(1) {
		l.places++
		l.underWay++
		return true
	}
	l.waiting = append(l.waiting, p)
	return false
}

// take takes a place for those who wait, if they may go.
func (l *line) take() (taken bool) {
	taken = l.mayBegin(len(l.waiting))
	if taken {
		l.places++
	}
	return taken
}

// leave takes p out of the line and says whether it was there.
func (l *line) leave(p *passenger) bool {
	i := slices.Index(l.waiting, p)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	return true
}

// board takes out of the line who goes on the next trip: as many as fit into one
// batch and have room in the window, in their order.
func (l *line) board(room int) []*passenger {
	n := fitting(min(len(l.waiting), room), func(i int) Write { return l.waiting[i].write })
	aboard := slices.Clone(l.waiting[:n])
	l.waiting = slices.Delete(l.waiting, 0, n)
	l.underWay += n
	return aboard
}

// expect makes those who wait count as under way, until a trip gives its place back. It
// returns how many they are.
func (l *line) expect() int {
	n := len(l.waiting)
	l.underWay += n
	return n
}

// giveBack gives back the place of a trip with so many writes.
func (l *line) giveBack(writes int) {
	l.places--
	l.underWay -= writes
}

// trip is one request with one write or many, and its repetitions. Its session's
// lock guards it.
type trip struct {
	session *session
	cancel  context.CancelFunc // ends it: nobody is aboard any more
	writes  int                // with which it began

	aboard   []*passenger // whose callers still wait
	attempts int
	sent     []*passenger   // who was in the last attempt, by seat
	underWay bool           // that attempt has not ended
	landing  bool           // it was the last, and has brought something for everybody
	call     numbering.Call // what the attempts that have ended say of all of them
	last     error          // what the last of these brought

	ashore sync.WaitGroup // the callers that have waited have gone on
}

// writeOnce carries out a write under one identity, and returns the session it
// was of. Its context need not end with the client.
func (c *KVClient) writeOnce(ctx context.Context, w Write) (WriteResult, *session, error) {
	if err := w.check(); err != nil {
		return WriteResult{}, nil, fmt.Errorf("kvclient: %s not applied: %w", w.Op, err)
	}
	s, err := c.currentSession(ctx)
	if err != nil {
		return WriteResult{}, nil, fmt.Errorf("kvclient: %s not sent: %w", w.Op, err)
	}
	p := &passenger{write: w}
	goes, taken := s.join(p)
	if taken {
		c.setOut(s)
	}
	if goes {
		err = c.goAlone(ctx, s, p)
	} else {
		err = c.wait(ctx, s, p)
	}
	if err != nil {
		return WriteResult{}, s, fmt.Errorf("kvclient: %s not sent: %w", w.Op, err)
	}
	var result WriteResult
	if p.ended {
		result, err = w.conclude(p.id, p.result.answer, p.result.err, &p.call)
	} else {
		ctx, unlink := c.link(ctx)
		result, err = c.send(ctx, p.id, w, &p.call)
		unlink()
		s.settle(p.id.RequestID)
	}
	s.noteEnd(err)
	return result, s, err
}

// join says whether p may go at once, alone; and if not, whether a place was taken for
// those who wait, because with p they are enough.
func (s *session) join(p *passenger) (goes, taken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line.join(p) {
		return true, false
	}
	p.landed = make(chan struct{})
	return false, s.line.take()
}

// goAlone makes the trip of a call that found a place, in the caller's goroutine
// and time.
func (c *KVClient) goAlone(ctx context.Context, s *session, p *passenger) error {
	ctx, unlink := c.link(ctx)
	defer unlink()
	id, err := s.open(ctx)
	t := &trip{session: s, writes: 1, aboard: []*passenger{p}}
	if err == nil {
		p.id, p.trip = id, t
		c.travel(ctx, t)
	}
	if t.attempts < 2 { // else the place was given back
		c.giveBack(t)
	}
	return err
}

// giveBack gives the place of a trip back, and lets those who wait make the next one.
func (c *KVClient) giveBack(t *trip) {
	if t.session.giveBack(t.writes) {
		c.setOut(t.session)
	}
}

// giveBack gives back the place of a trip with so many writes. It reports whether it
// took one for those who wait.
func (s *session) giveBack(writes int) (taken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line.giveBack(writes)
	return s.line.take()
}

// setOut makes the trips of those who wait, in the place that was taken for them.
func (c *KVClient) setOut(s *session) {
	c.calls.Add(1) // the caller is a call that Close waits for, so it will for this
	go c.goTogether(s)
}

// goTogether makes trips, in one place, while those who wait may go.
func (c *KVClient) goTogether(s *session) {
	defer c.calls.Done()
	for {
		ctx, cancel := context.WithCancel(c.life)
		t := s.board(ctx, cancel)
		if t == nil {
			cancel()
			return
		}
		c.travel(ctx, t)
		cancel()
		if t.attempts > 1 {
			return // the place was given back
		}
		t.ashore.Wait()
		s.gather()
		if !s.giveBack(t.writes) {
			return
		}
	}
}

// gather lets the goroutines that have just got their answers run, as long as they
// come back with new writes. Otherwise the first of them would travel without the
// others. It does not wait for anything else.
func (s *session) gather() {
	for before := -1; ; {
		s.mu.Lock()
		waiting := len(s.line.waiting)
		s.mu.Unlock()
		if waiting <= before || waiting >= numbering.Window {
			return
		}
		before = waiting
		runtime.Gosched()
	}
}

// board makes the trip of those who wait, and gives them their numbers; cancel ends
// ctx, in which it is to be made. If the window is full, it waits. It returns nil,
// and has given back the place, if nobody waits any more; or the client was closed.
func (s *session) board(ctx context.Context, cancel context.CancelFunc) *trip {
	for {
		s.mu.Lock()
		if len(s.line.waiting) == 0 {
			s.line.giveBack(0)
			s.mu.Unlock()
			return nil
		}
		if room := s.numbers.Room(); room > 0 {
			aboard := s.line.board(room)
			t := &trip{session: s, cancel: cancel, writes: len(aboard), aboard: aboard}
			for _, p := range t.aboard {
				p.trip = t
				p.id, _ = s.next()
			}
			s.mu.Unlock()
			return t
		}
		settled := s.nextSettled()
		s.mu.Unlock()
		select {
		case <-settled:
		case <-ctx.Done():
			return nil
		}
	}
}

// wait waits until the trip of p is over. The error is that p was given up before
// it went.
func (c *KVClient) wait(ctx context.Context, s *session, p *passenger) error {
	var cause error
	select { // on both: to link the contexts costs more than all the rest of a write
	case <-p.landed:
		p.trip.ashore.Done()
		return nil
	case <-ctx.Done():
		cause = context.Cause(ctx)
	case <-c.life.Done():
		cause = ErrClosed
	}
	s.mu.Lock()
	isWaiting := s.line.leave(p)
	isLanding := !isWaiting && p.trip.landing
	if !isWaiting && !isLanding {
		p.trip.leave(p, cause)
	}
	s.mu.Unlock()
	switch {
	case isWaiting:
		return fmt.Errorf("waiting for earlier writes: %w", cause)
	case isLanding:
		<-p.landed // its answer is there and is being read
		p.trip.ashore.Done()
	}
	return nil
}

// leave ends the trip for one passenger, whose time is over.
func (t *trip) leave(p *passenger, cause error) {
	p.call = t.call
	if t.underWay {
		p.call.Add(api.OutcomeUnknown)
	}
	p.ended, p.result.err = true, &GaveUpError{cause, t.last}
	t.aboard = slices.DeleteFunc(t.aboard, func(q *passenger) bool { return q == p })
	t.session.settleLocked(p.id.RequestID)
	if len(t.aboard) == 0 {
		t.cancel()
	}
}

// travel makes attempts until all who are aboard have got what the trip can bring
// them, or nobody is aboard any more.
func (c *KVClient) travel(ctx context.Context, t *trip) {
	answer, err := c.repeat(ctx, false, func(ctx context.Context, endpoint string) attempt {
		writes := t.depart()
		if t.attempts == 2 {
			c.giveBack(t)
		}
		if len(writes) == 0 { // they have left just now, and with the last one ctx ended
			return attempt{outcome: api.OutcomeNotApplied, err: context.Cause(ctx)}
		}
		a := c.try(ctx, endpoint, together(writes))
		t.arrive(a)
		return a
	})
	t.land(answer, err)
}

// depart begins an attempt for those who are aboard, and returns them.
func (t *trip) depart() []*passenger {
	t.session.mu.Lock()
	defer t.session.mu.Unlock()
	t.attempts++
	t.underWay = true
	t.sent = slices.Clone(t.aboard)
	for i, p := range t.sent {
		p.seat = i
	}
	return t.sent
}

// together returns the operation that carries all these writes.
func together(writes []*passenger) operation {
	operations := make([]operation, len(writes))
	for i, p := range writes {
		if p.op.body == nil {
			p.op, _ = p.write.operation(p.id) // there is no error: check has found none
		}
		operations[i] = p.op
	}
	if len(operations) == 1 {
		return operations[0]
	}
	return batchOperation(operations)
}

// arrive notes what an attempt has brought.
func (t *trip) arrive(a attempt) {
	t.session.mu.Lock()
	defer t.session.mu.Unlock()
	t.underWay, t.landing = false, a.final()
	t.call.Add(a.outcome)
	t.last = a.err
}

// land gives those who are still aboard what the trip has brought them.
func (t *trip) land(answer api.Response, err error) {
	var results []attempt // by seat
	if batch, ok := answer.(*api.BatchResponse); ok {
		results = make([]attempt, min(len(t.sent), len(batch.Results)))
		for i := range results {
			results[i] = operationResult(t.sent[i].op, batch.Results[i])
		}
	}
	var refused *StatusError
	isAnswered := err == nil || errors.As(err, &refused)
	t.session.mu.Lock()
	defer t.session.mu.Unlock()
	t.landing = true
	if t.attempts < 2 { // it has its place
		// Those who wait go with those who come back now, not before them.
		t.writes += t.session.line.expect()
	}
	for _, p := range t.aboard {
		p.call = t.call.Operation()
		switch {
		case p.seat < len(results):
			p.result = results[p.seat]
			p.call.Add(p.result.outcome)
			p.ended = p.result.final()
		case isAnswered && len(t.sent) > 1:
			// Refused as a whole: one of them may make no sense, or be too large.
		default:
			p.result, p.ended = attempt{answer: answer, err: err}, true
		}
		if p.ended {
			t.session.settleLocked(p.id.RequestID)
		}
		if p.landed != nil {
			t.ashore.Add(1)
			close(p.landed)
		}
	}
	t.aboard = nil
}
