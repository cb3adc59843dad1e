package sim

import (
	"encoding/binary"

	"raftkv/api"
	"raftkv/internal/lincheck"
	"raftkv/kvservice/machine"
	"raftkv/kvservice/waiters"
	"raftkv/raft"
)

// service is what kvservice is, in virtual time: the state machine of a server
// and the requests that wait for it. All of it is lost in a crash.
type service struct {
	machine *machine.Machine
	waiters waiters.Table
	waiting map[waiters.Token]*request // never ranged over
	clock   machine.LogClock

	// leading is the term in which this server leads, as far as the service has
	// heard; 0 if it does not. clockRuns and ready say how far a new leader is:
	// its empty entry has been applied, and the settings stand in the log.
	leading   raft.Term
	clockRuns bool
	ready     bool
	parked    []*request // what came too early

	// Where the state stands in the log, and the latest configuration there.
	appliedTerm        raft.Term
	configuration      raft.Configuration
	configurationIndex raft.Index

	since        int // bytes of commands since the last snapshot
	snapshotSize int // of the last one
	readers      []reader
	fresh        heard // when what is applied was the latest
}

func newService(c raft.Configuration) service {
	return service{machine: machine.New(), waiting: map[waiters.Token]*request{}, configuration: c}
}

// request is an attempt at one call, or at several in a batch, on its way through
// the servers. One without parts is the server's own.
type request struct {
	client  *client
	parts   []part
	level   level // of a read
	command machine.Command
	encoded []byte // command with its stamp

	server  *node  // who works on it
	life    uint32 // of that server; an answer from an earlier life reaches nobody
	via     *node  // the follower that has forwarded it; nil if none
	viaLife uint32
	token   waiters.Token
	after   raft.Index // what the server had applied when the waiter was made
	term    raft.Term  // of the leadership that took the command; 0 before that
	parked  bool
	done    bool // it has been answered
}

// identified reports whether every write in the request has an identity, so that
// a second copy does no harm.
func (r *request) identified() bool {
	if r.command.RequestID > 0 {
		return true
	}
	for _, p := range r.parts {
		if p.call.command.RequestID == 0 && (len(r.parts) == 1 || p.call.op.Kind != lincheck.Get) {
			return false
		}
	}
	return true
}

// answer is what a server says to a request.
type answer struct {
	result     machine.Result
	operations []machine.Applied // of a batch that was applied
	index      raft.Index        // of the entry that answers; 0 if none does
	leader     raft.ServerID     // whom to ask instead; None if unknown
}

func refusal(status api.Status, leader raft.ServerID) answer {
	return answer{result: machine.Result{Status: status, Outcome: status.Outcome()}, leader: leader}
}

// requested is called when a request reaches a server.
func (s *simulation) requested(n *node, r *request) {
	r.server, r.life = n, n.life
	if r.level != byLog {
		s.read(n, r)
		return
	}
	switch leader := n.status.LeaderID; {
	case n.service.leading != 0:
		s.after(s.plan.serverWait, func() { s.waited(n, r) })
		if n.service.ready {
			s.propose(n, r)
		} else {
			r.parked = true
			n.service.parked = append(n.service.parked, r)
		}
	case s.plan.forwarding && r.via == nil && leader != raft.None && leader != n.id:
		s.forward(n, s.nodes[index(leader)], r)
	default:
		s.answer(r, refusal(api.StatusNotLeader, leader))
	}
}

// forward passes a request on to the leader, once: who gets it does not pass it
// on again. A leader that cannot be reached has certainly not done it.
func (s *simulation) forward(n, leader *node, r *request) {
	s.count(Forwarded)
	r.via, r.viaLife = n, n.life
	if s.network.cuts[n.index][leader.index] > 0 {
		s.answer(r, refusal(api.StatusNotLeader, raft.None))
		return
	}
	s.after(s.clientTime(r.client), func() {
		if leader.up {
			s.requested(leader, r)
		} // else nobody answers; the client's patience will end
	})
}

