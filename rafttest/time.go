package rafttest

import (
	"container/heap"
	"time"
)

// The times of a cluster. They are to each other as the paper has them: a
// message is much faster than a heartbeat, a heartbeat than an election timeout.
const (
	MaxDelay        = 10 * time.Millisecond  // a message takes from 1 ms up to this
	Heartbeat       = 50 * time.Millisecond  // the heartbeat timer
	ElectionTimeout = 150 * time.Millisecond // the election timer, drawn from [T, 2T)
)

// patience is how long, in virtual time, a call waits for what it says.
const patience = 20 * time.Second

// happening is something that will happen at a time. One that has become
// invalid meanwhile, such as the firing of a timer that was restarted, does not.
type happening struct {
	at     time.Duration
	serial int // of two at one time the older goes first

	valid func() bool // nil: always
	do    func()
	what  Waiting
}

// Waiting is something that will happen, for tools that show it.
type Waiting struct {
	At   time.Duration
	Kind string // "message", "timer", "client" or "fault"
	From int    // who sends the message, or whose timer it is
	To   int
	Body any // of a message
	Text string
}

// queue is a heap; the next to happen comes first.
type queue []*happening

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].serial < q[j].serial
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(h any)   { *q = append(*q, h.(*happening)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

func (c *Cluster) schedule(wait time.Duration, what Waiting, valid func() bool, do func()) {
	c.serial++
	what.At = c.now + wait
	heap.Push(&c.queue, &happening{at: c.now + wait, serial: c.serial, valid: valid, do: do, what: what})
}

// upTo draws a whole number of milliseconds below limit.
func (c *Cluster) upTo(limit time.Duration) time.Duration {
	return time.Duration(c.rng.Int64N(int64(limit/time.Millisecond))) * time.Millisecond
}

// delay draws how long a message takes.
func (c *Cluster) delay() time.Duration { return time.Millisecond + c.upTo(MaxDelay) }

// next returns what will happen next, after it has thrown away what will not; nil
// if nothing will.
func (c *Cluster) next() *happening {
	for len(c.queue) > 0 {
		if h := c.queue[0]; h.valid == nil || h.valid() {
			return h
		}
		heap.Pop(&c.queue)
	}
	return nil
}

// Step lets the next thing happen: a message arrives, a timer fires, a client
// asks. It returns false if nothing will ever happen again.
func (c *Cluster) Step() bool {
	c.t.Helper()
	h := c.next()
	if h == nil {
		return false
	}
	heap.Pop(&c.queue)
	c.now = h.at
	h.do()
	return true
}

// Now returns the time that has passed since the cluster was made.
func (c *Cluster) Now() time.Duration { return c.now }

// Waiting returns all that will happen unless something comes in between, the
// next first.
func (c *Cluster) Waiting() []Waiting {
	waiting := make(queue, 0, len(c.queue))
	for _, h := range c.queue {
		if h.valid == nil || h.valid() {
			waiting = append(waiting, h)
		}
	}
	var list []Waiting
	for heap.Init(&waiting); len(waiting) > 0; {
		list = append(list, heap.Pop(&waiting).(*happening).what)
	}
	return list
}

// RunFor lets a span of virtual time pass.
func (c *Cluster) RunFor(span time.Duration) {
	c.t.Helper()
	end := c.now + span
	for h := c.next(); h != nil && h.at <= end; h = c.next() {
		c.Step()
	}
	c.now = end
}

// RunUntil lets one thing after the other happen until cond is true. It fails
// the test if that takes more than 20 seconds of virtual time.
func (c *Cluster) RunUntil(cond func() bool) {
	c.t.Helper()
	c.runUntil(cond, func() string { return "what RunUntil waits for has not happened" })
}

// runUntil is RunUntil; late says what has not happened.
func (c *Cluster) runUntil(cond func() bool, late func() string) {
	c.t.Helper()
	end := c.now + patience
	for !cond() {
		if h := c.next(); h == nil || h.at > end {
			c.fail("%s within %v of virtual time", late(), patience)
		}
		c.Step()
	}
}
