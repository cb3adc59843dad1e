package sim

import (
	"time"

	"raftkv/api"
	"raftkv/kvservice/machine"
	"raftkv/raft"
)

// Reads that need no place in the log, as kvservice/reads.go and raft/server do
// them: every server answers from its own state, and only how far that must have
// come is asked of the leader.

// level is how fresh a read has to be.
type level uint8

const (
	byLog   level = iota // an entry like any write
	byRound              // the default: a majority confirms that the leader leads
	byLease              // the leader's clock says that it must still lead
	stale                // whatever the server has
	levels
)

var levelNames = [levels]string{"log", "linearizable", "lease", "stale"}

// leasePercent is how much of an election timeout a leader relies on, as in
// raft/server: voters' clocks may run up to a tenth faster.
const leasePercent = 90

// heard says how fresh a log is: at that time a leader had committed up to index.
type heard struct {
	at, sent time.Duration // when it was heard, and when it was said
	index    raft.Index
	is       bool
}

// hearsLeader notes what a leader says of its commit index. A new one knows less
// than its predecessors did until it has committed an entry of its own term; until
// then what it says tells nothing about age. Nor does a message with less than an
// earlier one had: it was overtaken, and its news is older than what is known here
// (seed 400819).
func (s *simulation) hearsLeader(n *node, args raft.AppendEntriesArgs) {
	commit := args.LeaderCommit
	e, ok := n.core.Entry(commit)
	if ok && e.Term == args.Term || commit == n.status.LastIndex && n.status.LastTerm == args.Term {
		n.settledIn = args.Term
	}
	if n.settledIn == args.Term && commit >= n.heard.index {
		n.heard = heard{s.now, s.arriving, commit, true}
	}
}

// freshen is the part of raft/server's step that reads rely on: it stamps each
// new round before any of its messages leaves, and notes what the leader says.
func (s *simulation) freshen(n *node, before *raft.Status, event raft.Event) {
	now := &n.status
	if now.LeaderID != raft.None {
		n.known = true
	}
	if now.State != raft.Leader || now.Term != before.Term {
		clear(n.rounds)
	}
	if s.plan.levels[byLease]+s.plan.levels[stale] == 0 {
		return
	}
	if now.Round > before.Round || now.Term > before.Term && now.Round > 0 {
		n.rounds[now.Round] = s.now
	}
	if m, ok := event.(raft.Message); ok && m.From == now.LeaderID {
		if args, ok := m.Body.(raft.AppendEntriesArgs); ok && args.Term == now.Term {
			s.hearsLeader(n, args)
		}
	}
	if began, known := n.rounds[now.LeaseRound]; known {
		n.heard = heard{began, began, now.LeaseIndex, true}
	}
}

// leaseIndex is raft/server's LeaseIndex. The clock is the server's own.
func (s *simulation) leaseIndex(n *node) (index raft.Index, ok bool) {
	began, known := n.rounds[n.status.LeaseRound]
	if !known || n.status.LeaseRound == 0 {
		return 0, false
	}
	rate := time.Duration(s.plan.clockRate[n.index])
	lasts := s.plan.electionTimeout * leasePercent / 100 * rate / 1000
	return n.status.LeaseIndex, s.now < began+lasts
}

// read answers a read that reaches a server.
func (s *simulation) read(n *node, r *request) {
	if r.level == stale {
		s.staleRead(n, r)
		return
	}
	s.after(s.plan.serverWait, func() { s.readWaited(n, r) })
	leader := n.status.LeaderID
	if leader == n.id || leader == raft.None {
		s.ownReadIndex(n, r, func(index raft.Index, err error) {
			if err != nil {
				s.answer(r, refusal(api.StatusNotLeader, n.status.LeaderID))
				return
			}
			s.readAt(n, r, index)
		})
		return
	}
	s.askLeader(n, s.nodes[index(leader)], r)
}

// ownReadIndex asks a server's own core for how far a read must see. If the lease
// is over, a round of messages tells instead.
func (s *simulation) ownReadIndex(n *node, r *request, got func(raft.Index, error)) {
	if r.level == byLease {
		if index, ok := s.leaseIndex(n); ok {
			s.count(LeaseRead)
			if n.wiped == nil && s.check(s.checker.LeaseRead(n.id)) {
				return
			}
			got(index, nil)
			return
		}
		if n.status.State == raft.Leader {
			s.count(LeaseRefused)
		}
	}
	led := n.status.State == raft.Leader
	s.arrive(n, input{ask: &ask{answer: func(a raft.Answer) {
		if a.Err != nil && led {
			s.count(ReadFailed)
		}
		got(a.Index, a.Err)
	}}})
}

// askLeader is a follower's call to the leader. Either way it may be lost, or the
// leader may be another one by now.
func (s *simulation) askLeader(n, leader *node, r *request) {
	life := n.life
	back := func(index raft.Index, err error) {
		if s.network.cuts[leader.index][n.index] > 0 || s.losesAnswer(r.client) {
			return // the reader's patience will end
		}
		s.after(s.clientTime(r.client), func() {
			switch {
			case !n.up || n.life != life:
			case err != nil:
				s.answer(r, refusal(api.StatusNotLeader, raft.None))
			default:
				s.count(FollowerRead)
				s.readAt(n, r, index)
			}
		})
	}
	if s.network.cuts[n.index][leader.index] > 0 {
		s.answer(r, refusal(api.StatusNotLeader, raft.None))
		return
	}
	s.after(s.clientTime(r.client), func() {
		if leader.up {
			s.ownReadIndex(leader, r, back)
		}
	})
}

