package transport

import (
	"context"

	"raftkv/raft"
)

// endpoint is the transport of one server, whatever its connections are made of.
type endpoint struct {
	cfg Config
}

// Send passes messages on, each to the server that its To names. It never
// blocks: what does not fit into a peer's queue is dropped, as are messages to
// servers that are not peers. Entries are shared, not copied; nobody may change
// them afterwards. Any number of goroutines may call it.
func (e *endpoint) Send(messages []raft.Message) {}

// Call sends a request to another server and waits for the reply of its
// Handle. The error is ErrNotSent or ErrReplyLost (errors.Is), and tells
// whether the request may have been executed. It blocks until the reply comes,
// a connection to or from that server breaks, or ctx ends; a server that is
// not connected is waited for during one attempt to connect. Any number of
// goroutines may call it.
func (e *endpoint) Call(ctx context.Context, to raft.ServerID, payload []byte) ([]byte, error) {
	return nil, ErrNotSent
}

// PeerHTTP returns the address at which clients reach a peer, as its last
// handshake told; empty if that is not known.
func (e *endpoint) PeerHTTP(id raft.ServerID) string { return "" }

// Cut drops everything to and from a peer until Heal, as a network that
// swallows packets would: connections stay, and nobody is told.
func (e *endpoint) Cut(id raft.ServerID) {}

// Heal ends Cut.
func (e *endpoint) Heal(id raft.ServerID) {}

// Close ends all connections and goroutines. It returns an error if Deliver or
// Handle has not returned within five seconds. Closing twice is fine. Messages
// that wait are dropped, and calls end with an error.
func (e *endpoint) Close() error { return nil }
