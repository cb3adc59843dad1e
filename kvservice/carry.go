package kvservice

import (
	"context"
	"sync"
	"time"
)

// requestContext carries what belongs to one request, all in one layer: each
// context.WithValue is memory of its own, and one step more for whoever looks. It
// ends at deadline; the context that sees to that is made when somebody is about
// to wait for it (pulse.go).
type requestContext struct {
	context.Context           // ends when the client goes
	deadline        time.Time // zero: none of its own

	id    string // for the log of the program (record.go)
	key   string // its Idempotency-Key; "" if it has none
	visit *visit // what it holds at the door; nil is nothing

	mu     sync.Mutex
	timed  context.Context // ends with Context, and at deadline; nil until somebody waits
	cancel context.CancelFunc
}

// Deadline implements context.Context.
func (c *requestContext) Deadline() (time.Time, bool) {
	if c.deadline.IsZero() {
		return c.Context.Deadline()
	}
	return c.deadline, true
}

// Done implements context.Context.
func (c *requestContext) Done() <-chan struct{} { return c.begin().Done() }

// Err implements context.Context.
func (c *requestContext) Err() error { return c.begin().Err() }

// begin returns the context that ends in time.
func (c *requestContext) begin() context.Context {
	if c.deadline.IsZero() {
		return c.Context
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		c.timed, c.cancel = context.WithDeadline(c.Context, c.deadline)
	}
	return c.timed
}

// end frees what begin has made. Nobody may use c any more.
func (c *requestContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
}

type requestContextKey struct{}

// Value also finds the requestContext itself, and lets the contexts that are derived
// from c find the one that ends.
func (c *requestContext) Value(key any) any {
	if key == (requestContextKey{}) {
		return c
	}
	c.mu.Lock()
	timed := c.timed
	c.mu.Unlock()
	if timed != nil {
		return timed.Value(key)
	}
	return c.Context.Value(key)
}

var noRequest = &requestContext{}

// requestOf returns what belongs to the request that ctx is of. It is for reading
// only, and empty if ctx is of none.
func requestOf(ctx context.Context) *requestContext {
	c, ok := ctx.Value(requestContextKey{}).(*requestContext)
	if !ok {
		return noRequest
	}
	return c
}
