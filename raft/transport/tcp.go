package transport

import (
	"errors"
	"net"
)

// TCP is the transport of one server over TCP.
type TCP struct {
	*endpoint
	listener net.Listener
}

// ListenTCP listens on config.Addr and begins to connect to the peers. It
// returns an error if the configuration cannot work or the address is taken.
func ListenTCP(config Config) (*TCP, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return nil, errors.New("transport: cannot listen")
}

// Addr returns the address that is listened on, with the port that was chosen
// if Config.Addr left it open (port 0).
func (t *TCP) Addr() net.Addr { return t.listener.Addr() }
