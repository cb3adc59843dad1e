package transport

import (
	"bufio"
	"context"
	"errors"
	"net"
	"time"

	"raftkv/raft"
)

// readBuffer is how much is read from a connection at once, in bytes. All
// frames in it are delivered together.
const readBuffer = 64 << 10

var errTooManyConns = errors.New("too many connections are open")

// acceptAll is the goroutine that takes the connections others make.
func (e *endpoint) acceptAll() {
	for {
		conn, err := e.listener.Accept()
		if e.ctx.Err() != nil {
			if err == nil {
				conn.Close()
			}
			return
		}
		if err != nil {
			e.complaints.about(subject{side: incomingSide, stranger: true}, "cannot accept connections", e.listener.Addr().String(), err)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			sleep(e.ctx, e.cfg.MinBackoff, nil) // there may be no file descriptor left; some will come free
			continue
		}
		select {
		case e.conns <- struct{}{}:
			e.wg.Go(func() {
				defer func() { <-e.conns }()
				e.serve(conn)
			})
		default:
			e.complaints.about(subject{side: incomingSide, stranger: true}, "refused a connection", host(conn), errTooManyConns)
			conn.Close()
		}
	}
}

// serve reads from a connection that another server made, until it ends.
func (e *endpoint) serve(conn net.Conn) {
	defer conn.Close()
	stop := context.AfterFunc(e.ctx, func() { conn.Close() })
	defer stop()

	r := bufio.NewReaderSize(conn, readBuffer)
	before, theirs, newer, err := e.welcome(conn, r)
	if err != nil {
		e.complain(e.subject(theirs.From, incomingSide), "refused a connection", conn, err)
		return
	}
	p := e.admit(conn, theirs, before, newer)
	if p == nil {
		return
	}
	defer e.leave(p, conn)
	began := time.Now()
	accept := appendHello(appendPreamble(nil, protocolVersion), acceptFrame, e.hello(p.id))
	if _, err = conn.Write(accept); err == nil {
		err = e.receive(p, conn, r)
	}
	about := e.subject(p.id, incomingSide)
	if time.Since(began) >= steady {
		e.complaints.settled(about)
	}
	e.complain(about, "lost a connection from a peer", conn, err)
}

// complain is silent about connections that this server closed itself.
func (e *endpoint) complain(about subject, text string, conn net.Conn, err error) {
	if !closedHere(err) {
		e.complaints.about(about, text, host(conn), err)
	}
}

// host returns where a connection comes from, without the port, which is
// another one each time.
func host(conn net.Conn) string {
	addr := conn.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// accepted makes conn the peer's connection to this server. An older one is
// closed: the peer has given it up, or it would not have dialled again. And if
// the peer was started anew, our own connection leads to a process that is no
// more, and it might take minutes until a write fails.
func (p *peer) accepted(conn net.Conn, h hello) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.in != nil {
		p.in.Close()
		p.loseReplies(errors.New("it connected anew"))
	}
	if p.out != nil && p.outRun != h.Run {
		p.out.Close()
	}
	p.in, p.httpAddr = conn, h.HTTPAddr
}

// ended notes that a connection made by the peer has ended. Replies may have
// been on it. last is false if a newer one has replaced it.
func (p *peer) ended(conn net.Conn) (last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.in != conn {
		return false
	}
	p.in = nil
	p.loseReplies(errors.New("its connection broke"))
	return true
}

// receive reads frames and passes them on, until the connection ends. All
// messages that have arrived are delivered together, so that a server can
// write and sync them together.
func (e *endpoint) receive(p *peer, conn net.Conn, r *bufio.Reader) error {
	for {
		if err := e.awaitFrame(conn, r); err != nil {
			return err
		}
		messages, err := e.readFrames(p, r)
		if len(messages) > 0 {
			e.cfg.Deliver(messages)
		}
		if err != nil {
			return err
		}
	}
}

// awaitFrame waits for a frame to begin, for any time: two followers may have
// nothing to say to each other for days. Then the rest must come soon.
func (e *endpoint) awaitFrame(conn net.Conn, r *bufio.Reader) error {
	if r.Buffered() == 0 {
		conn.SetReadDeadline(time.Time{})
		if _, err := r.Peek(1); err != nil {
			return err
		}
	}
	if frameBuffered(r) {
		return nil
	}
	return conn.SetReadDeadline(time.Now().Add(e.cfg.WriteTimeout))
}

// readFrames reads a frame and all others that are in the buffer. It handles
// requests and replies, and returns the messages; those before an error, too.
func (e *endpoint) readFrames(p *peer, r *bufio.Reader) (messages []raft.Message, err error) {
	for {
		payload, err := readFrame(r, e.cfg.MaxFrameBytes)
		if err != nil {
			return messages, err
		}
		kind, rest := frameKind(payload[0]), payload[1:]
		switch {
		case p.isDeaf():
		case kind == messageFrame:
			m, err := e.checkedMessage(p, rest)
			if err != nil {
				return messages, err
			}
			messages = append(messages, m)
		case kind == requestFrame:
			err = e.handleRequest(p, rest)
		case kind == replyFrame:
			err = p.handleReply(rest)
		default:
			err = badf("a frame of kind %d has no place here", kind)
		}
		if err != nil || !frameBuffered(r) {
			return messages, err
		}
	}
}

// checkedMessage decodes a message and holds it against the handshake.
func (e *endpoint) checkedMessage(p *peer, b []byte) (raft.Message, error) {
	m, err := decodeMessage(b)
	switch {
	case err != nil:
		return m, err
	case m.Cluster != e.cfg.Cluster:
		return m, badf("a message belongs to cluster %016x, not %016x", uint64(m.Cluster), uint64(e.cfg.Cluster))
	case m.From != p.id:
		return m, badf("server %d passes on a message from server %d", p.id, m.From)
	case m.To != e.cfg.ID:
		return m, badf("a message for server %d has reached server %d", m.To, e.cfg.ID)
	}
	return m, nil
}

func (p *peer) isDeaf() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut.deaf
}
