package sim

import (
	"fmt"
	"runtime/debug"
	"time"

	"raftkv/internal/core"
	"raftkv/internal/invariant"
	"raftkv/internal/trace"
	"raftkv/kvservice/machine"
	"raftkv/raft"
	"raftkv/raft/storage"
)

// Config says what is run.
type Config struct {
	New     core.New // the algorithm under test; nil means package raft
	Profile Profile

	// Trace, if not nil, is given the run as the lines of a trace file, in order.
	// The run is the same with and without it.
	Trace func(trace.Line)

	// Record asks for Report.Decisions. Only, if not nil, lets nothing happen but
	// the decisions in it; see [Decisions].
	Record bool
	Only   *Decisions

	// Until, if not 0, ends the run at this time. A run that ends so has not failed,
	// but neither has it shown that all is well.
	Until time.Duration

	// Observe, if not nil, is given each *trace.Record of the run and each [Line]
	// of its clients, in order. A record is only valid during the call. The run
	// is the same with and without it.
	Observe func(fmt.Stringer)

	// blind switches the invariants off, so that a test can see what the checks
	// from outside find alone.
	blind bool

	// credulous plants a bug that is in no core: servers take any disk for the one
	// that they knew.
	credulous bool

	// silent plants another one: no server announces since when it takes part.
	silent bool

	// spoil plants a bug that is in no core either: what it makes of a snapshot's
	// bytes is written, and the states are not compared.
	spoil func([]byte) []byte
}

// Report is what came of a seed.
type Report struct {
	Seed    uint64
	Profile Profile
	Plan    string // what the seed drew, in a few lines
	Servers int
	Raft    raft.Config // of the servers, without what differs between them
	Failure *Failure    // nil if all is well

	Hash       uint64        // of the trace: equal runs have equal hashes
	Steps      int64         // events that the servers' cores have taken in
	Operations int           // calls that clients have begun
	Duration   time.Duration // of virtual time
	HealAt     time.Duration // when everything was, or would have been, healed
	Coverage   Coverage

	// Decisions are what the run drew, if Config asks for it.
	Decisions []Decision
}

// Failure says what went wrong first. Nothing after it is meaningful.
type Failure struct {
	Kind  string // the name of an invariant, or "linearizability", "exactly once", "liveness", "state", "panic", …
	Text  string
	At    time.Duration
	Stack string // of a panic
}

// RepeatLine returns the command that runs the seed again and shows its trace.
func (r Report) RepeatLine() string {
	line := fmt.Sprintf("go run ./cmd/raftlab replay --seed %d", r.Seed)
	if r.Profile.Name != Full.Name {
		line += " --profile " + r.Profile.Name
	}
	return line
}

// simulation is one run.
type simulation struct {
	config        Config
	profile       Profile
	seed          uint64
	plan          plan
	newCore       core.New
	cluster       raft.ClusterID
	configuration raft.Configuration
	members       []storage.Member

	now      time.Duration
	queue    queue
	messages slots[flight]
	calls    slots[func()]
	ticks    int64 // orders calls and answers

	nodes   []*node
	network network

	arriving time.Duration // when the message that is being stepped was sent

	// Streams of random numbers, each for a purpose.
	faults *source
	ids    *source

	decisions decider
	strikes   int      // faults that were due by time
	sends     uint64   // messages
	watcher   *watcher // nil if nobody watches

	checker *invariant.Checker
	hash    trace.Hash
	record  trace.Record // the latest; one for all, because a record is large
	records uint64
	steps   int64

	coverage    Coverage
	nextTrigger time.Duration
	healed      bool
	quiet       bool // nothing was missing when we last looked
	settled     bool
	healAt      time.Duration
	failure     *Failure

	// The clients' world.
	lanes      int // calls that are, or will be, made at the same time
	operations int
	history    []*clientCall // those that have ended
	probed     bool
	applied    []applied                       // by index
	appliedAt  map[machine.Identity]raft.Index // the latest
	executedIn map[machine.Identity]carriage   // the latest
	book       book                            // who has a session

	states       map[raft.Index][32]byte // hashes of the states of which there are snapshots
	values       map[string][]valueAt    // by key: what it has held, if there are reads beside the log
	committedAt  []time.Duration         // by index
	longestPause time.Duration
	changes      int       // of the members that were due by time
	jointSince   raft.Term // in which the latest joint configuration was appended
}

// RunSeed runs one seed to its end or its first failure. It starts nothing that
// outlives it; many may run at the same time.
func RunSeed(config Config, seed uint64) (report Report) {
	s := newSimulation(config, seed)
	defer func() {
		if v := recover(); v != nil {
			s.fail("panic", "%v", v)
			s.failure.Stack = string(debug.Stack())
		}
		report = s.report()
		s.watcher.ends(&report)
	}()
	s.run()
	if s.failure == nil && !s.late() {
		s.judge()
	}
	return report
}

func newSimulation(config Config, seed uint64) *simulation {
	return planned(config, seed, drawPlan(config.Profile, seed))
}

