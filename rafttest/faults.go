package rafttest

import (
	"slices"
	"time"
)

// Crash stops a server at once. What was not on its disk is gone; its messages
// that are under way arrive. A server that is down stays so.
func (c *Cluster) Crash(s *Server) {
	if s.node != nil {
		c.crash(s, "crashes")
	}
}

func (c *Cluster) crash(s *Server, how string) {
	c.note("%v %s", s, how)
	s.node = nil
	s.life++
	s.crashInSave, s.crashAfterVote = false, false
}

// CrashLeader waits for a leader, crashes it and returns it.
func (c *Cluster) CrashLeader() *Server {
	c.t.Helper()
	s := c.WaitForLeader()
	c.Crash(s)
	return s
}

// CrashInSave lets a server crash the next time that it writes to its disk: the
// write is not done, and of what the step asks for only Effects.Send happens.
func (c *Cluster) CrashInSave(s *Server) { s.crashInSave = true }

// CrashAfterVote lets a server crash the next time that it has voted, for itself
// or for another, and start again a few milliseconds later, when the same
// election may still go on.
func (c *Cluster) CrashAfterVote(s *Server) { s.crashAfterVote = true }

// crashIfVoted does what CrashAfterVote has announced.
func (c *Cluster) crashIfVoted(s *Server, before Status) {
	voted := s.status.VotedFor != 0 && (s.status.Term != before.Term || s.status.VotedFor != before.VotedFor)
	if s.crashAfterVote && voted {
		c.crash(s, "crashes right after its vote")
		c.fault(c.delay(), func() { c.Restart(s) })
	}
}

// Restart starts a server with what its disk holds. One that runs goes on.
func (c *Cluster) Restart(s *Server) {
	c.t.Helper()
	if s.node != nil {
		return
	}
	s.life++
	s.applied, s.status, s.log = nil, Status{}, nil
	c.check.restarted(s)
	var effects Effects
	s.node, effects = c.start(s)
	c.step(s, "starts", nil, func() Effects { return effects })
}

// Cut cuts the link between two servers in both directions. Messages under way
// are lost, too.
func (c *Cluster) Cut(a, b *Server) {
	c.note("the link between %v and %v is cut", a, b)
	c.cut[link{a.id, b.id}], c.cut[link{b.id, a.id}] = true, true
}

// CutOneWay cuts the way from one server to another. What goes back arrives.
func (c *Cluster) CutOneWay(from, to *Server) {
	c.note("the way from %v to %v is cut", from, to)
	c.cut[link{from.id, to.id}] = true
}

// Isolate cuts all links of a server. It goes on, and its clients reach it.
func (c *Cluster) Isolate(s *Server) {
	c.note("%v is cut off", s)
	for _, other := range c.servers {
		if other != s {
			c.cut[link{s.id, other.id}], c.cut[link{other.id, s.id}] = true, true
		}
	}
}

// DropAfter lets a server send n more messages. All later ones are lost.
func (c *Cluster) DropAfter(s *Server, n int) { s.dropAfter = n }

// Lose lets a part of all messages get lost, from 0 for none to 1 for all.
func (c *Cluster) Lose(part float64) { c.loss = part }

// Delay lets a part of all messages take up to two election timeouts longer, so
// that they arrive when what they are about is over. 0 is none, 1 is all.
func (c *Cluster) Delay(part float64) { c.late = part }

// Heal mends all links of the given servers, or, if none is given, everything in
// the network. Servers that are down stay down.
func (c *Cluster) Heal(servers ...*Server) {
	if len(servers) == 0 {
		c.note("the network is healed")
		clear(c.cut)
		c.loss, c.late = 0, 0
		for _, s := range c.servers {
			s.dropAfter = -1
		}
	}
	for _, s := range servers {
		c.note("%v is connected again", s)
		s.dropAfter = -1
		for _, other := range c.servers {
			delete(c.cut, link{s.id, other.id})
			delete(c.cut, link{other.id, s.id})
		}
	}
}

