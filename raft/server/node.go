package server

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
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

// FS is what a server needs of a file system.
type FS = storage.FS

// Identity says which server of which cluster a data directory belongs to.
type Identity = storage.Identity

// NewIdentity returns the identity of a server of a new cluster. Another name or
// another list of members is another cluster.
func NewIdentity(clusterName string, id raft.ServerID, members []Member) Identity {
	return storage.NewIdentity(clusterName, id, members)
}

// JoinIdentity returns the identity of a server that is to join a cluster. after
// is the index of the configuration in force (raft.Config's AddedAfter).
func JoinIdentity(cluster raft.ClusterID, clusterName string, id raft.ServerID, after raft.Index) Identity {
	return storage.JoinIdentity(cluster, clusterName, id, after)
}

// StoredIdentity returns what was written down when a data directory was first
// started. The error is fs.ErrNotExist if it never was.
func StoredIdentity(dir string) (Identity, error) { return storage.ReadIdentity(dir, nil) }

// FirstConfiguration is what a cluster begins with: all its first members vote.
// A server that is to join one knows of none, and waits.
func FirstConfiguration(members []Member) raft.Configuration {
	return storage.FirstConfiguration(members)
}

// NodeConfig says where a server keeps its files and whom it talks to.
type NodeConfig struct {
	Identity Identity     // whose server this is, as at the first start
	Dir      string       // the data directory; made if it does not exist
	FS       FS           // what Dir is on; nil means the operating system's files
	Addr     string       // where to listen for the other servers, host:port
	Listener net.Listener // if not nil, used instead of Addr, and closed by Stop

	// AdvertiseAddr is where the others reach this server as long as their
	// configuration does not say it; see transport.Config.
	AdvertiseAddr string

	HTTPAddr string // where clients reach this server; the others learn it

	// Handle answers a request that another server forwarded; see transport.Config.
	Handle func(ctx context.Context, from raft.ServerID, payload []byte) []byte

	CommitChan        chan<- raft.CommitEntry // see Config
	Observe           func(raft.Status)       // see Config
	TrailingBytes     int                     // see raft.Config
	ElectionTimeout   time.Duration           // see Config
	HeartbeatInterval time.Duration           // see Config

	// ObserveSave, if not nil, is told how long each write to the disk took, its
	// sync included. It runs inside the loop and must not block.
	ObserveSave func(time.Duration)

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
	// The address first: if it is taken, the data directory stays untouched.
	listener := config.Listener
	var err error
	if listener == nil {
		if listener, err = transport.Listen(config.Addr); err != nil {
			return nil, fmt.Errorf("cannot listen for the other servers: %w", err)
		}
	}
	n := &Node{}
	n.files, err = storage.Open(config.Dir, storage.Options{FS: config.FS, Identity: config.Identity})
	if err != nil {
		listener.Close()
		return nil, err
	}
	for _, warning := range n.files.Warnings() {
		config.Logger.Warn("something on the disk is damaged that this server can do without", "id", uint64(config.Identity.Server), "damage", warning)
	}
	n.Server, err = New(Config{
		Raft: raft.Config{
			Cluster:       config.Identity.Cluster,
			ID:            config.Identity.Server,
			Configuration: FirstConfiguration(config.Identity.Members),
			AddedAfter:    n.files.Identity().AddedAfter,
			TrailingBytes: config.TrailingBytes,
		},
		Storage:              timed{n.files, config.ObserveSave},
		CommitChan:           config.CommitChan,
		Observe:              config.Observe,
		ObserveConfiguration: n.configurationChanged,
		ElectionTimeout:      config.ElectionTimeout,
		HeartbeatInterval:    config.HeartbeatInterval,
		Logger:               config.Logger,
	})
	if err != nil {
		n.files.Close()
		listener.Close()
		return nil, err
	}
	now, _ := n.Configuration()
	n.tcp, err = transport.ListenTCP(transport.Config{
		Cluster:       config.Identity.Cluster,
		ID:            config.Identity.Server,
		Store:         n.files.StoreID(),
		Since:         n.takesPartSince,
		HTTPAddr:      config.HTTPAddr,
		Listener:      listener,
		AdvertiseAddr: config.AdvertiseAddr,
		Peers:         addresses(now),
		Deliver:       n.Deliver,
		CheckStore:    n.checkStore(n.files.RememberStore),
		Handle:        config.Handle,
		Logger:        config.Logger,
	})
	if err != nil {
		n.files.Close()
		listener.Close()
		return nil, err
	}
	n.Start(n.tcp)
	return n, nil
}

func addresses(configurations ...raft.Configuration) map[raft.ServerID]string {
	all := map[raft.ServerID]string{}
	for _, c := range configurations {
		for _, a := range c.Addresses {
			all[a.ID] = a.Addr
		}
	}
	return all
}

// configurationChanged tells the transport who the others are. Those of before
// stay: they may still get the message that tells them that they have left. A
// server that is new under an old id must show its store again, so the
// connections of the old one end first.
func (n *Node) configurationChanged(before, now raft.Configuration) {
	peers := addresses(before, now)
	known := maps.Clone(peers)
	for _, a := range now.Addresses {
		if before.Address(a.ID) != a {
			delete(known, a.ID)
		}
	}
	n.tcp.SetPeers(known)
	n.tcp.SetPeers(peers)
}

// Addr returns the address that the node listens on for the other servers.
func (n *Node) Addr() string { return n.tcp.Addr().String() }

// PeerHTTP returns where clients reach another server; "" if this one has not
// been in contact with it.
func (n *Node) PeerHTTP(id raft.ServerID) string { return n.tcp.PeerHTTP(id) }

// Connected reports whether this server has a connection to another one.
func (n *Node) Connected(id raft.ServerID) bool { return n.tcp.Connected(id) }

// DiskBytes returns how large the log and the snapshots are on the disk. What
// cannot be read counts as 0.
func (n *Node) DiskBytes() (log, snapshots uint64) { return n.files.Sizes() }

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

// timed is a storage that tells how long its writes take.
type timed struct {
	storage.Storage
	observe func(time.Duration)
}

func (t timed) Save(save raft.Save) error {
	if t.observe == nil {
		return t.Storage.Save(save)
	}
	began := time.Now()
	err := t.Storage.Save(save)
	t.observe(time.Since(began))
	return err
}
