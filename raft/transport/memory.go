package transport

import (
	"context"
	"fmt"
	"net"
	"sync"

	"raftkv/raft"
)

// Network joins transports inside one process. It needs no socket and works in
// a testing/synctest bubble, in which it must then be made. Any number of
// goroutines may use it.
type Network struct {
	mu      sync.Mutex
	members map[raft.ServerID]*Memory // who is reached by an id
	cut     map[link]bool
}

// link is one direction between two servers.
type link struct{ from, to raft.ServerID }

// Memory is the transport of one server in a Network. It is the code of TCP,
// handshake and frames included, over connections inside the process.
type Memory struct {
	*endpoint
	conns pipes
}

// NewNetwork returns a network without servers.
func NewNetwork() *Network {
	return &Network{members: map[raft.ServerID]*Memory{}, cut: map[link]bool{}}
}

// Join adds a server. Under an id the server that joined last is reached; so a
// server that was closed may join again. It panics if the configuration cannot
// work.
func (n *Network) Join(config Config) *Memory {
	config, err := config.withDefaults()
	if err != nil {
		panic(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	m := &Memory{conns: pipes{made: make(chan net.Conn), closed: make(chan struct{}), id: config.ID}}
	m.endpoint = start(config, &m.conns, n.dial)
	n.members[config.ID] = m
	for l := range n.cut {
		if l.to == config.ID {
			m.setDeaf(l.from, true)
		}
	}
	return m
}

// Cut drops everything on its way from one server to another, and nothing on
// the way back, until Heal. It holds for servers that join later, too. (Cut of
// Memory drops both ways, and its Heal ends either.)
func (n *Network) Cut(from, to raft.ServerID) { n.set(link{from, to}, true) }

// Heal ends Cut.
func (n *Network) Heal(from, to raft.ServerID) { n.set(link{from, to}, false) }

func (n *Network) set(l link, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if cut {
		n.cut[l] = true
	} else {
		delete(n.cut, l)
	}
	if m := n.members[l.to]; m != nil {
		m.setDeaf(l.from, cut)
	}
}

func (n *Network) dial(ctx context.Context, to raft.ServerID, _ string) (net.Conn, error) {
	n.mu.Lock()
	m := n.members[to]
	n.mu.Unlock()
	if m == nil {
		return nil, fmt.Errorf("server %d has not joined", to)
	}
	ours, theirs := net.Pipe()
	select {
	case m.conns.made <- theirs:
		return ours, nil
	case <-m.conns.closed:
		return nil, fmt.Errorf("server %d has left", to)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pipes is a net.Listener of connections inside the process.
type pipes struct {
	made   chan net.Conn
	once   sync.Once
	closed chan struct{}
	id     raft.ServerID
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-l.made:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipes) Addr() net.Addr { return l }

// Network and String make pipes an address, too.
func (l *pipes) Network() string { return "memory" }

func (l *pipes) String() string { return fmt.Sprintf("server %d", l.id) }
