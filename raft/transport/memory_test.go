package transport

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/raft"
)

// These tests run in virtual time: in a bubble a second passes as soon as all
// goroutines wait, so a deadline costs nothing and durations can be exact.

func bubble(t *testing.T, name string, f func(*testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

type memoryNode struct {
	*Memory
	cfg Config
	in  inbox
	log *logbook
}

// join starts servers 1 to n in one network.
func join(t *testing.T, n int, change func(*Config)) (*Network, []*memoryNode) {
	t.Helper()
	network := NewNetwork()
	var nodes []*memoryNode
	for i := range n {
		node := &memoryNode{in: make(inbox, 1024), log: &logbook{}}
		node.cfg = config(raft.ServerID(i+1), node.in, node.log)
		for peer := range n {
			node.cfg.Peers[raft.ServerID(peer+1)] = ""
		}
		if change != nil {
			change(&node.cfg)
		}
		node.Memory = network.Join(node.cfg)
		t.Cleanup(func() { require.NoError(t, node.Close()) })
		nodes = append(nodes, node)
	}
	return network, nodes
}

// settle lets the servers connect.
func settle() {
	<-time.After(time.Second)
	synctest.Wait()
}

// waiting returns how many messages have arrived, when no more are under way.
func (n *memoryNode) waiting() int {
	synctest.Wait()
	return len(n.in)
}

func TestMemoryCarriesMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nodes := join(t, 3, nil)
		settle()
		nodes[0].Send([]raft.Message{heartbeat(1, 2, 1), heartbeat(1, 3, 1), heartbeat(1, 2, 2)})
		require.Equal(t, 2, nodes[1].waiting())
		require.Equal(t, 1, nodes[2].waiting())
		require.Equal(t, "http-3", nodes[0].PeerHTTP(3))
	})
}

// A leader's heartbeat interval is the measure: a follower waits at least ten
// of them before it stands for election.
func TestRestartedServerHearsWithinTwoHeartbeats(t *testing.T) {
	const interval = 50 * time.Millisecond
	for _, away := range []time.Duration{0, interval, time.Second, time.Minute} {
		bubble(t, away.String(), func(t *testing.T) {
			network, nodes := join(t, 2, nil)
			settle()
			heartbeats := time.NewTicker(interval)
			defer heartbeats.Stop()
			beat := func(until <-chan time.Time) {
				for {
					select {
					case <-heartbeats.C:
						nodes[0].Send([]raft.Message{heartbeat(1, 2, 1)})
					case <-until:
						return
					}
				}
			}
			require.NoError(t, nodes[1].Close())
			beat(time.After(away))
			for nodes[1].waiting() > 0 {
				<-nodes[1].in
			}
			again := network.Join(nodes[1].cfg)
			defer again.Close()
			beat(time.After(2*interval + 1))
			require.NotZero(t, nodes[1].waiting())
			require.LessOrEqual(t, nodes[1].waiting(), 3, "messages that are out of date were kept")
		})
	}
}

// dialTimes starts a server whose only peer cannot be reached, for the given
// reason, runs it for ten seconds and returns when it tried. It has something
// to send at the given interval; never if that is 0.
func dialTimes(t *testing.T, reason error, interval time.Duration) (times []time.Duration) {
	cfg := config(1, nil, &logbook{})
	cfg.Peers[2] = ""
	cfg, err := cfg.withDefaults()
	require.NoError(t, err)
	began := time.Now()
	e := start(cfg, &pipes{made: make(chan net.Conn), closed: make(chan struct{})}, func(ctx context.Context, _ raft.ServerID, _ string) (net.Conn, error) {
		if ctx.Err() == nil { // else Close has begun
			times = append(times, time.Since(began))
		}
		return nil, reason
	})
	end := time.After(10 * time.Second)
	for running := true; running; {
		var next <-chan time.Time
		if interval != 0 {
			next = time.After(interval)
		}
		select {
		case <-next:
			e.Send([]raft.Message{heartbeat(1, 2, 1)})
		case <-end:
			running = false
		}
	}
	require.NoError(t, e.Close())
	return times
}

func TestBackoff(t *testing.T) {
	nobody := errors.New("connection refused")
	bubble(t, "grows to its limit", func(t *testing.T) {
		times := dialTimes(t, nobody, 0)
		limit := 10 * time.Millisecond
		for i := range times[1:] {
			gap := times[i+1] - times[i]
			require.GreaterOrEqual(t, gap, limit/2, "after attempt %d", i)
			require.LessOrEqual(t, gap, limit, "after attempt %d", i)
			limit = min(2*limit, 250*time.Millisecond)
		}
		last := len(times) - 1
		require.NotEqual(t, times[last]-times[last-1], times[last-1]-times[last-2], "servers must not come back in step")
		require.Greater(t, len(times), 40, "a peer's return must be noticed soon, even without traffic")
	})
	bubble(t, "is cut short by traffic", func(t *testing.T) {
		times := dialTimes(t, nobody, 40*time.Millisecond)
		for i := range times[1:] {
			gap := times[i+1] - times[i]
			require.GreaterOrEqual(t, gap, 5*time.Millisecond)
			require.LessOrEqual(t, gap, 50*time.Millisecond)
		}
	})
	bubble(t, "is not cut short after a refusal", func(t *testing.T) {
		require.Less(t, len(dialTimes(t, refusal("another store"), time.Millisecond)), 100)
	})
}

