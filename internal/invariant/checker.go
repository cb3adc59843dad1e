// Package invariant checks after every step of a cluster what Raft promises to
// hold always: the five properties of Figure 3 of the paper, and what makes
// them true, such as that no message promises more than is on a disk.
//
// A [Checker] watches all servers of one cluster over a whole run, because most
// of these properties are about two servers or two moments: two leaders of one
// term need not overlap in time, and a vote must not be forgotten in a crash.
//
// The reading order is checker.go (what the driver calls), elections.go,
// logs.go, commits.go, durability.go, snapshots.go, membership.go and reads.go
// (the invariants).
package invariant

import (
	"fmt"
	"slices"

	"raftkv/raft"
)

// The names of the invariants, as in [Violation].
const (
	ElectionSafety     = "election safety"      // at most one leader in a term (Figure 3)
	LeaderAppendOnly   = "leader append-only"   // a leader only adds to its log (Figure 3)
	LogMatching        = "log matching"         // same index and term: same entry, same log up to it (Figure 3)
	LeaderCompleteness = "leader completeness"  // what is committed stands in every later leader's log (Figure 3)
	StateMachineSafety = "state machine safety" // no two servers apply different entries at an index (Figure 3)
	Monotony           = "monotony"             // term, commit index and applied index never go back; nor do they run ahead
	Progress           = "progress"             // matchIndex < nextIndex, and both within the leader's log
	VoteOnce           = "vote once"            // one vote in a term, crashes included
	Durability         = "durability"           // no message, vote or commit relies on what a crash could take back
	Truth              = "truth"                // a leader's message describes the leader's log
	Membership         = "membership"           // who takes part, and one change of that at a time (§6)
	Snapshots          = "snapshots"            // a snapshot stands for what is committed, and replaces nothing else (§7)
	Reads              = "reads"                // a read sees all that was committed before it (§8, thesis 6.4)
	Leases             = "leases"               // under a lease nobody else can commit (thesis 6.4.1)
	Transfers          = "transfers"            // who is told to take over can do so (thesis 3.10)
)

// Violation is the error that every method of [Checker] returns.
type Violation struct {
	Invariant string // one of the names above
	Server    raft.ServerID
	Detail    string
}

func (v *Violation) Error() string {
	return fmt.Sprintf("%s: server %d %s", v.Invariant, v.Server, v.Detail)
}

// View is what the checker sees of a server.
type View interface {
	Status() raft.Status
	Entry(raft.Index) (e raft.LogEntry, ok bool)
}

// Checker watches one cluster. Its methods return a *[Violation] as soon as an
// invariant is broken, and nil otherwise. It believes nothing that a server
// says without looking, so a broken one is reported and cannot make it panic.
// After the first violation its answers mean nothing. One goroutine at a time.
//
// What a call costs depends on what has changed, not on the length of the log.
type Checker struct {
	// Volatile is for a core that has no disk and asks for no Save: whatever it
	// knows counts as durable at once. Set it before the first step.
	Volatile bool

	servers []*server // all that ever took part, by id

	leaderOf   map[raft.Term]raft.ServerID // over the whole run
	lastLeader raft.Term                   // the highest of these terms

	// seen[i] holds every entry that any log ever had at index i.
	seen [][]seenEntry

	committed []raft.Term        // by index: the term of the committed entry; [0] is the place before the first
	commits   []commitPoint      // by term: how far the leader of that term has committed
	applied   []raft.CommitEntry // by index: what the first server applied there

	changes   []change // the committed configurations, the first at index 0
	snapshots map[raft.Index]raft.Snapshot
}

// server is what the checker remembers about one server.
type server struct {
	id     raft.ServerID
	status raft.Status // after its latest step
	log    terms       // the terms of its log, and of what a snapshot stands for there

	disk    disk           // what a crash cannot take
	unsaved bool           // a Save was asked for and is not durable yet
	rewrite raft.Index     // the lowest index which that Save may rewrite; 0 if none
	waiting []raft.Message // SendAfter of steps whose Save is not durable yet

	delivered raft.Index // the last entry in Effects.Commit, in this life
	applied   raft.Index // the last entry applied, in this life

	// The follower has told the leader of ackedTerm that its log matches up to acked.
	ackedTerm raft.Term
	acked     raft.Index

	// configurations are those that its log and its snapshot hold, the oldest
	// first. The last is in force; one that waits to be added has none.
	configurations []change
	addedAfter     raft.Index // as in raft.Config

	answered answers                    // what leaders have heard from it
	reads    map[raft.RequestID]reading // reads that wait for their index, in this life

	// The term in which this server, leading it, has told another to take over, and
	// its round then; and the term in which it was told so itself.
	releasedTerm raft.Term
	released     raft.Round
	toldIn       raft.Term

	// What it had and had said if it has lost its disk; replies may still arrive.
	former         disk
	formerAnswered answers
}

