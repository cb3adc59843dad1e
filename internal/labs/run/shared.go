package run

import (
	"fmt"
	"slices"
	"time"

	"raftkv/rafttest"
)

// What the checks of several parts need.

// Quiet runs until no message is under way and none will be for as long as one may
// take. What is submitted then is overtaken by nothing: stories about the first steps
// do not ask what the check about late messages asks.
func Quiet(c *rafttest.Cluster) {
	c.RunUntil(func() bool {
		return !slices.ContainsFunc(c.Waiting(), func(w rafttest.Waiting) bool {
			return w.Kind == "message" || w.At-c.Now() <= rafttest.MaxDelay+time.Millisecond
		})
	})
}

// Who names a server of any part in a sentence.
func Who[ID ~uint64](id ID) string {
	if id == 0 {
		return "nobody"
	}
	return fmt.Sprint("server ", id)
}
