package raft

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/rafttest"
)

// Stories in virtual time: docs/rafttest.md. A server that crashes has
// forgotten its vote when it comes back, so here the dead stay dead, and
// whoever is to return is cut off instead.

func TestLeaderDies(t *testing.T) {
	c := rafttest.New(t, 3, NewNode)
	old := c.CrashLeader()
	next := c.CheckSingleLeader()
	require.NotEqual(t, old, next)
	require.Greater(t, next.Status().Term, old.Status().Term)
}

func TestTwoOfFiveDie(t *testing.T) {
	c := rafttest.New(t, 5, NewNode)
	c.CrashLeader()
	c.CrashLeader()
	c.CheckSingleLeader()
	c.CrashLeader() // and this one was one too many
	c.CheckNoLeader()
}

func TestCutOffLeaderComesBack(t *testing.T) {
	c := rafttest.New(t, 3, NewNode)
	old := c.WaitForLeader()
	c.Isolate(old)
	next := c.WaitForLeader()
	require.Equal(t, "leader", old.Status().State) // nobody has told it
	c.Heal()
	require.Equal(t, next, c.CheckSingleLeader())
	require.Equal(t, next.Status().Term, old.Status().Term)
}

func TestFollowerThatWasAloneDeposesTheLeader(t *testing.T) {
	c := rafttest.New(t, 3, NewNode)
	leader := c.WaitForLeader()
	lonely := c.Server(leader.ID()%3 + 1)
	c.Isolate(lonely)
	c.RunFor(2 * time.Second) // it tries to become leader again and again
	term := lonely.Status().Term
	require.Greater(t, term, leader.Status().Term+3)
	c.Heal()
	c.RunFor(time.Second)
	require.GreaterOrEqual(t, c.CheckSingleLeader().Status().Term, term)
}

func TestLeaderLosesItsVoiceInAnElection(t *testing.T) {
	for sent := range 10 { // it gets so far, and no further
		c := rafttest.New(t, 3, NewNode)
		c.DropAfter(c.Server(1), sent)
		c.CheckSingleLeader()
		c.RunFor(time.Second)
		c.Heal()
		c.CheckSingleLeader()
	}
}

// Every second vote comes when another election is under way.
func TestVotesComeLate(t *testing.T) {
	rafttest.EachSeed(t, 20, func(t *testing.T) {
		c := rafttest.New(t, 5, NewNode)
		for range 10 {
			c.Delay(0.5)
			c.Isolate(c.WaitForLeader())
			c.RunFor(3 * rafttest.ElectionTimeout)
			c.Heal()
		}
		c.CheckSingleLeader()
	})
}

func TestLeadersAreCutOff(t *testing.T) {
	rafttest.EachSeed(t, 20, func(t *testing.T) {
		c := rafttest.New(t, 5, NewNode)
		c.Chaos(5*time.Second, rafttest.IsolateServers, rafttest.CutLinks, rafttest.LoseMessages, rafttest.DelayMessages)
		c.CheckSingleLeader()
	})
}