// propose puts a command into the inbox of the loop. The waiter is made first:
// the entry may be applied before the server hears that it was appended.
func (s *simulation) propose(n *node, r *request) {
	r.command.Stamp = n.service.clock.Stamp(s.monotonicMillis(n))
	r.encoded = r.command.Encode()
	r.token = n.service.waiters.Add(r.command.Identity())
	r.after = n.service.machine.AppliedIndex()
	n.service.waiting[r.token] = r
	s.arrive(n, input{request: r})
}

// submitted hands out what the core says to the commands of one Submit.
func (s *simulation) submitted(n *node, requests []*request, answers []raft.Submitted) {
	for _, r := range requests {
		a := answers[0] // one Submit was stepped for all of them
		r.term = a.Term
		switch {
		case r.parts == nil || r.done:
		case a.Err == raft.ErrBusy:
			s.drop(n, r, refusal(api.StatusBusy, raft.None))
		case a.Err != nil:
			s.drop(n, r, refusal(api.StatusNotLeader, n.status.LeaderID))
		case n.service.waiters.Submitted(r.token, a.Term):
			delete(n.service.waiting, r.token)
			s.answer(r, refusal(api.StatusFailedCommit, raft.None))
		}
	}
}

// drop ends a waiter and answers its request.
func (s *simulation) drop(n *node, r *request, a answer) {
	n.service.waiters.Remove(r.token)
	delete(n.service.waiting, r.token)
	s.answer(r, a)
}

// waited is called when a server has let a request wait for long enough.
func (s *simulation) waited(n *node, r *request) {
	if r.done || !n.up || n.life != r.life {
		return
	}
	s.count(ServerTimeout)
	if r.parked {
		s.answer(r, refusal(api.StatusBusy, raft.None)) // it never went into a log
		return
	}
	s.judgeWaiter(n, r)
	s.drop(n, r, refusal(api.StatusTimeout, raft.None))
}

// judgeWaiter looks at a request that has waited in vain. It may not have missed
// its answer.
func (s *simulation) judgeWaiter(n *node, r *request) {
	if i := s.appliedAt[r.command.Identity()]; i > r.after && i <= n.service.machine.AppliedIndex() {
		s.fail("waiter", "server %d has applied index %d and not answered request %d of client %s, which waited for it", n.id, i, r.command.RequestID, r.command.ClientID)
	}
	if r.term != 0 && (n.status.State != raft.Leader || n.status.Term != r.term) {
		s.fail("waiter", "server %d has lost its leadership of term %d and not told request %d of client %s", n.id, r.term, r.command.RequestID, r.command.ClientID)
	}
}

// roleChanged is what Server.Observe calls.
func (s *simulation) roleChanged(n *node) {
	for _, token := range n.service.waiters.LeadershipLost(n.status) {
		r := n.service.waiting[token]
		delete(n.service.waiting, token)
		s.count(WaiterLost)
		s.answer(r, refusal(api.StatusFailedCommit, n.status.LeaderID))
	}
	leading := raft.Term(0)
	if n.status.State == raft.Leader {
		leading = n.status.Term
	}
	if leading == n.service.leading {
		return
	}
	n.service.leading, n.service.clockRuns, n.service.ready = leading, false, false
	parked := n.service.parked
	n.service.parked = nil
	for _, r := range parked {
		if r.parked && !r.done {
			s.answer(r, refusal(api.StatusNotLeader, n.status.LeaderID))
		}
	}
}

// committed takes entries on their way to the state machine.
func (s *simulation) committed(n *node, entries []raft.CommitEntry) {
	if len(entries) == 0 {
		return
	}
	n.commits = append(n.commits, entries...)
	if s.plan.applyDelay == 0 || s.healed {
		s.apply(n)
		return
	}
	if n.applying {
		return
	}
	n.applying = true
	life := n.life
	s.after(n.clock.around(s.plan.applyDelay), func() {
		if n.up && n.life == life {
			n.applying = false
			s.apply(n)
		}
	})
}

