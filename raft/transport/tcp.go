package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"raftkv/raft"
)

// keepAlive finds peers whose machine is gone, on connections on which nothing
// is written. Go itself sets TCP_NODELAY: a message leaves at once, and those
// that wait together leave in one write anyway.
var keepAlive = net.KeepAliveConfig{
	Enable:   true,
	Idle:     5 * time.Second,
	Interval: 5 * time.Second,
	Count:    3,
}

var errNoAddress = errors.New("nobody has said where it is")

// TCP is the transport of one server over TCP.
type TCP struct{ *endpoint }

// Listen takes an address, for Config.Listener.
func Listen(addr string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	listener, err := lc.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	return listener, nil
}

// ListenTCP listens on config.Listener, or else on config.Addr, and begins to
// connect to the peers. It returns an error, and leaves config.Listener open, if
// the configuration cannot work or the address is taken.
func ListenTCP(config Config) (*TCP, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	for id, addr := range config.Peers {
		if _, _, err := net.SplitHostPort(addr); err != nil && addr != "" && id != config.ID {
			return nil, fmt.Errorf("transport: the address of server %d is %q, which is not host:port", id, addr)
		}
	}
	listener := config.Listener
	if listener == nil {
		if listener, err = Listen(config.Addr); err != nil {
			return nil, err
		}
	}
	if addr, ok := listener.Addr().(*net.TCPAddr); ok && !addr.IP.IsUnspecified() {
		setDefault(&config.AdvertiseAddr, addr.String())
	}
	dialer := &net.Dialer{KeepAliveConfig: keepAlive}
	return &TCP{start(config, listener, func(ctx context.Context, _ raft.ServerID, addr string) (net.Conn, error) {
		if addr == "" {
			return nil, errNoAddress
		}
		return dialer.DialContext(ctx, "tcp", addr)
	})}, nil
}

// Addr returns the address that is listened on, with the port that was chosen
// if Config.Addr left it open (port 0).
func (t *TCP) Addr() net.Addr { return t.listener.Addr() }
