package main

import (
	"cmp"
	"context"
	"slices"
	"time"

	"raftkv/bench/peers/internal/load"
)

const (
	failoverClients = 16

	// tryTimeout is how long a client of the cheap kind waits before it asks the next
	// node, and callTimeout how long the system's own client may try.
	tryTimeout  = 250 * time.Millisecond
	callTimeout = 10 * time.Second

	// before is how long puts are made before the leader is killed, and also how long
	// it may settle after it was started again.
	before = 1500 * time.Millisecond
)

// failover kills leaders under load, once with clients that only know to ask the
// next node, and once with the system's own client if it has one.
func (h *harness) failover(ctx context.Context) error {
	for _, name := range list(h.options.failover) {
		c, err := h.up(ctx, name)
		if err != nil {
			return err
		}
		err = h.killLeaders(ctx, c)
		c.down()
		if err != nil {
			return err
		}
	}
	return nil
}

func (h *harness) killLeaders(ctx context.Context, c *cluster) error {
	clients := []string{"each its own"}
	if c.Shared != nil {
		clients = append(clients, shared)
	}
	for _, client := range clients {
		f := failover{Contender: c.Name, Client: client}
		for range h.options.kills {
			leader, err := c.leader(ctx)
			if err != nil {
				return err
			}
			var s load.Session
			if client == shared {
				s, err = c.Shared(c.place, callTimeout)
			} else {
				s, err = c.Dial(c.place, failoverClients, leader, tryTimeout)
			}
			if err != nil {
				return err
			}
			gap, result, err := h.killLeader(ctx, c, leader, s)
			s.Close()
			if err != nil {
				return err
			}
			f.GapMillis = append(f.GapMillis, millis(gap))
			f.Errors += result.Errors
			if result.LastError != nil {
				f.LastError = result.LastError.Error()
			}
			if err := c.fleet.StartOne(leader); err != nil {
				return err
			}
			if err := pause(ctx, before); err != nil {
				return err
			}
		}
		h.results.Failovers = append(h.results.Failovers, f)
		h.say("%s", f)
	}
	return nil
}

// killLeader makes puts, kills the leader amid them, and returns the longest time
// between two answers of which the later came after the kill.
func (h *harness) killLeader(ctx context.Context, c *cluster, leader int, s load.Session) (time.Duration, *load.Result, error) {
	loadCtx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan *load.Result)
	go func() {
		done <- load.Run(loadCtx, s, load.Plan{
			Op: load.Put, Clients: failoverClients, ValueBytes: h.options.valueBytes, Keys: h.options.keys, Keep: true,
		})
	}()
	err := pause(ctx, before)
	killed := time.Now()
	c.fleet.KillOne(leader)
	if err == nil {
		err = pause(ctx, h.options.after)
	}
	end := time.Now()
	stop()
	result := <-done
	return longestGap(result.Times, killed, end), result, err
}

// longestGap returns the longest time without an answer that ended after killed. If
// no more answers came, it lasts until end.
func longestGap(times []load.Times, killed, end time.Time) time.Duration {
	slices.SortFunc(times, func(a, b load.Times) int { return cmp.Compare(a.Answered.UnixNano(), b.Answered.UnixNano()) })
	var longest time.Duration
	last := killed
	for _, t := range times {
		if t.Answered.After(killed) {
			longest = max(longest, t.Answered.Sub(last))
		}
		last = t.Answered
	}
	if last.Before(end) {
		longest = max(longest, end.Sub(last))
	}
	return longest
}