// apply lets the state machine catch up.
func (s *simulation) apply(n *node) {
	entries := n.commits
	n.commits = nil
	if len(entries) == 0 {
		return
	}
	for _, e := range entries {
		if n.wiped == nil && s.check(s.checker.Applied(n.id, e)) {
			return
		}
		if s.plan.clients > 0 {
			s.applyEntry(n, e)
		}
	}
	s.arrive(n, input{event: raft.Applied{Index: entries[len(entries)-1].Index}})
}

// applyEntry takes in one entry and answers whoever waits for it, through
// whichever leader it came.
func (s *simulation) applyEntry(n *node, e raft.CommitEntry) {
	if e.Kind == raft.EntrySnapshot {
		s.restore(n, e)
		return
	}
	before := n.service.machine.Now()
	applied, err := n.service.machine.Apply(e)
	if err != nil {
		s.fail("apply", "server %d, index %d: %v", n.id, e.Index, err)
		return
	}
	if now := n.service.machine.Now(); now < before {
		s.fail("log time", "server %d goes back from %d to %d at index %d", n.id, before, now, e.Index)
	}
	s.compareApplied(n, e, &applied)
	s.resolve(n, &applied)
	for i := range applied.Operations {
		s.resolve(n, &applied.Operations[i])
	}
	n.service.appliedTerm = e.Term
	if e.Kind == raft.EntryConfiguration {
		if n.service.configuration, err = raft.DecodeConfiguration(e.Command); err != nil {
			s.fail("apply", "server %d, index %d: %v", n.id, e.Index, err)
		}
		n.service.configurationIndex = e.Index
	}
	s.releaseReaders(n)
	s.snapshotIfDue(n, e)
	s.advanceLeadership(n, e)
}

// resolve answers whoever waits for what has just been applied.
func (s *simulation) resolve(n *node, a *machine.Applied) {
	for _, token := range n.service.waiters.Resolve(a.Identity) {
		r := n.service.waiting[token]
		delete(n.service.waiting, token)
		s.answer(r, answer{result: a.Result, operations: a.Operations, index: n.service.machine.AppliedIndex()})
	}
}

// advanceLeadership makes a new leader ready. When its own empty entry is
// applied, everything that earlier leaders have left is; from the log time that
// stands there it goes on. If nobody has written the settings, it does.
func (s *simulation) advanceLeadership(n *node, e raft.CommitEntry) {
	v := &n.service
	if v.leading == 0 || v.ready {
		return
	}
	_, written := v.machine.Settings()
	if e.Kind == raft.EntryEmpty && e.Term == v.leading {
		v.clock.Start(v.machine.Now(), s.monotonicMillis(n))
		v.clockRuns = true
		if !written {
			s.writeSettings(n)
		}
	}
	if !v.clockRuns || !written {
		return
	}
	v.ready = true
	parked := v.parked
	v.parked = nil
	for _, r := range parked {
		if !r.done {
			r.parked = false
			s.propose(n, r)
		}
	}
}

// writeSettings submits the settings. Nobody waits for them; if they are lost
// with this leadership, the next leader writes them.
func (s *simulation) writeSettings(n *node) {
	command := machine.Command{
		Kind: machine.KindSettings, Stamp: n.service.clock.Stamp(s.monotonicMillis(n)),
		Nonce: s.nonce(), Settings: s.plan.settings,
	}
	s.arrive(n, input{request: &request{encoded: command.Encode()}})
}

func (s *simulation) nonce() (nonce machine.Nonce) {
	binary.LittleEndian.PutUint64(nonce[:], s.ids.pcg.Uint64())
	binary.LittleEndian.PutUint64(nonce[8:], s.ids.pcg.Uint64())
	return nonce
}

