package kvservice

import "context"

// requestContext carries what belongs to one request, all in one layer: each
// context.WithValue is memory of its own, and one step more for whoever looks.
type requestContext struct {
	context.Context
	id    string // for the log of the program (record.go)
	key   string // its Idempotency-Key; "" if it has none
	visit *visit // what it holds at the door; nil is nothing
}

type requestContextKey struct{}

// Value also finds the requestContext itself.
func (c *requestContext) Value(key any) any {
	if key == (requestContextKey{}) {
		return c
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
