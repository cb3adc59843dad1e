package raft

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/rafttest"
)

// Stories in virtual time: docs/rafttest.md.

func TestCommittedCommandSurvivesItsLeader(t *testing.T) {
	c := rafttest.New(t, 3, NewNode)
	old := c.WaitForLeader()
	c.Submit("x=1").WaitCommitted()
	c.Crash(old)
	c.WaitForLeader().Submit("x=2").WaitCommitted()
	c.Restart(old)
	c.WaitApplied(old, "x=1", "x=2")
}

func TestPowerCut(t *testing.T) {
	c := rafttest.New(t, 3, NewNode)
	c.Commit("x=1", "x=2")
	for _, s := range c.Servers() {
		c.Crash(s)
	}
	for _, s := range c.Servers() {
		c.Restart(s)
	}
	c.WaitAllApplied("x=1", "x=2") // out of the logs, with no new command
}

func TestEveryLeaderCrashes(t *testing.T) {
	c := rafttest.New(t, 3, NewNode)
	var commands []string
	for i := range 10 {
		commands = append(commands, fmt.Sprint("x=", i))
		c.Submit(commands[i]).WaitCommitted()
		dead := c.CrashLeader()
		c.WaitForLeader()
		c.Restart(dead)
	}
	c.WaitAllApplied(commands...)
}

func TestLeaderCrashesInItsWrite(t *testing.T) {
	c := rafttest.New(t, 3, NewNode)
	c.Commit("x=1")
	old := c.WaitForLeader()
	c.CrashInSave(old)
	sub := old.Submit("x=2") // it was sent, and the sender does not have it
	require.False(t, old.Running())
	c.WaitForLeader()
	c.Restart(old)
	c.Commit("x=3")
	require.Equal(t, []string{"x=1", "x=2", "x=3"}, c.WaitAllEqual())
	require.True(t, sub.Committed()) // nobody would have been wrong to lose it
}

func TestVoterCrashesInItsVote(t *testing.T) {
	c := rafttest.New(t, 3, NewNode)
	for _, s := range c.Servers() {
		c.CrashInSave(s) // whoever votes first, for itself or for another
	}
	for range 5 {
		c.RunUntil(func() bool { return len(c.Running()) < 3 })
		for _, s := range c.Servers() {
			c.Restart(s)
			c.CrashInSave(s)
		}
	}
	c.Chaos(time.Second) // at its end nobody is about to crash
	c.CheckSingleLeader()
}

func TestChaos(t *testing.T) {
	rafttest.EachSeed(t, 10, func(t *testing.T) {
		c := rafttest.New(t, 5, NewNode)
		c.StartChaos(5 * time.Second)
		var commands []string
		for i := range 20 {
			commands = append(commands, fmt.Sprint("x=", i))
			c.Commit(commands[i])
			c.RunFor(200 * time.Millisecond)
		}
		c.RunFor(5 * time.Second)
		require.Subset(t, c.WaitAllEqual(), commands)
	})
}
