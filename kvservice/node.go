package kvservice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"raftkv/api"
	"raftkv/raft"
	"raftkv/raft/server"
)

// NodeConfig says what a node is and where it keeps its files.
type NodeConfig struct {
	ID       raft.ServerID
	Data     string // the data directory; made if it does not exist
	HTTPAddr string // where to listen for clients, host:port
	RaftAddr string // where to listen for the other servers, host:port

	// RaftListener, if not nil, is used instead of RaftAddr, by a program that
	// got its sockets from elsewhere. The node closes it.
	RaftListener net.Listener

	ClusterName string // part of the cluster's identity

	// Members are the raft addresses of the cluster's first servers, this one
	// included. Empty if Join is set, or if the data directory was used before.
	Members map[raft.ServerID]string

	// Join, if not 0, is the id of a running cluster, which this server waits to be
	// added to. JoinAfter is the index of its configuration in force; if this server
	// was added already, one less than that of the configuration that added it. It
	// keeps this server from leading in the place of an earlier one with its id.
	Join      raft.ClusterID
	JoinAfter raft.Index

	ElectionTimeout time.Duration // see server.Config; zero means 150 ms
	RequestTimeout  time.Duration // see Config
	SnapshotBytes   int           // see Config
	TrailingBytes   int           // see raft.Config

	Duplicates api.Duplicates // see Config

	patience patience  // zero means usualPatience
	files    server.FS // nil means the operating system's
	door     *door     // nil means the usual one

	Logger *slog.Logger // nil discards
}

// Node is a whole server of the store: Raft with its files and sockets, the
// service, and the HTTP interface.
type Node struct {
	service  *KVService
	raft     *server.Node
	http     *http.Server
	listener *clientListener
	addr     string // where clients reach this node

	patience  patience
	unhurried context.Context // ends with Hurry
	hurry     context.CancelFunc
	giveUp    func() // ends the contexts of all requests of clients

	end  chan error    // takes the first reason to end; nil is Stop
	done chan struct{} // closed when everything has ended
	err  error         // why; read after done
}

// maxHeaderBytes bounds the head of a request.
const maxHeaderBytes = 16 << 10

// Start runs a node. The error is one line that says what is wrong: an address
// that is taken, a data directory that cannot be used, members that make no
// sense. Nothing has been changed then.
func Start(config NodeConfig) (*Node, error) {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	identity, err := identityOf(config)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", config.HTTPAddr)
	if err != nil {
		return nil, fmt.Errorf("cannot listen for clients: %w", err)
	}
	n := &Node{
		addr: reachable(listener.Addr(), cmp.Or(config.Members[config.ID], config.RaftAddr)),
		end:  make(chan error, 1),
		done: make(chan struct{}),

		patience: cmp.Or(config.patience, usualPatience),
	}
	n.unhurried, n.hurry = context.WithCancel(context.Background())
	n.service = New(Config{
		ID:             config.ID,
		Cluster:        identity.Cluster,
		ClusterName:    identity.ClusterName,
		Configuration:  server.FirstConfiguration(identity.Members),
		HTTPAddrOf:     n.httpAddrOf,
		RequestTimeout: config.RequestTimeout,
		SnapshotBytes:  config.SnapshotBytes,
		Duplicates:     config.Duplicates,
		Logger:         config.Logger,
	})
	n.service.answerTime = n.patience.answer
	n.service.door = cmp.Or(config.door, n.service.door)
	// Some entries may wait here, so that Raft's loop and the updater do not
	// have to take turns.
	commitChan := make(chan raft.CommitEntry, 256)
	n.raft, err = server.Open(server.NodeConfig{
		Identity:        identity,
		Dir:             config.Data,
		Addr:            config.RaftAddr,
		Listener:        config.RaftListener,
		AdvertiseAddr:   config.Members[config.ID],
		HTTPAddr:        n.addr,
		Handle:          n.service.HandleForwarded,
		CommitChan:      commitChan,
		Observe:         n.service.Observe,
		ElectionTimeout: config.ElectionTimeout,
		TrailingBytes:   config.TrailingBytes,
		ObserveSave:     n.service.metrics.saved,
		FS:              config.files,
		Logger:          config.Logger,
	})
	if err != nil {
		listener.Close()
		return nil, err
	}
	requests, giveUp := context.WithCancel(context.Background())
	n.giveUp = func() {
		giveUp()
		n.service.pulse.hurry()
	}
	n.http = &http.Server{
		Handler:           n.service.Handler(),
		BaseContext:       func(net.Listener) context.Context { return requests },
		ConnContext:       connContext,
		ReadHeaderTimeout: n.patience.header,
		ReadTimeout:       n.patience.body,
		WriteTimeout:      n.patience.body + n.service.config.RequestTimeout + n.patience.answer,
		IdleTimeout:       n.patience.idle,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(config.Logger.Handler(), slog.LevelDebug),
	}
	n.listener = boundConns(listener)
	n.run(commitChan)
	return n, nil
}

