package prochaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"raftkv/kvclient"
)

// Config says what to run and how roughly.
type Config struct {
	Binary string // the raftkv program
	Dir    string // for data and logs; empty at the start, left as it is at the end

	Servers  int           // zero means 3
	Clients  int           // zero means 8, or 64 with SharedClient
	Duration time.Duration // of the load; zero means 20 s
	Seed     uint64        // of the faults

	// SharedClient makes the clients goroutines that share one. A call of theirs
	// that ends with an error is a failure of the run: its deadline, 30 s, outlasts
	// every harm but the loss of a majority.
	SharedClient bool

	// Kills, if not 0, ends the harm when so many processes were killed, however
	// long that takes. Faults must have one that kills.
	Kills int

	// Faults are the kinds of harm done, one after another at random. Nil means
	// all of AllFaults.
	Faults []Fault

	ElectionTimeout time.Duration // of the servers; zero means 300 ms
	Log             io.Writer     // takes a line per fault; nil discards
}

// Fault is a kind of harm.
type Fault string

// The faults.
const (
	KillLeader Fault = "kill-leader" // SIGKILL, and a restart a little later
	KillAny    Fault = "kill-any"
	KillAll    Fault = "kill-all"   // every server at once, as a power cut would
	Pause      Fault = "pause"      // SIGSTOP and SIGCONT
	CutLink    Fault = "cut-link"   // one direction between two servers
	Isolate    Fault = "isolate"    // both directions between one server and all others
	SlowLink   Fault = "slow-link"  // a delay for everything from one server to another
	Reorder    Fault = "reorder"    // messages from one server to another overtake each other
	LoseReply  Fault = "lose-reply" // connections of clients break
	TornTail   Fault = "torn-tail"  // SIGKILL, and garbage behind the last record, as from a write that was under way
	Snapshot   Fault = "snapshot"   // a server cuts its log short, and is killed right after
	Transfer   Fault = "transfer"   // leadership goes to another server
	Terminate  Fault = "terminate"  // SIGTERM to the leader, and a restart a little later
	Members    Fault = "members"    // a server loses its voice, or its place and its disk, and gets it back
)

// AllFaults are all there are.
var AllFaults = []Fault{KillLeader, KillAny, KillAll, Pause, CutLink, Isolate, SlowLink, Reorder, LoseReply, TornTail, Snapshot, Transfer, Terminate, Members}

// kills reports whether the fault ends a process by SIGKILL.
func (f Fault) kills() bool {
	return slices.Contains([]Fault{KillLeader, KillAny, KillAll, TornTail, Snapshot}, f)
}

// Report tells what happened in a run.
type Report struct {
	Faults map[Fault]int
	Kills  int // processes ended by SIGKILL

	Operations int // calls of clients
	Applied    int // of these, known to be applied
	NotApplied int // known not to be
	Unknown    int // neither
	Repeated   int // applied by an earlier attempt than the one that was answered

	LongestGap  time.Duration // between two applied operations
	SlowestCall time.Duration // of a client
}

func (r Report) String() string {
	var faults []string
	for _, f := range AllFaults {
		if n := r.Faults[f]; n > 0 {
			faults = append(faults, fmt.Sprintf("%s %d", f, n))
		}
	}
	return fmt.Sprintf("%d operations: %d applied, %d not applied, %d unknown; %d answered by an earlier attempt; longest gap %v, slowest call %v; %d processes killed; faults: %s",
		r.Operations, r.Applied, r.NotApplied, r.Unknown, r.Repeated, r.LongestGap.Round(time.Millisecond), r.SlowestCall.Round(time.Millisecond), r.Kills, strings.Join(faults, ", "))
}