// terms holds the term of each entry of a log, by index; [0] is 0.
type terms []raft.Term

func (t terms) last() raft.Index { return raft.Index(len(t) - 1) }

// has reports whether the entry at index i has the given term.
func (t terms) has(i raft.Index, term raft.Term) bool {
	return i < raft.Index(len(t)) && t[i] == term
}

// New returns the checker of a cluster with the given voters, all of which
// start with empty disks (see Restarted for others).
func New(voters ...raft.ServerID) *Checker {
	c := &Checker{
		leaderOf:  map[raft.Term]raft.ServerID{},
		seen:      make([][]seenEntry, 1),
		committed: make([]raft.Term, 1),
		applied:   make([]raft.CommitEntry, 1),
		changes:   []change{{0, raft.NewConfiguration(voters...)}},
		snapshots: map[raft.Index]raft.Snapshot{},
	}
	for _, id := range c.changes[0].Voters {
		s := newServer(id)
		s.configurations = slices.Clone(c.changes)
		c.servers = append(c.servers, s)
	}
	return c
}

func newServer(id raft.ServerID) *server {
	return &server{id: id, log: make(terms, 1), disk: disk{log: make(terms, 1)}}
}

// Joined is called before the first start of a server with an empty disk that
// waits to be added to the cluster. If there was one with its id, that one has
// lost its disk and is no more.
func (c *Checker) Joined(id raft.ServerID) { c.Replaced(id, 0) }

// Replaced is Joined for a server that was told about the one before it:
// addedAfter is as in raft.Config.
func (c *Checker) Replaced(id raft.ServerID, addedAfter raft.Index) {
	s := newServer(id)
	s.addedAfter = addedAfter
	for i, o := range c.servers {
		if o.id == id {
			s.former, s.formerAnswered = o.disk, o.answered
			c.servers[i] = s
			return
		}
	}
	c.servers = append(c.servers, s)
}

// AfterStep is called after each Step of a server with that step's own effects
// (not merged ones), before anything of them is carried out. The effects of
// starting a server contain nothing to check.
func (c *Checker) AfterStep(id raft.ServerID, view View, effects raft.Effects) error {
	s, err := c.server(id)
	if err != nil {
		return err
	}
	before, now := s.status, view.Status()
	counted := s.inForce() // what the step began with is what it counted by

	// The log first: the others rely on it.
	if err := s.checkBeginning(before, now, effects); err != nil {
		return err
	}
	changed, err := c.checkLog(s, now, view, effects.Save)
	if err != nil {
		return err
	}
	if now.SnapshotIndex > before.SnapshotIndex && !s.log.has(now.SnapshotIndex, c.committedTerm(now.SnapshotIndex)) {
		return s.violates(Snapshots, "has a snapshot up to index %d, but another entry there in its log", now.SnapshotIndex)
	}
	if err := c.checkAppendOnly(s, now, changed); err != nil {
		return err
	}
	s.status = now
	if c.Volatile {
		s.disk = disk{term: now.Term, vote: now.VotedFor, log: s.log}
	} else if err := c.checkSave(s, before, changed, effects.Save); err != nil {
		return err
	}
	if now.State == raft.Leader && (before.State != raft.Leader || before.Term != now.Term) {
		if err := c.checkElected(s); err != nil {
			return err
		}
	}
	if err := checkMonotony(s, before, now); err != nil {
		return err
	}
	if err := s.checkCandidate(before); err != nil {
		return err
	}
	if now.CommitIndex > before.CommitIndex {
		if err := c.checkCommit(s, counted); err != nil {
			return err
		}
	}
	if err := c.checkChange(s, changed); err != nil {
		return err
	}
	if err := c.checkAnswers(s, counted, effects.Answers); err != nil {
		return err
	}
	for _, e := range effects.Commit {
		if err := c.checkDelivered(s, e, &s.delivered); err != nil {
			return err
		}
		if e.Index > now.CommitIndex {
			return s.violates(StateMachineSafety, "gives out index %d, but its commit index is %d", e.Index, now.CommitIndex)
		}
	}
	if now.State == raft.Leader {
		if err := c.checkProgress(s, view); err != nil {
			return err
		}
	}
	return c.checkMessages(s, effects)
}

