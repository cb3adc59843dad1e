package kvservice

import (
	"context"
	"sync"
	"time"

	"raftkv/raft/server"
)

// A request waits for its answer, but also for its client to go and for its time
// to be up. A context tells of both, and to make one and end it costs more memory
// than the answer does. So a request waits for its answer at first and for nothing
// else but two beats of a pulse that all share, and only what lasts longer makes a
// context (carry.go).

// beat is the time from one beat to the next, while somebody waits for it.
const beat = 200 * time.Millisecond

// pulse gives the beat. The zero pulse is ready.
type pulse struct {
	mu      sync.Mutex
	next    chan struct{} // closed at the next beat; nil if nobody waits for it
	hurried bool          // all beats have come
}

// wait returns what is closed at the next beat.
func (p *pulse) wait() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil {
		p.next = make(chan struct{})
		if p.hurried {
			close(p.next)
		} else {
			time.AfterFunc(beat, p.strike)
		}
	}
	return p.next
}

func (p *pulse) strike() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.hurried {
		close(p.next)
		p.next = nil
	}
}

// hurry makes everyone look at once, from now on, because the end has come.
func (p *pulse) hurry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next != nil && !p.hurried {
		close(p.next)
	}
	p.hurried = true
}

// wait waits for the answer to a request. The error is that of ctx, or
// server.ErrStopped.
func wait[A any](ctx context.Context, s *KVService, answers <-chan A) (a A, err error) {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) > 2*beat {
		for range 2 {
			select {
			case a = <-answers:
				return a, nil
			case <-s.pulse.wait():
			}
		}
	}
	select {
	case a = <-answers:
		return a, nil
	case <-ctx.Done():
		return a, ctx.Err()
	case <-s.stopped:
		return a, server.ErrStopped
	}
}
