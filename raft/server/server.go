// Package server runs a [raft.ConsensusModule] on a real network, a real disk
// and a real clock.
//
// [Server] is one loop. It takes all events that are waiting, steps the module
// with each, merges the effects and carries them out: answer submitters, send
// what may go before the disk, write and sync once, send the rest, hand
// committed entries on, set the timers. While a sync runs the next events
// gather, so a busy server syncs once for many commands without any mechanism
// for it, and a leader whose disk hangs falls silent, as it should.
//
// The loop waits for the disk and for nothing else: not for the network
// (transports drop what does not fit their queues), not for the consumer of
// commitChan (what is committed and not yet consumed stays in the log).
//
// [Open] joins the server with the files and the sockets that a process uses.
//
//	server.go   the loop
//	inbox.go    what waits for it
//	calls.go    what others ask of it
//	view.go     what others see of it, and how fresh that is
//	timers.go   the module's timers
//	stores.go   whether another server has lost its disk
//	node.go     the files and sockets
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"raftkv/raft"
	"raftkv/raft/storage"
)

// Transport carries messages to the other servers; raft/transport has two.
type Transport interface {
	// Send never blocks. What cannot be sent now is lost, as on any network.
	Send([]raft.Message)
	// Call hands payload to a peer's Handle function and returns its answer.
	Call(ctx context.Context, to raft.ServerID, payload []byte) ([]byte, error)
	// Close ends all connections. It may be called twice.
	Close() error
}

// Config is what a Server must be told.
type Config struct {
	Raft    raft.Config
	Storage storage.Storage // the server uses it, and does not close it

	// CommitChan receives the committed entries, in order, each index once; after
	// every start they begin with the newest snapshot (raft.CommitEntry's Installed)
	// or, if there is none, at index 1. It is closed when the server has stopped. A
	// slow consumer delays nobody but itself.
	CommitChan chan<- raft.CommitEntry

	// Observe, if not nil, is called whenever the role, the term or the known
	// leader has changed, once for each step in between: a leadership that was
	// lost and won back at once is reported as lost. It runs inside the loop and
	// must not block or call back into the server.
	Observe func(raft.Status)

	// ObserveConfiguration, if not nil, is called when another configuration has
	// come into force, under the same rules: with the one before it and the new one.
	ObserveConfiguration func(before, now raft.Configuration)

	// ElectionTimeout is the shortest time a follower waits without hearing from
	// a leader before it looks for a new one; each wait is drawn anew from
	// [ElectionTimeout, 2*ElectionTimeout). It must exceed HeartbeatInterval, ten
	// times as much being usual; New returns raft.ErrConfig otherwise. Zero means
	// 150 ms. Source: §5.2, §5.6.
	ElectionTimeout time.Duration

	// HeartbeatInterval is how often a leader without work tells its followers
	// that it is there. Zero means a tenth of ElectionTimeout. Source: §5.2.
	HeartbeatInterval time.Duration

	Logger *slog.Logger // nil discards
}

// ErrStopped reports that the server has stopped or is stopping. After Submit
// it leaves open what becomes of the command.
var ErrStopped = errors.New("raft server: stopped")

// These bound what waits for the loop: maxWaiting the messages, the submits, the
// reads, each for itself, and maxWaitingBytes the commands of the submits.
const (
	maxWaiting      = 8192
	maxWaitingBytes = 64 << 20
)

// maxRoundBytes bounds the commands of one round, but for a single larger one. A
// leader that writes sends no heartbeats meanwhile, so a write must be over in a
// fraction of an election timeout, also on a slow disk.
const maxRoundBytes = 4 << 20

// Server runs one server of a cluster. Its methods may be called by any
// goroutine.
type Server struct {
	config    Config
	transport Transport
	view      atomic.Pointer[view]
	busySince atomic.Pointer[time.Time] // when the loop took up what it is at; nil while it waits

	inbox   inbox
	quit    chan struct{} // closed by Stop
	done    chan struct{} // closed when all goroutines have ended
	broken  chan error    // of the disk, met outside the loop; see fail
	since   atomic.Uint64 // a raft.Index, see takesPartSince
	stop    sync.Once
	started atomic.Bool
	err     error // why the loop ended; read after done

	// The rest belongs to the loop.
	cm            *raft.ConsensusModule
	last          raft.Status
	configuration raft.Configuration
	timers        timers
	feed          chan []raft.CommitEntry
	requests      raft.RequestID // the last number given to one
	asked         map[raft.RequestID]chan<- raft.Answer
	notes         notes
}

