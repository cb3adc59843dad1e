package raft

import (
	"fmt"
	"slices"
)

// Term numbers the periods of leadership (§5.1). 0 is before the first election.
type Term uint64

// Index is a place in the log. The first entry has index 1; 0 is the empty
// place before it.
type Index uint64

// ServerID names a server of the cluster. Ids start at 1; None is nobody.
type ServerID uint64

// None is no server: nobody voted for, no leader known.
const None ServerID = 0

// CMState is the role of a server (Figure 4).
type CMState uint8

// The roles of a server.
const (
	Follower CMState = iota
	Candidate
	Leader
)

func (s CMState) String() string {
	return [...]string{"follower", "candidate", "leader"}[s]
}

// NotLeaderError reports that this server cannot take commands now. Retry at
// Leader; 0 means an election is under way, so wait and ask anyone.
type NotLeaderError struct {
	Leader ServerID
	Term   Term
}

func (e *NotLeaderError) Error() string {
	if e.Leader == None {
		return fmt.Sprintf("raft: not the leader in term %d; no leader is known", e.Term)
	}
	return fmt.Sprintf("raft: not the leader in term %d; ask server %d", e.Term, e.Leader)
}

// PersistentState is what a server finds on its disk when it starts (Figure 2,
// "Persistent state on all servers"). The zero value is a server's first start.
type PersistentState struct {
	CurrentTerm Term
	VotedFor    ServerID
	Entries     []LogEntry // from index 1 on
}

// ConsensusModule is the algorithm of one server: events in, effects out. It
// must be used by one goroutine at a time.
type ConsensusModule struct {
	id      ServerID
	peerIDs []ServerID // the other servers, in order

	// Persistent state on all servers (Figure 2). Step compares them before and
	// after each event, so no handler can forget to save a change.
	currentTerm Term
	votedFor    ServerID // whom this server voted for in currentTerm; None if nobody
	log         log

	// Volatile state on all servers (Figure 2).
	// Invariant: lastApplied <= commitIndex <= log.lastIndex().
	commitIndex Index
	lastApplied Index // the last entry given out in Effects.Commit

	state    CMState
	leaderID ServerID // who leads currentTerm, as far as known

	// What the disk has confirmed. A leader's own copy of an entry counts up to
	// savedIndex, a candidate's own vote once savedTerm is currentTerm.
	savedIndex Index
	savedTerm  Term

	// Volatile state on candidates: who voted for us in currentTerm. A set,
	// because a doubled reply is one vote.
	votesReceived map[ServerID]bool

	// Volatile state on leaders (Figure 2), made anew by startLeader.
	// Invariant: matchIndex[p] < nextIndex[p].
	nextIndex  map[ServerID]Index
	matchIndex map[ServerID]Index

	out Effects // what the current Step has asked for so far
}

// NewConsensusModule returns the module of server id, whose peers are the other
// servers of the cluster, and the effects of starting: a timer to run. It starts
// with what its disk holds. It is a follower and knows of nothing committed;
// both come back by talking to the others.
func NewConsensusModule(id ServerID, peerIDs []ServerID, saved PersistentState) (*ConsensusModule, Effects) {
	cm := &ConsensusModule{
		id:          id,
		peerIDs:     slices.Sorted(slices.Values(peerIDs)),
		currentTerm: saved.CurrentTerm,
		votedFor:    saved.VotedFor,
		log:         newLog(saved.Entries),
	}
	cm.savedTerm, cm.savedIndex = cm.currentTerm, cm.log.lastIndex()
	cm.restartTimer(ElectionTimer)
	return cm, cm.takeEffects()
}

// Step is the contents page: one event in, what the server must do about it out.
func (cm *ConsensusModule) Step(event Event) Effects {
	term, vote, log := cm.currentTerm, cm.votedFor, cm.log

	switch ev := event.(type) {
	case ElectionTimeout:
		cm.startElection() // FOL-2, CAN-4
	case HeartbeatTimeout:
		cm.leaderSendAEs() // LEAD-1
	case Message:
		cm.handleMessage(ev)
	case Submit:
		cm.handleSubmit(ev) // LEAD-2
	case Saved:
		cm.handleSaved(ev)
	default:
		cm.assertf(false, "unknown event %T", event)
	}

	cm.deliverCommitted() // ALL-1
	changedFrom := cm.log.changedFrom(log)
	if cm.currentTerm != term || cm.votedFor != vote || changedFrom != 0 {
		cm.save(changedFrom)
	}
	return cm.takeEffects()
}

