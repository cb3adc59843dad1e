package raft

import (
	"net"
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
}

func newCluster(t *testing.T, n int) *cluster {
	t.Cleanup(leaktest.Check(t)) // after all servers are shut down
	c := &cluster{t, map[ServerID]string{}, map[ServerID]*Server{}}
	listeners := map[ServerID]net.Listener{}
	for id := ServerID(1); int(id) <= n; id++ {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		listeners[id], c.addrs[id] = listener, listener.Addr().String()
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
	s := NewServer(id, listener, peers)
	s.ElectionTimeout = 30 * time.Millisecond
	s.Serve()
	c.running[id] = s
}

// crash ends a server and everything that it knew.
func (c *cluster) crash(id ServerID) {
	c.running[id].Shutdown()
	delete(c.running, id)
}

// restart starts a new server in the place of a crashed one.
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
