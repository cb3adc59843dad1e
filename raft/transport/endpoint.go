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
	dial     func(context.Context, raft.ServerID) (net.Conn, error)

	peers      map[raft.ServerID]*peer // never changes
	complaints *complaints

	conns    chan struct{} // a token for each connection that others have made
	requests chan struct{} // a token for each call of Handle

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // all goroutines

	closeOnce sync.Once
	closeErr  error
}

// start begins to accept connections and to make them.
func start(cfg Config, listener net.Listener, dial func(context.Context, raft.ServerID) (net.Conn, error)) *endpoint {
	e := &endpoint{
		cfg:        cfg,
		run:        rand.Uint64(),
		listener:   listener,
		dial:       dial,
		peers:      map[raft.ServerID]*peer{},
		complaints: &complaints{log: cfg.Logger, last: map[subject]string{}},
		conns:      make(chan struct{}, cfg.MaxConns),
		requests:   make(chan struct{}, cfg.MaxRequests),
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	for id, addr := range cfg.Peers {
		if id != cfg.ID {
			e.peers[id] = &peer{
				id:       id,
				addr:     addr,
				maxFrame: cfg.MaxFrameBytes,
				maxQueue: cfg.MaxQueueBytes,
				wake:     make(chan struct{}, 1),
				calls:    map[uint64]*call{},
			}
		}
	}
	e.wg.Go(e.acceptAll)
	for _, p := range e.peers {
		e.wg.Go(func() { e.keepConnected(p) })
	}
	return e
}

// Send passes messages on, each to the server that its To names. It never
// blocks: what does not fit into a peer's queue is dropped, as are messages to
// servers that are not peers. Entries are shared, not copied; nobody may change
// them afterwards. Any number of goroutines may call it.
func (e *endpoint) Send(messages []raft.Message) {
	for _, m := range messages {
		if p := e.peers[m.To]; p != nil {
			e.enqueue(p, outgoing{kind: messageFrame, message: m})
		}
	}
}

// enqueue is peer.enqueue, and logs what an operator should know of.
func (e *endpoint) enqueue(p *peer, o outgoing) error {
	err := p.enqueue(o)
	if err == errQueueFull || err == errTooLarge {
		e.complaints.about(subject{p.id, queueSide}, "dropped what should go to a peer", p.addr, err)
	}
	return err
}

// PeerHTTP returns the address at which clients reach a peer, as its last
// handshake told; empty if that is not known.
func (e *endpoint) PeerHTTP(id raft.ServerID) string {
	p := e.peers[id]
	if p == nil {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.httpAddr
}

// Cut drops everything to and from a peer until Heal, as a network that
// swallows packets would: connections stay, and nobody is told. Calls that
// were sent wait for their context; later ones end with ErrNotSent.
func (e *endpoint) Cut(id raft.ServerID) {
	if p := e.peers[id]; p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.deaf, p.mute = true, true
		p.dropWaiting(errCut)
	}
}

// Heal ends Cut.
func (e *endpoint) Heal(id raft.ServerID) {
	if p := e.peers[id]; p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.deaf, p.mute = false, false
	}
}

// Close ends all connections and goroutines. Messages that wait are dropped,
// and calls end with an error. It returns an error if Deliver, CheckStore or
// Handle has not returned within five seconds. Closing twice is fine.
func (e *endpoint) Close() error {
	e.closeOnce.Do(func() {
		e.cancel()
		e.listener.Close()
		for _, p := range e.peers {
			p.close()
		}
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
