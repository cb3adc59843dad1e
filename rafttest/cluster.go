package rafttest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Cluster is some servers and the network between them, in virtual time.
type Cluster struct {
	t       TB
	seed    uint64
	rng     *rand.Rand
	servers []*Server
	start   func(s *Server) (Node, Effects)

	now    time.Duration
	queue  queue
	serial int

	cut  map[link]bool
	loss float64 // how many of the messages get lost, from 0 to 1
	late float64 // how many take very long

	check    checker
	trace    trace
	stepping bool // a server is in a step
	failed   bool

	// committed is told of each entry that a server's state machine gets, and
	// stepped of each server that has taken a step; for KV.
	committed func(s *Server, e Entry)
	stepped   func(s *Server)
}

// link is the way from one server to another.
type link struct{ from, to int }

// Server is one of the servers of a Cluster.
type Server struct {
	c      *Cluster
	id     int
	node   Node // nil while it is down
	life   int  // counts its starts
	timers [2]int

	// What it was after its latest step. A server that is down still has a disk.
	status  Status
	log     []Entry
	applied []Entry // by this life

	dropAfter      int  // messages that it may still send; less than 0: any number
	crashInSave    bool // its next write is its last deed
	crashAfterVote bool // its next vote is
}

// New starts n servers; start makes the algorithm of each of them. The test
// fails if a server breaks one of the rules.
func New[ID ~uint64, D any, N Node](t TB, n int, start Start[ID, D, N]) *Cluster {
	return NewSeed(t, seedOf(t), n, start)
}

// NewSeed is New with a seed of the caller's choice.
func NewSeed[ID ~uint64, D any, N Node](t TB, seed uint64, n int, start Start[ID, D, N]) *Cluster {
	c := newCluster(t, seed, n, start)
	c.begin()
	return c
}

func newCluster[ID ~uint64, D any, N Node](t TB, seed uint64, n int, start Start[ID, D, N]) *Cluster {
	disks := make([]D, n)
	c := &Cluster{
		t:     t,
		seed:  seed,
		rng:   rand.New(rand.NewPCG(seed, 0)),
		cut:   map[link]bool{},
		check: newChecker(),
		start: func(s *Server) (Node, Effects) {
			var peers []ID
			for id := 1; id <= n; id++ {
				if id != s.id {
					peers = append(peers, ID(id))
				}
			}
			return start(ID(s.id), peers, &disks[s.id-1])
		},
		committed: func(*Server, Entry) {},
		stepped:   func(*Server) {},
	}
	for id := 1; id <= n; id++ {
		c.servers = append(c.servers, &Server{c: c, id: id, dropAfter: -1})
	}
	return c
}

// begin starts all servers.
func (c *Cluster) begin() {
	for _, s := range c.servers {
		c.Restart(s)
	}
}

// Servers returns all servers.
func (c *Cluster) Servers() []*Server { return c.servers }

// Server returns the server with a number from 1 on.
func (c *Cluster) Server(id int) *Server { return c.servers[id-1] }

// Running returns the servers that are not down.
func (c *Cluster) Running() []*Server {
	return slices.DeleteFunc(slices.Clone(c.servers), func(s *Server) bool { return s.node == nil })
}

// ID returns the server's number.
func (s *Server) ID() int { return s.id }

func (s *Server) String() string { return fmt.Sprintf("server %d", s.id) }

// Running reports whether the server is not down.
func (s *Server) Running() bool { return s.node != nil }

// Status returns what the server thinks; while it is down, what it last thought.
func (s *Server) Status() Status { return s.status }

// Node returns the server's algorithm, nil while it is down.
func (s *Server) Node() Node { return s.node }

// Log returns the server's log; while it is down, the one it had.
func (s *Server) Log() []Entry { return s.log }

// Applied returns the commands that the server has applied since it started.
func (s *Server) Applied() []string {
	commands := []string{}
	for _, e := range s.applied {
		if e.Command != nil {
			commands = append(commands, string(e.Command))
		}
	}
	return commands
}

// leads reports whether a server leads and can: a majority of the servers,
// itself among them, is in its term and can talk with it.
func (c *Cluster) leads(s *Server) bool {
	if s.node == nil || s.status.State != leader {
		return false
	}
	following := 0
	for _, other := range c.servers {
		if other.node != nil && other.status.Term == s.status.Term && !c.cut[link{s.id, other.id}] && !c.cut[link{other.id, s.id}] {
			following++
		}
	}
	return following > len(c.servers)/2
}

// Leader returns the server that leads now, with a majority that it can talk
// with in its term; nil if there is none.
func (c *Cluster) Leader() *Server {
	for _, s := range c.servers {
		if c.leads(s) {
			return s
		}
	}
	return nil
}

