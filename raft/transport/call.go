package transport

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"raftkv/raft"
)

// What a reply says of its request.
const (
	answered  byte = iota
	unhandled      // nothing was done: too busy, or no Handle
)

// call is a request that has no reply yet.
type call struct {
	id     uint64
	sent   bool            // the writer has taken it; protected by peer.mu
	result chan callResult // of room for the one result, so nobody waits to give it
}

type callResult struct {
	reply []byte
	err   error
}

func notSent(to raft.ServerID, reason error) error {
	return fmt.Errorf("%w: server %d: %w", ErrNotSent, to, reason)
}

func replyLost(to raft.ServerID, reason error) error {
	return fmt.Errorf("%w: server %d: %w", ErrReplyLost, to, reason)
}

// Call sends a request to another server and waits for the reply of its
// Handle. The error is ErrNotSent or ErrReplyLost (errors.Is), and so tells
// whether the request may have been executed. It blocks until the reply comes,
// a connection to or from that server breaks, or ctx ends; a server that is
// not connected is waited for during one attempt to connect. A reply that is
// too large for a frame, or finds the way back full, is dropped, so ctx should
// have a deadline. Any number of goroutines may call it.
func (e *endpoint) Call(ctx context.Context, to raft.ServerID, payload []byte) ([]byte, error) {
	p := e.peer(to)
	if p == nil {
		return nil, notSent(to, errNoPeer)
	}
	if err := ctx.Err(); err != nil {
		return nil, notSent(to, err)
	}
	// A reply may answer a call of this server's earlier life, so ids are not
	// counted from 1.
	c := &call{id: rand.Uint64(), result: make(chan callResult, 1)}
	if err := e.enqueue(p, outgoing{kind: requestFrame, rest: requestPayload(c.id, payload), call: c}); err != nil {
		return nil, notSent(to, err)
	}
	select {
	case r := <-c.result:
		return r.reply, r.err
	case <-ctx.Done():
		p.abandon(c, ctx.Err())
		r := <-c.result
		return r.reply, r.err
	}
}

// finish ends a call, unless it has ended already. Needs p.mu.
func (p *peer) finish(c *call, reply []byte, err error) {
	if p.calls[c.id] == c {
		delete(p.calls, c.id)
		c.result <- callResult{reply, err}
	}
}

// abandon ends a call that nobody waits for any longer. If it still stands in
// the queue it is taken out, and then it is certain that it was not sent.
func (p *peer) abandon(c *call, reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	itself := func(o outgoing) bool { return o.call == c }
	if i := slices.IndexFunc(p.queue, itself); i >= 0 {
		p.forget(p.queue[i])
		p.queue = slices.Delete(p.queue, i, i+1)
		p.pushNextCall()
	} else if i := slices.IndexFunc(p.nextCalls, itself); i >= 0 {
		p.queued -= p.nextCalls[i].size()
		p.nextCalls = slices.Delete(p.nextCalls, i, i+1)
	} else {
		p.finish(c, nil, replyLost(p.id, reason))
		return
	}
	p.finish(c, nil, notSent(p.id, reason))
}

// loseReplies ends all calls that were sent: a connection broke that may have
// carried the request or its reply. Needs p.mu.
func (p *peer) loseReplies(reason error) {
	for _, c := range p.calls {
		if c.sent {
			p.finish(c, nil, replyLost(p.id, reason))
		}
	}
}

// handleReply gives a reply to its call. A reply to a call that has ended, or
// a second one, finds no call and is dropped.
func (p *peer) handleReply(rest []byte) error {
	f := &fields{rest: rest}
	id, status := f.uint64(), f.uint8()
	if f.bad || status > unhandled || status == unhandled && len(f.rest) > 0 {
		return badf("a reply has the wrong length or a field out of range")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.calls[id]
	switch {
	case c == nil:
	case status == unhandled:
		p.finish(c, nil, notSent(p.id, errUnhandled))
	default:
		p.finish(c, f.rest, nil)
	}
	return nil
}

// handleRequest answers a request in a goroutine of its own, if there is room
// for one more. The reader must go on in either case: the messages behind the
// request keep the cluster alive.
func (e *endpoint) handleRequest(p *peer, rest []byte) error {
	f := &fields{rest: rest}
	id := f.uint64()
	if f.bad {
		return badf("a request has the wrong length")
	}
	if e.cfg.Handle == nil {
		e.reply(p, id, unhandled, nil)
		return nil
	}
	select {
	case e.requests <- struct{}{}:
		e.wg.Go(func() {
			defer func() { <-e.requests }()
			reply := e.cfg.Handle(e.ctx, p.id, f.rest)
			if e.ctx.Err() == nil { // else it may have been cut short, and is no answer
				e.reply(p, id, answered, reply)
			}
		})
	default:
		e.reply(p, id, unhandled, nil)
	}
	return nil
}

// reply sends a reply on our own connection to the peer.
func (e *endpoint) reply(p *peer, id uint64, status byte, payload []byte) {
	e.enqueue(p, outgoing{kind: replyFrame, rest: replyPayload(id, status, payload)})
}

// requestPayload returns the payload of a request frame, after its kind. The
// request is copied: its caller may return before the writer gets to it.
func requestPayload(id uint64, request []byte) []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, 8+len(request)), id)
	return append(b, request...)
}

// replyPayload returns the payload of a reply frame, after its kind.
func replyPayload(id uint64, status byte, reply []byte) []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, 9+len(reply)), id)
	return append(append(b, status), reply...)
}