func TestMemoryCutsOneDirection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, nodes := join(t, 2, nil)
		settle()
		both := func() {
			nodes[0].Send([]raft.Message{heartbeat(1, 2, 1)})
			nodes[1].Send([]raft.Message{heartbeat(2, 1, 1)})
		}
		network.Cut(1, 2)
		both()
		require.Equal(t, 1, nodes[0].waiting())
		require.Equal(t, 0, nodes[1].waiting())

		// Cut is a property of the link, not of the server that is there now.
		require.NoError(t, nodes[1].Close())
		again := network.Join(nodes[1].cfg)
		defer again.Close()
		settle()
		nodes[0].Send([]raft.Message{heartbeat(1, 2, 1)})
		require.Equal(t, 0, nodes[1].waiting())

		network.Heal(1, 2)
		nodes[0].Send([]raft.Message{heartbeat(1, 2, 1)})
		require.Equal(t, 1, nodes[1].waiting())
	})
}

func TestCutDropsBothDirections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nodes := join(t, 3, nil)
		settle()
		all := func() {
			for _, n := range nodes {
				for to := range nodes {
					n.Send([]raft.Message{heartbeat(n.cfg.ID, raft.ServerID(to+1), 1)})
				}
			}
		}
		nodes[0].Cut(2)
		all()
		require.Equal(t, 1, nodes[0].waiting()) // from 3
		require.Equal(t, 1, nodes[1].waiting()) // from 3
		require.Equal(t, 2, nodes[2].waiting())
		nodes[0].Heal(2)
		all()
		require.Equal(t, 1+2, nodes[0].waiting(), "what was cut must not come later")
		require.Equal(t, 1+2, nodes[1].waiting(), "what was cut must not come later")
	})
}

// A Deliver that blocks holds up its peer, within bounds.
func TestSlowServerSlowsItsPeersDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var got []raft.Message
		_, nodes := join(t, 2, func(c *Config) {
			c.MaxQueueBytes = 10_000
			if c.ID == 2 {
				c.Deliver = func(m []raft.Message) {
					<-release
					got = append(got, m...)
				}
			}
		})
		settle()
		for range 10_000 {
			nodes[0].Send([]raft.Message{heartbeat(1, 2, 1)})
		}
		synctest.Wait()
		require.LessOrEqual(t, nodes[0].peer(2).queued, 10_000)
		require.Equal(t, 1, nodes[0].log.count("too much is waiting"))
		close(release)
		synctest.Wait()
		require.NotEmpty(t, got)
		require.Less(t, len(got), 10_000)
	})
}

// A peer that hung for a while must not get what was said meanwhile before it
// gets the news.
func TestHangingConnectionKeepsNoOldMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resume := make(chan struct{})
		_, nodes := join(t, 2, func(c *Config) {
			if c.ID == 2 {
				deliver := c.Deliver
				c.Deliver = func(m []raft.Message) {
					<-resume
					deliver(m)
				}
			}
		})
		settle()
		for term := raft.Term(1); term <= 3; term++ { // read; being written; waiting
			nodes[0].Send([]raft.Message{heartbeat(1, 2, term)})
			synctest.Wait()
		}
		<-time.After(5 * time.Second) // WriteTimeout
		settle()
		nodes[0].Send([]raft.Message{heartbeat(1, 2, 4)})
		synctest.Wait()
		close(resume)
		require.Equal(t, 2, nodes[1].waiting())
		terms := []raft.Term{(<-nodes[1].in).Term(), (<-nodes[1].in).Term()}
		require.ElementsMatch(t, []raft.Term{1, 4}, terms)
	})
}

func TestCloseTellsWhatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		network := NewNetwork()
		cfg := func(id, peer raft.ServerID) Config {
			return Config{ID: id, Peers: map[raft.ServerID]string{peer: ""}, Deliver: func([]raft.Message) { <-release }}
		}
		first, second := network.Join(cfg(1, 2)), network.Join(cfg(2, 1))
		settle()
		first.Send([]raft.Message{{From: 1, To: 2, Body: raft.AppendEntriesArgs{Term: 1, LeaderID: 1}}})
		synctest.Wait()
		began := time.Now()
		require.ErrorContains(t, second.Close(), "Deliver")
		require.Equal(t, closeTimeout, time.Since(began))
		close(release)
		require.NoError(t, first.Close())
	})
}

func TestComplaints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logbook{}
		c := &complaints{log: slog.New(slog.NewTextHandler(log, nil)), last: map[subject]string{}}
		peer, stranger := subject{peer: 2, side: outgoingSide}, subject{side: incomingSide, stranger: true}
		complain := func(s subject, reason string) { c.about(s, "trouble", "addr", errors.New(reason)) }
		lines := func() int { return log.count("trouble") }

		complain(peer, "a")
		complain(peer, "a")
		require.Equal(t, 1, lines(), "the same again")
		complain(peer, "b")
		require.Equal(t, 2, lines(), "another reason")
		complain(subject{peer: 3, side: outgoingSide}, "b")
		complain(subject{peer: 2, side: incomingSide}, "b")
		require.Equal(t, 4, lines(), "about something else")
		c.settled(peer)
		complain(peer, "b")
		require.Equal(t, 5, lines(), "again, after it had been well")

		for range 1000 {
			stranger.peer++
			complain(stranger, rand.Text())
		}
		require.Equal(t, 6, lines(), "strangers must not fill the log")
		<-time.After(time.Second)
		complain(stranger, rand.Text())
		require.Equal(t, 7, lines())
		require.Len(t, c.last, 4, "nor the memory")
	})
}
