package rafttest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/internal/cores"
	"raftkv/rafttest"
)

// What a test is told when something else happens than it says.
func TestWhatFailuresSay(t *testing.T) {
	for _, test := range []struct {
		name  string
		story func(c *rafttest.Cluster)
		says  string
	}{{
		"no leader", func(c *rafttest.Cluster) {
			c.Isolate(c.Server(1))
			c.Isolate(c.Server(2))
			c.WaitForLeader()
		}, "no leader within 20s of virtual time",
	}, {
		"a leader", func(c *rafttest.Cluster) {
			c.CheckNoLeader()
		}, "leads in term 1, and no server should",
	}, {
		"a follower is asked", func(c *rafttest.Cluster) {
			l := c.CheckSingleLeader()
			c.Server(l.ID()%3 + 1).Submit("x=1").WaitCommitted()
		}, "has refused x=1: it is a follower",
	}, {
		"a dead server is asked", func(c *rafttest.Cluster) {
			c.CrashLeader().Submit("x=1")
		}, "takes no commands: it is down, or has no log",
	}, {
		"a command is overwritten", func(c *rafttest.Cluster) {
			old := c.WaitForLeader()
			c.Commit("x=0")
			c.Isolate(old)
			lost := old.Submit("x=1")
			c.Commit("x=2")
			lost.WaitCommitted()
		}, "x=1 is lost: server",
	}, {
		"other commands", func(c *rafttest.Cluster) {
			c.Commit("x=1")
			c.WaitApplied(c.Server(2), "x=2")
		}, "server 2 has applied [x=1] and not [x=2] within 20s of virtual time",
	}, {
		"a condition that never holds", func(c *rafttest.Cluster) {
			c.RunUntil(func() bool { return false })
		}, "what RunUntil waits for has not happened within 20s of virtual time",
	}, {
		"nothing runs", func(c *rafttest.Cluster) {
			for _, s := range c.Servers() {
				c.Crash(s)
			}
			c.WaitForLeader()
		}, "no leader within",
	}} {
		t.Run(test.name, func(t *testing.T) {
			failure := failureOf(7, func(t rafttest.TB) { test.story(rafttest.New(t, 3, cores.NewPart3)) })
			require.Contains(t, failure, test.says)
			require.Contains(t, failure, "The last steps:\n")
			require.Contains(t, failure, "Seed 7. To see the same run again:\n  go test -run '^TestX$' -rafttest.seed=7\n")
		})
	}
}

// A run is the seed's, whatever else is going on, and another seed's is another.
func TestSameSeedSameRun(t *testing.T) {
	run := func(seed uint64) []string {
		c := rafttest.NewSeed(t, seed, 5, cores.NewPart3)
		c.Chaos(5 * time.Second)
		return c.Trace(40)
	}
	require.Len(t, run(1), 40)
	require.Equal(t, run(1), run(1))
	require.NotEqual(t, run(1), run(2))
}

// Part 1 forgets its vote with a crash, and the checker notices: what a part
// cannot do yet is no reason to look away.
func TestCrashWithoutADisk(t *testing.T) {
	found := ""
	for seed := 1; seed <= 50 && found == ""; seed++ {
		found = failureOf(seed, func(t rafttest.TB) {
			rafttest.New(t, 5, cores.NewPart1).Chaos(10 * time.Second)
		})
	}
	require.Contains(t, found, "double vote")
}

// A crash takes what was not written, and only that.
func TestCrashInSave(t *testing.T) {
	c := rafttest.New(t, 3, cores.NewPart3)
	l := c.CheckSingleLeader()
	c.Commit("x=1")
	c.CrashInSave(l)
	l.Submit("x=2")
	require.False(t, l.Running())
	require.Len(t, l.Log(), 2) // the leader's own and x=1
	c.Restart(l)
	require.Len(t, l.Log(), 2)
	c.RunFor(time.Second)
	c.WaitAllEqual()
}

// What is cut is cut in the direction that was named, until it is healed.
func TestLinks(t *testing.T) {
	c := rafttest.New(t, 3, cores.NewPart3)
	l := c.CheckSingleLeader()
	a, b := c.Server(l.ID()%3+1), c.Server((l.ID()+1)%3+1)
	c.CutOneWay(l, a)
	require.False(t, c.Connected(l, a))
	require.True(t, c.Connected(a, l))
	c.RunFor(time.Second)
	require.Greater(t, a.Status().Term, 1) // it hears no heartbeat
	c.Heal(a)
	c.Cut(a, b)
	require.False(t, c.Connected(a, b))
	require.False(t, c.Connected(b, a))
	c.Heal()
	require.True(t, c.Connected(a, b))
	c.CheckSingleLeader()
}

// Who shows what will happen, shows what then does happen.
func TestWaiting(t *testing.T) {
	c := rafttest.New(t, 3, cores.NewPart3)
	for range 200 {
		next := c.Waiting()[0]
		require.True(t, c.Step())
		require.Equal(t, next.At, c.Now())
	}
}
