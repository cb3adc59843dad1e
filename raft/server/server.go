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
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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

	// CommitChan receives the committed entries, in order, each index once,
	// beginning at index 1 after every start. It is closed when the server has
	// stopped. A slow consumer delays nobody but itself.
	CommitChan chan<- raft.CommitEntry

	// Observe, if not nil, is called whenever the role, the term or the known
	// leader has changed, once for each step in between: a leadership that was
	// lost and won back at once is reported as lost. It runs inside the loop and
	// must not block or call back into the server.
	Observe func(raft.Status)

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

// maxWaiting bounds the messages, and also the submits, that wait for the loop.
const maxWaiting = 8192

// Server runs one server of a cluster. Its methods may be called by any
// goroutine.
type Server struct {
	config    Config
	transport Transport
	status    atomic.Pointer[raft.Status]

	inbox   inbox
	quit    chan struct{} // closed by Stop
	done    chan struct{} // closed when all goroutines have ended
	broken  chan error    // what checkStore has met, if it is the end
	stop    sync.Once
	started atomic.Bool
	err     error // why the loop ended; read after done

	// The rest belongs to the loop.
	cm     *raft.ConsensusModule
	last   raft.Status
	timers timers
	feed   chan []raft.CommitEntry
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
		// The module gives out a bounded number of entries before it hears of
		// Applied, so this many batches always fit and the loop never waits here.
		feed: make(chan []raft.CommitEntry, raft.MaxUnapplied),
	}
	status := cm.Status()
	s.status.Store(&status)
	s.timers.set(effects.Timers, s.config)
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

// Status reports the state after the last round of the loop.
func (s *Server) Status() raft.Status { return *s.status.Load() }

// Deliver takes in messages from the network. It blocks while too many wait,
// so that a fast sender is slowed down by its connection, and drops them when
// the server stops. Transports call it.
func (s *Server) Deliver(messages []raft.Message) {
	s.inbox.putMessages(messages, s.quit)
}

// Submit appends a command to the log if this server leads, and returns where.
// That is no promise: the entry may still be overwritten, in which case
// another one appears at its index. Watch commitChan. (Figure 2, LEAD-2)
//
// A *raft.NotLeaderError or raft.ErrBusy means that nothing was appended. After
// ctx's error or ErrStopped the command may have been.
func (s *Server) Submit(ctx context.Context, command []byte) (raft.Index, raft.Term, error) {
	answer := make(chan raft.Submitted, 1)
	if !s.inbox.putSubmit(submit{command, answer}) {
		return 0, 0, raft.ErrBusy
	}
	select {
	case a := <-answer:
		return a.FirstIndex, a.Term, a.Err
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	case <-s.done:
		select {
		case a := <-answer: // it was answered first
			return a.FirstIndex, a.Term, a.Err
		default:
			return 0, 0, ErrStopped
		}
	}
}

// Call hands a request to another server; see Transport.
func (s *Server) Call(ctx context.Context, to raft.ServerID, payload []byte) ([]byte, error) {
	return s.transport.Call(ctx, to, payload)
}

