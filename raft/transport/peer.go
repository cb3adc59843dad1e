package transport

import (
	"bufio"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"raftkv/raft"
)

const (
	// writeChunk is how many bytes are gathered for one write. Whatever waits
	// goes out together, but a long queue need not be copied as a whole.
	writeChunk = 256 << 10

	// largeCall is the size, in bytes, from which on a request or a reply may be
	// overtaken.
	largeCall = 64 << 10

	maxSpare = 4096 // frames of an emptied queue that is kept for the next one

	// steady is how long a connection must have lasted to count as a success. A
	// peer that accepts and hangs up at once is not dialled without pause.
	steady = time.Second
)

var (
	errClosed    = errors.New("the transport is closed")
	errCut       = errors.New("the connection is cut")
	errQueueFull = errors.New("too much is waiting for this server")
	errTooLarge  = errors.New("larger than a frame may be")
	errNoPeer    = errors.New("it is not a peer")
	errUnhandled = errors.New("it takes no more requests now")
)

// peer is what this server knows of another one, and what waits to be written
// to it.
type peer struct {
	id       raft.ServerID
	addr     string // empty if it is not known
	named    bool   // by Config.Peers or SetPeers, else it is a guest; protected by endpoint.mu
	maxFrame int    // bytes of a payload
	maxQueue int    // bytes

	ctx    context.Context // ends when this is a peer no longer
	cancel context.CancelFunc

	wake chan struct{} // holds one token if the queue is not empty

	mu     sync.Mutex
	closed error // why nothing is taken any more; nil while this is a peer

	queue []outgoing
	// queued counts the bytes of queue, of nextPart, of nextCalls, and of what was
	// taken from the queue and is not yet written. Invariant: at most maxQueue, or
	// one frame; and while calls are taken, a quarter is left for messages.
	queued int

	// A part of a snapshot takes long to write, and a heartbeat that comes too late
	// costs an election. So one part at most, partUnderWay, is in the queue or
	// being written, and the next one waits outside until it is through. It may be
	// overtaken there, and replaced by a newer one.
	partUnderWay bool
	nextPart     *outgoing

	// Large requests and replies take long, too. So one of them at most,
	// callUnderWay, is in the queue or being written, and the others wait outside.
	callUnderWay bool
	nextCalls    []outgoing

	calls map[uint64]*call // no reply yet, by id

	cut cut

	// writing: somebody writes to out, the goroutine of keepConnected or a sender
	// (direct.go), and until that one has ended nobody else does.
	writing bool
	frame   []byte // memory for who writes directly

	out      net.Conn        // our connection to the peer; nil if there is none
	direct   syscall.RawConn // of out; nil if it has none
	outRun   uint64          // the run of the server that accepted it
	in       net.Conn        // the peer's newest connection to us; nil if there is none
	httpAddr string
}

// outgoing is a frame that waits to be written. Messages are encoded by the
// writer, not by Send: the server's loop has better things to do.
type outgoing struct {
	kind    frameKind
	message raft.Message // if kind is messageFrame
	rest    []byte       // the payload after the kind, otherwise
	call    *call        // if kind is requestFrame
}

// begunFrame is the kind of an outgoing that is the rest of a frame, of which
// the beginning was written.
const begunFrame frameKind = 0

// size is how many bytes the frame will have, or a little more.
func (o outgoing) size() int {
	switch o.kind {
	case messageFrame:
		return frameHeader + 1 + messageSize(o.message)
	case begunFrame:
		return len(o.rest)
	}
	return frameHeader + 1 + len(o.rest)
}

// isPart reports whether the frame brings a part of a snapshot.
func (o outgoing) isPart() bool {
	args, ok := o.message.Body.(raft.InstallSnapshotArgs)
	return ok && len(args.Data) > 0
}

// isLargeCall reports whether the frame is a request or a reply that takes long
// to write.
func (o outgoing) isLargeCall() bool { return o.kind != messageFrame && o.size() >= largeCall }

func (o outgoing) appendTo(b []byte) []byte {
	if o.kind == begunFrame {
		return append(b, o.rest...)
	}
	start := len(b)
	b = beginFrame(b, o.kind)
	if o.kind == messageFrame {
		b = appendMessage(b, o.message)
	} else {
		b = append(b, o.rest...)
	}
	return endFrame(b, start)
}