// AfterSave is called when a Save is durable, before the server steps Saved
// and before any message of SendAfter leaves.
func (c *Checker) AfterSave(id raft.ServerID, save raft.Save) error {
	s, err := c.server(id)
	if err != nil || !save.Needed() {
		return err
	}
	if err := c.write(s, save); err != nil {
		return err
	}
	s.unsaved, s.rewrite = false, 0
	waiting := s.waiting
	s.waiting = s.waiting[:0]
	for _, m := range waiting {
		if err := c.checkLeaving(s, m); err != nil {
			return err
		}
	}
	return nil
}

// Restarted is called when a server starts with what its disk held: after a
// crash, or at the beginning if its disk is not empty.
func (c *Checker) Restarted(id raft.ServerID, saved raft.PersistentState) error {
	s, err := c.server(id)
	if err != nil {
		return err
	}
	if err := c.checkStored(s, saved.Snapshot); err != nil {
		return err
	}
	log, err := c.checkStart(s, saved)
	if err != nil {
		return err
	}
	if err := s.checkReload(saved); err != nil {
		return err
	}
	for _, e := range saved.Entries {
		if err := c.checkEntry(s, log, e); err != nil {
			return err
		}
		log = append(log, e.Term)
	}
	s.log = log
	s.disk = disk{saved.CurrentTerm, saved.VotedFor, slices.Clone(log), saved.Snapshot.Index}
	if saved.Snapshot.Index > 0 {
		s.configurations = c.changesUpTo(saved.Snapshot.Index)
		c.findChanges(s, saved.Snapshot.Index+1)
	} else {
		s.configurations = s.configurations[:min(1, len(s.configurations))]
		if len(s.configurations) > 0 && s.configurations[0].index > 0 {
			s.configurations = nil // it waited to be added, and still has no snapshot
		}
		c.findChanges(s, 1)
	}
	s.status = raft.Status{
		ID: id, Term: saved.CurrentTerm, VotedFor: saved.VotedFor, CommitIndex: saved.Snapshot.Index,
		LastIndex: log.last(), LastTerm: log[log.last()], SavedIndex: log.last(),
		FirstIndex: saved.Start.Index + 1, SnapshotIndex: saved.Snapshot.Index,
	}
	s.unsaved, s.rewrite, s.waiting, s.reads = false, 0, nil, nil
	s.delivered, s.applied = saved.Snapshot.Index, 0
	return nil
}

// Applied is called when a server's state machine has applied an entry.
func (c *Checker) Applied(id raft.ServerID, e raft.CommitEntry) error {
	s, err := c.server(id)
	if err != nil {
		return err
	}
	if e.Index > s.delivered {
		return s.violates(StateMachineSafety, "applies index %d, but only %d was given out", e.Index, s.delivered)
	}
	return c.checkDelivered(s, e, &s.applied)
}

func (c *Checker) server(id raft.ServerID) (*server, error) {
	for _, s := range c.servers { // a handful
		if s.id == id {
			return s, nil
		}
	}
	return nil, &Violation{Membership, id, "never joined the cluster"}
}

func (s *server) violates(invariant, format string, args ...any) error {
	return &Violation{invariant, s.id, fmt.Sprintf(format, args...)}
}

// checkMonotony compares two moments of one life, and the indexes of one moment.
func checkMonotony(s *server, before, now raft.Status) error {
	switch {
	case now.Term < before.Term:
		return s.violates(Monotony, "went back from term %d to %d", before.Term, now.Term)
	case now.CommitIndex < before.CommitIndex:
		return s.violates(Monotony, "went back from commit index %d to %d", before.CommitIndex, now.CommitIndex)
	case now.SnapshotIndex < before.SnapshotIndex:
		return s.violates(Monotony, "went back from a snapshot up to index %d to one up to %d", before.SnapshotIndex, now.SnapshotIndex)
	case now.LastApplied < before.LastApplied:
		return s.violates(Monotony, "went back from applied index %d to %d", before.LastApplied, now.LastApplied)
	case now.CommitIndex > now.LastIndex:
		return s.violates(Monotony, "has commit index %d, but its log ends at %d", now.CommitIndex, now.LastIndex)
	case now.LastApplied > now.CommitIndex:
		return s.violates(Monotony, "has applied index %d, but committed only %d", now.LastApplied, now.CommitIndex)
	case now.Term == before.Term && before.VotedFor != raft.None && now.VotedFor != before.VotedFor:
		return s.violates(VoteOnce, "voted for %d in term %d and now says %d", before.VotedFor, now.Term, now.VotedFor)
	}
	return nil
}
