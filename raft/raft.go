package raft

import (
	"errors"
	"fmt"
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

// ClusterID tells clusters apart, so that a server never listens to another
// cluster's messages.
type ClusterID uint64

// StoreID tells data directories apart. A server whose directory was emptied
// comes back with another one, and must not vote as if it remembered (design:
// docs/protocol.md, "Stores").
type StoreID [16]byte

// CMState is the role of a server (Figure 4).
type CMState uint8

// The roles of a server. PreCandidate is ours: it asks whether an election
// could be won and has changed nothing for it yet (prevote.go).
const (
	Follower CMState = iota
	PreCandidate
	Candidate
	Leader
)

func (s CMState) String() string {
	return [...]string{"follower", "precandidate", "candidate", "leader"}[s]
}

// Config is what a ConsensusModule must be told.
type Config struct {
	Cluster ClusterID
	ID      ServerID // this server

	// Configuration is what the cluster began with, the same on all its first
	// servers. The zero value makes a server wait to be added to a cluster. What
	// the log or a snapshot says counts instead, once it says something.
	Configuration Configuration

	// AddedAfter is for a server that waits to be added in the place of one that has
	// lost its disk. What the log says of its id up to this index is about the
	// other one: with a log that ends there this server has not what the other one
	// promised to keep, so it must neither lead nor vote. It is the index of any
	// configuration after the other one was added and before this one is. Zero
	// means that there was no other.
	AddedAfter Index

	// MaxBatchBytes bounds the entries of one AppendEntries message, in bytes of
	// their encoding; a single larger entry still travels alone. Zero means 256 KiB.
	MaxBatchBytes int

	// MaxInflight bounds the AppendEntries messages with entries that are under
	// way to one follower. Zero means 64.
	MaxInflight int

	// MaxBacklogBytes bounds the entries, in bytes, that are not yet committed or
	// not yet applied; beyond it Submit is refused with ErrBusy. Zero means 64 MiB.
	MaxBacklogBytes int

	// TrailingBytes is how much of the log is kept behind a snapshot, in bytes, for
	// followers that are a little behind. Zero means 4 MiB.
	TrailingBytes int

	// DisablePreVote lets a timeout start an election at once, as in the paper.
	DisablePreVote bool

	// DisableQuorumCheck lets a leader without a majority stay, and lets a
	// server vote although it hears a leader, as in the paper. There are no leases
	// then.
	DisableQuorumCheck bool
}

// ErrConfig reports a Config that cannot work. Its text says what to change.
var ErrConfig = errors.New("raft: bad configuration")

// ErrBusy reports that too much is unfinished. Nothing was appended; try again
// after a pause.
var ErrBusy = errors.New("raft: too many unfinished commands, try again")

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

	// The newest snapshot; none if its Index is 0. Start is where the log begins
	// and Entries what follows. They reach from before the snapshot's end, or from
	// right behind it, on.
	Snapshot Snapshot
	Start    LogPosition
	Entries  []LogEntry
}

// ConsensusModule is the algorithm of one server: events in, effects out. It
// must be used by one goroutine at a time.
type ConsensusModule struct {
	id      ServerID
	cluster ClusterID
	config  Config
	peerIDs []ServerID // the others who get the log, in order

	// The configuration in force, and where it stands in the log; behind it the
	// last one that is committed, if it is another (membership.go).
	configuration      Configuration
	configurationIndex Index
	configurations     []placedConfiguration

	// Persistent state on all servers (Figure 2). Step compares them before and
	// after each event, so no handler can forget to save a change.
	currentTerm Term
	votedFor    ServerID // whom this server voted for in currentTerm; None if nobody
	log         log

	// Volatile state on all servers (Figure 2).
	// Invariant: lastApplied <= delivered <= commitIndex <= log.lastIndex().
	commitIndex Index
	lastApplied Index

	state    CMState
	leaderID ServerID // who leads currentTerm, as far as known

	heardRound Round // the latest round that the leader of currentTerm was answered in

	// What the disk has confirmed. A leader's own copy of an entry counts up to
	// savedIndex, a candidate's own vote once savedTerm is currentTerm.
	savedIndex Index
	savedTerm  Term

	delivered Index // the last entry given out in Effects.Commit

	// Volatile state on candidates: who voted for us in currentTerm. A set,
	// because a doubled reply is one vote.
	votesReceived map[ServerID]bool

	// Volatile state on leaders (Figure 2), made anew by startLeader.
	// Invariant: matchIndex[p] < nextIndex[p].
	nextIndex  map[ServerID]Index
	matchIndex map[ServerID]Index
	windows    map[ServerID]*window // window.go

	preVote   preVote   // prevote.go
	reads     reads     // read.go
	transfer  transfer  // transfer.go
	snapshot  Snapshot  // the newest that is stored here; Index 0 if none
	receiving receiving // snapshot.go

	backlogBytes int // bytes of the entries after lastApplied

	timers [timerKinds]TimerNumber // the number of each timer's latest run; 0 if stopped
	runs   TimerNumber             // the last number given to any timer

	out Effects // what the current Step has asked for so far
}

