package server

import (
	"maps"
	"time"

	"raftkv/raft"
)

// lease is how much of an election timeout a leader relies on, in percent. A
// voter's clock may therefore run up to a tenth faster than the leader's. A
// clock that stands still, in a machine that sleeps, is beyond any bound.
const lease = 90

// view is what others may see of the loop.
type view struct {
	status        raft.Status
	configuration raft.Configuration
	leaseEnds     time.Time // zero: no lease
	heard         heard
	progress      map[raft.ServerID]raft.Index
}

// heard says how fresh the log is: at that time a leader had committed up to index.
type heard struct {
	at    time.Time
	index raft.Index
}

// notes are what the loop takes down for its view: the module knows how far the
// servers are, and only the loop knows when.
type notes struct {
	rounds    map[raft.Round]time.Time     // when each round that may yet carry a lease began
	progress  map[raft.ServerID]raft.Index // see Progress; never changed once it is made
	heard     heard
	settledIn raft.Term // a leader of this term was heard that has committed an entry of it
}

// note takes down what a Step has changed. Its event came at the given time.
func (s *Server) note(event raft.Event, at time.Time, now raft.Status) {
	n := &s.notes
	if now.State != raft.Leader || now.Term != s.last.Term {
		clear(n.rounds)
		n.progress = nil
	}
	if now.Round > s.last.Round {
		n.rounds[now.Round] = at // before any of its messages leaves
	}
	switch ev := event.(type) {
	case raft.HeartbeatTimeout: // not at every Step, for each is a copy
		n.progress = s.cm.Matches()
	case raft.Message:
		if args, ok := ev.Body.(raft.AppendEntriesArgs); ok && ev.From == now.LeaderID && args.Term == now.Term {
			s.hearsLeader(at, now, args)
		}
	}
}

// hearsLeader notes how fresh the log is by a leader's word. A new leader says less
// than its predecessors knew until it has committed an entry of its own term; before
// that its word tells nothing about age. Nor does an older message than one that
// has come.
func (s *Server) hearsLeader(at time.Time, now raft.Status, args raft.AppendEntriesArgs) {
	commit := args.LeaderCommit
	e, ok := s.cm.Entry(commit)
	if ok && e.Term == args.Term || commit == now.LastIndex && now.LastTerm == args.Term {
		s.notes.settledIn = args.Term
	}
	if s.notes.settledIn == args.Term && commit >= s.notes.heard.index {
		s.notes.heard = heard{at, commit}
	}
}

// publish lets others see the present state.
func (s *Server) publish() {
	n := &s.notes
	v := view{status: s.cm.Status(), configuration: s.configuration, progress: n.progress}
	round := v.status.LeaseRound
	if began, known := n.rounds[round]; known {
		v.leaseEnds = began.Add(s.config.ElectionTimeout * lease / 100)
		n.heard = heard{began, v.status.LeaseIndex}
	}
	maps.DeleteFunc(n.rounds, func(r raft.Round, _ time.Time) bool { return r < round })
	v.heard = n.heard
	s.view.Store(&v)
}

// Status reports the state after the last round of the loop.
func (s *Server) Status() raft.Status { return s.view.Load().status }

// Configuration returns the configuration in force and where it stands in the log.
func (s *Server) Configuration() (raft.Configuration, raft.Index) {
	v := s.view.Load()
	return v.configuration, v.status.ConfigurationIndex
}

// LeaseIndex is ReadIndex without asking anyone: the followers have promised to
// elect nobody for some time, and ok says that this time is not over (thesis
// 6.4.1). It relies on clocks: on each server, the monotonic clock must run
// true to within a tenth. ok is false on a server that does not lead.
func (s *Server) LeaseIndex() (index raft.Index, ok bool) {
	v := s.view.Load()
	return v.status.LeaseIndex, time.Now().Before(v.leaseEnds)
}

// Heard returns when this server last knew what is committed, by its monotonic
// clock, and up to where that was. The zero time means not since it started.
// What has been applied up to index is not older than that, except for the time
// that the leader's message took.
func (s *Server) Heard() (at time.Time, index raft.Index) {
	v := s.view.Load()
	return v.heard.at, v.heard.index
}

// Progress returns up to where each follower's log was known to equal this
// leader's at its last heartbeat; nil on a server that does not lead, or has only
// begun to.
func (s *Server) Progress() map[raft.ServerID]raft.Index { return s.view.Load().progress }

// Busy returns for how long the loop has been at what it does now: storing,
// mostly. It is 0 while the loop waits for something to happen. A server whose
// disk hangs is busy for seconds; one that is busy for much longer will hardly
// come back.
func (s *Server) Busy() time.Duration {
	if began := s.busySince.Load(); began != nil {
		return time.Since(*began)
	}
	return 0
}
