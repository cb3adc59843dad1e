package raft

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/fortytw2/leaktest"
	"github.com/stretchr/testify/require"
)

// cluster is n real servers that talk over loopback TCP.
type cluster struct {
	t       *testing.T
	addrs   map[ServerID]string
	running map[ServerID]*Server
	storage map[ServerID]*MapStorage
	commits map[ServerID]chan CommitEntry
	applied map[ServerID][]string // by this life of the server
}

func newCluster(t *testing.T, n int) *cluster {
	t.Cleanup(leaktest.Check(t)) // after all servers are shut down
	c := &cluster{
		t, map[ServerID]string{}, map[ServerID]*Server{},
		map[ServerID]*MapStorage{}, map[ServerID]chan CommitEntry{}, map[ServerID][]string{},
	}
	listeners := map[ServerID]net.Listener{}
	for id := ServerID(1); int(id) <= n; id++ {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		listeners[id], c.addrs[id], c.storage[id] = listener, listener.Addr().String(), NewMapStorage()
	}
	for id, listener := range listeners {
		c.start(id, listener)
	}
	t.Cleanup(func() {
		for id := range c.running {
			c.crash(id)
		}
	})
	return c
}

func (c *cluster) start(id ServerID, listener net.Listener) {
	peers := map[ServerID]string{}
	for peerID, addr := range c.addrs {
		if peerID != id {
			peers[peerID] = addr
		}
	}
	c.commits[id], c.applied[id] = make(chan CommitEntry, 1), nil
	s, err := NewServer(id, listener, peers, c.storage[id], c.commits[id])
	require.NoError(c.t, err)
	s.ElectionTimeout = 30 * time.Millisecond
	s.Serve()
	c.running[id] = s
}

// crash ends a server and everything that it knew but for its storage.
func (c *cluster) crash(id ServerID) {
	require.NoError(c.t, c.running[id].Shutdown())
	delete(c.running, id)
}

// restart starts a new server over the storage of a crashed one.
func (c *cluster) restart(id ServerID) {
	c.eventually("the old port is free", func() bool {
		listener, err := net.Listen("tcp", c.addrs[id])
		if err == nil {
			c.start(id, listener)
		}
		return err == nil
	})
}

// waitForLeader waits until all running servers agree on a leader.
func (c *cluster) waitForLeader() ServerID {
	var leader ServerID
	c.eventually("all servers agree on a leader", func() bool {
		for id, s := range c.running {
			if s.IsLeader() {
				leader = id
			}
		}
		for _, s := range c.running {
			if leader == None || s.Status().LeaderID != leader || s.Status().Term != c.running[leader].Status().Term {
				return false
			}
		}
		return true
	})
	return leader
}

// commit has a command applied by all running servers. If its leader is lost on
// the way, nobody knows what has become of it, and it is submitted again.
func (c *cluster) commit(command string) {
	c.t.Helper()
	var leader ServerID
	var term Term
	c.eventually("all have applied "+command, func() bool {
		if leader == None || !c.running[leader].IsLeader() || c.running[leader].Status().Term != term {
			leader = None
			for id, s := range c.running {
				if _, t, err := s.Submit([]byte(command)); err == nil {
					leader, term = id, t
				}
			}
		}
		return c.allHaveApplied(command)
	})
}

func (c *cluster) allHaveApplied(command string) bool {
	for id := range c.running {
		c.apply(id)
		if !slices.Contains(c.applied[id], command) {
			return false
		}
	}
	return true
}

// apply is a server's state machine: it takes what waits in commitChan. A
// command that comes twice counts once.
func (c *cluster) apply(id ServerID) {
	for {
		select {
		case e := <-c.commits[id]:
			if e.Kind == EntryCommand && !slices.Contains(c.applied[id], string(e.Command)) {
				c.applied[id] = append(c.applied[id], string(e.Command))
			}
		default:
			return
		}
	}
}

// eventually looks again and again until it is true, for at most ten seconds.
func (c *cluster) eventually(what string, isTrue func() bool) {
	c.t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !isTrue() {
		select {
		case <-tick.C:
		case <-deadline:
			require.FailNow(c.t, "not within ten seconds: "+what)
		}
	}
}