// WaitForLeader waits until a server leads, followed by a majority that it can
// talk with, and returns it.
func (c *Cluster) WaitForLeader() *Server {
	c.t.Helper()
	c.runUntil(func() bool { return c.Leader() != nil }, func() string { return "no leader" })
	return c.Leader()
}

// CheckSingleLeader waits until exactly one of the running servers believes
// that it leads, and returns it. Where links are cut, an old leader may not have
// heard that it was replaced: that is not an error, but it is not this.
func (c *Cluster) CheckSingleLeader() *Server {
	c.t.Helper()
	c.runUntil(func() bool {
		return len(c.leaders()) == 1 && c.Leader() != nil
	}, func() string { return "no single leader" })
	return c.Leader()
}

// CheckNoLeader lets two seconds pass, in which no server may be elected.
func (c *Cluster) CheckNoLeader() {
	c.t.Helper()
	for end := c.now + 2*time.Second; c.now < end; c.RunFor(MaxDelay) {
		if s := c.Leader(); s != nil {
			c.fail("%v leads in term %d, and no server should", s, s.status.Term)
		}
	}
}

// Submission is a command that was given to a server.
type Submission struct {
	Command     string
	Server      *Server
	Index, Term int // where it went into the log; 0 if the server has refused it
}

// Submit waits for a leader and gives it a command.
func (c *Cluster) Submit(command string) *Submission {
	c.t.Helper()
	return c.WaitForLeader().Submit(command)
}

// Submit gives a command to this server, whether or not it leads, and returns
// at once.
func (s *Server) Submit(command string) *Submission {
	s.c.t.Helper()
	node, ok := s.node.(LogNode)
	if !ok {
		s.c.fail("%v takes no commands: it is down, or has no log", s)
	}
	sub := &Submission{Command: command, Server: s}
	s.c.step(s, "a client submits "+command, nil, func() Effects {
		effects := node.Submit([]byte(command))
		sub.Index, sub.Term = effects.Index, effects.Term
		return effects
	})
	return sub
}

// Refused reports that the server did not take the command.
func (sub *Submission) Refused() bool { return sub.Index == 0 }

// Committed reports whether the command is committed.
func (sub *Submission) Committed() bool {
	e, ok := sub.Server.c.check.committed[sub.Index]
	return ok && e.Term == sub.Term
}

// Lost reports whether another command was committed in the command's place.
func (sub *Submission) Lost() bool {
	e, ok := sub.Server.c.check.committed[sub.Index]
	return ok && e.Term != sub.Term
}

// WaitCommitted waits until the command is committed. It fails the test if the
// command was refused, or another one was committed in its place.
func (sub *Submission) WaitCommitted() {
	c := sub.Server.c
	c.t.Helper()
	if sub.Refused() {
		c.fail("%v has refused %s: it is a %s", sub.Server, sub.Command, sub.Server.status.State)
	}
	c.runUntil(func() bool { return sub.Committed() || sub.Lost() }, func() string {
		return fmt.Sprintf("%s, which %v took as entry %d of term %d, was not committed", sub.Command, sub.Server, sub.Index, sub.Term)
	})
	if sub.Lost() {
		c.fail("%s is lost: %v took it as entry %d of term %d, but the entry of term %d was committed there",
			sub.Command, sub.Server, sub.Index, sub.Term, c.check.committed[sub.Index].Term)
	}
}

// Commit has each of the commands committed before the next. It asks as a client
// does that cannot know who really leads: any server that believes it does. A
// command that is not committed soon is submitted again, so it may be there twice.
func (c *Cluster) Commit(commands ...string) {
	c.t.Helper()
	for _, command := range commands {
		for done := false; !done; {
			c.runUntil(func() bool { return len(c.leaders()) > 0 }, func() string { return "no leader" })
			leaders := c.leaders()
			sub := leaders[c.rng.IntN(len(leaders))].Submit(command)
			again := c.now + 2*ElectionTimeout
			c.runUntil(func() bool {
				done = sub.Committed()
				return done || sub.Lost() || c.now > again
			}, func() string { return command + " was not committed" })
		}
	}
}

// leaders returns the running servers that believe they lead.
func (c *Cluster) leaders() []*Server {
	return slices.DeleteFunc(c.Running(), func(s *Server) bool { return s.status.State != leader })
}

// WaitApplied waits until a server has applied these commands, in this order
// and no others, since it started.
func (c *Cluster) WaitApplied(s *Server, commands ...string) {
	c.t.Helper()
	c.runUntil(func() bool { return slices.Equal(s.Applied(), commands) }, func() string {
		return fmt.Sprintf("%v has applied [%s] and not [%s]", s, strings.Join(s.Applied(), " "), strings.Join(commands, " "))
	})
}

// WaitAllApplied waits until every running server has applied these commands,
// in this order and no others, since it started.
func (c *Cluster) WaitAllApplied(commands ...string) {
	c.t.Helper()
	for _, s := range c.Running() {
		c.WaitApplied(s, commands...)
	}
}

