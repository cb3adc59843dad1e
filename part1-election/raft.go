package raft

import (
	"fmt"
	"slices"
)

// Term numbers the periods of leadership (§5.1). 0 is before the first election.
type Term uint64

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

// ConsensusModule is the algorithm of one server: events in, effects out. It
// must be used by one goroutine at a time.
type ConsensusModule struct {
	id      ServerID
	peerIDs []ServerID // the other servers, in order

	// Persistent state on all servers (Figure 2).
	currentTerm Term
	votedFor    ServerID // whom this server voted for in currentTerm; None if nobody

	state    CMState
	leaderID ServerID // who leads currentTerm, as far as known

	// Volatile state on candidates: who voted for us in currentTerm. A set,
	// because a doubled reply is one vote.
	votesReceived map[ServerID]bool

	out Effects // what the current Step has asked for so far
}

// NewConsensusModule returns the module of server id, whose peers are the other
// servers of the cluster, and the effects of starting: a timer to run. It is a
// follower in term 0.
func NewConsensusModule(id ServerID, peerIDs []ServerID) (*ConsensusModule, Effects) {
	cm := &ConsensusModule{
		id:      id,
		peerIDs: slices.Sorted(slices.Values(peerIDs)),
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
	default:
		cm.assertf(false, "unknown event %T", event)
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
		// Its term was all that it could tell.
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