// Connected reports whether messages from one server reach another.
func (c *Cluster) Connected(from, to *Server) bool { return !c.cut[link{from.id, to.id}] }

// Fault is something that Chaos does.
type Fault int

// The faults. Each one ends by itself after a while.
const (
	CrashLeaders   Fault = iota // the leader, or another server, and at times while it writes
	IsolateServers              // the leader, or another server
	CutLinks                    // one link, in one direction or both
	LoseMessages                // every fifth message
	DelayMessages               // every fifth message, beyond the next election
)

// Chaos lets faults happen for a span of time, one after the other, which and
// when drawn from the seed. At the end all servers run and the network is
// healed. A majority is never down. Without faults it uses all kinds; a node
// that keeps nothing on its disk should not be given CrashLeaders, because it
// forgets whom it has voted for.
func (c *Cluster) Chaos(span time.Duration, faults ...Fault) {
	c.t.Helper()
	c.StartChaos(span, faults...)
	c.RunFor(span)
}

// StartChaos is Chaos, but returns at once: the test goes on meanwhile.
func (c *Cluster) StartChaos(span time.Duration, faults ...Fault) {
	if len(faults) == 0 {
		faults = []Fault{CrashLeaders, IsolateServers, CutLinks, LoseMessages, DelayMessages}
	}
	end := c.now + span
	var next func()
	next = func() {
		if c.now < end-ElectionTimeout {
			c.strike(faults[c.rng.IntN(len(faults))], end)
			c.fault(2*time.Millisecond+c.upTo(2*ElectionTimeout), next)
		}
	}
	c.fault(c.upTo(2*ElectionTimeout), next)
	c.fault(span, func() {
		c.t.Helper()
		for _, s := range c.servers {
			s.crashInSave, s.crashAfterVote = false, false
			c.Restart(s)
		}
		c.Heal()
	})
}

// strike lets one fault happen and schedules its end, at the latest when all ends.
func (c *Cluster) strike(fault Fault, end time.Duration) {
	s := c.Leader()
	if s == nil || c.rng.IntN(3) == 0 {
		s = c.servers[c.rng.IntN(len(c.servers))]
	}
	other := c.servers[(s.id-1+1+c.rng.IntN(max(1, len(c.servers)-1)))%len(c.servers)]
	over := min(ElectionTimeout+c.upTo(4*ElectionTimeout), end-c.now)
	switch fault {
	case CrashLeaders:
		down := len(c.servers) - len(c.Running())
		if s.node == nil || down >= (len(c.servers)-1)/2 || slices.ContainsFunc(c.servers, func(s *Server) bool { return s.crashInSave }) {
			return
		}
		switch c.rng.IntN(3) {
		case 0:
			c.Crash(s)
		case 1:
			c.CrashInSave(s)
		case 2: // does it still know?
			c.CrashAfterVote(other)
			return
		}
		c.fault(over, func() {
			c.t.Helper()
			s.crashInSave, s.crashAfterVote = false, false
			c.Restart(s)
		})
	case IsolateServers:
		c.Isolate(s)
		c.fault(over, func() { c.Heal(s) })
	case CutLinks:
		if c.rng.IntN(2) == 0 {
			c.Cut(s, other)
		} else {
			c.CutOneWay(s, other)
		}
		c.fault(over, func() { c.Heal(s, other) })
	case LoseMessages:
		c.note("every fifth message gets lost")
		c.Lose(0.2)
		c.fault(over, func() {
			c.note("messages arrive again")
			c.Lose(0)
		})
	case DelayMessages:
		c.note("every fifth message is late")
		c.Delay(0.2)
		c.fault(over, func() {
			c.note("messages are in time again")
			c.Delay(0)
		})
	}
}

// fault schedules something that Chaos does.
func (c *Cluster) fault(wait time.Duration, do func()) {
	c.schedule(wait, Waiting{Kind: "fault"}, nil, do)
}