// handleMessage sorts out what is not for this server, applies the rule that
// every message obeys, and calls the handler.
func (cm *ConsensusModule) handleMessage(m Message) {
	if m.To != cm.id || !slices.Contains(cm.peerIDs, m.From) {
		return
	}
	// ALL-2, here once for every request and reply.
	if m.Term() > cm.currentTerm {
		cm.becomeFollower(m.Term(), None)
	}
	switch body := m.Body.(type) {
	case RequestVoteArgs:
		cm.handleRequestVote(m.From, body)
	case RequestVoteReply:
		cm.handleRequestVoteReply(m.From, body)
	case AppendEntriesArgs:
		cm.handleAppendEntries(m.From, body)
	case AppendEntriesReply:
		cm.handleAppendEntriesReply(m.From, body)
	default:
		cm.assertf(false, "unknown message %T from server %d", m.Body, m.From)
	}
}

// save asks for what has changed to be made durable. Term and vote go along
// with every change of the log, so one record always tells both.
func (cm *ConsensusModule) save(changedFrom Index) {
	cm.out.Save = Save{CurrentTerm: cm.currentTerm, VotedFor: cm.votedFor}
	if changedFrom != 0 {
		cm.out.Save.FirstIndex = changedFrom
		cm.out.Save.Entries = cm.log[changedFrom:]
		cm.savedIndex = min(cm.savedIndex, changedFrom-1)
	}
}

// handleSaved counts what has become durable: a candidate's vote for itself
// and a leader's copy of its entries. Not earlier, or a power cut could take
// back a vote or an entry that helped to make a majority.
func (cm *ConsensusModule) handleSaved(ev Saved) {
	cm.assertf(ev.Term == cm.currentTerm && ev.Index == cm.log.lastIndex(),
		"saved up to index %d in term %d, but the log ends at %d in term %d", ev.Index, ev.Term, cm.log.lastIndex(), cm.currentTerm)
	cm.savedTerm, cm.savedIndex = ev.Term, ev.Index
	switch cm.state {
	case Candidate:
		cm.receiveVote(cm.id)
	case Leader:
		cm.advanceCommitIndex() // LEAD-4
	}
}

// send queues a message for when everything that it may rely on is durable.
func (cm *ConsensusModule) send(to ServerID, body Body) {
	cm.out.SendAfter = append(cm.out.SendAfter, Message{cm.id, to, body})
}

// sendNow queues a leader's AppendEntries, which need not wait for the disk.
func (cm *ConsensusModule) sendNow(to ServerID, args AppendEntriesArgs) {
	cm.assertf(cm.state == Leader && cm.savedTerm == cm.currentTerm,
		"%s in term %d sends entries, but only term %d is durable", cm.state, cm.currentTerm, cm.savedTerm)
	cm.out.Send = append(cm.out.Send, Message{cm.id, to, args})
}

func (cm *ConsensusModule) restartTimer(kind TimerKind) { cm.out.Timers[kind] = RestartTimer }
func (cm *ConsensusModule) stopTimer(kind TimerKind)    { cm.out.Timers[kind] = StopTimer }

func (cm *ConsensusModule) takeEffects() Effects {
	out := cm.out
	cm.out = Effects{}
	return out
}

// assertf panics if our own reasoning is broken. Nothing from outside may lead
// here: what arrives in a message or from a disk is checked where it enters.
func (cm *ConsensusModule) assertf(ok bool, format string, args ...any) {
	if !ok {
		panic(fmt.Sprintf("raft: server %d, term %d: ", cm.id, cm.currentTerm) + fmt.Sprintf(format, args...))
	}
}
