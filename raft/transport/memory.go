package transport

import "raftkv/raft"

// Network joins transports inside one process. It needs no socket and works in
// a testing/synctest bubble.
type Network struct{}

// Memory is the transport of one server in a Network.
type Memory struct{ *endpoint }

// NewNetwork returns a network without servers.
func NewNetwork() *Network { return &Network{} }

// Join adds a server. The server that joined last under an id is the one that
// is reached by it. It panics if the configuration cannot work.
func (n *Network) Join(config Config) *Memory {
	config, err := config.withDefaults()
	if err != nil {
		panic(err)
	}
	return &Memory{&endpoint{cfg: config}}
}

// Cut drops everything on its way from one server to another, and nothing on
// the way back, until Heal. Servers that join later are cut, too.
func (n *Network) Cut(from, to raft.ServerID) {}

// Heal ends Cut.
func (n *Network) Heal(from, to raft.ServerID) {}
