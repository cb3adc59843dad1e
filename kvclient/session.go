package kvclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"raftkv/api"
	"raftkv/kvclient/numbering"
)

// session is one registered ClientID and its numbers.
type session struct {
	clientID api.ClientID

	mu      sync.Mutex
	numbers numbering.Numbers
	settled chan struct{} // closed when a number is settled; nil if nobody waits for that
	unknown bool          // a write has ended so that its caller may want to resume it
	line    line          // who waits for a trip
}

// open allots the identity of a new write. It waits while the window is full.
func (s *session) open(ctx context.Context) (Identity, error) {
	for {
		s.mu.Lock()
		id, ok := s.next()
		if ok {
			s.mu.Unlock()
			return id, nil
		}
		settled := s.nextSettled()
		s.mu.Unlock()
		select {
		case <-settled:
		case <-ctx.Done():
			return Identity{}, fmt.Errorf("waiting for %d earlier writes: %w", numbering.Window, context.Cause(ctx))
		}
	}
}

// openSome is open for up to n writes, as many as the window has room for and at
// least one. To wait for more would be to wait for each other: two batches that
// hold half of the window each.
func (s *session) openSome(ctx context.Context, n int) ([]Identity, error) {
	first, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	ids := []Identity{first}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(ids) < n {
		id, ok := s.next()
		if !ok {
			break
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// next allots an identity; ok is false if the window is full. The caller holds
// the lock.
func (s *session) next() (id Identity, ok bool) {
	requestID, ok := s.numbers.Next()
	return Identity{ClientID: s.clientID, RequestID: requestID, AckedThrough: s.numbers.AckedThrough()}, ok
}

// settle notes that the call with this number has ended, however it did.
func (s *session) settle(requestID uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleLocked(requestID)
}

func (s *session) settleLocked(requestID uint64) {
	s.numbers.Settle(requestID)
	if s.settled != nil {
		close(s.settled)
		s.settled = nil
	}
}

// nextSettled returns a channel that is closed when the next number is settled. The
// caller holds the lock.
func (s *session) nextSettled() <-chan struct{} {
	if s.settled == nil {
		s.settled = make(chan struct{})
	}
	return s.settled
}

// noteEnd notes the error with which a write has ended.
func (s *session) noteEnd(err error) {
	if err == nil {
		return
	}
	var unknown *UnknownError
	if errors.As(err, &unknown) {
		s.mu.Lock()
		s.unknown = true
		s.mu.Unlock()
	}
}

// closeTimeout bounds how long [KVClient.Close] tries to close the session.
const closeTimeout = 500 * time.Millisecond

// closeSession tells the cluster that this client is done. All calls have ended,
// and what they have left under way had an answer, or is unknown: then the session
// stays, because whoever resumes the write needs it.
func (c *KVClient) closeSession() {
	s := c.knownSession()
	if s == nil || s.unknown {
		return
	}
	c.forget(s)
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	c.endSession(ctx, s.clientID) // nobody can do anything about an error: the session expires
}

// endSession asks for the end of a session until it has come, or ctx ends.
func (c *KVClient) endSession(ctx context.Context, id api.ClientID) error {
	body, err := api.Encode(&api.SessionCloseRequest{ClientID: id})
	if err != nil {
		return &StatusError{api.StatusBadRequest, api.OutcomeNotApplied, err.Error()}
	}
	var call numbering.Call
	_, err = c.run(ctx, operation{
		method: http.MethodPost,
		path:   api.PathSessionClose,
		body:   body,
		answer: func() api.Response { return new(api.SessionResponse) },
	}, &call)
	return err
}

// currentSession returns the session that this client's writes belong to. The
// first writers register one: one of them does, in its own time, and the others
// wait for it. If its time runs out, the next one tries.
func (c *KVClient) currentSession(ctx context.Context) (*session, error) {
	if s := c.knownSession(); s != nil {
		return s, nil
	}
	ctx, unlink := c.link(ctx)
	defer unlink()
	select {
	case c.registering <- struct{}{}:
		defer func() { <-c.registering }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if s := c.knownSession(); s != nil {
		return s, nil
	}
	id, err := c.register(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{clientID: id}
	c.mu.Lock()
	c.session = s
	c.mu.Unlock()
	return s, nil
}

func (c *KVClient) knownSession() *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// forget makes the next write register anew, unless one has already.
func (c *KVClient) forget(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == s {
		c.session = nil
	}
}

// register asks for a ClientID. Each attempt asks for a new one: the id of an
// answer that was lost is known to nobody and never used. It costs the cluster
// one idle session.
func (c *KVClient) register(ctx context.Context) (api.ClientID, error) {
	var call numbering.Call
	answer, err := c.run(ctx, operation{
		method: http.MethodPost,
		path:   api.PathSession,
		body:   []byte("{}"),
		answer: func() api.Response { return new(api.SessionResponse) },
	}, &call)
	if err != nil {
		return "", fmt.Errorf("kvclient: no session: %w", err)
	}
	return answer.(*api.SessionResponse).ClientID, nil
}
