package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"raftkv/raft"
	"raftkv/raft/storage"
	"raftkv/raft/transport"
)

// ErrNotSent reports a Call that the other server has certainly not executed.
var ErrNotSent = transport.ErrNotSent

// Member is a server of the cluster and the address it has for the others.
type Member = storage.Member

// ClusterID returns the identity of a cluster that starts with these members.
// Another name or another list is another cluster.
func ClusterID(name string, members []Member) raft.ClusterID {
	return storage.NewIdentity(name, raft.None, members).Cluster
}

// StoredMembers returns the cluster name and the members with which a data
// directory was first started. The error is fs.ErrNotExist if it never was.
func StoredMembers(dir string) (clusterName string, members []Member, err error) {
	identity, err := storage.ReadIdentity(dir, nil)
	return identity.ClusterName, identity.Members, err
}

// NodeConfig says where a server keeps its files and whom it talks to.
type NodeConfig struct {
	ID          raft.ServerID
	Dir         string       // the data directory; made if it does not exist
	Addr        string       // where to listen for the other servers, host:port
	Listener    net.Listener // if not nil, used instead of Addr, and closed by Stop
	ClusterName string       // part of the cluster's identity
	Members     []Member     // all servers, this one included, as at the first start

	HTTPAddr string // where clients reach this server; the others learn it

	// Handle answers a request that another server forwarded; see transport.Config.
	Handle func(ctx context.Context, from raft.ServerID, payload []byte) []byte

	CommitChan        chan<- raft.CommitEntry // see Config
	Observe           func(raft.Status)       // see Config
	ElectionTimeout   time.Duration           // see Config
	HeartbeatInterval time.Duration           // see Config

	Logger *slog.Logger // nil discards
}

// Node is a Server with the files and sockets that it uses.
type Node struct {
	*Server
	files *storage.FileStorage
	tcp   *transport.TCP
}

// Open starts a server on a data directory and a port. The error is one line
// that says what is wrong: flags that cannot work, a taken port, a directory
// that is locked, damaged, newer, or another server's. Nothing is changed then.
func Open(config NodeConfig) (*Node, error) {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	var voters []raft.ServerID
	peers := map[raft.ServerID]string{}
	for _, m := range config.Members {
		voters = append(voters, m.ID)
		peers[m.ID] = m.Addr
	}
	// The address first: if it is taken, the data directory stays untouched.
	listener := config.Listener
	if listener == nil {
		var err error
		if listener, err = transport.Listen(config.Addr); err != nil {
			return nil, fmt.Errorf("cannot listen for the other servers: %w", err)
		}
	}
	identity := storage.NewIdentity(config.ClusterName, config.ID, config.Members)
	files, err := storage.Open(config.Dir, storage.Options{Identity: identity})
	if err != nil {
		listener.Close()
		return nil, err
	}
	s, err := New(Config{
		Raft: raft.Config{
			Cluster:       identity.Cluster,
			ID:            config.ID,
			Configuration: raft.NewConfiguration(voters...),
		},
		Storage:           files,
		CommitChan:        config.CommitChan,
		Observe:           config.Observe,
		ElectionTimeout:   config.ElectionTimeout,
		HeartbeatInterval: config.HeartbeatInterval,
		Logger:            config.Logger,
	})
	if err != nil {
		files.Close()
		listener.Close()
		return nil, err
	}
	tcp, err := transport.ListenTCP(transport.Config{
		Cluster:    identity.Cluster,
		ID:         config.ID,
		Store:      files.StoreID(),
		HTTPAddr:   config.HTTPAddr,
		Listener:   listener,
		Peers:      peers,
		Deliver:    s.Deliver,
		CheckStore: s.checkStore(files.RememberStore),
		Handle:     config.Handle,
		Logger:     config.Logger,
	})
	if err != nil {
		files.Close()
		listener.Close()
		return nil, err
	}
	s.Start(tcp)
	return &Node{Server: s, files: files, tcp: tcp}, nil
}

// Addr returns the address that the node listens on for the other servers.
func (n *Node) Addr() string { return n.tcp.Addr().String() }

// PeerHTTP returns where clients reach another server; "" if this one has not
// been in contact with it.
func (n *Node) PeerHTTP(id raft.ServerID) string { return n.tcp.PeerHTTP(id) }

// Cut drops everything to and from a peer until Heal.
func (n *Node) Cut(peer raft.ServerID) { n.tcp.Cut(peer) }

// Heal ends a Cut.
func (n *Node) Heal(peer raft.ServerID) { n.tcp.Heal(peer) }

// Stop ends the server, its connections and its use of the directory. It
// returns what had gone wrong before, or nil. Calling it twice is fine.
func (n *Node) Stop() error {
	err := n.Server.Stop()
	n.tcp.Close()
	if closeErr := n.files.Close(); err == nil {
		err = closeErr
	}
	return err
}
