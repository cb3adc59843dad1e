package transport

import (
	"context"
	"net"

	"raftkv/raft"
)

// cut says what is dropped between this server and another one: what comes
// from there (deaf), what goes there (mute).
type cut struct{ deaf, mute bool }

// peer returns what is known of a server; nil if it is not a peer.
func (e *endpoint) peer(id raft.ServerID) *peer {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.peers[id]
}

// SetPeers replaces the list of peers, because the configuration of the cluster
// has changed. Whoever is new is dialled. Of whoever is gone the connections
// are closed, in both directions; what waited for it is dropped, and calls end
// with ErrNotSent or ErrReplyLost. A peer whose address is another one than
// before is dealt with as gone and new. An empty address means that it is not
// known: the peer keeps the one it has, and otherwise it cannot be reached until
// it dials and says in the handshake where it is. A peer that was added anew by a
// list that has not come here yet is reached where it says itself
// (Config.CheckStore). An address that is not host:port is logged and never
// reached. Entries for this server and for id 0 are ignored. After Close nothing
// happens. SetPeers never waits; any number of goroutines may call it.
//
// A server that is not in the list may still dial, be heard, and be answered:
// it may be in a newer configuration than the one known here, and a server that
// waits to be added knows nobody. Such a guest is a peer like others as long as
// its connection lasts. If a list names it the connections are made anew, so that
// Config.CheckStore can say of a peer what it did not have to say of a guest.
func (e *endpoint) SetPeers(peers map[raft.ServerID]string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	for id, p := range e.peers {
		addr, stays := peers[id]
		moved := addr != "" && addr != p.addr
		if stays != p.named || stays && moved {
			e.remove(p)
		}
	}
	for id, addr := range peers {
		if id == e.cfg.ID || id == raft.None {
			continue
		}
		if e.peers[id] == nil {
			e.add(id, addr)
		}
		e.peers[id].named = true
	}
}

// admit notes that a server has dialled and shaken hands, and returns what is
// known of it from now on. It returns nil after Close, and if that is no longer
// what was known before the handshake: then its store was checked for something
// that it is not, and it must dial again. newer is what CheckStore said.
func (e *endpoint) admit(conn net.Conn, h hello, before *peer, newer bool) *peer {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.peers[h.From] != before {
		return nil
	}
	p, named := before, false
	if p != nil {
		// SetPeers knows better than the handshake where a peer is, if it knows, and
		// if it is not a later list that named this one.
		named = p.named
		if h.Addr != "" && h.Addr != p.addr && (p.addr == "" || !named || newer) {
			e.remove(p)
			p = nil
		}
	}
	if p == nil {
		p = e.add(h.From, h.Addr)
		p.named = named
	}
	p.accepted(conn, h)
	return p
}

// leave notes that a connection made by a peer has ended. Nobody but its own
// connection speaks for a guest.
func (e *endpoint) leave(p *peer, conn net.Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	last := p.ended(conn)
	if last && !p.named && e.peers[p.id] == p {
		e.remove(p)
	}
}

// add makes a peer. Needs e.mu.
func (e *endpoint) add(id raft.ServerID, addr string) *peer {
	p := &peer{
		id:       id,
		addr:     addr,
		maxFrame: e.cfg.MaxFrameBytes,
		maxQueue: e.cfg.MaxQueueBytes,
		wake:     make(chan struct{}, 1),
		calls:    map[uint64]*call{},
		cut:      e.cuts[id],
	}
	p.ctx, p.cancel = context.WithCancel(e.ctx)
	e.peers[id] = p
	e.wg.Go(func() { e.keepConnected(p) })
	return p
}

// remove ends a peer. Its goroutines end soon after. Needs e.mu.
func (e *endpoint) remove(p *peer) {
	delete(e.peers, p.id)
	p.close(errNoPeer)
	for _, s := range []side{outgoingSide, incomingSide, queueSide} {
		e.complaints.settled(subject{peer: p.id, side: s})
	}
}

// subject is what a complaint about server id is filed under.
func (e *endpoint) subject(id raft.ServerID, s side) subject {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.peers[id]
	return subject{peer: id, side: s, stranger: p == nil || !p.named}
}

// Cut drops everything to and from a server until Heal, as a network that
// swallows packets would: connections stay, and nobody is told. Calls that
// were sent wait for their context; later ones end with ErrNotSent. It holds for
// whoever has that id, now or later.
func (e *endpoint) Cut(id raft.ServerID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.setCut(id, cut{deaf: true, mute: true})
}

// Heal ends Cut.
func (e *endpoint) Heal(id raft.ServerID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.setCut(id, cut{})
}

func (e *endpoint) setDeaf(from raft.ServerID, deaf bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.cuts[from]
	c.deaf = deaf
	e.setCut(from, c)
}

// setCut needs e.mu.
func (e *endpoint) setCut(id raft.ServerID, c cut) {
	e.cuts[id] = c
	if p := e.peers[id]; p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cut = c
		if c.mute {
			p.dropWaiting(errCut)
		}
	}
}
