package raft

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/rafttest"
)

// Stories in virtual time: docs/rafttest.md. A server that crashes has
// forgotten its log when it comes back, so here the dead stay dead, and whoever
// is to return is cut off instead.

func TestCommandSurvivesItsLeader(t *testing.T) {
	c := rafttest.New(t, 3, NewNode)
	old := c.WaitForLeader()
	c.Submit("x=1").WaitCommitted()
	c.Isolate(old)
	c.WaitForLeader().Submit("x=2").WaitCommitted()
	c.Heal()
	c.WaitApplied(old, "x=1", "x=2")
}

func TestCommandsOfACutOffLeaderAreOverwritten(t *testing.T) {
	c := rafttest.New(t, 5, NewNode)
	old := c.WaitForLeader()
	c.Isolate(old)
	lost := []*rafttest.Submission{old.Submit("x=1"), old.Submit("x=2")}
	c.Commit("y=1", "y=2")
	c.Heal()
	c.WaitAllApplied("y=1", "y=2")
	require.True(t, lost[0].Lost())
	require.True(t, lost[1].Lost())
}

func TestNoMajorityNoCommit(t *testing.T) {
	c := rafttest.New(t, 3, NewNode)
	leader := c.CheckSingleLeader()
	c.RunFor(time.Second)
	c.Lose(1)
	sub := leader.Submit("x=1")
	c.RunFor(2 * time.Second)
	require.False(t, sub.Committed())
	c.Heal()
	c.Commit("x=2") // and with it, maybe, x=1: whoever wins decides
	require.Contains(t, c.WaitAllEqual(), "x=2")
}

func TestLeaderDiesHalfWay(t *testing.T) {
	for sent := range 8 { // messages that get out before it dies
		c := rafttest.New(t, 5, NewNode)
		old := c.CheckSingleLeader()
		c.RunFor(time.Second)
		c.DropAfter(old, sent)
		old.Submit("x=1")
		c.RunFor(20 * time.Millisecond)
		c.Crash(old)
		c.Commit("x=2")
		got := c.WaitAllEqual()
		require.Contains(t, [][]string{{"x=2"}, {"x=1", "x=2"}}, got)
	}
}

func TestFollowerCatchesUp(t *testing.T) {
	c := rafttest.New(t, 3, NewNode)
	leader := c.WaitForLeader()
	slow := c.Server(leader.ID()%3 + 1)
	c.CutOneWay(leader, slow) // it hears nothing, and becomes a candidate
	c.Commit("x=1", "x=2", "x=3")
	c.Heal()
	require.Subset(t, c.WaitAllEqual(), []string{"x=1", "x=2", "x=3"})
}

func TestNothingCommittedIsLost(t *testing.T) {
	rafttest.EachSeed(t, 10, func(t *testing.T) {
		c := rafttest.New(t, 5, NewNode)
		c.StartChaos(5*time.Second, rafttest.IsolateServers, rafttest.CutLinks, rafttest.LoseMessages, rafttest.DelayMessages)
		var commands []string
		for i := range 20 {
			commands = append(commands, fmt.Sprint("x=", i))
			c.Commit(commands[i])
			c.RunFor(200 * time.Millisecond)
		}
		c.RunFor(5 * time.Second)
		applied := slices.Compact(c.WaitAllEqual()) // some were submitted twice
		require.Subset(t, applied, commands)
	})
}
