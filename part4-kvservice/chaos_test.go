package part4

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/rafttest"
)

// Stories in virtual time: docs/rafttest.md.

// The whole trouble of this part. Nothing is broken and nobody misbehaves: A
// asks again because it has heard nothing, as it must.
func TestAnswerLostWithTheLeader(t *testing.T) {
	c := rafttest.NewKV(t, 3, NewService)
	a := c.Client()
	a.Put("x", "foo")
	call := a.StartAppend("x", "bar")
	c.RunUntil(call.Committed) // in the log of a majority, the answer not yet sent
	c.CrashLeader()
	call.Wait()                                      // retried at the new leader
	require.Equal(t, "foobarbar", c.Read("x"))       // part 5: foobar
	require.ErrorContains(t, c.Linearizable(), "x:") // no order of the calls explains that
}

func TestLateRetryUndoesANewerWrite(t *testing.T) {
	c := rafttest.NewKV(t, 3, NewService)
	a, b := c.Client(), c.Client()
	c.LoseAnswersTo(a)
	late := a.StartPut("foo", "1")
	c.RunUntil(late.Committed)
	b.Put("foo", "2")
	require.Equal(t, "2", c.Read("foo"))
	c.HearAgain(a)
	late.Wait()
	require.Equal(t, "1", c.Read("foo")) // part 5: 2
	require.ErrorContains(t, c.Linearizable(), "foo:")
}

func TestWritesSurviveTheirLeader(t *testing.T) {
	c := rafttest.NewKV(t, 3, NewService)
	a := c.Client()
	a.Put("x", "1")
	old := c.CrashLeader()
	a.Put("y", "2")
	c.Restart(old)
	c.Expect("x", "1")
	c.Expect("y", "2")
}

func TestPowerCut(t *testing.T) {
	c := rafttest.NewKV(t, 3, NewService)
	a := c.Client()
	a.Append("x", "foo")
	a.Append("x", "bar")
	for _, s := range c.Servers() {
		c.Crash(s)
	}
	for _, s := range c.Servers() {
		c.Restart(s)
	}
	c.Expect("x", "foobar") // the stores were empty, the log was not
}

func TestCutOffLeaderTakesACommand(t *testing.T) {
	c := rafttest.NewKV(t, 3, NewService)
	a := c.Client()
	a.Put("x", "1") // now A knows who leads
	old := c.WaitForLeader()
	c.Isolate(old)
	call := a.StartPut("x", "2") // the old leader takes it, and can do nothing with it
	require.NotEqual(t, old, c.WaitForLeader())
	require.False(t, call.Done())
	c.Heal() // it hears of the other leader, and that its entry has been replaced
	call.Wait()
	c.Expect("x", "2")
}

func TestReadFromACutOffLeader(t *testing.T) {
	c := rafttest.NewKV(t, 3, NewService)
	a, b := c.Client(), c.Client()
	a.Put("x", "old")
	c.Isolate(c.WaitForLeader())
	b.Put("x", "new")
	require.Equal(t, "new", a.Get("x")) // a get is an entry, too, and commits nowhere else
	c.Heal()
	c.Expect("x", "new")
}

// Nothing that was acknowledged is lost. That it is there once is more than a
// service without notes can promise.
func TestChaos(t *testing.T) {
	rafttest.EachSeed(t, 10, func(t *testing.T) {
		c := rafttest.NewKV(t, 3, NewService)
		a := c.Client()
		c.StartChaos(4 * time.Second)
		for i := range 10 {
			a.Append("x", fmt.Sprint(i, " "))
			c.RunFor(200 * time.Millisecond)
		}
		c.RunFor(4 * time.Second)
		words := strings.Fields(c.Read("x"))
		require.Subset(t, words, strings.Fields("0 1 2 3 4 5 6 7 8 9"))
		c.WaitDataEqual()
	})
}
