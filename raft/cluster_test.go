package raft

import (
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A cluster is a few servers in virtual time, one tick a millisecond. The
// network loses, doubles and reorders; servers crash; the log is cut short all
// the time, voters come and go, leadership is handed on, and someone reads.
// internal/sim does the same at length with the real storage and state machine;
// this is the short run beside the code.
type cluster struct {
	t       *testing.T
	rng     *rand.Rand
	now     int
	servers map[ServerID]*testServer
	network []flying
	side    map[ServerID]int // of a partition: messages reach one's own side only
	healed  bool
	seen    map[string]int // what has happened

	leaders   map[Term]ServerID
	committed []CommitEntry // by index
	hashes    map[Index]uint64
	requests  RequestID
	asked     map[RequestID]asked
}

type flying struct {
	Message
	at int
}

// asked is a request that waits for its answer.
type asked struct {
	by        ServerID
	read      bool
	committed Index // how much was committed anywhere when it was asked
}

type testServer struct {
	id     ServerID
	cm     *ConsensusModule // nil while it is down
	events []Event

	// The disk.
	disk      PersistentState
	snapshots map[Index]storedSnapshot
	received  []byte

	// The state machine, and what it has yet to take in.
	queue   []CommitEntry
	state   machineState
	writing *storedSnapshot // a snapshot that is taking its time

	deadlines [timerKinds]int
	numbers   Timers
	stamps    map[stamp]int
	commit    Index
	term      Term
	wasLeader bool
}

type stamp struct {
	Term
	Round
}

type machineState struct {
	CommitEntry
	hash          uint64
	configuration placedConfiguration
}

type storedSnapshot struct {
	Snapshot
	bytes []byte
	state machineState
	done  int
}

const (
	testT         = 100 // the minimum election timeout
	testHeartbeat = 20
)

func (c *cluster) config(id ServerID) Config {
	conf := Config{ID: id, MaxBatchBytes: 60, MaxInflight: 3, TrailingBytes: 100, MaxBacklogBytes: 1000}
	if id <= 3 {
		conf.Configuration = NewConfiguration(1, 2, 3)
	}
	return conf
}

func (c *cluster) chance(percent float64) bool { return c.rng.Float64()*100 < percent }

// trouble is chance as long as the network and the servers misbehave.
func (c *cluster) trouble(percent float64) bool { return !c.healed && c.chance(percent) }

func (c *cluster) start(s *testServer) {
	// Where a crash came between a snapshot and the log, the snapshot counts.
	d := &s.disk
	if at := d.Snapshot.Index; at != 0 {
		l := newLog(d.Start, d.Entries)
		if !l.matches(at, d.Snapshot.Term) {
			d.Start, d.Entries = LogPosition{at, d.Snapshot.Term}, nil
		}
	}
	cm, effects, err := NewConsensusModule(c.config(s.id), *d)
	require.NoError(c.t, err)
	s.cm, s.queue, s.writing, s.received, s.events = cm, nil, nil, nil, nil
	s.state = machineState{configuration: placedConfiguration{Configuration: c.config(s.id).Configuration}}
	s.deadlines, s.stamps = [timerKinds]int{}, map[stamp]int{}
	s.commit, s.term, s.wasLeader = 0, 0, false
	c.carryOut(s, effects)
}

func (c *cluster) crash(s *testServer) {
	c.seen["crash"]++
	if s.cm.configuration.Joint() {
		c.seen["crash in a joint phase"]++
	}
	s.cm = nil
	maps.DeleteFunc(c.asked, func(_ RequestID, a asked) bool { return a.by == s.id })
}

// carryOut does what a Step has asked for, in the order of Effects.
func (c *cluster) carryOut(s *testServer, effects Effects) {
	for next := []Effects{effects}; len(next) > 0; {
		e := next[0]
		next = next[1:]
		c.check(s)
		for _, a := range e.Answers {
			c.takeAnswer(s, a)
		}
		c.send(s, e.Send)
		if c.trouble(0.05) {
			c.crash(s)
			return
		}
		if e.Save.Needed() {
			s.disk.write(e.Save)
			next = append(next, s.cm.Step(Saved{s.cm.log.lastIndex(), s.cm.currentTerm}))
		}
		for _, chunk := range e.Receive {
			next = append(next, c.receive(s, chunk)...)
		}
		if c.trouble(0.05) {
			c.crash(s)
			return
		}
		c.send(s, e.SendAfter)
		s.queue = append(s.queue, e.Commit...)
		for kind, change := range e.Timers {
			switch change.Action {
			case RestartTimer:
				wait := testT
				switch TimerKind(kind) {
				case ElectionTimer:
					wait += c.rng.IntN(testT)
				case HeartbeatTimer:
					wait = testHeartbeat
				case QuorumCheckTimer:
					wait += c.rng.IntN(4 * testT) // late, so that a deposed leader believes in itself for long
				}
				s.deadlines[kind], s.numbers[kind] = c.now+wait, change
			case StopTimer:
				s.deadlines[kind] = 0
			}
		}
		if e.Compact > s.disk.Start.Index {
			c.seen["compact"]++
			n := e.Compact - s.disk.Start.Index
			s.disk.Start = LogPosition{e.Compact, s.disk.Entries[n-1].Term}
			s.disk.Entries = s.disk.Entries[n:]
		}
	}
	c.check(s)
}

func (c *cluster) send(s *testServer, messages []Message) {
	for _, m := range messages {
		switch body := m.Body.(type) {
		case InstallSnapshotArgs:
			if body.Length > 0 {
				stored := s.snapshots[body.Snapshot.Index]
				if !stored.Same(body.Snapshot) {
					continue
				}
				body.Data = stored.bytes[body.Offset : body.Offset+body.Length]
				m.Body = body
				c.seen["part of a snapshot"]++
			}
		case TimeoutNowArgs:
			c.seen["TimeoutNow"]++
		}
		if c.side[m.From] != c.side[m.To] || c.trouble(10) {
			continue
		}
		copies := 1
		if c.trouble(5) {
			copies = 2
		}
		for range copies {
			delay := 1 + c.rng.IntN(5)
			if c.trouble(10) {
				delay += c.rng.IntN(4 * testT)
			}
			c.network = append(c.network, flying{m, c.now + delay})
		}
	}
}

func (c *cluster) receive(s *testServer, chunk Chunk) (next []Effects) {
	if chunk.Offset == 0 {
		s.received = nil
	}
	require.Equal(c.t, chunk.Offset, uint64(len(s.received)), "a hole in a snapshot")
	s.received = append(s.received, chunk.Data...)
	if !chunk.Last() {
		return nil
	}
	if c.trouble(25) || crc32.ChecksumIEEE(s.received) != chunk.Snapshot.Checksum {
		c.seen["damaged snapshot"]++
		return []Effects{s.cm.Step(SnapshotDamaged{chunk.Snapshot})}
	}
	for _, other := range c.servers {
		if from := other.snapshots[chunk.Snapshot.Index]; from.Same(chunk.Snapshot) {
			c.seen["installed snapshot"]++
			return c.stored(s, from)
		}
	}
	panic("a snapshot from nowhere")
}

// stored publishes a snapshot, unless a newer one is there.
func (c *cluster) stored(s *testServer, snapshot storedSnapshot) (next []Effects) {
	if snapshot.Index > s.disk.Snapshot.Index {
		s.disk.Snapshot = snapshot.Snapshot
		s.snapshots[snapshot.Index] = snapshot
	}
	return []Effects{s.cm.Step(SnapshotStored{snapshot.Snapshot})}
}

// apply lets the state machine take in some of what is committed.
func (c *cluster) apply(s *testServer) {
	for n := c.rng.IntN(5); n > 0 && len(s.queue) > 0; n-- {
		e := s.queue[0]
		s.queue = s.queue[1:]
		if e.Kind == EntrySnapshot {
			require.Greater(c.t, e.Index, s.state.Index, "a snapshot takes the state back")
			s.state = s.snapshots[e.Index].state
		} else {
			require.Equal(c.t, s.state.Index+1, e.Index, "server %d skips entries", s.id)
			h := fnv.New64a()
			fmt.Fprint(h, s.state.hash, e.Index, e.Term, e.Kind, e.Command)
			s.state.CommitEntry, s.state.hash = e, h.Sum64()
			if e.Kind == EntryConfiguration {
				conf, err := DecodeConfiguration(e.Command)
				require.NoError(c.t, err)
				s.state.configuration = placedConfiguration{e.Index, conf}
			}
		}
		if hash, known := c.hashes[e.Index]; known {
			require.Equal(c.t, hash, s.state.hash, "server %d has another state at index %d", s.id, e.Index)
		}
		c.hashes[e.Index] = s.state.hash
		s.events = append(s.events, Applied{e.Index})
	}
	if s.writing == nil && s.state.Index > s.disk.Snapshot.Index+10 && c.chance(20) {
		taken := storedSnapshot{state: s.state, done: c.now + c.rng.IntN(2*testT), bytes: fmt.Appendf(nil, "%200d", s.state.hash)}
		taken.Snapshot = Snapshot{
			Index: s.state.Index, Term: s.state.Term,
			Configuration: s.state.configuration.Configuration, ConfigurationIndex: s.state.configuration.index,
			Size: uint64(len(taken.bytes)), Checksum: crc32.ChecksumIEEE(taken.bytes),
		}
		s.writing = &taken
	}
	if s.writing != nil && s.writing.done <= c.now {
		taken := *s.writing
		s.writing = nil
		for _, e := range c.stored(s, taken) {
			c.carryOut(s, e)
		}
	}
}

// check looks at a server after every step.
func (c *cluster) check(s *testServer) {
	now := s.cm.Status()
	require.GreaterOrEqual(c.t, now.Term, s.term)
	require.GreaterOrEqual(c.t, now.CommitIndex, s.commit)
	s.term = now.Term
	for i := s.commit + 1; i <= now.CommitIndex; i++ {
		e, held := s.cm.Entry(i)
		if !held {
			continue
		}
		for Index(len(c.committed)) <= i {
			c.committed = append(c.committed, CommitEntry{})
		}
		entry := CommitEntry{Index: i, Term: e.Term, Kind: e.Kind, Command: e.Command}
		if c.committed[i].Index != 0 {
			require.Equal(c.t, c.committed[i], entry, "server %d commits another entry", s.id)
		}
		c.committed[i] = entry
	}
	s.commit = now.CommitIndex

	if now.State == Leader {
		first, known := c.leaders[now.Term]
		require.True(c.t, !known || first == s.id, "term %d was led by %d and by %d", now.Term, first, s.id)
		c.leaders[now.Term] = s.id
		if !s.wasLeader {
			c.seen["leader"]++
			for i := max(1, now.FirstIndex); i < Index(len(c.committed)); i++ {
				e, _ := s.cm.Entry(i)
				require.Equal(c.t, c.committed[i].Term, e.Term, "leader %d of term %d lacks index %d", s.id, now.Term, i)
			}
		}
		for _, peer := range s.cm.peerIDs {
			require.Less(c.t, s.cm.matchIndex[peer], s.cm.nextIndex[peer])
		}
		for r := now.Round; r > 0; r-- {
			if _, stamped := s.stamps[stamp{now.Term, r}]; stamped {
				break
			}
			s.stamps[stamp{now.Term, r}] = c.now
		}
	}
	s.wasLeader = now.State == Leader
	require.Equal(c.t, encodedSize(s.cm.log.slice(s.cm.backlogStart(), s.cm.log.lastIndex())), s.cm.backlogBytes)
	require.LessOrEqual(c.t, s.cm.log.first-1, max(s.cm.snapshot.Index, s.cm.lastApplied))
}

// readUnderLease reads as raft/server may, with a clock that is as fast as all others.
func (c *cluster) readUnderLease(s *testServer) {
	now := s.cm.Status()
	began, known := s.stamps[stamp{now.Term, now.LeaseRound}]
	if !known || began+testT <= c.now {
		c.seen["no lease"]++
		return
	}
	c.seen["lease"]++
	require.GreaterOrEqual(c.t, now.LeaseIndex+1, Index(len(c.committed)), "server %d reads the past under its lease", s.id)
}

func (c *cluster) takeAnswer(s *testServer, a Answer) {
	question, known := c.asked[a.Request]
	require.True(c.t, known, "an answer to nobody, or a second one")
	delete(c.asked, a.Request)
	switch {
	case a.Err != nil:
		for _, err := range []error{ErrTransferring, ErrTransferAborted, ErrNotVoter, ErrChanging, ErrChanged, ErrNotCaughtUp} {
			if errors.Is(a.Err, err) {
				c.seen[err.Error()]++
			}
		}
	case question.read:
		c.seen["read"]++
		require.GreaterOrEqual(c.t, a.Index, question.committed, "server %d reads the past", s.id)
	}
}

func (c *cluster) ask(s *testServer, read bool) RequestID {
	c.requests++
	c.asked[c.requests] = asked{s.id, read, Index(max(1, len(c.committed))) - 1}
	return c.requests
}

// client is whatever users do to a server.
func (c *cluster) client(s *testServer) {
	if c.chance(5) {
		s.events = append(s.events, Submit{[][]byte{fmt.Appendf(nil, "%d", c.now)}})
	}
	if c.chance(5) {
		s.events = append(s.events, Read{[]RequestID{c.ask(s, true)}})
	}
	if c.trouble(0.3) {
		s.events = append(s.events, TransferLeadership{c.ask(s, false), ServerID(c.rng.IntN(6))})
	}
	if c.trouble(3) {
		// Each server is made a voter, a learner, or none, as chance will have it.
		var next Configuration
		for id := ServerID(1); id <= 5; id++ {
			switch now := s.cm.configuration; {
			case c.chance(80) && now.IsVoter(id), c.chance(50) && slices.Contains(now.Learners, id):
				next.Voters = append(next.Voters, id)
			case c.chance(70):
				next.Learners = append(next.Learners, id)
			}
		}
		s.events = append(s.events, ChangeConfiguration{c.ask(s, false), s.cm.configurationIndex, next})
	}
}

// tick is one millisecond.
func (c *cluster) tick() {
	c.now++
	if c.trouble(0.2) {
		clear(c.side)
		for range c.rng.IntN(3) {
			c.side[ServerID(1+c.rng.IntN(5))] = 1
		}
	}
	c.network = slices.DeleteFunc(c.network, func(f flying) bool {
		if f.at > c.now {
			return false
		}
		if to := c.servers[f.To]; to.cm != nil {
			to.events = append(to.events, f.Message)
		}
		return true
	})
	for id := ServerID(1); id <= 5; id++ {
		s := c.servers[id]
		if s.cm == nil {
			if c.healed || c.chance(1) {
				c.start(s)
			}
			continue
		}
		for kind, at := range s.deadlines {
			if at != 0 && at <= c.now {
				s.deadlines[kind] = 0
				s.events = append(s.events, Timeout(TimerKind(kind), s.numbers[kind].Number))
			}
		}
		c.client(s)
		c.rng.Shuffle(len(s.events), func(i, j int) { s.events[i], s.events[j] = s.events[j], s.events[i] })
		for s.cm != nil && len(s.events) > 0 {
			var batch Effects
			n := 1 + c.rng.IntN(len(s.events))
			for _, event := range s.events[:n] {
				batch.Merge(s.cm.Step(event))
			}
			s.events = s.events[n:]
			c.carryOut(s, batch)
		}
		if s.cm == nil {
			continue
		}
		c.apply(s)
		if s.cm != nil {
			c.readUnderLease(s)
			if c.trouble(0.05) {
				c.crash(s)
			}
		}
	}
}

// TestCluster runs a few servers through trouble, and then lets them recover.
func TestCluster(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			c := &cluster{t: t, rng: rand.New(rand.NewPCG(seed, 0)), servers: map[ServerID]*testServer{}, seen: seen,
				leaders: map[Term]ServerID{}, hashes: map[Index]uint64{}, asked: map[RequestID]asked{}, side: map[ServerID]int{}}
			for id := ServerID(1); id <= 5; id++ {
				c.servers[id] = &testServer{id: id, snapshots: map[Index]storedSnapshot{}}
				c.start(c.servers[id])
			}
			for range 2500 {
				c.tick()
			}
			c.heal()
		})
	}
	for _, what := range []string{
		"leader", "read", "lease", "no lease", "TimeoutNow", "crash", "crash in a joint phase", "compact",
		"part of a snapshot", "installed snapshot", "damaged snapshot",
		ErrTransferring.Error(), ErrTransferAborted.Error(), ErrNotVoter.Error(), ErrChanging.Error(), ErrNotCaughtUp.Error(),
	} {
		require.NotZero(t, seen[what], "nothing was seen of: %s", what)
	}
}

// heal ends all trouble. Whoever takes part must then come to agree, and every
// question be answered.
func (c *cluster) heal() {
	c.healed = true
	clear(c.side)
	for range 15 * testT {
		c.tick()
	}
	until := c.requests
	length := len(c.committed)
	for range 5 * testT {
		c.tick()
	}
	require.Greater(c.t, len(c.committed), length, "nothing is committed any more")
	for request := range c.asked {
		require.Greater(c.t, request, until, "request %d is never answered", request)
	}
	var leader *testServer
	for _, s := range c.servers {
		if s.cm.state == Leader && (leader == nil || s.cm.currentTerm > leader.cm.currentTerm) {
			leader = s
		}
	}
	require.NotNil(c.t, leader)
	require.False(c.t, leader.cm.configuration.Joint())
	require.True(c.t, leader.cm.configuration.IsVoter(leader.id))
	for _, id := range leader.cm.configuration.Members() {
		require.Greater(c.t, c.servers[id].state.Index, Index(length), "server %d stays behind", id)
	}
}
