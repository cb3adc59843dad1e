package sim

import (
	"fmt"
	"strings"
	"time"

	"raftkv/kvservice/machine"
	"raftkv/raft"
)

// plan is what a seed draws before it starts. One fixed mix of faults finds
// little: a network that loses every third message never lets a log grow long,
// and a good one never repeats an election. So each seed is a world of its own
// (swarm testing), and many rates are drawn as "none at all" in a part of them.
type plan struct {
	staged bool // for one purpose: what would disturb it is left out
	nodes  int
	raft   raft.Config // all but the ids

	electionTimeout time.Duration
	heartbeat       time.Duration
	clockRate       []int // per node: thousandths of true speed at which its timers run

	// The loop of a server.
	loopBatch int           // events stepped and merged before one save; 0 means all
	loopDelay time.Duration // between an event's arrival and the loop's waking up

	// The network between servers.
	linkDelay   time.Duration // shortest
	linkJitter  time.Duration // on average in addition
	drop        int           // per mille of all messages
	duplicate   int
	late        int           // of those that come late, up to lateBy
	lateBy      time.Duration // several election timeouts
	inOrder     bool          // as on one TCP connection; what is late stays late
	slowLinks   []slowLink    // always slow, by elections rather than by jitter
	clientDelay time.Duration
	clientLoss  int // per mille of requests, and of answers
	doubled     int // per mille of requests with an identity that somebody on the way sends twice

	// The disks.
	saveTime     time.Duration // on average; 0 means at once
	slowSave     int           // per mille of saves that take up to slowSaveTime
	slowSaveTime time.Duration
	segmentBytes int

	applyDelay time.Duration // between commit and the state machine

	// The chapters behind the paper's Figure 2 (chapters.go).
	snapshotBytes int           // of commands between two snapshots; 0: only when somebody asks
	snapshotTime  time.Duration // that writing one takes, on average
	spoiledParts  int           // per mille of the parts of snapshots that arrive with other bytes
	levels        [levels]int   // how fresh reads are; all 0: all go through the log
	anywhere      int           // per mille of the reads beside the log that go to any server
	changeEvery   time.Duration // of the members, on average; 0 means never
	spares        int           // servers that are not there at the beginning

	// Faults (faults.go).
	faultEvery time.Duration // on average; 0 means never
	faults     [faultKinds]int
	triggers   [triggers]int // per mille of the occasions on which a server crashes
	triggerGap time.Duration // at least between two such crashes
	downTime   time.Duration // on average

	// The clients.
	settings     machine.Settings
	clients      int
	anonymous    int // of the clients: writes without a session
	simple       int // of the clients: sessions that open implicitly
	width        int // calls in flight per client
	keys         int
	ledgers      int // further keys, on which clients only append
	mix          []int
	oddClients   []manner
	operations   int
	patience     time.Duration // of the first attempt of a call
	giveUp       time.Duration // of a call
	burst        time.Duration // calls begin only at multiples of it; 0: at any time
	serverWait   time.Duration // how long a server lets a request wait
	forwarding   bool
	healAt       time.Duration
	mustSettleIn time.Duration

	// What ends (lifetimes.go).
	batching   bool          // calls that a client makes at the same time travel together
	gather     time.Duration // how long a batch waits for more
	conditions int           // per mille of the writes that have one
	sharedKeys int           // per mille of the writes with a key that share it with others, as a batch
	closing    int           // per mille of the calls after which a client closes its session
	clockSpeed []int         // per node: thousandths of true speed at which its clock runs
}

// slowLink is one direction between two servers that takes longer than the others.
type slowLink struct {
	from, to int
	delay    time.Duration
}

// rate draws a rate of at most limit per mille, none at all in half of the seeds.
func rate(s *source, limit int) int {
	if s.oneIn(2) {
		return 0
	}
	return s.between(1, limit)
}

