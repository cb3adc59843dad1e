package transport

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"raftkv/raft"
)

// closeTimeout bounds Close. Everything here ends at once; it is Deliver,
// CheckStore and Handle that may not.
const closeTimeout = 5 * time.Second

// endpoint is the transport of one server, whatever its connections are made of.
type endpoint struct {
	cfg      Config
	run      uint64 // hello.Run
	listener net.Listener
	dial     dialFunc

	mu     sync.Mutex // taken before a peer's
	closed bool
	peers  map[raft.ServerID]*peer
	cuts   map[raft.ServerID]cut // those of servers that are no peers now, too

	complaints *complaints

	conns    chan struct{} // a token for each connection that others have made
	requests chan struct{} // a token for each call of Handle

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // all goroutines

	closeOnce sync.Once
	closeErr  error
}

// dialFunc makes a connection to a server.
type dialFunc func(ctx context.Context, to raft.ServerID, addr string) (net.Conn, error)

// start begins to accept connections and to make them.
func start(cfg Config, listener net.Listener, dial dialFunc) *endpoint {
	e := &endpoint{
		cfg:        cfg,
		run:        rand.Uint64(),
		listener:   listener,
		dial:       dial,
		peers:      map[raft.ServerID]*peer{},
		cuts:       map[raft.ServerID]cut{},
		complaints: &complaints{log: cfg.Logger, last: map[subject]string{}},
		conns:      make(chan struct{}, cfg.MaxConns),
		requests:   make(chan struct{}, cfg.MaxRequests),
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.SetPeers(cfg.Peers)
	e.wg.Go(e.acceptAll)
	return e
}

// Send passes messages on, each to the server that its To names. It never
// blocks: what does not fit into a peer's queue is dropped, as are messages to
// servers that are neither peers nor guests (SetPeers). Entries and parts of
// snapshots are shared, not copied; nobody may change them afterwards. Of the
// parts of snapshots that wait for one server all but the newest may be dropped.
// Any number of goroutines may call it.
func (e *endpoint) Send(messages []raft.Message) {
	for _, m := range messages {
		if p := e.peer(m.To); p != nil {
			e.enqueue(p, outgoing{kind: messageFrame, message: m})
		}
	}
}

// enqueue is peer.enqueue, and logs what an operator should know of.
func (e *endpoint) enqueue(p *peer, o outgoing) error {
	direct, err := p.enqueue(o)
	if direct != nil {
		p.writeDirectly(o, direct)
	}
	if err == errQueueFull || err == errTooLarge {
		e.complaints.about(e.subject(p.id, queueSide), "dropped what should go to a peer", p.addr, err)
	}
	return err
}

// PeerHTTP returns the address at which clients reach a peer or guest, as its
// last handshake told; empty if that is not known.
func (e *endpoint) PeerHTTP(id raft.ServerID) string {
	p := e.peer(id)
	if p == nil {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.httpAddr
}

// Connected reports whether there is a connection of this server to another one
// that is not cut. That a machine is gone shows some seconds later.
func (e *endpoint) Connected(id raft.ServerID) bool {
	p := e.peer(id)
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out != nil && !p.cut.mute
}

// Close ends all connections and goroutines. Messages that wait are dropped,
// and calls end with an error. It returns an error if Deliver, CheckStore or
// Handle has not returned within five seconds. Closing twice is fine.
func (e *endpoint) Close() error {
	e.closeOnce.Do(func() {
		e.cancel()
		e.listener.Close()
		e.mu.Lock()
		e.closed = true
		for _, p := range e.peers {
			p.close(errClosed)
		}
		e.mu.Unlock()
		e.closeErr = e.wait()
	})
	return e.closeErr
}

// wait returns when all goroutines have ended.
func (e *endpoint) wait() error {
	ended := make(chan struct{})
	go func() {
		e.wg.Wait()
		close(ended)
	}()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-ended:
		return nil
	case <-timer.C:
		return errors.New("transport: Deliver, CheckStore or Handle has not returned; goroutines are left")
	}
}
