// Package kvservice is a key/value store on top of Raft: it puts clients'
// operations into the log, applies what comes back on commitChan, and answers.
//
// Its one promise: a client is told the truth. An answer says "applied" only
// with the result that the committed entry gave, "not_applied" only if the
// command was never put into a log, and "unknown" otherwise. What is new and
// what is a repetition is decided by kvservice/machine when an entry is
// applied, never here.
//
//	kvservice.go     KVService, the updater and what a change of leadership means
//	propose.go       a command on its way into the log and back
//	requests.go      from JSON to commands, from results to JSON
//	reads.go         reads that need no place in the log
//	scans.go         many keys, page by page, from one state
//	settings.go      what all servers must agree on
//	snapshots.go     a state in place of the log's beginning
//	admin.go         snapshots, members and leadership for an operator
//	snapshotfile.go  a state as a file, with where it is from
//	keyed.go         writes with an Idempotency-Key
//	forward.go       requests that reached a follower
//	http.go          the HTTP interface of docs/http.md
//	carry.go         what a request carries with it; pulse.go: how it waits
//	door.go          what is let in; conns.go, deadlines.go: connections; stop.go: the end
//	health.go        whether to restart a server, and whether to ask it
//	metrics.go       what is counted
//	record.go        what is logged, and the ids of requests
//	hash.go          whether all servers have the same state
//	node.go          Start: a whole server with files and sockets
package kvservice

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"raftkv/api"
	"raftkv/kvservice/machine"
	"raftkv/kvservice/waiters"
	"raftkv/raft"
)

// Raft is what the service needs of a raft/server.Server.
type Raft interface {
	Submit(ctx context.Context, command []byte) (raft.Index, raft.Term, error)
	Propose(command []byte, told func(raft.Submitted)) error
	Status() raft.Status
	Configuration() (raft.Configuration, raft.Index)
	Progress() map[raft.ServerID]raft.Index
	Call(ctx context.Context, to raft.ServerID, payload []byte) ([]byte, error)

	AskReadIndex(answers chan<- raft.Answer) error
	LeaseIndex() (index raft.Index, ok bool)
	Heard() (at time.Time, index raft.Index)

	Busy() time.Duration
	Connected(raft.ServerID) bool
	DiskBytes() (log, snapshots uint64)

	TakeSnapshot(snapshot raft.Snapshot, write func(io.Writer) error) error
	ChangeConfiguration(ctx context.Context, expected raft.Index, next raft.Configuration) (raft.Index, error)
	TransferLeadership(ctx context.Context, to raft.ServerID) error
}

// Config is what a KVService must be told.
type Config struct {
	ID          raft.ServerID
	Cluster     raft.ClusterID
	ClusterName string

	// Configuration is what the cluster began with; see raft.Config.
	Configuration raft.Configuration

	// HTTPAddrOf returns where clients reach a server, "" if that is not known.
	HTTPAddrOf func(raft.ServerID) string

	// RequestTimeout bounds how long a client waits for an answer; then it is
	// told "unknown". Zero means 10 s.
	RequestTimeout time.Duration

	// SnapshotBytes is how many bytes of commands are applied between two
	// snapshots, at least; a large store waits for more. Zero means 16 MiB.
	SnapshotBytes int

	// Duplicates is what the log shall say of repeated requests; "" is whatever it
	// says. A first leader writes it there. If it says something else, Run ends.
	Duplicates api.Duplicates

	Limits api.Limits   // zero fields mean the defaults
	Logger *slog.Logger // nil discards
}

// KVService is the service of one server. Its methods may be called by any
// goroutine, except that Run is called once.
type KVService struct {
	config Config
	limits api.Limits
	start  time.Time // what the monotonic clock is read against

	attached chan struct{} // closed by Run; raft is set then
	raft     Raft
	stopped  chan struct{} // closed when Run ends
	stopping atomic.Bool   // the node is about to stop

	door          *door
	pulse         pulse
	answerTime    time.Duration // for a client to take a large answer
	metrics       *metrics
	requestIDs    *requestIDs
	applyingSince atomic.Int64 // when the entry was taken up that is being applied, as time since start; 0 between entries

	mu         sync.Mutex
	machine    *machine.Machine // the posts' DataStore and lastRequestIDPerClient
	waiters    waiters.Table
	answers    map[waiters.Token]chan<- answer // each has room for one answer
	clock      machine.LogClock
	leadership *leadership // nil while this server does not lead
	applied    applied
	snapshots  snapshots
	readers    []reader    // reads.go
	scans      []*keptScan // scans.go
	freshAt    time.Time   // when what is applied was the latest; zero: not since the start
	lastLeader leader
	hashes     []*stateHash // hash.go; oldest first

	hashing sync.Mutex // one hash at a time; locked before mu

	taking     chan struct{} // holds a token while a snapshot is being taken
	background sync.WaitGroup
}

// applied says where the state stands in the log, and which configuration was
// the latest there.
type applied struct {
	raft.LogPosition
	configuration      raft.Configuration
	configurationIndex raft.Index
}

// leadership is one period during which this server leads.
type leadership struct {
	term raft.Term

	// ready is closed when everything that earlier leaders left behind has been
	// applied and the settings stand in the log. Before that nobody knows what
	// time it is in the log, and a write could come before the settings.
	ready     chan struct{}
	clockRuns bool

	over chan struct{} // closed when the leadership has ended
}

// answer is what becomes of a waiter.
type answer struct {
	applied machine.Applied
	at      raft.LogPosition
	lost    bool  // the leadership has ended: nobody here knows what becomes of the entry
	refused error // nothing was appended
}

