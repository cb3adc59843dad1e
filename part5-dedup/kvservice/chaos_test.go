package kvservice

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const (
	chaosClients = 3
	chaosWords   = 20 // of each client
	chaosTime    = 3 * time.Second
)

// chaos lets three clients append words while leaders crash and messages get
// lost, and returns what has been written when all has healed, and how often a
// client was told of a duplicate. What happens when comes from the seed.
func chaos(t *testing.T, seed uint64) (words []string, duplicates int) {
	c := newCluster(t, 3, seed)
	c.loss = 0.1 * c.rng.Float64()
	var crash func()
	crash = func() {
		if c.now > chaosTime {
			c.loss = 0
			return
		}
		if id := c.leader(); id != 0 {
			c.crash(id)
			c.after(c.upTo(500*time.Millisecond), func() {
				c.logf("server %d is back", id)
				c.restart(id)
			})
		}
		c.after(c.upTo(time.Second), crash)
	}
	c.after(c.upTo(time.Second), crash)
	words = c.write(chaosClients, chaosWords)
	return words, c.found
}

// write has n clients append words to one key, each one word after the other,
// and returns what the key holds when all have been told that theirs are written.
func (c *cluster) write(n, words int) []string {
	clients := make([]*client, n)
	calls := make([]*call, n)
	started := make([]int, n)
	for i := range clients {
		clients[i] = c.client()
	}
	c.runUntil("all words are written", func() bool {
		ready := 0
		for i, a := range clients {
			if calls[i] != nil && !calls[i].done {
				continue
			}
			if started[i] == words {
				ready++
				continue
			}
			calls[i] = a.startAppend("x", fmt.Sprint(a.name, started[i], " "))
			started[i]++
		}
		return ready == n
	})
	get := c.client().start(Command{Kind: CommandGet, Key: "x"})
	get.wait()
	c.expect("x", get.result.ResultValue)
	return strings.Fields(get.result.ResultValue)
}