func drawPlan(p Profile, seed uint64) plan {
	s := newSource(seed, "plan "+p.Name)
	const ms = time.Millisecond
	d := plan{
		nodes:           pick(s, 1, 2, 3, 3, 3, 3, 3, 3, 3, 4, 5, 5, 5, 5, 5, 5, 6, 7),
		electionTimeout: pick(s, 100*ms, 150*ms, 200*ms, 300*ms),
	}
	timeout := d.electionTimeout
	d.heartbeat = timeout / time.Duration(s.between(3, 10))
	d.clockRate = make([]int, d.nodes)
	spread := pick(s, 0, 50, 50, 300, 600)
	for i := range d.clockRate {
		d.clockRate[i] = 1000 + s.between(-spread, spread)
	}

	d.loopBatch = pick(s, 1, 2, 4, 16, 0, 0)
	d.loopDelay = pick(s, 0, 0, 0, ms/2, 3*ms)

	d.linkDelay = pick(s, ms/10, ms/2, 2*ms)
	d.linkJitter = pick(s, ms/10, ms, timeout/20, timeout/5)
	d.drop = rate(s, pick(s, 20, 100, 300))
	d.duplicate = rate(s, pick(s, 20, 150))
	d.late = rate(s, pick(s, 10, 60))
	d.lateBy = timeout * time.Duration(s.between(2, 10))
	d.inOrder = s.oneIn(4)
	if s.oneIn(3) {
		for range s.between(1, d.nodes) {
			d.slowLinks = append(d.slowLinks, slowLink{s.below(d.nodes), s.below(d.nodes), s.span(timeout/4, 6*timeout)})
		}
	}

	d.saveTime = pick(s, 0, ms/5, ms, 5*ms, timeout/10)
	d.slowSave = rate(s, pick(s, 5, 50))
	d.slowSaveTime = pick(s, timeout/2, timeout, 4*timeout)
	d.segmentBytes = pick(s, 1<<10, 4<<10, 16<<10, 64<<10)
	d.applyDelay = pick(s, 0, 0, ms, timeout/4)

	if !s.oneIn(8) {
		d.faultEvery = pick(s, 300*ms, 800*ms, 2*time.Second)
	}
	for f := range lateFaults {
		d.faults[f] = pick(s, 0, 1, 1, 4)
	}
	d.faults[s.below(int(lateFaults))]++ // not all may be 0
	for i := range lateTriggers {
		d.triggers[i] = rate(s, pick(s, 10, 100, 500))
	}
	d.triggerGap = pick(s, timeout, 4*timeout, 20*timeout)
	d.downTime = pick(s, 5*ms, timeout, 5*timeout)
	if !p.Crashes {
		d.triggers = [triggers]int{}
		for _, f := range crashFaults {
			d.faults[f] = 0
		}
		d.faults[pauseServer]++
	}

	d.raft = raft.Config{
		MaxBatchBytes:      pick(s, 0, 0, 1, 200, 1000),
		MaxInflight:        pick(s, 0, 0, 1, 2, 8),
		MaxBacklogBytes:    pick(s, 0, 0, 0, 2000),
		DisablePreVote:     s.oneIn(4),
		DisableQuorumCheck: s.oneIn(4),
	}
	if !p.Extensions {
		d.raft = raft.Config{DisablePreVote: true, DisableQuorumCheck: true}
	}

	d.clients = pick(s, 1, 2, 4, 4, 8, 8, 12, 16)
	d.anonymous = s.between(0, d.clients/2)
	d.simple = s.between(0, (d.clients-d.anonymous+1)/2)
	d.width = min(pick(s, 1, 1, 2, 4, 8), 16/d.clients) // more calls at once take too long to judge
	d.settings = machine.DefaultSettings()
	if s.oneIn(4) {
		d.settings.Window = uint64(s.between(d.width+2, 2*d.width+8))
		d.settings.SessionBytes = uint64(s.between(1, 200))
	}
	d.keys = s.between(4, 8)
	d.ledgers = s.between(1, 3)
	d.mix = []int{s.between(1, 6), s.between(1, 4), s.between(1, 6), s.between(0, 4), s.between(0, 2)}
	d.operations = s.between(200, 400)
	d.patience = timeout * time.Duration(s.between(1, 6))
	d.giveUp = d.patience * time.Duration(s.between(1, 8))
	d.burst = pick(s, 0, 0, 500*ms, 2*time.Second)
	d.serverWait = pick(s, timeout, 5*timeout, 50*timeout)
	d.clientDelay = pick(s, 0, ms/5, 2*ms)
	d.clientLoss = rate(s, pick(s, 10, 100))
	d.forwarding = s.oneIn(2)
	if !p.Clients {
		d.clients, d.operations = 0, 0
	}

	if p.Crashes && s.oneIn(5) {
		d.restlessLeader(s)
	}
	if p.Disks {
		d.moreFaults(newSource(seed, "more faults"))
	}
	if p.Extensions && !d.staged {
		d.chapters(newSource(seed, "chapters"))
		d.lifetimes(newSource(seed, "lifetimes"))
	}

	d.healAt = s.span(20*time.Second, 25*time.Second)
	d.mustSettleIn = 100*timeout + time.Duration(d.operations)*20*ms
	return d
}

