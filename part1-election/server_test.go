package raft

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSystemLeaderIsElected(t *testing.T) {
	c := newCluster(t, 3)
	leader := c.waitForLeader()
	for id, s := range c.running {
		require.Equal(t, id == leader, s.IsLeader())
	}
}

func TestSystemStoppedLeaderIsReplaced(t *testing.T) {
	c := newCluster(t, 3)
	old := c.waitForLeader()
	term := c.running[old].Status().Term
	c.crash(old)
	leader := c.waitForLeader()
	require.NotEqual(t, old, leader)
	require.Greater(t, c.running[leader].Status().Term, term)

	// The old leader comes back and follows the new one.
	c.restart(old)
	require.NotEqual(t, old, c.waitForLeader())
}

func TestSystemNoLeaderWithoutMajority(t *testing.T) {
	c := newCluster(t, 3)
	first := c.waitForLeader()
	c.crash(first)
	c.crash(c.waitForLeader())
	for _, last := range c.running {
		term := last.Status().Term
		c.eventually("it has tried three times", func() bool {
			require.False(t, last.IsLeader())
			return last.Status().Term >= term+3
		})
	}
	c.restart(first)
	c.waitForLeader() // two of three are a majority again
}

func TestSystemClusterOfOne(t *testing.T) {
	c := newCluster(t, 1)
	require.Equal(t, ServerID(1), c.waitForLeader())
}

func TestSystemStrangerIsHungUpOn(t *testing.T) {
	c := newCluster(t, 3)
	leader := c.waitForLeader()
	conn, err := net.Dial("tcp", c.addrs[leader])
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = conn.Write([]byte(strings.Repeat("GET / HTTP/1.1\r\n", 100)))
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	require.False(t, errors.Is(err, os.ErrDeadlineExceeded))
	c.waitForLeader()
}

// Equal times would split the votes of equal candidates again and again.
func TestElectionTimeoutIsDrawnAnew(t *testing.T) {
	s := &Server{ElectionTimeout: time.Second}
	drawn := map[time.Duration]bool{}
	for range 100 {
		d := s.electionTimeout()
		require.True(t, time.Second <= d && d < 2*time.Second, "%v", d)
		drawn[d] = true
	}
	require.Greater(t, len(drawn), 90)
}
