package part5

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/rafttest"
)

// Stories in virtual time: docs/rafttest.md.

func TestAnswerLostWithTheLeader(t *testing.T) {
	c := rafttest.NewKV(t, 3, NewService)
	a := c.Client()
	a.Put("x", "foo")
	call := a.StartAppend("x", "bar")
	c.RunUntil(call.Committed) // in the log of a majority, the answer not yet sent
	c.CrashLeader()
	call.Wait()             // retried, same ClientID and RequestID, new leader
	c.Expect("x", "foobar") // part 4: foobarbar
}

func TestLateRetryDoesNotUndoANewerWrite(t *testing.T) {
	c := rafttest.NewKV(t, 3, NewService)
	a, b := c.Client(), c.Client()
	c.LoseAnswersTo(a)
	late := a.StartPut("foo", "1")
	c.RunUntil(late.Committed)
	b.Put("foo", "2")
	c.HearAgain(a)
	late.Wait()
	c.Expect("foo", "2") // part 4: 1
}

// The note of what was done is part of what the log makes. So it comes back with
// the log, on every server.
func TestNotesSurviveAPowerCut(t *testing.T) {
	c := rafttest.NewKV(t, 3, NewService)
	a := c.Client()
	c.LoseAnswersTo(a)
	call := a.StartAppend("x", "once")
	c.RunUntil(call.Committed)
	for _, s := range c.Servers() {
		c.Crash(s)
	}
	c.HearAgain(a)
	for _, s := range c.Servers() {
		c.Restart(s)
	}
	call.Wait()
	c.Expect("x", "once")
}

func TestEveryLeaderCrashes(t *testing.T) {
	c := rafttest.NewKV(t, 3, NewService)
	a := c.Client()
	want := ""
	for i := range 10 {
		word := fmt.Sprint(i, " ")
		want += word
		call := a.StartAppend("x", word)
		c.RunUntil(call.Committed)
		dead := c.CrashLeader()
		call.Wait()
		c.Restart(dead)
	}
	c.Expect("x", want)
}

func TestTwoClientsCountForThemselves(t *testing.T) {
	c := rafttest.NewKV(t, 3, NewService)
	a, b := c.Client(), c.Client()
	for range 5 {
		one, two := a.StartAppend("x", "a"), b.StartAppend("y", "b") // both are request 1, then 2 …
		one.Wait()
		two.Wait()
	}
	c.Expect("x", "aaaaa")
	c.Expect("y", "bbbbb")
}

func TestCutOffLeaderTakesACommand(t *testing.T) {
	c := rafttest.NewKV(t, 3, NewService)
	a := c.Client()
	a.Put("x", "1") // now A knows who leads
	old := c.WaitForLeader()
	c.Isolate(old)
	call := a.StartAppend("x", "2") // the old leader takes it, and can do nothing with it
	require.NotEqual(t, old, c.WaitForLeader())
	require.False(t, call.Done())
	c.Heal() // it hears of the other leader, and that its entry has been replaced
	call.Wait()
	c.Expect("x", "12")
	require.False(t, call.Duplicate()) // what was in the old log never counted
}

func TestChaos(t *testing.T) {
	rafttest.EachSeed(t, 20, func(t *testing.T) {
		c := rafttest.NewKV(t, 3, NewService)
		a, b := c.Client(), c.Client()
		c.StartChaos(4 * time.Second)
		wantX, wantY := "", ""
		for i := range 10 {
			word := fmt.Sprint(i, " ")
			wantX, wantY = wantX+word, wantY+word
			one, two := a.StartAppend("x", word), b.StartAppend("y", word)
			one.Wait()
			two.Wait()
			c.RunFor(200 * time.Millisecond)
		}
		c.RunFor(4 * time.Second)
		c.Expect("x", wantX)
		c.Expect("y", wantY)
	})
}