// enqueue makes a frame wait for the writer, or says why it was dropped. If it returns
// a connection, the frame does not wait: the caller calls writeDirectly.
func (p *peer) enqueue(o outgoing) (direct syscall.RawConn, err error) {
	size := o.size()
	if size-frameHeader > p.maxFrame {
		return nil, errTooLarge
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	outside := o.isPart() && p.partUnderWay
	if outside {
		p.dropNextPart()
	}
	room := p.maxQueue
	if o.kind != messageFrame {
		room -= room / 4
	}
	switch {
	case p.closed != nil:
		return nil, p.closed
	case p.cut.mute:
		return nil, errCut
	case p.queued > 0 && p.queued+size > room:
		return nil, errQueueFull
	}
	if o.call != nil {
		p.calls[o.call.id] = o.call
	}
	p.queued += size
	switch {
	case p.isDirect(o, size):
		p.writing = true
		return p.direct, nil
	case outside:
		part := o // a copy, so that not every frame has memory of its own
		p.nextPart = &part
	case p.callUnderWay && o.isLargeCall():
		p.nextCalls = append(p.nextCalls, o)
	default:
		p.push(o)
	}
	return nil, nil
}

// push puts a frame into the queue. Needs p.mu.
func (p *peer) push(o outgoing) {
	p.queue = append(p.queue, o)
	if o.isPart() {
		p.partUnderWay = true
	}
	if o.isLargeCall() {
		p.callUnderWay = true
	}
	p.wakeWriter()
}

func (p *peer) wakeWriter() {
	select {
	case p.wake <- struct{}{}:
	default: // the token is there
	}
}

// take returns all that waits, for the caller to write it; nothing if a sender writes,
// who will wake the writer. spare is memory for the next queue. From here on a
// request counts as sent: nobody can know how far a write came.
func (p *peer) take(spare []outgoing) []outgoing {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writing {
		return spare[:0]
	}
	batch := p.queue
	p.queue = spare[:0]
	p.writing = len(batch) > 0
	for _, o := range batch {
		if o.call != nil {
			o.call.sent = true
		}
	}
	return batch
}

// written gives the room of a batch back to the queue.
func (p *peer) written(batch []outgoing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing = false
	for _, o := range batch {
		p.forget(o)
	}
	if !p.partUnderWay && p.nextPart != nil {
		p.push(*p.nextPart)
		p.nextPart = nil
	}
	p.pushNextCall()
}

// pushNextCall lets the next large call into the queue, if none is there. Needs
// p.mu.
func (p *peer) pushNextCall() {
	if !p.callUnderWay && len(p.nextCalls) > 0 {
		next := p.nextCalls[0]
		p.nextCalls = slices.Delete(p.nextCalls, 0, 1)
		p.push(next)
	}
}

// forget gives back the room of a frame that was in the queue. Needs p.mu.
func (p *peer) forget(o outgoing) {
	p.queued -= o.size()
	if o.isPart() {
		p.partUnderWay = false
	}
	if o.isLargeCall() {
		p.callUnderWay = false
	}
}

// dropNextPart needs p.mu.
func (p *peer) dropNextPart() {
	if p.nextPart != nil {
		p.queued -= p.nextPart.size()
		p.nextPart = nil
	}
}

// dropWaiting empties the queue, but for the rest of a frame, which the connection
// must get as long as there is one. Needs p.mu.
func (p *peer) dropWaiting(reason error) {
	p.dropNextPart()
	var begun []outgoing
	for _, o := range p.queue {
		if o.kind == begunFrame && p.direct != nil {
			begun = append(begun, o)
			continue
		}
		p.forget(o)
		if o.call != nil {
			p.finish(o.call, nil, notSent(p.id, reason))
		}
	}
	for _, o := range p.nextCalls {
		p.queued -= o.size()
		if o.call != nil {
			p.finish(o.call, nil, notSent(p.id, reason))
		}
	}
	p.nextCalls = nil
	clear(p.queue)
	p.queue = append(p.queue[:0], begun...)
	if len(p.queue) > 0 {
		return
	}
	select {
	case <-p.wake:
	default:
	}
}

// connected notes a new connection to the peer.
func (p *peer) connected(conn net.Conn, h hello) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out, p.outRun, p.httpAddr = conn, h.Run, h.HTTPAddr
	if c, ok := conn.(syscall.Conn); ok {
		p.direct, _ = c.SyscallConn() // an error will show when it is written to
	}
}