// gatherReads makes one event of all reads that wait.
func (s *simulation) gatherReads(n *node, batch []input) raft.Event {
	var requests []raft.RequestID
	for _, in := range batch {
		if in.ask != nil && in.ask.event == nil {
			requests = append(requests, n.remember(in.ask.answer))
		}
	}
	if n.wiped == nil {
		s.checker.BeforeRead(n.id, requests)
	}
	return raft.Read{Requests: requests}
}

// reader waits until the state has come to an index.
type reader struct {
	index raft.Index
	r     *request
}

// readAt answers a read when the state has come to an index.
func (s *simulation) readAt(n *node, r *request, index raft.Index) {
	switch v := &n.service; {
	case r.done:
	case v.machine.AppliedIndex() >= index:
		s.answerRead(n, r)
	default:
		v.readers = append(v.readers, reader{index, r})
	}
}

// releaseReaders lets those go on who waited for what has just been applied.
func (s *simulation) releaseReaders(n *node) {
	v := &n.service
	waiting := v.readers[:0]
	for _, w := range v.readers {
		switch {
		case w.r.done:
		case w.index <= v.machine.AppliedIndex():
			s.answerRead(n, w.r)
		default:
			waiting = append(waiting, w)
		}
	}
	v.readers = waiting
}

func (s *simulation) answerRead(n *node, r *request) {
	result := n.service.machine.Get(r.command.Key)
	s.watcher.hasRead(n, r)
	s.compareRead(n, r.command.Key, result)
	s.answer(r, answer{result: result})
}

// readWaited is called when a server has let a read wait for long enough.
func (s *simulation) readWaited(n *node, r *request) {
	if !r.done && n.up && n.life == r.life {
		s.answer(r, refusal(api.StatusTimeout, raft.None))
	}
}

// staleRead answers from what a server has, and says how old that may be.
func (s *simulation) staleRead(n *node, r *request) {
	v := &n.service
	if at := v.machine.AppliedIndex(); n.heard.is && at >= n.heard.index && n.heard.at >= v.fresh.at {
		v.fresh = n.heard
	}
	if v.fresh.is {
		s.judgeAge(n)
	}
	s.count(StaleRead)
	s.answerRead(n, r)
}

// judgeAge looks at what a server says of the age of its state. A leader whose
// place another has taken may not know it for some time; what it says in that
// time is older than it believes, by no more than that.
func (s *simulation) judgeAge(n *node) {
	if s.plan.raft.DisableQuorumCheck {
		return // it may not know for ever
	}
	fresh := &n.service.fresh
	truly := fresh.sent - s.officeTime()
	for i := n.service.machine.AppliedIndex() + 1; i < raft.Index(len(s.committedAt)); i++ {
		if s.committedAt[i] < truly {
			s.fail("age", "server %d says that its state was the latest %v ago; it has applied index %d, and index %d was committed %v ago",
				n.id, s.now-fresh.at, n.service.machine.AppliedIndex(), i, s.now-s.committedAt[i])
			return
		}
	}
}

// officeTime is how long a leader may believe in itself and nobody else does: two
// quorum checks by the slowest clock there is, and as long as it was paused or
// waited for its disk meanwhile.
func (s *simulation) officeTime() time.Duration {
	return 2*slowestClock*s.plan.electionTimeout + s.longestPause + 2*s.plan.slowSaveTime + 20*s.plan.saveTime
}

// slowestClock is the largest factor in strike's clocks.
const slowestClock = 5

// noteCommit writes down when each index was committed first.
func (s *simulation) noteCommit(n *node) {
	for raft.Index(len(s.committedAt)) <= n.status.CommitIndex {
		s.committedAt = append(s.committedAt, s.now)
	}
}

// valueAt is what a key holds from an index on.
type valueAt struct {
	index  raft.Index
	result machine.Result
}

// noteValues writes down what an entry has made of its keys, when the first server
// has applied it.
func (s *simulation) noteValues(n *node, at raft.Index, c *machine.Command) {
	for i := range c.Operations {
		s.noteValues(n, at, &c.Operations[i])
	}
	if s.plan.levels == ([levels]int{}) || c.Key == "" || c.Kind == machine.KindGet {
		return
	}
	now := n.service.machine.Get(c.Key)
	if past := s.values[c.Key]; len(past) == 0 || past[len(past)-1].result != now {
		s.values[c.Key] = append(past, valueAt{at, now})
	}
}

// compareRead demands that a read, however stale, has seen what the key held at
// the index up to which the server had applied: a prefix of the history.
func (s *simulation) compareRead(n *node, key string, got machine.Result) {
	at := n.service.machine.AppliedIndex()
	want := machine.Result{Status: api.StatusOK, Outcome: api.OutcomeApplied}
	for _, v := range s.values[key] {
		if v.index > at {
			break
		}
		want = v.result
	}
	if got != want {
		s.fail("state", "server %d reads %+v from key %s at index %d, where it was %+v", n.id, got, key, at, want)
	}
}