// New returns a server that has read its storage and waits for Start. A config
// that cannot work is a raft.ErrConfig; a storage that cannot be read is its error.
func New(config Config) (*Server, error) {
	if config.ElectionTimeout == 0 {
		config.ElectionTimeout = 150 * time.Millisecond
	}
	if config.HeartbeatInterval == 0 {
		config.HeartbeatInterval = config.ElectionTimeout / 10
	}
	if config.HeartbeatInterval <= 0 || config.ElectionTimeout <= config.HeartbeatInterval {
		return nil, fmt.Errorf("%w: election timeout %v must exceed the heartbeat interval %v, better ten times",
			raft.ErrConfig, config.ElectionTimeout, config.HeartbeatInterval)
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	saved, err := config.Storage.Load()
	if err != nil {
		return nil, err
	}
	cm, effects, err := raft.NewConsensusModule(config.Raft, saved)
	if err != nil {
		return nil, err
	}
	s := &Server{
		config: config,
		inbox:  newInbox(),
		quit:   make(chan struct{}),
		done:   make(chan struct{}),
		broken: make(chan error, 1),
		cm:     cm,
		last:   cm.Status(),
		asked:  map[raft.RequestID]chan<- raft.Answer{},
		notes:  notes{rounds: map[raft.Round]time.Time{}},

		configuration: cm.Configuration(),
		// The module gives out a bounded number of entries before it hears of
		// Applied, so this many batches always fit and the loop never waits here.
		feed: make(chan []raft.CommitEntry, raft.MaxUnapplied),
	}
	s.publish()
	s.noteSince()
	s.timers.set(effects.Timers, s.config)
	if len(effects.Commit) > 0 {
		s.feed <- effects.Commit // the snapshot that the state machine begins with
	}
	return s, nil
}

// Start begins to take part, over the given transport. Call it once.
func (s *Server) Start(transport Transport) {
	s.transport = transport
	s.started.Store(true)
	var running sync.WaitGroup
	running.Go(s.run)
	running.Go(s.runFeed)
	go func() {
		running.Wait()
		close(s.config.CommitChan)
		close(s.done)
	}()
}

// Stop ends the server and returns what ended it before, or nil. It waits for
// a disk write under way. It leaves the transport and the storage open.
func (s *Server) Stop() error {
	s.stop.Do(func() { close(s.quit) })
	if !s.started.Load() {
		return nil
	}
	<-s.done
	return s.err
}

// Done is closed when the server has ended, by Stop or by a disk that failed.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err says why the server ended by itself. It is nil before Done and after a
// plain Stop.
func (s *Server) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Deliver takes in messages from the network. It blocks while too many wait,
// so that a fast sender is slowed down by its connection, and drops them when
// the server stops. Transports call it.
func (s *Server) Deliver(messages []raft.Message) {
	s.inbox.putMessages(messages, s.quit)
}

// fail ends the server because its disk has failed elsewhere than in the loop.
func (s *Server) fail(err error) {
	select {
	case s.broken <- err:
	default: // it ends already
	}
}

// run is the only goroutine that touches cm.
func (s *Server) run() {
	defer s.stop.Do(func() { close(s.quit) })
	defer close(s.feed)
	clock := time.NewTimer(s.timers.wait(time.Now()))
	defer clock.Stop()
	for {
		var err error
		select {
		case <-s.inbox.wake:
		case <-clock.C:
		case err = <-s.broken:
		case <-s.quit:
			return
		}
		if err == nil {
			began := time.Now()
			s.busySince.Store(&began)
			err = s.round()
			s.busySince.Store(nil)
		}
		if err != nil {
			s.err = fmt.Errorf("server %d stopped: %w", s.config.Raft.ID, err)
			s.config.Logger.Error("storage failed, the server stops", "id", s.config.Raft.ID, "err", err)
			return
		}
		clock.Reset(s.timers.wait(time.Now()))
	}
}

// round steps all events that are waiting and carries out what they ask for.
func (s *Server) round() error {
	// Who is about to ask something gets a turn first. If processors are busy, there are
	// fewer rounds and syncs for it, and more in each; otherwise nobody is waiting.
	runtime.Gosched()
	in := s.inbox.take()
	var effects raft.Effects
	for _, m := range in.messages {
		s.step(&effects, m)
	}
	if in.applied != 0 {
		s.step(&effects, raft.Applied{Index: in.applied})
	}
	for _, event := range in.events {
		s.step(&effects, event)
	}
	if len(in.submits) > 0 {
		commands := make([][]byte, len(in.submits))
		for i := range in.submits {
			commands[i] = in.submits[i].command
		}
		s.step(&effects, raft.Submit{Commands: commands})
	}
	for _, q := range in.questions {
		s.step(&effects, q.event(s.remember(q.answer)))
	}
	if len(in.reads) > 0 {
		requests := make([]raft.RequestID, 0, len(in.reads))
		for _, answer := range in.reads {
			if len(s.asked) >= maxWaiting { // no majority answers, or not soon
				answer <- raft.Answer{Err: raft.ErrBusy}
				continue
			}
			requests = append(requests, s.remember(answer))
		}
		s.step(&effects, raft.Read{Requests: requests})
	}
	// Timers last: a message that waited with them may have restarted them, and
	// then their numbers are old. A leader heard late is better than an election.
	for _, timeout := range s.timers.fired(time.Now()) {
		s.step(&effects, timeout)
	}
	s.answer(in.submits, effects.Submitted)
	for {
		next, err := s.carryOut(effects)
		if err != nil || len(next) == 0 {
			return err
		}
		effects = raft.Effects{}
		for _, event := range next {
			s.step(&effects, event)
		}
	}
}

// remember gives a number to a question of somebody who waits.
func (s *Server) remember(answer chan<- raft.Answer) raft.RequestID {
	s.requests++
	s.asked[s.requests] = answer
	return s.requests
}

// step gives the module one event and reports a change of leadership or of the
// configuration.
func (s *Server) step(effects *raft.Effects, event raft.Event) {
	began := time.Now()
	effects.Merge(s.cm.Step(event))
	now := s.cm.Status()
	s.note(event, began, now)
	if c := s.cm.Configuration(); !c.Equal(s.configuration) {
		before := s.configuration
		s.configuration = c
		s.publish() // a new member must not be taken for a stranger, see checkStore
		if s.config.ObserveConfiguration != nil {
			s.config.ObserveConfiguration(before, s.configuration)
		}
	}
	if now.State != s.last.State || now.Term != s.last.Term || now.LeaderID != s.last.LeaderID {
		s.config.Logger.Debug("role", "id", now.ID, "role", now.State.String(), "raft.term", uint64(now.Term), "leader", uint64(now.LeaderID))
		s.publish() // before Observe, so that whoever it wakes sees the new state
		if s.config.Observe != nil {
			s.config.Observe(now)
		}
	}
	s.last = now
}

// carryOut does what raft.Effects lists, in its order, and returns what is to be
// stepped next, before anything else.
func (s *Server) carryOut(effects raft.Effects) (next []raft.Event, err error) {
	// Before anything leaves: a lease must be seen to have ended before TimeoutNow
	// goes, and no client may see what Status does not tell yet.
	s.publish()
	for _, a := range effects.Answers {
		s.asked[a.Request] <- a
		delete(s.asked, a.Request)
	}
	if len(effects.Send) > 0 {
		s.transport.Send(s.fillIn(effects.Send))
	}
	if effects.Save.Needed() {
		if err := s.config.Storage.Save(effects.Save); err != nil {
			return nil, err // nothing that relies on it has left, and nothing will
		}
		status := s.cm.Status()
		next = append(next, raft.Saved{Index: status.LastIndex, Term: status.Term})
	}
	s.noteSince()
	for _, chunk := range effects.Receive {
		event, err := s.receive(chunk)
		if err != nil {
			return nil, err
		}
		if event != nil {
			next = append(next, event)
		}
	}
	if len(effects.SendAfter) > 0 {
		s.transport.Send(effects.SendAfter)
	}
	if len(effects.Commit) > 0 {
		s.feed <- effects.Commit
	}
	s.timers.set(effects.Timers, s.config)
	if effects.Compact != 0 {
		if err := s.config.Storage.Compact(effects.Compact); err != nil {
			return nil, err
		}
	}
	return next, nil
}

// fillIn adds their bytes to the parts of snapshots. A part that cannot be read
// is not sent; the follower will ask again, and may be given a newer snapshot.
func (s *Server) fillIn(messages []raft.Message) []raft.Message {
	filled := messages[:0]
	for _, m := range messages {
		if args, ok := m.Body.(raft.InstallSnapshotArgs); ok && args.Length > 0 {
			args.Data = make([]byte, args.Length)
			if err := s.config.Storage.ReadSnapshot(args.Snapshot, args.Offset, args.Data); err != nil {
				s.config.Logger.Warn("a part of a snapshot cannot be sent", "to", uint64(m.To), "index", uint64(args.Snapshot.Index), "err", err)
				continue
			}
			m.Body = args
		}
		filled = append(filled, m)
	}
	return filled
}

// receive stores a part of a snapshot and returns the event that tells of the
// last one.
func (s *Server) receive(chunk raft.Chunk) (raft.Event, error) {
	err := s.config.Storage.Receive(chunk)
	switch {
	case errors.Is(err, storage.ErrDamagedSnapshot):
		s.config.Logger.Warn("a snapshot arrived damaged and is asked for again", "index", uint64(chunk.Snapshot.Index))
		return raft.SnapshotDamaged{Snapshot: chunk.Snapshot}, nil
	case err != nil:
		return nil, err
	case chunk.Last():
		return raft.SnapshotStored{Snapshot: chunk.Snapshot}, nil
	}
	return nil, nil
}

// answer tells the submitters where their commands went: one Submit was
// stepped for all of them.
func (s *Server) answer(submits []submit, submitted []raft.Submitted) {
	for i := range submits {
		a := submitted[0]
		if a.Err == nil {
			a.FirstIndex += raft.Index(i)
		}
		submits[i].told(a)
	}
}

// runFeed hands committed entries to the consumer, at the consumer's pace.
func (s *Server) runFeed() {
	for entries := range s.feed {
		for _, e := range entries {
			if e.Kind == raft.EntrySnapshot {
				var err error
				if e.Installed.Data, err = s.config.Storage.OpenSnapshot(e.Index); err != nil {
					s.fail(err)
					return
				}
			}
			select {
			case s.config.CommitChan <- e:
			case <-s.quit:
				return
			}
		}
		s.inbox.putApplied(entries[len(entries)-1].Index)
	}
}