// checkStore wraps what the transport asks about the store of another server. A
// foreign store is the other one's trouble. If our own disk has failed, the
// server ends as after a failed Save: it would go on to refuse everybody, and a
// follower that hears nobody might have nothing to save for ever.
func (s *Server) checkStore(remember func(raft.ServerID, raft.StoreID) error) func(raft.ServerID, raft.StoreID) error {
	return func(id raft.ServerID, store raft.StoreID) error {
		err := remember(id, store)
		if err != nil && !errors.Is(err, storage.ErrForeignStore) {
			select {
			case s.broken <- err:
			default: // it ends already
			}
		}
		return err
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
			err = s.round()
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
	messages, submits, applied := s.inbox.take()
	var effects raft.Effects
	for _, m := range messages {
		s.step(&effects, m)
	}
	if applied != 0 {
		s.step(&effects, raft.Applied{Index: applied})
	}
	if len(submits) > 0 {
		commands := make([][]byte, len(submits))
		for i := range submits {
			commands[i] = submits[i].command
		}
		s.step(&effects, raft.Submit{Commands: commands})
	}
	// Timers last: a message that waited with them may have restarted them, and
	// then their numbers are old. A leader heard late is better than an election.
	for _, timeout := range s.timers.fired(time.Now()) {
		s.step(&effects, timeout)
	}
	s.answer(submits, effects.Submitted)
	for {
		saving := effects.Save.Needed()
		if err := s.carryOut(effects); err != nil {
			return err
		}
		if !saving {
			break
		}
		effects = raft.Effects{}
		status := s.cm.Status()
		s.step(&effects, raft.Saved{Index: status.LastIndex, Term: status.Term})
	}
	status := s.cm.Status()
	s.status.Store(&status)
	return nil
}

// step gives the module one event and reports a change of leadership.
func (s *Server) step(effects *raft.Effects, event raft.Event) {
	effects.Merge(s.cm.Step(event))
	now := s.cm.Status()
	if now.State != s.last.State || now.Term != s.last.Term || now.LeaderID != s.last.LeaderID {
		s.config.Logger.Debug("role", "id", now.ID, "role", now.State.String(), "raft.term", uint64(now.Term), "leader", uint64(now.LeaderID))
		s.status.Store(&now) // before Observe, so that whoever it wakes sees the new state
		if s.config.Observe != nil {
			s.config.Observe(now)
		}
	}
	s.last = now
}

// carryOut does what raft.Effects lists, in its order.
func (s *Server) carryOut(effects raft.Effects) error {
	if len(effects.Send) > 0 {
		s.transport.Send(effects.Send)
	}
	if effects.Save.Needed() {
		if err := s.config.Storage.Save(effects.Save); err != nil {
			return err // nothing that relies on it has left, and nothing will
		}
	}
	if len(effects.SendAfter) > 0 {
		s.transport.Send(effects.SendAfter)
	}
	if len(effects.Commit) > 0 {
		s.feed <- effects.Commit
	}
	s.timers.set(effects.Timers, s.config)
	return nil
}

// answer tells the submitters where their commands went: one Submit was
// stepped for all of them.
func (s *Server) answer(submits []submit, submitted []raft.Submitted) {
	for i := range submits {
		a := submitted[0]
		if a.Err == nil {
			a.FirstIndex += raft.Index(i)
		}
		submits[i].answer <- a
	}
}

// runFeed hands committed entries to the consumer, at the consumer's pace.
func (s *Server) runFeed() {
	for entries := range s.feed {
		for _, e := range entries {
			select {
			case s.config.CommitChan <- e:
			case <-s.quit:
				return
			}
		}
		s.inbox.putApplied(entries[len(entries)-1].Index)
	}
}

// timers holds when each timer is due, as a point of the monotonic clock. One
// restart costs a store; the clock is read once a round.
type timers [len(raft.Timers{})]struct {
	due    time.Time // zero: not running
	number raft.TimerNumber
}

func (t *timers) set(changes raft.Timers, config Config) {
	for kind, change := range changes {
		switch change.Action {
		case raft.RestartTimer:
			t[kind].due, t[kind].number = time.Now().Add(timeout(raft.TimerKind(kind), config)), change.Number
		case raft.StopTimer:
			t[kind].due = time.Time{}
		}
	}
}

func timeout(kind raft.TimerKind, config Config) time.Duration {
	switch kind {
	case raft.ElectionTimer:
		return config.ElectionTimeout + rand.N(config.ElectionTimeout)
	case raft.HeartbeatTimer:
		return config.HeartbeatInterval
	}
	return config.ElectionTimeout
}

// wait returns how long it is until the next timer is due.
func (t *timers) wait(now time.Time) time.Duration {
	wait := time.Hour
	for _, timer := range t {
		if !timer.due.IsZero() {
			wait = min(wait, timer.due.Sub(now))
		}
	}
	return max(wait, 0)
}

// fired returns the events of the timers that are due, and stops these.
func (t *timers) fired(now time.Time) []raft.Event {
	var events []raft.Event
	for kind := range t {
		if due := t[kind].due; !due.IsZero() && !due.After(now) {
			t[kind].due = time.Time{}
			events = append(events, raft.Timeout(raft.TimerKind(kind), t[kind].number))
		}
	}
	return events
}
