package sim

import (
	"time"

	"raftkv/raft"
)

// network joins the servers. A message may be lost, arrive twice, overtake
// others, or come after several elections. What is under way when a link is cut
// still arrives.
type network struct {
	random *source
	// cuts[from][to] counts the faults that block this direction.
	cuts [][]int
	// heldUntil[from][to] is when this direction lets go what it has kept, as a
	// connection does that repeats what was lost.
	heldUntil [][]time.Duration
	// lastArrival[from][to] keeps messages in order where the plan says so.
	lastArrival [][]time.Duration
	// extra[from][to] is what a slow link adds to every message.
	extra  [][]time.Duration
	lossy  int // faults that make the network lose every other message
	healed bool
}

func newNetwork(seed uint64, plan *plan) network {
	nodes := plan.nodes
	n := network{random: newSource(seed, "network")}
	n.cuts = make([][]int, nodes)
	n.heldUntil = make([][]time.Duration, nodes)
	n.extra = make([][]time.Duration, nodes)
	n.lastArrival = make([][]time.Duration, nodes)
	for i := range nodes {
		n.heldUntil[i] = make([]time.Duration, nodes)
		n.cuts[i] = make([]int, nodes)
		n.extra[i] = make([]time.Duration, nodes)
		n.lastArrival[i] = make([]time.Duration, nodes)
	}
	for _, l := range plan.slowLinks {
		n.extra[l.from][l.to] = l.delay
	}
	return n
}

// heal makes the network a good one, for ever.
func (n *network) heal() {
	n.healed = true
	for i := range n.cuts {
		clear(n.cuts[i])
		clear(n.heldUntil[i])
	}
}

func (s *simulation) sendAll(messages []raft.Message) {
	for i := range messages {
		s.send(messages[i])
	}
}

func (s *simulation) send(m raft.Message) {
	n := &s.network
	from, to := index(m.From), index(m.To)
	if to < 0 || to >= len(s.nodes) || n.cuts[from][to] > 0 {
		return
	}
	if n.healed {
		s.deliverIn(from, to, s.plan.linkDelay, m)
		return
	}
	if n.random.chance(s.plan.drop) || n.lossy > 0 && n.random.oneIn(2) {
		return
	}
	s.deliverIn(from, to, s.linkTime(from, to), m)
	if n.random.chance(s.plan.duplicate) {
		s.deliverIn(from, to, s.linkTime(from, to), m)
	}
}

// linkTime draws how long a message is under way.
func (s *simulation) linkTime(from, to int) time.Duration {
	n := &s.network
	t := s.plan.linkDelay + n.random.around(s.plan.linkJitter)
	t += n.extra[from][to] + max(0, n.heldUntil[from][to]-s.now)
	if n.random.chance(s.plan.late) {
		t += n.random.span(0, s.plan.lateBy)
	}
	return t
}

func (s *simulation) deliverIn(from, to int, t time.Duration, m raft.Message) {
	at := s.now + t
	if s.plan.inOrder {
		at = max(at, s.network.lastArrival[from][to])
		s.network.lastArrival[from][to] = at
	}
	s.queue.push(happening{at: at, kind: messageArrives, node: int32(to), arg: s.messages.put(m)})
}

// index and id translate between a server's id, from 1, and its place in
// simulation.nodes.
func index(id raft.ServerID) int { return int(id) - 1 }
func id(index int) raft.ServerID { return raft.ServerID(index + 1) }