// NewConsensusModule returns the module of a server that starts with what its
// disk holds, and the effects of starting: a timer to run. It is a follower and
// knows of nothing committed but its snapshot; the rest comes back by talking to
// the others. A configuration that cannot work is an ErrConfig, and so is a
// snapshot that does not fit the log.
func NewConsensusModule(config Config, saved PersistentState) (*ConsensusModule, Effects, error) {
	if config.ID == None {
		return nil, Effects{}, fmt.Errorf("%w: server id 0 means nobody; ids start at 1", ErrConfig)
	}
	if c := config.Configuration; len(c.Members()) > 0 {
		if err := c.check(); err != nil {
			return nil, Effects{}, err
		}
	}
	if config.MaxBatchBytes == 0 {
		config.MaxBatchBytes = 256 << 10
	}
	if config.MaxInflight == 0 {
		config.MaxInflight = 64
	}
	if config.MaxBacklogBytes == 0 {
		config.MaxBacklogBytes = 64 << 20
	}
	if config.TrailingBytes == 0 {
		config.TrailingBytes = 4 << 20
	}
	cm := &ConsensusModule{
		id:          config.ID,
		cluster:     config.Cluster,
		config:      config,
		currentTerm: saved.CurrentTerm,
		votedFor:    saved.VotedFor,
		log:         newLog(saved.Start, saved.Entries),
	}
	if s := saved.Snapshot; s.Index < saved.Start.Index || !cm.log.matches(s.Index, s.Term) {
		return nil, Effects{}, fmt.Errorf("%w: a snapshot up to index %d of term %d does not fit a log of %d entries behind %d",
			ErrConfig, s.Index, s.Term, len(saved.Entries), saved.Start.Index)
	}
	cm.savedTerm, cm.savedIndex = cm.currentTerm, cm.log.lastIndex()
	cm.startConfiguration(saved.Snapshot)
	if len(cm.configuration.Voters) > 0 && !cm.mayCampaign() && cm.log.lastIndex() == 0 {
		return nil, Effects{}, fmt.Errorf("%w: server %d is not among the voters %v", ErrConfig, config.ID, config.Configuration.Voters)
	}
	cm.startSnapshot(saved.Snapshot)
	cm.countBacklog()
	cm.restartTimer(ElectionTimer)
	cm.startContact()
	return cm, cm.takeEffects(), nil
}