// Run runs clients against a cluster while doing harm to it, heals it, and
// checks: every token that was acknowledged stands in the store once, no token
// stands there twice, the history of every key is linearizable, and after the
// harm one leader serves again. The error is the first of these that does not
// hold, or what went wrong in running it.
func Run(ctx context.Context, config Config) (Report, error) {
	r := newRun(config)
	if r.config.Kills != 0 && !slices.ContainsFunc(r.config.Faults, Fault.kills) {
		return r.report, fmt.Errorf("none of the faults %v kills a process, so %d kills would never be reached", r.config.Faults, r.config.Kills)
	}
	defer r.close()
	if err := r.start(); err != nil {
		return r.report, err
	}
	r.operator = kvclient.New(r.endpoints())
	defer r.operator.Close()
	kind := manyClients(r.config.Clients)
	if r.config.SharedClient {
		kind = oneClient(r.config.Clients)
	}
	load := startLoad(r.endpoints(), kind, r.config.Seed)
	harmErr := r.harm(ctx)
	r.heal()
	load.stop()
	checkErr := load.check(ctx, &r.report, r.endpoints())
	return r.report, errors.Join(harmErr, checkErr, ctx.Err())
}

// run is a cluster under chaos.
type run struct {
	config   Config
	random   *rand.Rand
	servers  []*server
	operator *kvclient.KVClient
	report   Report
	began    time.Time
}

func newRun(config Config) *run {
	config.Servers = cmp.Or(config.Servers, 3)
	if config.SharedClient {
		config.Clients = cmp.Or(config.Clients, 64)
	}
	config.Clients = cmp.Or(config.Clients, 8)
	config.Duration = cmp.Or(config.Duration, 20*time.Second)
	config.ElectionTimeout = cmp.Or(config.ElectionTimeout, 300*time.Millisecond)
	if config.Faults == nil {
		config.Faults = AllFaults
	}
	if config.Log == nil {
		config.Log = io.Discard
	}
	return &run{
		config: config,
		random: rand.New(rand.NewPCG(config.Seed, 1)),
		report: Report{Faults: map[Fault]int{}},
	}
}

func (r *run) start() error {
	r.began = time.Now()
	var members []string
	for i := range r.config.Servers {
		s, err := r.newServer(i + 1)
		if err != nil {
			return err
		}
		r.servers = append(r.servers, s)
		members = append(members, fmt.Sprintf("%d=%s", s.id, s.raft.address()))
	}
	for _, s := range r.servers {
		s.args = append(r.commonArgs(s), "--cluster", strings.Join(members, ","))
		if err := s.start(); err != nil {
			return err
		}
	}
	return nil
}

// close ends everything that runs.
func (r *run) close() {
	for _, s := range r.servers {
		s.close()
	}
}

func (r *run) endpoints() (all []string) {
	for _, s := range r.servers {
		all = append(all, s.http.address())
	}
	return all
}

