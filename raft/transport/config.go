package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"raftkv/raft"
)

// Config is what a transport must be told. Cluster, ID, Store, Peers and
// Deliver are needed; the zero value of the rest has a meaning of its own.
type Config struct {
	Cluster raft.ClusterID
	ID      raft.ServerID // this server
	Store   raft.StoreID  // its data directory; docs/protocol.md, "Stores"

	// HTTPAddr is where clients reach this server. The others learn it in the
	// handshake (PeerHTTP). At most 255 bytes; empty if there is none.
	HTTPAddr string

	// Addr is where ListenTCP listens, host:port. Listener, if not nil, is used
	// instead: a program takes the address with Listen before it touches a data
	// directory. The transport closes it. An in-memory transport ignores both.
	Addr     string
	Listener net.Listener

	// Peers gives the address of every other server, host:port, until SetPeers
	// gives others; see there. A server that waits to be added to a cluster has
	// none. An in-memory transport dials by id, so that addresses need not be
	// real there.
	Peers map[raft.ServerID]string

	// AdvertiseAddr is where the other servers reach this one, host:port. They
	// learn it in the handshake and use it if they do not know better. At most 255
	// bytes. Empty means Peers[ID], or else the address that is listened on, unless
	// that means all interfaces; then others are told nothing.
	AdvertiseAddr string

	// Deliver takes messages that have arrived. The slice and what it refers to
	// belong to Deliver. It is called by one goroutine per connection, so by
	// several at once. While it blocks, nothing more is read from that peer, which is
	// how a busy server slows the others down. Close waits for it: when a server
	// stops, it must make Deliver return.
	Deliver func([]raft.Message)

	// Since tells since when this server takes part, as far as its own disk says
	// so (raft.Address); 0 if it does not. It is called for each handshake, by
	// several goroutines at once, because a server that is being added comes to
	// know it only while it runs. Nil means 0.
	Since func() raft.Index

	// CheckStore is asked on every new connection, in both directions, whether
	// a server may have that store; only then are its messages passed on. since is
	// what the other side's Since tells. Servers that are not peers are asked about
	// like all others (SetPeers). An error refuses the connection and its text is
	// shown to the other side. newer says that the server takes part since later
	// than the list of peers knows: then the address that it gives for itself
	// counts, and not the one in the list. May be called by several goroutines at
	// once, and may block for a disk write. Nil accepts every store.
	CheckStore func(id raft.ServerID, store raft.StoreID, since raft.Index) (newer bool, err error)

	// Handle answers a request that another server made with Call. It is
	// called in a goroutine of its own. Its context ends with Close; it must
	// return then, and its result is not sent. payload is its own to keep, and
	// so is the result the transport's. Nil refuses all requests.
	Handle func(ctx context.Context, from raft.ServerID, payload []byte) []byte

	// Logger gets one line per trouble. Nil discards them.
	Logger *slog.Logger

	DialTimeout      time.Duration // to reach a peer; zero means 1 s
	HandshakeTimeout time.Duration // for the first frames of a connection, each side; zero means 2 s

	// WriteTimeout bounds one write, and the wait for the rest of a frame that
	// has begun to arrive. A peer that stays silent longer loses its connection.
	// Zero means 5 s.
	WriteTimeout time.Duration

	// MinBackoff is the wait after a failed attempt to connect, MaxBackoff what
	// it grows to by doubling; each wait is drawn between a half and the whole.
	// Traffic for the peer ends it after MinBackoff at the latest, so neither
	// delays the first heartbeat to a server that has come back.
	// Zero means 10 ms and 250 ms.
	MinBackoff, MaxBackoff time.Duration

	// MaxFrameBytes bounds a frame's payload, both ways. It must exceed the
	// largest command that clients may submit, or replication stops at it.
	// Zero means 16 MiB.
	MaxFrameBytes int

	// MaxQueueBytes bounds what waits to be written to one peer. What does not
	// fit is dropped; a quarter is kept for messages. It should exceed raft.Config's MaxInflight times
	// MaxBatchBytes. Zero means 32 MiB.
	MaxQueueBytes int

	// MaxRequests bounds the calls of Handle that run at once. Further requests
	// are refused. Zero means 1024.
	MaxRequests int

	// MaxConns bounds the connections that others have made to this server and
	// that have not ended. Zero means 64.
	MaxConns int
}

// ErrNotSent reports that the other server has certainly not executed the
// request: it was never handed to a connection, or the other server was too
// busy and said so. It may be sent again, here or elsewhere.
var ErrNotSent = errors.New("transport: request not sent")

// ErrReplyLost reports that the request was on its way when the connection
// broke or the context ended. Nobody here knows whether it was executed, or
// whether it still will be.
var ErrReplyLost = errors.New("transport: reply lost")

const maxAddr = 255

func (c Config) withDefaults() (Config, error) {
	setDefault(&c.AdvertiseAddr, c.Peers[c.ID])
	switch {
	case c.ID == raft.None:
		return c, errors.New("transport: server id 0 means nobody; ids start at 1")
	case c.Deliver == nil:
		return c, errors.New("transport: Config.Deliver is needed")
	case len(c.HTTPAddr) > maxAddr:
		return c, fmt.Errorf("transport: the HTTP address has %d bytes; at most %d are allowed", len(c.HTTPAddr), maxAddr)
	case len(c.AdvertiseAddr) > maxAddr:
		return c, fmt.Errorf("transport: the advertised address has %d bytes; at most %d are allowed", len(c.AdvertiseAddr), maxAddr)
	case c.MaxFrameBytes < 0 || c.MaxFrameBytes > 1<<30:
		return c, fmt.Errorf("transport: MaxFrameBytes is %d; at most 1 GiB is allowed", c.MaxFrameBytes)
	}
	if _, found := c.Peers[raft.None]; found {
		return c, errors.New("transport: a peer has server id 0, which means nobody")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	setDefault(&c.DialTimeout, time.Second)
	setDefault(&c.HandshakeTimeout, 2*time.Second)
	setDefault(&c.WriteTimeout, 5*time.Second)
	setDefault(&c.MinBackoff, 10*time.Millisecond)
	setDefault(&c.MaxBackoff, 250*time.Millisecond)
	setDefault(&c.MaxFrameBytes, 16<<20)
	setDefault(&c.MaxQueueBytes, 32<<20)
	setDefault(&c.MaxRequests, 1024)
	setDefault(&c.MaxConns, 64)
	return c, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