// Step is the contents page: one event in, what the server must do about it out.
func (cm *ConsensusModule) Step(event Event) Effects {
	term, vote := cm.currentTerm, cm.votedFor

	switch ev := event.(type) {
	case ElectionTimeout:
		if cm.fired(ElectionTimer, ev.Number) {
			cm.handleElectionTimeout() // FOL-2, CAN-4
		}
	case HeartbeatTimeout:
		if cm.fired(HeartbeatTimer, ev.Number) {
			cm.leaderSendAEs() // LEAD-1
		}
	case LeaderContactTimeout:
		if cm.fired(LeaderContactTimer, ev.Number) {
			cm.preVote.leaderContact = false
		}
	case QuorumCheckTimeout:
		if cm.fired(QuorumCheckTimer, ev.Number) {
			cm.checkQuorum()
		}
	case TransferTimeout:
		if cm.fired(TransferTimer, ev.Number) {
			cm.handleTransferTimeout()
		}
	case Message:
		cm.handleMessage(ev)
	case Submit:
		cm.handleSubmit(ev) // LEAD-2
	case Saved:
		cm.handleSaved(ev)
	case Applied:
		cm.handleApplied(ev)
	case Read:
		cm.handleRead(ev)
	case ChangeConfiguration:
		cm.handleChangeConfiguration(ev)
	case TransferLeadership:
		cm.handleTransferLeadership(ev)
	case SnapshotStored:
		cm.handleSnapshotStored(ev)
	case SnapshotDamaged:
		cm.handleSnapshotDamaged(ev)
	default:
		cm.assertf(false, "unknown event %T", event)
	}

	cm.deliverCommitted() // ALL-1
	if cm.currentTerm != term || cm.votedFor != vote || cm.log.changedFrom != 0 || cm.log.reset {
		cm.save()
	}
	return cm.takeEffects()
}

// handleMessage sorts out what is not for this server, applies the rule that
// every message obeys, and calls the handler.
func (cm *ConsensusModule) handleMessage(m Message) {
	// A sender that is not in our configuration may be in a newer one (§6).
	if m.Cluster != cm.cluster || m.To != cm.id || m.From == cm.id || m.From == None {
		return
	}
	if cm.ignoresVoteRequest(m) {
		return // before ALL-2: not even its term counts
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
	case PreVoteArgs:
		cm.handlePreVote(m.From, body)
	case PreVoteReply:
		cm.handlePreVoteReply(m.From, body)
	case InstallSnapshotArgs:
		cm.handleInstallSnapshot(m.From, body)
	case InstallSnapshotReply:
		cm.handleInstallSnapshotReply(m.From, body)
	case TimeoutNowArgs:
		cm.handleTimeoutNow(m.From, body)
	default:
		cm.assertf(false, "unknown message %T from server %d", m.Body, m.From)
	}
}

// save asks for what has changed to be made durable. Term and vote go along
// with every change of the log, so one record always tells both.
func (cm *ConsensusModule) save() {
	cm.out.Save = Save{CurrentTerm: cm.currentTerm, VotedFor: cm.votedFor}
	if cm.log.reset {
		cm.log.reset = false
		prev := cm.log.first - 1
		cm.out.Save.Reset = LogPosition{prev, cm.log.entries[0].Term}
	}
	if from := cm.log.changedFrom; from != 0 {
		cm.out.Save.FirstIndex = from
		cm.out.Save.Entries = cm.log.slice(from, cm.log.lastIndex())
		cm.savedIndex = min(cm.savedIndex, from-1)
		cm.log.changedFrom = 0
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
	cm.out.SendAfter = append(cm.out.SendAfter, Message{cm.cluster, cm.id, to, body})
}

// sendNow queues what a leader sends, which need not wait for the disk.
func (cm *ConsensusModule) sendNow(to ServerID, args Body) {
	cm.assertf(cm.state == Leader && cm.savedTerm == cm.currentTerm,
		"%s sends %T in term %d, but only term %d is durable", cm.state, args, cm.currentTerm, cm.savedTerm)
	cm.out.Send = append(cm.out.Send, Message{cm.cluster, cm.id, to, args})
}

func (cm *ConsensusModule) restartTimer(kind TimerKind) {
	cm.runs++
	cm.timers[kind] = cm.runs
	cm.out.Timers[kind] = TimerChange{RestartTimer, cm.runs}
}

func (cm *ConsensusModule) stopTimer(kind TimerKind) {
	if cm.timers[kind] != 0 {
		cm.timers[kind] = 0
		cm.out.Timers[kind] = TimerChange{Action: StopTimer}
	}
}

// fired reports whether timer kind's run n is the current one, and ends it.
func (cm *ConsensusModule) fired(kind TimerKind, n TimerNumber) bool {
	if n == 0 || cm.timers[kind] != n {
		return false // it was restarted or stopped after it fired
	}
	cm.timers[kind] = 0
	return true
}

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