func (r *run) logf(format string, args ...any) {
	fmt.Fprintf(r.config.Log, "%8.3f  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// harm does one fault after another until the time is over, or the kills are
// done. Every server is up again before the next fault, so that a majority is
// there most of the time.
func (r *run) harm(ctx context.Context) error {
	end := time.Now().Add(r.config.Duration)
	over := func() bool { return time.Now().After(end) }
	if r.config.Kills != 0 {
		over = func() bool { return r.report.Kills >= r.config.Kills }
	}
	for n := 0; !over(); n++ {
		if err := sleep(ctx, r.between(200, 900)); err != nil {
			return err
		}
		// Every kind once, in turn, before chance decides.
		fault := r.config.Faults[n%len(r.config.Faults)]
		if n >= len(r.config.Faults) {
			fault = r.config.Faults[r.random.IntN(len(r.config.Faults))]
		}
		if err := r.do(ctx, fault); err != nil {
			return fmt.Errorf("%s: %w", fault, err)
		}
		r.report.Faults[fault]++
	}
	return nil
}

func (r *run) do(ctx context.Context, fault Fault) error {
	victim := r.servers[r.random.IntN(len(r.servers))]
	other := r.servers[(slices.Index(r.servers, victim)+1+r.random.IntN(len(r.servers)-1))%len(r.servers)]
	switch fault {
	case KillLeader:
		leader, err := r.leader(ctx)
		if err != nil {
			return err
		}
		return r.killAndRestart(ctx, fault, nil, leader)
	case KillAny:
		return r.killAndRestart(ctx, fault, nil, victim)
	case TornTail:
		return r.killAndRestart(ctx, fault, func() error { return victim.tearTail(r.random) }, victim)
	case KillAll:
		return r.killAndRestart(ctx, fault, nil, r.servers...)
	case Pause:
		r.logf("%s: server %d", fault, victim.id)
		if err := victim.pause(); err != nil {
			return err
		}
		sleepErr := sleep(ctx, r.between(100, 1500))
		return errors.Join(victim.resume(), sleepErr)
	case CutLink:
		r.logf("%s: nothing from server %d to server %d", fault, other.id, victim.id)
		victim.raft.treat(other.id, treatment{cut: true})
	case Isolate:
		r.logf("%s: server %d", fault, victim.id)
		for _, s := range r.servers {
			if s != victim {
				victim.raft.treat(s.id, treatment{cut: true})
				s.raft.treat(victim.id, treatment{cut: true})
			}
		}
	case SlowLink:
		delay := r.between(20, 400)
		r.logf("%s: %v from server %d to server %d", fault, delay, other.id, victim.id)
		victim.raft.treat(other.id, treatment{delay: delay})
	case Reorder:
		r.logf("%s: from server %d to server %d", fault, other.id, victim.id)
		victim.raft.treat(other.id, treatment{reorder: true})
	case Snapshot:
		taken, err := r.operator.TakeSnapshot(ctx, victim.http.target())
		if err != nil {
			r.logf("%s: server %d took none: %v", fault, victim.id, err)
		} else {
			r.logf("%s: server %d, index %d, %d bytes", fault, victim.id, taken.Index, taken.Bytes)
		}
		return r.killAndRestart(ctx, fault, nil, victim)
	case Transfer:
		callCtx, cancel := context.WithTimeout(ctx, callPatience)
		defer cancel()
		leader, err := r.operator.TransferLeadership(callCtx, uint64(victim.id))
		r.logf("%s: to server %d; now server %d leads (%v)", fault, victim.id, leader, err)
		return nil // it may be aborted; what counts is what clients see
	case Terminate:
		leader, err := r.leader(ctx)
		if err != nil {
			return err
		}
		r.logf("%s: server %d", fault, leader.id)
		if err := leader.terminate(); err != nil {
			return err
		}
		sleepErr := sleep(ctx, r.between(50, 1200))
		return errors.Join(leader.start(), sleepErr)
	case Members:
		return r.changeMembers(ctx, victim)
	case LoseReply:
		r.logf("%s: clients of server %d", fault, victim.id)
		victim.http.breakAll()
		return nil
	}
	err := sleep(ctx, r.between(300, 2000))
	for _, s := range r.servers {
		s.raft.treatNobody()
	}
	return err
}

// killAndRestart kills servers, lets them be down for a while, and starts them
// again after what down does to their files.
func (r *run) killAndRestart(ctx context.Context, fault Fault, down func() error, victims ...*server) error {
	for _, v := range victims {
		r.logf("%s: server %d", fault, v.id)
		v.kill()
		r.report.Kills++
	}
	sleepErr := sleep(ctx, r.between(50, 1200))
	if down != nil {
		if err := down(); err != nil {
			return err
		}
	}
	for _, v := range victims {
		if err := v.start(); err != nil {
			return err
		}
	}
	return sleepErr
}

// leader asks the servers until one says that it leads; the highest term counts.
func (r *run) leader(ctx context.Context) (*server, error) {
	for {
		var leader *server
		var term uint64
		for _, s := range r.servers {
			if st, err := s.status(ctx); err == nil && st.Role == "leader" && st.Term > term {
				leader, term = s, st.Term
			}
		}
		if leader != nil {
			return leader, nil
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// heal ends every harm.
func (r *run) heal() {
	r.logf("healed")
	for _, s := range r.servers {
		s.raft.treatNobody()
		s.resume()
		if !s.running() {
			if err := s.start(); err != nil {
				r.logf("server %d does not start: %v", s.id, err)
			}
		}
	}
}

func (r *run) between(lo, hi int) time.Duration {
	return time.Duration(lo+r.random.IntN(hi-lo)) * time.Millisecond
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