// New returns a service with an empty store. It answers nobody before Run.
func New(config Config) *KVService {
	if config.RequestTimeout == 0 {
		config.RequestTimeout = 10 * time.Second
	}
	if config.SnapshotBytes == 0 {
		config.SnapshotBytes = 16 << 20
	}
	if config.HTTPAddrOf == nil {
		config.HTTPAddrOf = func(raft.ServerID) string { return "" }
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	s := &KVService{
		config:   config,
		limits:   config.Limits.WithDefaults(),
		start:    time.Now(),
		attached: make(chan struct{}),
		stopped:  make(chan struct{}),
		machine:  machine.New(),
		answers:  map[waiters.Token]chan<- answer{},
		applied:  applied{configuration: config.Configuration},
		taking:   make(chan struct{}, 1),

		door:       newDoor(),
		answerTime: usualPatience.answer,
		requestIDs: newRequestIDs(),
	}
	s.metrics = newMetrics(s)
	return s
}

// Run is the updater: it applies what arrives on commitChan until the channel
// is closed. An error means that the log holds an entry which this program
// cannot read (machine.ErrNewerVersion), that a snapshot cannot be read, or that the
// cluster has another setting than this server was started with. Then the server
// must stop: to skip an entry is to become different from the
// others. It waits for a snapshot that is being taken. (The posts' runUpdater.)
func (s *KVService) Run(r Raft, commitChan <-chan raft.CommitEntry) error {
	s.attach(r)
	defer s.background.Wait()
	defer s.pulse.hurry()
	defer close(s.stopped)
	for entry := range commitChan {
		s.applyingSince.Store(int64(time.Since(s.start)))
		err := s.apply(entry)
		s.applyingSince.Store(0)
		if err != nil {
			return fmt.Errorf("entry %d: %w", entry.Index, err)
		}
	}
	return nil
}

func (s *KVService) attach(r Raft) {
	s.raft = r
	close(s.attached)
}

// apply takes in one committed entry and answers whoever waits for it: all who
// sent this request, through whichever leader it came. An answer goes by the
// identity that the entry carries, never by its index. At the index that Submit
// returned there may stand another entry by now.
func (s *KVService) apply(entry raft.CommitEntry) error {
	if entry.Kind == raft.EntrySnapshot {
		return s.restore(entry)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	applied, err := s.machine.Apply(entry)
	if err != nil {
		return err
	}
	s.applied.LogPosition = raft.LogPosition{Index: entry.Index, Term: entry.Term}
	if err := s.checkSettings(); err != nil {
		return err
	}
	for _, token := range s.waiters.Resolve(applied.Identity) {
		s.reply(token, answer{applied: applied, at: s.applied.LogPosition})
	}
	for _, operation := range applied.Operations {
		for _, token := range s.waiters.Resolve(operation.Identity) {
			s.reply(token, answer{applied: operation, at: s.applied.LogPosition})
		}
	}
	s.recordApplied(entry, applied)
	if applied.Event == machine.EventMark {
		s.noteHash(entry.Index)
	}
	if entry.Kind == raft.EntryConfiguration {
		if s.applied.configuration, err = raft.DecodeConfiguration(entry.Command); err != nil {
			return err
		}
		s.applied.configurationIndex = entry.Index
	}
	s.releaseReaders()
	s.snapshotIfDue(entry)
	if l := s.leadership; l != nil {
		s.advanceLeadership(l, entry)
	}
	return nil
}

// advanceLeadership makes a new leader ready. Its own empty entry is applied
// after everything that earlier leaders have left behind. It goes on from the
// log time that stands there, and if nobody has written the settings yet, it
// does so before any client's command. What settings of an older program lack, it
// adds.
func (s *KVService) advanceLeadership(l *leadership, entry raft.CommitEntry) {
	if isClosed(l.ready) {
		return
	}
	settings, written := s.machine.Settings()
	if entry.Kind == raft.EntryEmpty && entry.Term == l.term {
		s.clock.Start(s.machine.Now(), s.monotonicMillis())
		l.clockRuns = true
		if next := s.completed(settings); next != settings {
			go s.writeSettings(next)
		}
	}
	if l.clockRuns && written {
		close(l.ready)
	}
}

// writeSettings puts the settings into a log that has none, or not all. If two
// leaders do so, the first entry counts, and the second changes nothing.
func (s *KVService) writeSettings(settings machine.Settings) {
	ctx, cancel := context.WithTimeout(context.Background(), s.config.RequestTimeout)
	defer cancel()
	command := machine.Command{Kind: machine.KindSettings, Nonce: newNonce(), Settings: settings}
	if _, _, err := s.raft.Submit(ctx, command.Encode()); err != nil {
		s.config.Logger.Warn("settings not written; the next leader will try", "err", err)
	}
}

// Observe tells the service of a change of role, term or leader. The server's
// loop calls it, in the order of the changes and without leaving one out.
//
// Everyone who waits for an entry of a leadership that has ended is told
// "unknown". The entry may be overwritten, and then no answer would ever come;
// or it may be committed by the next leader, and then only a repetition under
// the same identity can learn the result.
func (s *KVService) Observe(status raft.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recordRole(status)
	leads := status.State == raft.Leader
	if l := s.leadership; l != nil && (!leads || l.term != status.Term) {
		close(l.over)
		s.leadership = nil
	}
	if leads && s.leadership == nil {
		s.leadership = &leadership{term: status.Term, ready: make(chan struct{}), over: make(chan struct{})}
	}
	for _, token := range s.waiters.LeadershipLost(status) {
		s.reply(token, answer{lost: true})
	}
}

// reply answers one waiter.
func (s *KVService) reply(token waiters.Token, a answer) {
	s.answers[token] <- a
	delete(s.answers, token)
}

// monotonicMillis reads a clock that nobody can set.
func (s *KVService) monotonicMillis() int64 { return time.Since(s.start).Milliseconds() }
