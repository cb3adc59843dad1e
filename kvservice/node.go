package kvservice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/netutil"

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
	// Members are the raft addresses of all servers, this one included.
	Members map[raft.ServerID]string

	ElectionTimeout time.Duration // see server.Config; zero means 150 ms
	RequestTimeout  time.Duration // see Config

	Logger *slog.Logger // nil discards
}

// Node is a whole server of the store: Raft with its files and sockets, the
// service, and the HTTP interface.
type Node struct {
	service *KVService
	raft    *server.Node
	http    *http.Server
	addr    string // where clients reach this node

	end  chan error    // takes the first reason to end; nil is Stop
	done chan struct{} // closed when everything has ended
	err  error         // why; read after done
}

// Bounds of the HTTP interface. A client that is slower or bigger than these is
// cut off, so that it cannot hold on to what others need.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = time.Minute
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	maxClientConns    = 4096
	drainTimeout      = 5 * time.Second // for answers under way when the node stops
)

// Start runs a node. The error is one line that says what is wrong: an address
// that is taken, a data directory that cannot be used, members that make no
// sense. Nothing has been changed then.
func Start(config NodeConfig) (*Node, error) {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	var members []server.Member
	for _, id := range slices.Sorted(maps.Keys(config.Members)) {
		members = append(members, server.Member{ID: id, Addr: config.Members[id]})
	}
	listener, err := net.Listen("tcp", config.HTTPAddr)
	if err != nil {
		return nil, fmt.Errorf("cannot listen for clients: %w", err)
	}
	n := &Node{
		addr: reachable(listener.Addr(), config.Members[config.ID]),
		end:  make(chan error, 1),
		done: make(chan struct{}),
	}
	n.service = New(Config{
		ID:             config.ID,
		Cluster:        server.ClusterID(config.ClusterName, members),
		Members:        members,
		HTTPAddrOf:     n.httpAddrOf,
		RequestTimeout: config.RequestTimeout,
		Logger:         config.Logger,
	})
	// Some entries may wait here, so that Raft's loop and the updater do not
	// have to take turns.
	commitChan := make(chan raft.CommitEntry, 256)
	n.raft, err = server.Open(server.NodeConfig{
		ID:              config.ID,
		Dir:             config.Data,
		Addr:            config.RaftAddr,
		Listener:        config.RaftListener,
		ClusterName:     config.ClusterName,
		Members:         members,
		HTTPAddr:        n.addr,
		Handle:          n.service.HandleForwarded,
		CommitChan:      commitChan,
		Observe:         n.service.Observe,
		ElectionTimeout: config.ElectionTimeout,
		Logger:          config.Logger,
	})
	if err != nil {
		listener.Close()
		return nil, err
	}
	n.http = &http.Server{
		Handler:           n.service.Handler(),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(config.Logger.Handler(), slog.LevelDebug),
	}
	n.run(netutil.LimitListener(listener, maxClientConns), commitChan)
	return n, nil
}

// run starts the goroutines of the node and the one that ends them: whatever
// fails first takes the rest along.
func (n *Node) run(listener net.Listener, commitChan <-chan raft.CommitEntry) {
	var running sync.WaitGroup
	running.Go(func() {
		if err := n.service.Run(n.raft, commitChan); err != nil {
			n.endWith(fmt.Errorf("the store cannot go on: %w", err))
			for range commitChan { // let the server hand over what it holds, and stop
			}
		}
	})
	running.Go(func() {
		if err := n.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			n.endWith(fmt.Errorf("cannot serve clients: %w", err))
		}
	})
	running.Go(func() {
		<-n.raft.Done()
		n.endWith(n.raft.Err())
	})
	go func() {
		n.err = <-n.end
		// Clients first: they get their answers while there is still somebody to
		// give them.
		ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
		defer cancel()
		if n.http.Shutdown(ctx) != nil {
			n.http.Close()
		}
		if err := n.raft.Stop(); n.err == nil {
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

// Stop ends the node: it waits for requests under way for up to five seconds,
// then closes everything, and returns what had gone wrong before, or nil.
// Calling it twice is fine.
func (n *Node) Stop() error {
	n.endWith(nil)
	<-n.done
	return n.err
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
	for _, m := range n.service.config.Members {
		n.raft.Heal(m.ID)
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