// planned returns a simulation with a plan that need not be the seed's.
func planned(config Config, seed uint64, p plan) *simulation {
	s := &simulation{
		config:     config,
		profile:    config.Profile,
		seed:       seed,
		plan:       p,
		newCore:    config.New,
		faults:     newSource(seed, "faults"),
		ids:        newSource(seed, "ids"),
		applied:    make([]applied, 1, 1024),
		appliedAt:  map[machine.Identity]raft.Index{},
		executedIn: map[machine.Identity]carriage{},
		book:       newBook(),
		states:     map[raft.Index][32]byte{},
		values:     map[string][]valueAt{},
	}
	if s.newCore == nil {
		s.newCore = core.Raft
	}
	s.decisions = newDecider(&s.config)
	s.tame()
	s.watcher = newWatcher(s)
	var voters []raft.ServerID
	for i := range s.plan.nodes {
		voters = append(voters, id(i))
		s.members = append(s.members, storage.Member{ID: id(i), Addr: fmt.Sprint("n", id(i))})
	}
	s.cluster = storage.NewIdentity("sim", id(0), s.members).Cluster
	s.configuration = raft.NewConfiguration(voters...)
	s.checker = invariant.New(voters...)
	s.checker.Volatile = !s.profile.Crashes
	s.network = newNetwork(seed, &s.plan)
	return s
}

func (s *simulation) run() {
	s.startServers()
	s.startClients()
	s.planFault()
	s.planChange()
	s.after(s.healAt, s.heal)
	for s.failure == nil && !s.settled && !s.late() {
		s.happen(s.queue.pop())
	}
}

func (s *simulation) startServers() {
	for i := range s.plan.nodes + s.plan.spares {
		spared := i >= s.plan.nodes
		s.nodes = append(s.nodes, &node{
			index: i, id: id(i), disk: s.newDisk(i, fmt.Sprint("disk ", i), spared), spared: spared,
			clock: newSource(s.seed, fmt.Sprint("clock ", i)), luck: newSource(s.seed, fmt.Sprint("luck ", i)),
		})
	}
	s.watcher.begins()
	for _, n := range s.nodes {
		s.start(n)
	}
}

// late reports whether nobody is interested any more.
func (s *simulation) late() bool { return s.config.Until != 0 && s.now > s.config.Until }

// happen lets one happening happen. The queue never runs empty: healing is
// planned from the start, and afterwards the next look whether all has settled.
func (s *simulation) happen(h happening) {
	s.now = h.at
	n := s.nodes[h.node]
	switch h.kind {
	case messageArrives:
		f := s.messages.take(h.arg)
		heard := n.up && s.heard(n, &f)
		s.watcher.arrived(f.id, n, heard)
		if heard {
			s.arrive(n, input{event: f.message, message: f.id, sent: f.sent})
		}
	case timerRuns:
		if n.up && h.arg>>8 == uint64(n.life) {
			s.timerRan(n, int(h.arg&0xff))
		}
	case loopWakes:
		if n.up && h.arg == uint64(n.life) {
			s.round(n)
		}
	case saveEnds:
		if n.up && h.arg == uint64(n.life)<<32|uint64(n.saves) {
			s.saved(n)
		}
	case call:
		s.calls.take(h.arg)()
	}
}

// after plans a call.
func (s *simulation) after(d time.Duration, f func()) {
	s.queue.push(happening{at: s.now + d, kind: call, arg: s.calls.put(f)})
}

// tick returns a number that is larger at each call.
func (s *simulation) tick() int64 {
	s.ticks++
	return s.ticks
}

// check takes an invariant's verdict and reports whether the run is over.
func (s *simulation) check(err error) (broken bool) {
	if err == nil || s.config.blind {
		return false
	}
	kind := "invariant"
	if v, ok := err.(*invariant.Violation); ok {
		kind = v.Invariant
	}
	s.fail(kind, "%v", err)
	return true
}

func (s *simulation) fail(kind, format string, args ...any) {
	if s.failure == nil {
		s.failure = &Failure{Kind: kind, Text: fmt.Sprintf(format, args...), At: s.now}
	}
}

func (s *simulation) nextRecord() uint64 {
	s.records++
	return s.records
}

// observe hands on the record of what has just happened. message is the one that
// was stepped; 0 if none was.
func (s *simulation) observe(n *node, message uint64) {
	s.hash.Add(&s.record)
	s.watcher.stepped(n, message)
	if s.config.Observe != nil {
		s.config.Observe(&s.record)
	}
}

// note records something that happened to a server from outside.
func (s *simulation) note(n *node, what string) {
	s.record = trace.Record{
		Number: s.nextRecord(), At: s.now, Server: n.id, Before: n.status, After: n.status, Note: what,
	}
	s.observe(n, 0)
}

// noteAll records something that happened to all. It bears the first server's name.
func (s *simulation) noteAll(what string) { s.note(s.nodes[0], what) }

func (s *simulation) report() Report {
	return Report{
		Seed:       s.seed,
		Profile:    s.profile,
		Plan:       s.plan.String(),
		Servers:    s.plan.nodes,
		Raft:       s.plan.raft,
		Failure:    s.failure,
		Hash:       s.hash.Sum(),
		Steps:      s.steps,
		Operations: s.operations,
		Duration:   s.now,
		HealAt:     s.healAt,
		Coverage:   s.coverage,
		Decisions:  s.decisions.made,
	}
}
