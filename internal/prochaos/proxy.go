package prochaos

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"
)

// proxy stands before a port of a server: its address stays while the server
// comes and goes. Before the port for other servers it knows the protocol well
// enough (docs/protocol.md) to see who is calling and where a frame ends.
type proxy struct {
	listener net.Listener
	framed   bool
	running  sync.WaitGroup

	mu     sync.Mutex
	to     string // where the server listens now
	treats map[int]treatment
	conns  map[net.Conn]bool
	closed bool
}

// treatment is what is done to everything from one server.
type treatment struct {
	cut     bool
	delay   time.Duration
	reorder bool
}

func newProxy(framed bool) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, framed: framed, treats: map[int]treatment{}, conns: map[net.Conn]bool{}}
	p.running.Go(p.accept)
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) target() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.to
}

// lead passes new connections on to a server's address.
func (p *proxy) lead(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
}

func (p *proxy) treat(from int, t treatment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.treats[from] = t
}

func (p *proxy) treatNobody() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.treats)
}

func (p *proxy) treatmentOf(from int) treatment {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.treats[from]
}

// breakAll breaks every connection: a request may have arrived, and its answer
// will not.
func (p *proxy) breakAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func (p *proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.breakAll()
	p.running.Wait()
}

// keep notes a connection for breakAll; it closes it if the proxy is closed.
func (p *proxy) keep(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
	if p.closed {
		c.Close()
	}
}

func (p *proxy) drop(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(c) })
	}
}

func (p *proxy) serve(caller net.Conn) {
	p.keep(caller)
	defer p.drop(caller)
	callee, err := net.DialTimeout("tcp", p.target(), time.Second)
	if err != nil {
		return
	}
	p.keep(callee)
	defer p.drop(callee)
	p.running.Go(func() {
		io.Copy(caller, callee)
		caller.Close()
	})
	if !p.framed {
		io.Copy(callee, caller)
		return
	}
	p.passFrames(callee, caller)
}

const (
	preambleBytes    = 8
	frameHeaderBytes = 12
	fromAt           = 9 // in the payload of a hello: behind the kind and the cluster
)

// passFrames passes on what one server says to another, frame by frame.
func (p *proxy) passFrames(to io.Writer, from io.Reader) {
	preamble := make([]byte, preambleBytes)
	if _, err := io.ReadFull(from, preamble); err != nil {
		return
	}
	hello, err := readFrame(from)
	if err != nil || len(hello) < frameHeaderBytes+fromAt+8 {
		return
	}
	sender := int(binary.LittleEndian.Uint64(hello[frameHeaderBytes+fromAt:]))
	if p.treatmentOf(sender).cut {
		return
	}
	if _, err := to.Write(append(preamble, hello...)); err != nil {
		return
	}
	var held []byte // a frame that the next one overtakes
	for {
		frame, err := readFrame(from)
		if err != nil {
			return
		}
		t := p.treatmentOf(sender)
		switch {
		case t.cut:
			continue // swallowed, and the connection stays, as if a router had died
		case t.reorder && held == nil:
			held = frame
			continue
		}
		if t.delay > 0 {
			<-time.After(t.delay)
		}
		if _, err := to.Write(append(frame, held...)); err != nil {
			return
		}
		held = nil
	}
}

// readFrame reads a frame, header included.
func readFrame(r io.Reader) ([]byte, error) {
	header := make([]byte, frameHeaderBytes)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, err
	}
	frame := make([]byte, frameHeaderBytes+int(binary.LittleEndian.Uint32(header)))
	copy(frame, header)
	_, err := io.ReadFull(r, frame[frameHeaderBytes:])
	return frame, err
}