// identityOf returns whose data directory it is to be, which on a later start is
// what the first one wrote down.
func identityOf(config NodeConfig) (server.Identity, error) {
	if config.Join != 0 {
		return server.JoinIdentity(config.Join, config.ClusterName, config.ID, config.JoinAfter), nil
	}
	if len(config.Members) == 0 {
		stored, err := server.StoredIdentity(config.Data)
		if errors.Is(err, fs.ErrNotExist) {
			return stored, fmt.Errorf("%w: data directory %s is new; say which servers the cluster begins with, or which one to join", raft.ErrConfig, config.Data)
		}
		return stored, err
	}
	var members []server.Member
	for id, addr := range config.Members {
		members = append(members, server.Member{ID: id, Addr: addr})
	}
	return server.NewIdentity(config.ClusterName, config.ID, members), nil
}

// run starts the goroutines of the node and the one that ends them: whatever
// fails first takes the rest along.
func (n *Node) run(commitChan <-chan raft.CommitEntry) {
	var running sync.WaitGroup
	running.Go(func() {
		if err := n.service.Run(n.raft, commitChan); err != nil {
			n.endWith(fmt.Errorf("the store cannot go on: %w", err))
			for range commitChan { // let the server hand over what it holds, and stop
			}
		}
	})
	running.Go(func() {
		if err := n.http.Serve(n.listener); !errors.Is(err, http.ErrServerClosed) {
			n.endWith(fmt.Errorf("cannot serve clients: %w", err))
		}
	})
	running.Go(func() {
		<-n.raft.Done()
		n.endWith(n.raft.Err())
	})
	go func() {
		n.err = <-n.end
		if err := n.stop(); n.err == nil {
			n.err = err
		}
		running.Wait()
		close(n.done)
	}()
}

func (n *Node) endWith(reason error) {
	select {
	case n.end <- reason:
	default: // it ends already
	}
}

// Done is closed when the node has ended, by Stop or because something failed.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err says why the node ended. It is nil before Done, and after a plain Stop.
func (n *Node) Err() error {
	select {
	case <-n.done:
		return n.err
	default:
		return nil
	}
}

// HTTPAddr returns the address at which clients reach the node.
func (n *Node) HTTPAddr() string { return n.addr }

// RaftAddr returns the address at which the other servers reach the node.
func (n *Node) RaftAddr() string { return n.raft.Addr() }

// Cut drops everything to and from another server, as a broken network would.
func (n *Node) Cut(peer raft.ServerID) { n.raft.Cut(peer) }

// Heal ends every Cut.
func (n *Node) Heal() {
	configuration, _ := n.raft.Configuration()
	for _, id := range configuration.Members() {
		n.raft.Heal(id)
	}
}

func (n *Node) httpAddrOf(id raft.ServerID) string {
	switch id {
	case raft.None:
		return ""
	case n.service.config.ID:
		return n.addr
	}
	return n.raft.PeerHTTP(id)
}

// reachable returns the address to tell others. One that listens on all
// interfaces has no address of its own; the server's raft address names the
// machine.
func reachable(addr net.Addr, raftAddr string) string {
	host, port, err := net.SplitHostPort(addr.String())
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsUnspecified() {
		return addr.String()
	}
	machine, _, err := net.SplitHostPort(raftAddr)
	if err != nil {
		return addr.String()
	}
	return net.JoinHostPort(machine, port)
}
