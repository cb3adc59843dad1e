// Package bothways is an election with goroutines and a mutex, in the manner of
// the posts. Nothing uses it: it is the left column of
// docs/reading-beside-the-posts.md, whose right column is part1-election, and it
// is compiled and tested so that both columns are real code.
package bothways

import (
	"math/rand/v2"
	"sync"
	"time"
)

const (
	electionTimeoutMin = 150 * time.Millisecond
	heartbeatInterval  = 50 * time.Millisecond
	pollInterval       = 10 * time.Millisecond
)

// CMState is the role of a server.
type CMState int

// The roles of a server.
const (
	Follower CMState = iota
	Candidate
	Leader
	Dead
)

// RequestVoteArgs and the types below are the RPCs of Figure 2, without a log.
type RequestVoteArgs struct{ Term, CandidateID int }

// RequestVoteReply answers RequestVoteArgs.
type RequestVoteReply struct {
	Term        int
	VoteGranted bool
}

// AppendEntriesArgs is a heartbeat.
type AppendEntriesArgs struct{ Term, LeaderID int }

// AppendEntriesReply answers AppendEntriesArgs.
type AppendEntriesReply struct{ Term int }

// Caller brings RPCs to other servers and waits for their answers. ok is false
// if there was none.
type Caller interface {
	RequestVote(to int, args RequestVoteArgs) (reply RequestVoteReply, ok bool)
	AppendEntries(to int, args AppendEntriesArgs) (reply AppendEntriesReply, ok bool)
}

// ConsensusModule is one server. Its methods may be called by any goroutine.
type ConsensusModule struct {
	mu      sync.Mutex // guards everything below
	id      int
	peerIDs []int
	server  Caller

	currentTerm        int
	votedFor           int // -1 if nobody
	state              CMState
	electionResetEvent time.Time
}

// NewConsensusModule returns a follower that is running.
func NewConsensusModule(id int, peerIDs []int, server Caller) *ConsensusModule {
	cm := &ConsensusModule{id: id, peerIDs: peerIDs, server: server, votedFor: -1}
	cm.electionResetEvent = time.Now()
	go cm.runElectionTimer(electionTimeout(), cm.currentTerm)
	return cm
}

// Report returns the present state.
func (cm *ConsensusModule) Report() (term int, isLeader bool) {
	cm.mu.Lock()
	defer cm.mu.Unlock()
	return cm.currentTerm, cm.state == Leader
}

// Stop ends the server. Its goroutines notice when they next look.
func (cm *ConsensusModule) Stop() {
	cm.mu.Lock()
	defer cm.mu.Unlock()
	cm.state = Dead
}

func electionTimeout() time.Duration {
	return electionTimeoutMin + rand.N(electionTimeoutMin)
}

// runElectionTimer is a goroutine. There is one for each time that the server
// became a follower or a candidate, and it ends when it sees that its term is
// over.
func (cm *ConsensusModule) runElectionTimer(timeout time.Duration, termStarted int) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for range ticker.C {
		cm.mu.Lock()
		if cm.state == Leader || cm.state == Dead ||
			cm.currentTerm != termStarted {
			cm.mu.Unlock()
			return
		}
		if time.Since(cm.electionResetEvent) >= timeout {
			cm.startElection()
			cm.mu.Unlock()
			return
		}
		cm.mu.Unlock()
	}
}

// startElection expects cm.mu to be locked.
func (cm *ConsensusModule) startElection() {
	cm.state = Candidate
	cm.currentTerm++
	savedCurrentTerm := cm.currentTerm
	cm.electionResetEvent = time.Now()
	cm.votedFor = cm.id

	votesReceived := 1
	for _, peerID := range cm.peerIDs {
		go func() {
			args := RequestVoteArgs{savedCurrentTerm, cm.id}
			reply, ok := cm.server.RequestVote(peerID, args)
			if !ok {
				return
			}
			cm.mu.Lock()
			defer cm.mu.Unlock()
			if reply.Term > cm.currentTerm {
				cm.becomeFollower(reply.Term)
				return
			}
			if cm.state != Candidate ||
				cm.currentTerm != savedCurrentTerm {
				return
			}
			if reply.VoteGranted {
				votesReceived++
				if 2*votesReceived > len(cm.peerIDs)+1 {
					cm.startLeader()
				}
			}
		}()
	}
	go cm.runElectionTimer(electionTimeout(), cm.currentTerm)
}

// RequestVote answers the RPC of that name.
func (cm *ConsensusModule) RequestVote(args RequestVoteArgs) RequestVoteReply {
	cm.mu.Lock()
	defer cm.mu.Unlock()
	if args.Term > cm.currentTerm {
		cm.becomeFollower(args.Term)
	}
	grant := args.Term == cm.currentTerm && cm.state != Dead &&
		(cm.votedFor == -1 || cm.votedFor == args.CandidateID)
	if grant {
		cm.votedFor = args.CandidateID
		cm.electionResetEvent = time.Now()
	}
	return RequestVoteReply{cm.currentTerm, grant}
}

// AppendEntries answers the RPC of that name.
func (cm *ConsensusModule) AppendEntries(args AppendEntriesArgs) AppendEntriesReply {
	cm.mu.Lock()
	defer cm.mu.Unlock()
	if args.Term > cm.currentTerm {
		cm.becomeFollower(args.Term)
	}
	if args.Term == cm.currentTerm && cm.state == Candidate {
		cm.becomeFollower(args.Term)
	}
	if args.Term == cm.currentTerm {
		cm.electionResetEvent = time.Now()
	}
	return AppendEntriesReply{cm.currentTerm}
}

// becomeFollower expects cm.mu to be locked.
func (cm *ConsensusModule) becomeFollower(term int) {
	if cm.state == Dead {
		return
	}
	if term > cm.currentTerm {
		cm.currentTerm, cm.votedFor = term, -1
	}
	cm.state = Follower
	cm.electionResetEvent = time.Now()
	go cm.runElectionTimer(electionTimeout(), cm.currentTerm)
}

// startLeader expects cm.mu to be locked.
func (cm *ConsensusModule) startLeader() {
	cm.state = Leader
	savedCurrentTerm := cm.currentTerm
	go func() {
		ticker := time.NewTicker(heartbeatInterval)
		defer ticker.Stop()
		for {
			cm.leaderSendHeartbeats(savedCurrentTerm)
			<-ticker.C
			cm.mu.Lock()
			stop := cm.state != Leader ||
				cm.currentTerm != savedCurrentTerm
			cm.mu.Unlock()
			if stop {
				return
			}
		}
	}()
}

func (cm *ConsensusModule) leaderSendHeartbeats(term int) {
	for _, peerID := range cm.peerIDs {
		go func() {
			args := AppendEntriesArgs{term, cm.id}
			reply, ok := cm.server.AppendEntries(peerID, args)
			if !ok {
				return
			}
			cm.mu.Lock()
			defer cm.mu.Unlock()
			if reply.Term > cm.currentTerm {
				cm.becomeFollower(reply.Term)
			}
		}()
	}
}