// disconnected notes that the connection has ended, or could not be made. What
// waited for it is dropped: by the time of the next attempt it is out of date,
// and the peer would have to read it all before the first message of today.
func (p *peer) disconnected(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out, p.direct = nil, nil
	p.dropWaiting(reason)
	p.loseReplies(reason)
}

// close ends the peer: what waits now, and the rest as its goroutines see it.
func (p *peer) close(reason error) {
	p.cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.direct = reason, nil
	if p.in != nil {
		p.in.Close()
	}
	p.dropWaiting(reason)
}

// keepConnected is the goroutine that writes to one peer: it connects, writes
// what waits until that fails, and connects again, as long as it is a peer.
func (e *endpoint) keepConnected(p *peer) {
	backoff := e.cfg.MinBackoff
	for {
		began := time.Now()
		connected, err := e.speak(p)
		p.disconnected(err)
		if p.ctx.Err() != nil {
			return
		}
		about := e.subject(p.id, outgoingSide)
		if connected && time.Since(began) >= steady {
			backoff = e.cfg.MinBackoff
			e.complaints.settled(about)
			e.complaints.settled(e.subject(p.id, queueSide))
		}
		if connected {
			e.complaints.about(about, "lost the connection to a peer", p.addr, err)
		} else {
			e.complaints.about(about, "cannot connect to a peer", p.addr, err)
		}
		p.pause(e.cfg.MinBackoff, backoff, err)
		backoff = min(2*backoff, e.cfg.MaxBackoff)
	}
}

// pause waits before the next attempt to connect. Servers that lost the same
// peer must not all come back at once, so the time is random. Traffic ends it
// early, because a peer that has just returned must hear its leader before it
// loses patience. But one that refused us, or is not what it should be, will
// not be another one so soon.
func (p *peer) pause(minBackoff, backoff time.Duration, err error) {
	wait := backoff/2 + rand.N(backoff/2+1)
	least := min(wait, minBackoff)
	if errors.As(err, new(refusal)) || errors.As(err, new(protocolError)) {
		least = wait
	}
	sleep(p.ctx, least, nil)
	sleep(p.ctx, wait-least, p.wake)
}

// sleep returns after d, when wake has a token, or when ctx ends.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
}

// speak makes a connection to the peer and writes to it until it breaks.
// connected is false if the handshake did not succeed.
func (e *endpoint) speak(p *peer) (connected bool, err error) {
	ctx, cancel := context.WithTimeout(p.ctx, e.cfg.DialTimeout)
	conn, err := e.dial(ctx, p.id, p.addr)
	cancel()
	if err != nil {
		return false, err
	}
	defer conn.Close()
	stop := context.AfterFunc(p.ctx, func() { conn.Close() })
	defer stop()

	r := bufio.NewReaderSize(conn, maxHandshakeFrame)
	theirs, err := e.greet(p, conn, r)
	if err != nil {
		return false, err
	}
	p.connected(conn, theirs)

	// Nothing more comes on this connection. Reading from it is how its end is
	// noticed before the next write, or the one after that.
	ended := make(chan error, 1)
	e.wg.Go(func() {
		_, err := r.ReadByte()
		if err == nil {
			err = badf("it writes on a connection that is ours to write")
		}
		ended <- err
	})
	err = e.writeAll(p, conn, ended)
	conn.Close()
	return true, err
}

// writeAll writes what waits for the peer until a write fails or the
// connection has ended.
func (e *endpoint) writeAll(p *peer, conn net.Conn, ended <-chan error) error {
	var batch []outgoing
	var b []byte
	for {
		batch = p.take(batch)
		if len(batch) == 0 {
			select {
			case <-p.wake:
				continue
			case err := <-ended:
				return err
			}
		}
		for i, o := range batch {
			b = o.appendTo(b)
			if len(b) < writeChunk && i < len(batch)-1 {
				continue
			}
			conn.SetWriteDeadline(time.Now().Add(e.cfg.WriteTimeout))
			_, err := conn.Write(b)
			if err != nil {
				p.written(batch)
				select {
				case err = <-ended: // says more than that a write failed
				default:
				}
				return err
			}
			b = b[:0]
		}
		p.written(batch)
		clear(batch) // do not keep entries alive
		if cap(b) > 4*writeChunk {
			b = nil // one huge frame does not cost its memory for ever
		}
		if cap(batch) > maxSpare {
			batch = nil // nor does one long queue
		}
	}
}
