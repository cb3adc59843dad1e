package raft

import (
	"context"
	"encoding/gob"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ErrStopped reports that the server was shut down. Ask another one.
var ErrStopped = errors.New("raft: server stopped")

// Server gives a ConsensusModule a network and a clock. Its methods may be
// called by any goroutine.
type Server struct {
	// ElectionTimeout is the shortest time a follower waits without hearing from
	// a leader; each wait is drawn anew from [ElectionTimeout, 2*ElectionTimeout)
	// (§5.2, §5.6). A leader sends heartbeats three times as often. NewServer sets
	// 150 ms; set another value before Serve.
	ElectionTimeout time.Duration

	// Trace, if set before Serve, is told each step and must not block (the posts' dlog).
	Trace func(Status, Event, Effects)

	cm       *ConsensusModule // touched by run only, hence no lock in this package
	out      Effects          // what cm has asked for and run is to carry out next
	status   atomic.Pointer[Status]
	listener net.Listener
	peers    map[ServerID]string // their addresses
	inbox    chan Message
	submits  chan submit
	commits  chan<- CommitEntry
	outboxes map[ServerID]chan Message // bounded; a message that finds it full is lost
	ctx      context.Context           // ends at Shutdown
	quit     context.CancelFunc
	wg       sync.WaitGroup
}

// submit is a call of Submit on its way to run.
type submit struct {
	command []byte
	answer  chan Submitted
}

// NewServer returns the server id of a cluster. It takes over listener, where
// the peers reach it, and reaches them at the addresses in peers. What is
// committed it sends on commitChan, without waiting: a slow receiver holds up
// nothing but itself. It does nothing before Serve.
func NewServer(id ServerID, listener net.Listener, peers map[ServerID]string, commitChan chan<- CommitEntry) *Server {
	s := &Server{
		ElectionTimeout: 150 * time.Millisecond,
		listener:        listener,
		peers:           peers,
		inbox:           make(chan Message),
		submits:         make(chan submit),
		commits:         commitChan,
		outboxes:        make(map[ServerID]chan Message),
	}
	s.ctx, s.quit = context.WithCancel(context.Background())
	s.cm, s.out = NewConsensusModule(id, slices.Collect(maps.Keys(peers)))
	s.status.Store(new(s.cm.Status()))
	return s
}

// Serve starts the server and returns at once. The peers may start later:
// messages to the unborn are lost, like those to the dead.
func (s *Server) Serve() {
	context.AfterFunc(s.ctx, func() { s.listener.Close() })
	for id, addr := range s.peers {
		outbox := make(chan Message, 64)
		s.outboxes[id] = outbox
		s.wg.Go(func() { s.writeTo(addr, outbox) })
	}
	s.wg.Go(s.accept)
	s.wg.Go(s.run)
}

// Shutdown stops the server and returns when nothing of it runs any more. The
// second time it does nothing.
func (s *Server) Shutdown() {
	s.quit()
	s.wg.Wait()
}

// Status reports the state after the latest step.
func (s *Server) Status() Status { return *s.status.Load() }

// IsLeader reports whether this server takes itself for the leader.
func (s *Server) IsLeader() bool { return s.Status().State == Leader }

// Submit asks to append command to the log, which must not be changed any more,
// and returns the place that it has got. That is no promise yet: the command is
// committed if the entry that comes out of commitChan at that index has that
// term, and lost if it has another. The error is a *NotLeaderError or
// ErrStopped; then nothing has happened. Submit waits for one step of the server.
func (s *Server) Submit(command []byte) (Index, Term, error) {
	answer := make(chan Submitted, 1)
	select {
	case s.submits <- submit{command, answer}:
		submitted := <-answer
		return submitted.Index, submitted.Term, submitted.Err
	case <-s.ctx.Done():
		return 0, 0, ErrStopped
	}
}

// run is the only goroutine that touches the module: it carries out what the
// last step asked for, waits for the next event, and steps.
func (s *Server) run() {
	electionTimer, heartbeatTimer := time.NewTimer(s.electionTimeout()), time.NewTimer(time.Hour)
	heartbeatTimer.Stop()
	defer func() {
		for _, outbox := range s.outboxes {
			close(outbox)
		}
	}()
	var committed []CommitEntry // what the receiver of commitChan has not taken yet
	for {
		s.send(s.out.Send)
		setTimer(electionTimer, s.out.Timers[ElectionTimer], s.electionTimeout())
		setTimer(heartbeatTimer, s.out.Timers[HeartbeatTimer], s.ElectionTimeout/3)
		committed = append(committed, s.out.Commit...)
		s.out = Effects{} // all carried out

		// A nil channel is never ready: nothing to send, no such case.
		var next CommitEntry
		var commits chan<- CommitEntry
		if len(committed) > 0 {
			next, commits = committed[0], s.commits
		}
		select {
		case m := <-s.inbox:
			s.step(m)
		case <-electionTimer.C:
			s.step(ElectionTimeout{})
		case <-heartbeatTimer.C:
			s.step(HeartbeatTimeout{})
		case submit := <-s.submits:
			s.step(Submit{submit.command})
			submit.answer <- s.out.Submitted
		case commits <- next:
			committed = committed[1:]
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *Server) step(event Event) {
	s.out = s.cm.Step(event)
	s.status.Store(new(s.cm.Status()))
	if s.Trace != nil {
		s.Trace(s.Status(), event, s.out)
	}
}

// electionTimeout draws anew at each call, so that candidates who have split
// the votes once do not do so for ever.
func (s *Server) electionTimeout() time.Duration {
	return s.ElectionTimeout + rand.N(s.ElectionTimeout)
}

// setTimer obeys action. Reset and Stop also take back a firing that run has
// not received yet (since Go 1.23), so it never sees a stale one.
func setTimer(t *time.Timer, action TimerAction, d time.Duration) {
	switch action {
	case RestartTimer:
		t.Reset(d)
	case StopTimer:
		t.Stop()
	}
}

func init() { // gob must know what a Body can be
	for _, body := range []Body{RequestVoteArgs{}, RequestVoteReply{}, AppendEntriesArgs{}, AppendEntriesReply{}} {
		gob.Register(body)
	}
}

func (s *Server) send(messages []Message) {
	for _, m := range messages {
		select {
		case s.outboxes[m.To] <- m:
		default: // lost; Raft will say it again
		}
	}
}

// writeTo brings the messages of one outbox to the peer at addr. It connects
// when there is something to say; what it cannot send is lost.
func (s *Server) writeTo(addr string, outbox <-chan Message) {
	for m := range outbox {
		conn, err := new(net.Dialer).DialContext(s.ctx, "tcp", addr)
		if err != nil {
			continue
		}
		stop := context.AfterFunc(s.ctx, func() { conn.Close() })
		encoder := gob.NewEncoder(conn)
		for more := true; more && encoder.Encode(m) == nil; {
			m, more = <-outbox
		}
		stop()
		conn.Close()
	}
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return // Shutdown has closed it
		}
		s.wg.Go(func() { s.readFrom(conn) })
	}
}

// readFrom hands run what arrives on one connection.
func (s *Server) readFrom(conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(s.ctx, func() { conn.Close() })()
	decoder := gob.NewDecoder(conn)
	for {
		var m Message
		if err := decoder.Decode(&m); err != nil || m.Body == nil {
			return // the end, or no peer
		}
		select {
		case s.inbox <- m:
		case <-s.ctx.Done():
			return
		}
	}
}
