package rafttest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/internal/cores"
	raft "raftkv/part3-persistence"
	"raftkv/rafttest"
)

// Without notes of what was done a retry happens twice, and Expect finds that no
// order of the calls explains what the clients have heard.
func TestTwiceIsNotLinearizable(t *testing.T) {
	for seed := 1; seed <= 20; seed++ {
		failure := failureOf(seed, func(t rafttest.TB) {
			c := rafttest.NewKV(t, 3, cores.NewPart4)
			a := c.Client()
			call := a.StartAppend("x", "bar")
			c.RunUntil(call.Committed)
			c.CrashLeader()
			call.Wait()
			c.Expect("x", "barbar")
		})
		require.Contains(t, failure, "not linearizable: key x")
	}
}

// hasty is part 5, but answers a get from what it holds, leader or not.
type hasty struct{ cores.Part5 }

func newHasty(id raft.ServerID, peerIDs []raft.ServerID, disk *raft.MapStorage) (hasty, rafttest.Effects) {
	n, effects := cores.NewPart5(id, peerIDs, disk)
	return hasty{n}, effects
}

func (n hasty) Call(r rafttest.Request) (func() (rafttest.Answer, bool), rafttest.Effects) {
	if r.Op != "get" {
		return n.Part5.Call(r)
	}
	value, found := n.Data()[r.Key]
	return func() (rafttest.Answer, bool) {
		return rafttest.Answer{Result: rafttest.OK, Value: value, Found: found}, true
	}, rafttest.Effects{}
}

func TestStaleReadIsFound(t *testing.T) {
	c := rafttest.NewKV(t, 3, newHasty)
	a, b := c.Client(), c.Client()
	a.Put("x", "old")
	c.Isolate(c.WaitForLeader())
	b.Put("x", "new")
	require.NoError(t, c.Linearizable())
	require.Equal(t, "old", a.Get("x")) // from the old leader, which A still believes in
	require.ErrorContains(t, c.Linearizable(), "not linearizable: key x")
}

// strange is part 5, but what server 2 holds is not what the log says.
type strange struct {
	cores.Part5
	id raft.ServerID
}

func newStrange(id raft.ServerID, peerIDs []raft.ServerID, disk *raft.MapStorage) (strange, rafttest.Effects) {
	n, effects := cores.NewPart5(id, peerIDs, disk)
	return strange{n, id}, effects
}

func (n strange) Data() map[string]string {
	data := n.Part5.Data()
	if n.id == 2 {
		data["x"] += "!"
	}
	return data
}

func TestWhatKVFailuresSay(t *testing.T) {
	for says, story := range map[string]func(c *rafttest.KV){
		`x is "1" and not "2"`: func(c *rafttest.KV) {
			c.Client().Put("x", "1")
			c.Expect("x", "2")
		},
		`on server 2 x is "1!" and not "1"`: func(c *rafttest.KV) {
			c.Client().Put("x", "1")
			c.Expect("x", "1")
		},
		"server 1 holds map[x:1], but server 2 holds map[x:1!]": func(c *rafttest.KV) {
			c.Client().Put("x", "1")
			c.WaitDataEqual()
		},
		"client A still waits for put x 1: make another client": func(c *rafttest.KV) {
			a := c.Client()
			a.StartPut("x", "1")
			a.StartPut("x", "2")
		},
		"client A has no answer to put x 1 within 20s of virtual time": func(c *rafttest.KV) {
			c.Lose(1)
			c.Client().Put("x", "1")
		},
	} {
		failure := failureOf(1, func(t rafttest.TB) { story(rafttest.NewKV(t, 3, newStrange)) })
		require.Contains(t, failure, says)
	}
}

// A call is committed before it is answered, and answered when Wait returns.
func TestCommittedComesBeforeTheAnswer(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		c := rafttest.NewKVSeed(t, seed, 3, cores.NewPart5)
		a := c.Client()
		call := a.StartPut("x", "1")
		require.False(t, call.Committed())
		c.RunUntil(call.Committed)
		require.False(t, call.Done())
		call.Wait()
		require.True(t, call.Done())
		require.False(t, call.Duplicate())
		require.Equal(t, "1", a.Get("x"))
		require.Equal(t, "", c.Read("y"))
	}
}

// Whatever chaos does, a client is answered in the end and what it was told is so.
func TestChaosWithClients(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		c := rafttest.NewKVSeed(t, seed, 5, cores.NewPart5)
		a, b := c.Client(), c.Client()
		c.StartChaos(4 * time.Second)
		for range 8 {
			one, two := a.StartAppend("x", "a"), b.StartPut("y", "b")
			one.Wait()
			two.Wait()
		}
		c.RunFor(4 * time.Second)
		c.Expect("x", "aaaaaaaa")
		c.WaitDataEqual()
	}
}