// WaitAllEqual waits until every running server has applied all that the
// newest leader's log holds, and returns the commands.
func (c *Cluster) WaitAllEqual() []string {
	c.t.Helper()
	c.runUntil(func() bool {
		l := c.Leader()
		return l != nil && !slices.ContainsFunc(c.Running(), func(s *Server) bool { return len(s.applied) != len(l.log) })
	}, func() string {
		words := "the servers have not all applied the same:"
		for _, s := range c.Running() {
			words += fmt.Sprintf(" %d entries on %v,", len(s.applied), s)
		}
		return strings.TrimSuffix(words, ",")
	})
	return c.Leader().Applied()
}

// step has something happen to a server and carries out what it asks for.
func (c *Cluster) step(s *Server, what string, body any, event func() Effects) {
	c.t.Helper()
	line := c.trace.add(c.now, s, what, body)
	c.stepping = true
	defer func() {
		c.t.Helper()
		c.stepping = false
		if broken := recover(); broken != nil {
			if c.failed {
				panic(broken) // not the server's: Fatalf is on its way out
			}
			c.fail("%v has panicked: %v", s, broken)
		}
	}()
	status, log := s.status, s.log
	effects := event()
	s.observe()
	line.after, line.last = s.status, len(s.log)
	c.carryOut(s, effects)
	if s.node == nil { // it has crashed while it wrote, so that has not happened
		s.status, s.log = status, log
		c.trace.print(c.t)
		return
	}
	line.after, line.last = s.status, len(s.log) // what Save has changed, too
	if err := c.check.afterStep(c, s); err != nil {
		c.fail("%v", err)
	}
	c.stepped(s)
	c.crashIfVoted(s, status)
	c.trace.print(c.t)
}

// observe notes what a server is now.
func (s *Server) observe() {
	s.status = s.node.Status()
	if node, ok := s.node.(LogNode); ok {
		s.log = node.Log()
		for i := range s.log {
			s.log[i].Index = i + 1
		}
	}
}

func (c *Cluster) carryOut(s *Server, e Effects) {
	c.t.Helper()
	for _, m := range e.Send {
		c.send(s, m)
	}
	var saved Effects
	if e.Save != nil {
		if s.crashInSave {
			c.crash(s, "crashes while it writes")
			return
		}
		saved = e.Save()
		s.observe()
	}
	for _, m := range e.SendAfter {
		c.send(s, m)
	}
	c.setTimer(s, electionTimer, e.ElectionTimer)
	c.setTimer(s, heartbeatTimer, e.HeartbeatTimer)
	for _, entry := range e.Commit {
		if err := c.check.applied(c, s, entry); err != nil {
			c.fail("%v", err)
		}
		s.applied = append(s.applied, entry)
		c.committed(s, entry)
	}
	if e.Save != nil {
		c.carryOut(s, saved)
	}
}

const (
	electionTimer = iota
	heartbeatTimer
)

func (c *Cluster) setTimer(s *Server, timer int, action TimerAction) {
	if action == LeaveTimer {
		return
	}
	s.timers[timer]++ // the one that was running is no more
	if action == StopTimer {
		return
	}
	life, number, node := s.life, s.timers[timer], s.node
	wait, what, fire := Heartbeat, "heartbeat timer", node.HeartbeatTimeout
	if timer == electionTimer {
		wait, what, fire = ElectionTimeout+c.upTo(ElectionTimeout), "election timer", node.ElectionTimeout
	}
	c.schedule(wait, Waiting{Kind: "timer", From: s.id, Text: what},
		func() bool { return s.life == life && s.timers[timer] == number },
		func() { c.t.Helper(); c.step(s, "the "+what+" fires", nil, fire) })
}

// send puts a message on its way, or loses it. A message to a server that is
// down when it arrives is lost as well.
func (c *Cluster) send(from *Server, m Message) {
	switch {
	case from.dropAfter == 0, c.cut[link{from.id, m.To}], c.rng.Float64() < c.loss:
		c.trace.lost(c.now, from, m)
		return
	case from.dropAfter > 0:
		from.dropAfter--
	}
	to, wait := c.Server(m.To), c.delay()
	if c.late > 0 && c.rng.Float64() < c.late {
		wait += c.upTo(2 * ElectionTimeout)
	}
	c.schedule(wait, Waiting{Kind: "message", From: from.id, To: m.To, Body: m.Body}, nil, func() {
		c.t.Helper()
		if to.node == nil || c.cut[link{from.id, to.id}] {
			c.trace.lost(c.now, from, m)
			return
		}
		c.step(to, "hears from "+from.String(), m.Body, func() Effects { return to.node.Receive(m.Body) })
	})
}