// moreFaults draws what only a whole server can stand. A third of the seeds go
// without, and so do the smaller profiles.
func (d *plan) moreFaults(s *source) {
	if s.oneIn(3) {
		return
	}
	for f := lateFaults; f < chapterFaults; f++ {
		d.faults[f] = pick(s, 0, 0, 1)
	}
	if s.oneIn(4) {
		d.oddClients = append(d.oddClients, sharing, sharing)
	}
	if s.oneIn(3) {
		d.oddClients = append(d.oddClients, filed)
	}
	d.doubled = rate(s, pick(s, 20, 100))
}

// restlessLeader draws together what seldom comes together: a leader that sends
// entries, crashes before it has written them, is back at once and leads again,
// while answers to what it sent before are still under way.
func (d *plan) restlessLeader(s *source) {
	timeout := d.electionTimeout
	d.staged = true
	d.nodes = pick(s, 3, 3, 5)
	d.clockRate = make([]int, d.nodes)
	for i := range d.clockRate {
		d.clockRate[i] = 1000
	}
	favourite := s.below(d.nodes)
	d.clockRate[favourite] = 600 // always the first to stand
	d.raft.DisablePreVote, d.raft.DisableQuorumCheck = true, true
	d.raft.MaxBatchBytes = 1
	d.saveTime = timeout / 10
	d.downTime = time.Millisecond
	d.triggers = [triggers]int{onAppending: 500}
	d.triggerGap = 2 * timeout
	d.drop = s.between(100, 300)
	d.late, d.lateBy = s.between(50, 200), 6*timeout
	d.slowLinks = []slowLink{{(favourite + 1) % d.nodes, favourite, s.span(timeout, 3*timeout)}}
	// Else the others have soon written again what the old answer says they have.
	d.slowSave, d.slowSaveTime = s.between(200, 400), 3*timeout
	d.faultEvery = 2 * time.Second
	d.clients, d.anonymous, d.simple, d.width = 4, 1, 1, 4
}

var oddNames = map[manner]string{sharing: "one that shares its id", filed: "one with a session file", keyed: "one with keys"}

// String describes the plan in a few lines, for whoever studies a failure.
func (d plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d servers, election timeout %v, heartbeat %v, clocks at %d/1000\n", d.nodes, d.electionTimeout, d.heartbeat, d.clockRate)
	fmt.Fprintf(&b, "raft: batch %d B, inflight %d, backlog %d B, pre-vote %t, quorum check %t; loop: batch %d, delay %v\n",
		d.raft.MaxBatchBytes, d.raft.MaxInflight, d.raft.MaxBacklogBytes, !d.raft.DisablePreVote, !d.raft.DisableQuorumCheck, d.loopBatch, d.loopDelay)
	fmt.Fprintf(&b, "network: delay %v+%v, of 1000 messages %d lost, %d doubled, %d late by up to %v, in order %t, slow links %v\n",
		d.linkDelay, d.linkJitter, d.drop, d.duplicate, d.late, d.lateBy, d.inOrder, d.slowLinks)
	fmt.Fprintf(&b, "disks: save %v, of 1000 saves %d take up to %v, segments of %d B; apply delay %v\n",
		d.saveTime, d.slowSave, d.slowSaveTime, d.segmentBytes, d.applyDelay)
	fmt.Fprintf(&b, "faults every %v with weights %v; crash triggers %v per mille, %v apart; down for %v\n",
		d.faultEvery, d.faults, d.triggers, d.triggerGap, d.downTime)
	fmt.Fprintf(&b, "clients: %d (%d anonymous, %d simple), %d calls each, %d keys and %d ledgers, %d operations in bursts every %v, mix %v, patience %v, give up after %v\n",
		d.clients, d.anonymous, d.simple, d.width, d.keys, d.ledgers, d.operations, d.burst, d.mix, d.patience, d.giveUp)
	if d.doubled > 0 || len(d.oddClients) > 0 {
		fmt.Fprintf(&b, "of 1000 requests %d doubled; odd clients:", d.doubled)
		for _, m := range d.oddClients {
			fmt.Fprintf(&b, " %s", oddNames[m])
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprintf(&b, "requests: delay %v, of 1000 %d lost, servers wait %v, forward %t; session window %d, %d bytes\n",
		d.clientDelay, d.clientLoss, d.serverWait, d.forwarding, d.settings.Window, d.settings.SessionBytes)
	d.describeChapters(&b)
	d.describeLifetimes(&b)
	fmt.Fprintf(&b, "healed at %v", d.healAt)
	return b.String()
}
