package raft

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fortytw2/leaktest"
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

func TestSystemCommandsAreAppliedByAll(t *testing.T) {
	c := newCluster(t, 3)
	c.commit("x=1")
	c.commit("x=2")
	for id := range c.running {
		require.Equal(t, []string{"x=1", "x=2"}, c.applied[id])
	}
}

func TestSystemCommittedCommandSurvivesItsLeader(t *testing.T) {
	c := newCluster(t, 3)
	c.commit("x=1")
	old := c.waitForLeader()
	c.crash(old)
	c.commit("x=2")

	// The old leader comes back with x=1 and is told the rest.
	c.restart(old)
	c.commit("x=3")
	for id := range c.running {
		require.Equal(t, []string{"x=1", "x=2", "x=3"}, c.applied[id])
	}
}

func TestSystemFollowerNamesTheLeader(t *testing.T) {
	c := newCluster(t, 3)
	var notLeader *NotLeaderError
	c.eventually("a follower names the leader", func() bool {
		leader := c.waitForLeader()
		_, _, err := c.running[leader%3+1].Submit([]byte("x=1"))
		return errors.As(err, &notLeader) && notLeader.Leader == leader
	})
}

func TestSystemStoppedServerTakesNothing(t *testing.T) {
	c := newCluster(t, 1)
	s := c.running[c.waitForLeader()]
	require.NoError(t, s.Shutdown())
	_, _, err := s.Submit([]byte("x=1"))
	require.ErrorIs(t, err, ErrStopped)
}

// Nobody takes anything from commitChan for a while. Commands are committed all
// the same (LV-03).
func TestSystemCommittingDoesNotWaitForApplying(t *testing.T) {
	c := newCluster(t, 3)
	c.eventually("all have committed much", func() bool {
		committed := 0
		for _, s := range c.running {
			if s.IsLeader() {
				s.Submit([]byte("x=1"))
			}
			if s.Status().CommitIndex > 50 {
				committed++
			}
		}
		return committed == 3
	})
	c.commit("x=2")
}

func TestSystemClusterOfOne(t *testing.T) {
	c := newCluster(t, 1)
	c.commit("x=1")
}

func TestSystemRestartKeepsTermVoteAndLog(t *testing.T) {
	c := newCluster(t, 3)
	c.commit("x=1")
	before := map[ServerID]Status{}
	for id, s := range c.running {
		c.crash(id)
		before[id] = s.Status()
	}
	for id := range before {
		// Restarted one by one, the first two would elect a leader before the third
		// is there. What each has kept shows before it is started.
		s, err := NewServer(id, nil, nil, c.storage[id], nil)
		require.NoError(t, err)
		now := s.Status()
		require.Equal(t, Follower, now.State)
		require.Equal(t, before[id].Term, now.Term)
		require.Equal(t, before[id].VotedFor, now.VotedFor)
		require.Equal(t, before[id].LastIndex, now.LastIndex)
		require.Zero(t, now.CommitIndex)
		c.restart(id)
	}
	c.commit("x=2")
	for id := range c.running {
		require.Equal(t, []string{"x=1", "x=2"}, c.applied[id])
	}
}

// badStorage can be written to a few times.
type badStorage struct {
	MapStorage
	left int
}

var errBadDisk = errors.New("disk on fire")

func (b *badStorage) Save(s Save) error {
	if b.left--; b.left < 0 {
		return errBadDisk
	}
	return b.MapStorage.Save(s)
}

func TestSystemServerThatCannotSaveStops(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	commitChan := make(chan CommitEntry, 10)
	// It can save its candidacy and its empty entry, but not the command.
	s, err := NewServer(1, listener, nil, &badStorage{left: 2}, commitChan)
	require.NoError(t, err)
	s.ElectionTimeout = 10 * time.Millisecond
	s.Serve()
	require.Equal(t, EntryEmpty, (<-commitChan).Kind)
	_, _, err = s.Submit([]byte("x=1"))
	require.NoError(t, err) // appended, which is no promise
	require.ErrorIs(t, s.Shutdown(), errBadDisk)
	require.Empty(t, commitChan)
	_, _, err = s.Submit([]byte("x=2"))
	require.ErrorIs(t, err, ErrStopped)
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