// answer sends an answer to the client, through the follower that has forwarded
// the request if one has.
func (s *simulation) answer(r *request, a answer) {
	if r.done {
		return
	}
	r.done = true
	server, life := r.server, r.life
	if via := r.via; via != nil && via != server {
		if s.network.cuts[server.index][via.index] > 0 || s.losesAnswer(r.client) {
			// The follower does not know whether the leader has done it. It says so.
			a = refusal(api.StatusFailedCommit, raft.None)
		}
		server, life = via, r.viaLife
	}
	if s.losesAnswer(r.client) {
		return
	}
	s.after(s.clientTime(r.client), func() {
		if server.up && server.life == life { // else the connection has broken
			s.answered(r, a)
		}
	})
}

// applied is what the first server made of an entry; the others must agree.
type applied struct {
	result machine.Applied
	hash   [32]byte // of the state after it; only at every hashEvery-th index
	tick   int64    // when the first server applied it
	anew   []bool   // of its operations: carried out though they had been before (book.go); nil if none
}

// operations returns what became of each operation of an entry; of one that is no
// batch, what became of it.
func operations(a *machine.Applied) []machine.Applied {
	if a.Operations != nil {
		return a.Operations
	}
	return []machine.Applied{*a}
}

// hashEvery: the hash takes time in proportion to the state.
const hashEvery = 64

// compareApplied checks that equal logs make equal states.
func (s *simulation) compareApplied(n *node, e raft.CommitEntry, result *machine.Applied) {
	var hash [32]byte
	if e.Index%hashEvery == 0 {
		hash = n.service.machine.Hash()
	}
	if e.Index == raft.Index(len(s.applied)) {
		s.firstApplied(n, e, result, hash)
		return
	}
	if first := &s.applied[e.Index]; !first.result.Equal(*result) || first.hash != hash {
		s.fail("state", "server %d at index %d has %+v and hash %x, another server had %+v and %x",
			n.id, e.Index, *result, hash[:4], first.result, first.hash[:4])
	}
}

// firstApplied notes what the first server has made of an entry.
func (s *simulation) firstApplied(n *node, e raft.CommitEntry, result *machine.Applied, hash [32]byte) {
	first := applied{result: *result, hash: hash, tick: s.tick()}
	s.appliedAt[result.Identity] = e.Index
	var c machine.Command
	var err error
	if e.Kind == raft.EntryCommand {
		if c, err = machine.Decode(e.Command); err != nil {
			s.fail("apply", "index %d: %v", e.Index, err)
			return
		}
		s.judgeSessions(e.Index, &c, &first)
	}
	s.applied = append(s.applied, first)
	s.noteValues(n, e.Index, &c)
	for i := range result.Operations {
		s.appliedAt[result.Operations[i].Identity] = e.Index
		s.tookEffect(n, e, &c.Operations[i], &result.Operations[i], spot{result.Identity, i})
	}
	if result.Operations == nil {
		s.tookEffect(n, e, &c, result, spot{result.Identity, 0})
	}
}

// tookEffect counts what the state machine did with an operation, once for all
// servers. carried is where it has travelled.
func (s *simulation) tookEffect(n *node, e raft.CommitEntry, c *machine.Command, a *machine.Applied, carried spot) {
	at := carried
	if c.RequestID != 0 {
		at = spot{identity: a.Identity}
	}
	s.watcher.tookEffect(n, e.Index, a, at)
	switch a.Result.Status {
	case api.StatusStaleRequest:
		s.count(LateCopyRefused)
	case api.StatusWindowExceeded:
		s.count(WindowExceeded)
	case api.StatusDuplicateRequest:
		s.count(ResultDropped)
	case api.StatusConditionFailed:
		s.count(ConditionFailed)
	}
	switch a.Event {
	case machine.EventCommitted:
		s.executedIn[at.identity] = carriage{e.Term, carried.identity}
	case machine.EventDuplicate:
		s.count(DuplicateAnswered)
		first, known := s.executedIn[at.identity]
		if known && first.term != e.Term {
			s.count(DuplicateAfterLeaderChange)
		}
		s.countDuplicate(c, first, carried.identity)
	}
}

// carriage is how an operation has come into the log that was carried out.
type carriage struct {
	term  raft.Term
	entry machine.Identity // whose it was: its own, or that of a batch
}
