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

// ConsensusModule is the algorithm of one server: events in, effects out. It
// must be used by one goroutine at a time.
type ConsensusModule struct {
	id      ServerID
	peerIDs []ServerID // the other servers, in order

	// Persistent state on all servers (Figure 2).
	currentTerm Term
	votedFor    ServerID // whom this server voted for in currentTerm; None if nobody
	log         log

	// Volatile state on all servers (Figure 2).
	// Invariant: lastApplied <= commitIndex <= log.lastIndex().
	commitIndex Index
	lastApplied Index // the last entry given out in Effects.Commit

	state    CMState
	leaderID ServerID // who leads currentTerm, as far as known

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
// servers of the cluster, and the effects of starting: a timer to run. It is a
// follower in term 0 with an empty log.
func NewConsensusModule(id ServerID, peerIDs []ServerID) (*ConsensusModule, Effects) {
	cm := &ConsensusModule{
		id:      id,
		peerIDs: slices.Sorted(slices.Values(peerIDs)),
		log:     newLog(),
	}
	cm.restartTimer(ElectionTimer)
	return cm, cm.takeEffects()
}

// Step is the contents page: one event in, what the server must do about it out.
func (cm *ConsensusModule) Step(event Event) Effects {
	switch ev := event.(type) {
	case ElectionTimeout:
		cm.startElection() // FOL-2, CAN-4
	case HeartbeatTimeout:
		cm.leaderSendAEs() // LEAD-1
	case Message:
		cm.handleMessage(ev)
	case Submit:
		cm.handleSubmit(ev) // LEAD-2
	default:
		cm.assertf(false, "unknown event %T", event)
	}

	cm.deliverCommitted() // ALL-1
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

func (cm *ConsensusModule) send(to ServerID, body Body) {
	cm.out.Send = append(cm.out.Send, Message{cm.id, to, body})
}

func (cm *ConsensusModule) restartTimer(kind TimerKind) { cm.out.Timers[kind] = RestartTimer }
func (cm *ConsensusModule) stopTimer(kind TimerKind)    { cm.out.Timers[kind] = StopTimer }

func (cm *ConsensusModule) takeEffects() Effects {
	out := cm.out
	cm.out = Effects{}
	return out
}

// assertf panics if our own reasoning is broken. Nothing from outside may lead
// here: what arrives in a message is checked where it enters.
func (cm *ConsensusModule) assertf(ok bool, format string, args ...any) {
	if !ok {
		panic(fmt.Sprintf("raft: server %d, term %d: ", cm.id, cm.currentTerm) + fmt.Sprintf(format, args...))
	}
}
