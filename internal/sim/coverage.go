package sim

import (
	"fmt"
	"strings"

	"raftkv/raft"
)

// Event is something that a simulation should have met now and then. A batch of
// seeds that never did has proved little.
type Event int

// The events. The comment beside the name is what chaos prints.
const (
	ElectionWon Event = iota
	SplitVote
	PreVoteRefused
	LateVote
	StaleReply
	OldLeaderRefused
	QuorumCheckFailed
	StaleTimer
	LeaderCrash
	LeaderCrashUncommitted
	Restart
	CrashOnWinning // in the order of the triggers
	CrashOnVoting
	CrashOnAppending
	CrashOnCommitting
	CrashOnSaving
	CrashOnSnapshot
	CrashOnTransfer
	CrashOnChange
	CrashInSave
	CrashInRecovery
	SectorsLost
	SaveFailed
	SaveMerged
	PowerCutEverywhere
	Pause
	NetworkSplit
	OneWayCut
	ConflictTruncated
	WindowUsed
	SubmitRefused
	DuplicateAnswered
	DuplicateAfterLeaderChange
	UnknownThenApplied
	CallUnknown
	CallNotApplied
	LateCopyRefused
	WindowExceeded
	WaiterLost
	ServerTimeout
	Forwarded
	ResultDropped
	Halves
	Bridge
	Ring
	Deaf
	Mute
	FastClock
	SlowClock
	DiskFull
	StoppedByFullDisk
	NotRemembered
	BitFlipped
	RotRefused
	DiskWiped
	WipedElection
	DiskBack
	DiskLost
	StoreRefused
	CrashInHandshake
	TornTail
	SaveHung
	RequestDoubled
	NumberTaken
	NumberSettled
	ClientRestarted
	ResumedFound
	SnapshotTaken // this one and what follows: chapters.go and lifetimes.go
	SnapshotFailed
	SnapshotInterrupted
	SnapshotInstalled
	InstalledUnderWrites
	SnapshotSpoiled
	ReceivedAnew
	OlderSnapshot
	PartGone
	LogReset
	TailDropped
	SuffixKept
	LogCompacted
	RoundShared
	ReadFailed
	FollowerRead
	LeaseRead
	LeaseRefused
	StaleRead
	ChangeBegun
	ChangeRefused
	NotCaughtUp
	JointEntered
	JointCrash
	JointLeft
	JointLeftByAnother
	LearnerPromoted
	LeaderRemovedItself
	DiskReplaced
	StoreAnnounced
	TransferEnded
	TransferAborted
	TargetLagging
	TookOver
	TimeoutNowLate
	Terminated
	VoteRefusedAfterRestart
	SessionExpired // this one and what follows: lifetimes.go
	SessionEvicted
	SessionClosed
	NoRoomForSession
	ExpiredWhileRetried
	EndedMeetsLateCopy
	RenewedSession
	KeyReplayed
	KeyedBatchReplayed
	KeyTaken
	KeyExpired
	ExecutedAnew
	BatchSent
	BatchSplit
	ConditionFailed
	ConditionRepeated
	ClockJumped
	StampBehind
	events
)

var eventNames = [events]string{
	ElectionWon:                "elections won",
	SplitVote:                  "elections without a winner",
	PreVoteRefused:             "pre-votes refused",
	LateVote:                   "votes of an earlier election ignored",
	StaleReply:                 "replies to an earlier leadership ignored",
	OldLeaderRefused:           "AppendEntries of an old leader refused",
	QuorumCheckFailed:          "leaders resigned for want of a majority",
	StaleTimer:                 "timers fired that had been restarted",
	LeaderCrash:                "leaders crashed",
	LeaderCrashUncommitted:     "leaders crashed between append and commit",
	Restart:                    "restarts",
	CrashOnWinning:             "crashes right around winning",
	CrashOnVoting:              "crashes right around voting",
	CrashOnAppending:           "crashes right around appending",
	CrashOnCommitting:          "crashes right around committing",
	CrashOnSaving:              "crashes planned for the middle of a save",
	CrashOnSnapshot:            "crashes right around a snapshot",
	CrashOnTransfer:            "crashes right around a transfer",
	CrashOnChange:              "crashes right around a change of the members",
	CrashInSave:                "crashes while a save was under way",
	CrashInRecovery:            "power lost again during a restart",
	SectorsLost:                "crashes that took sectors of the last save",
	SaveFailed:                 "saves that failed",
	SaveMerged:                 "saves of two or more events",
	PowerCutEverywhere:         "power cuts of all servers",
	Pause:                      "pauses of a server",
	NetworkSplit:               "splits of the network",
	OneWayCut:                  "links cut in one direction",
	ConflictTruncated:          "conflicting entries cut from a log",
	WindowUsed:                 "several messages with entries under way to one follower",
	SubmitRefused:              "commands refused by the core",
	DuplicateAnswered:          "duplicates answered from the session table",
	DuplicateAfterLeaderChange: "duplicates answered under another leader than the first copy",
	UnknownThenApplied:         "calls that found their result after an unknown attempt",
	CallUnknown:                "calls that ended unknown",
	CallNotApplied:             "calls that ended not applied",
	LateCopyRefused:            "late copies of settled requests refused",
	WindowExceeded:             "requests beyond the session's window",
	WaiterLost:                 "requests answered unknown when leadership was lost",
	ServerTimeout:              "requests that the server gave up",
	Forwarded:                  "requests forwarded to the leader",
	ResultDropped:              "repetitions whose recorded result had been dropped",
	Halves:                     "networks that fell into halves",
	Bridge:                     "halves joined by one server",
	Ring:                       "networks that were a ring",
	Deaf:                       "servers that were heard and heard nobody",
	Mute:                       "servers that heard and were heard by nobody",
	FastClock:                  "clocks that ran fast for a while",
	SlowClock:                  "clocks that ran slow for a while",
	DiskFull:                   "disks without room",
	StoppedByFullDisk:          "servers stopped for want of room in a save",
	NotRemembered:              "servers stopped for want of room for a name",
	BitFlipped:                 "bits flipped on a disk",
	RotRefused:                 "starts refused for a flipped bit",
	DiskWiped:                  "servers back with an empty disk",
	WipedElection:              "elections that a server with an empty disk began",
	DiskBack:                   "old disks put back",
	DiskLost:                   "disks lost for good",
	StoreRefused:               "messages refused because of another disk",
	CrashInHandshake:           "power lost while a new peer was written down",
	TornTail:                   "torn tails cut off in a restart",
	SaveHung:                   "saves that hung",
	RequestDoubled:             "requests doubled on the way",
	NumberTaken:                "requests whose number another client of the session had used",
	NumberSettled:              "requests whose number another client of the session had settled",
	ClientRestarted:            "clients that died in a call and came back",
	ResumedFound:               "resumed calls that had been carried out before",
	SnapshotTaken:              "snapshots taken",
	SnapshotFailed:             "snapshots given up for a disk's fault",
	SnapshotInterrupted:        "snapshots interrupted by a crash",
	SnapshotInstalled:          "snapshots installed",
	InstalledUnderWrites:       "snapshots installed while the log had gone on",
	SnapshotSpoiled:            "snapshots that had come with other bytes",
	ReceivedAnew:               "snapshots begun anew after a restart of the follower",
	OlderSnapshot:              "snapshots overtaken by a newer one while they were written",
	PartGone:                   "parts of a snapshot that was there no longer",
	LogReset:                   "logs dropped for a snapshot",
	TailDropped:                "logs of another history dropped for a snapshot",
	SuffixKept:                 "snapshots that left the log behind them alone",
	LogCompacted:               "logs cut short",
	RoundShared:                "rounds that reads shared",
	ReadFailed:                 "reads failed by a loss of leadership",
	FollowerRead:               "reads answered by a follower",
	LeaseRead:                  "reads under a lease",
	LeaseRefused:               "reads refused a lease",
	StaleRead:                  "stale reads",
	ChangeBegun:                "changes of the members begun",
	ChangeRefused:              "changes of the members refused",
	NotCaughtUp:                "promotions refused because of a log too short",
	JointEntered:               "joint configurations entered",
	JointCrash:                 "leaders crashed in a joint configuration",
	JointLeft:                  "joint configurations left",
	JointLeftByAnother:         "joint configurations left by another leader",
	LearnerPromoted:            "learners promoted",
	LeaderRemovedItself:        "leaders that took the vote from themselves",
	DiskReplaced:               "servers without their disk removed and added again",
	StoreAnnounced:             "servers told of another disk by the one that has it",
	TransferEnded:              "transfers that ended the leadership",
	TransferAborted:            "transfers aborted",
	TargetLagging:              "transfers to a server that lagged behind",
	TookOver:                   "elections begun because the leader wanted it",
	TimeoutNowLate:             "calls to take over that came too late",
	Terminated:                 "servers told to end",
	VoteRefusedAfterRestart:    "votes refused by a server that had just restarted",
	SessionExpired:             "sessions expired",
	SessionEvicted:             "sessions evicted",
	SessionClosed:              "sessions closed",
	NoRoomForSession:           "sessions and keys refused for want of room",
	ExpiredWhileRetried:        "clients that still tried when their session had ended",
	EndedMeetsLateCopy:         "late copies that found their session ended",
	RenewedSession:             "writes sent once more under a new session",
	KeyReplayed:                "writes replayed by their Idempotency-Key",
	KeyedBatchReplayed:         "operations replayed by the key of their batch",
	KeyTaken:                   "Idempotency-Keys used for another write",
	KeyExpired:                 "Idempotency-Keys expired",
	ExecutedAnew:               "writes carried out anew when the promise of a chosen id or a key had ended",
	BatchSent:                  "batches applied",
	BatchSplit:                 "repetitions that travelled otherwise than the first copy, alone or in another batch",
	ConditionFailed:            "conditions that failed",
	ConditionRepeated:          "conditional writes repeated and told of their first success",
	ClockJumped:                "clocks that jumped",
	StampBehind:                "commands stamped behind the log's time",
}

func (e Event) String() string { return eventNames[e] }

// Coverage counts events.
type Coverage [events]int64

// Add adds the counts of another run.
func (c *Coverage) Add(other *Coverage) {
	for i := range c {
		c[i] += other[i]
	}
}

// needs says which events a profile cannot meet.
func (e Event) needs(p Profile) bool {
	if e >= SessionExpired {
		return p.Extensions // lifetimes.go
	}
	if e >= SnapshotTaken || e >= CrashOnSnapshot && e <= CrashOnChange { // chapters.go
		return p.Extensions && e != PartGone // storages keep what is being sent
	}
	switch e {
	case PreVoteRefused, QuorumCheckFailed, WindowUsed:
		return p.Extensions
	case LeaderCrash, LeaderCrashUncommitted, Restart, CrashInSave, SaveHung, SaveMerged, PowerCutEverywhere,
		CrashOnWinning, CrashOnVoting, CrashOnAppending, CrashOnCommitting, CrashOnSaving:
		return p.Crashes
	case CrashInRecovery, SectorsLost, SaveFailed, Halves, Bridge, Ring, Deaf, Mute, FastClock, SlowClock,
		DiskFull, StoppedByFullDisk, NotRemembered, BitFlipped, RotRefused, DiskWiped, WipedElection, DiskBack,
		DiskLost, StoreRefused, CrashInHandshake, TornTail,
		RequestDoubled, NumberTaken, NumberSettled, ClientRestarted, ResumedFound:
		return p.Disks
	case ConflictTruncated, SubmitRefused, DuplicateAnswered, DuplicateAfterLeaderChange,
		UnknownThenApplied, CallUnknown, CallNotApplied, LateCopyRefused, WindowExceeded, WaiterLost, ServerTimeout, Forwarded, ResultDropped:
		return p.Clients
	}
	return true
}

// Missing returns the events that runs of a profile should have met and did not.
func (c *Coverage) Missing(p Profile) []Event {
	var missing []Event
	for e := range events {
		if c[e] == 0 && e.needs(p) {
			missing = append(missing, e)
		}
	}
	return missing
}

// String returns a table, one line an event that happened at all.
func (c *Coverage) String() string {
	var b strings.Builder
	for e, n := range c {
		if n > 0 {
			fmt.Fprintf(&b, "%10d  %s\n", n, Event(e))
		}
	}
	return b.String()
}

func (s *simulation) count(e Event) { s.coverage[e]++ }

// countStep looks for interesting things in one step. Messages of a core that
// has types of its own tell nothing here.
func (s *simulation) countStep(n *node, before *raft.Status) {
	r := &s.record
	switch ev := r.Event.(type) {
	case raft.Message:
		s.countMessage(n, before, ev.Body)
	case raft.ElectionTimeout:
		switch {
		case n.status == *before && !changes(r.Effects.Timers):
			s.count(StaleTimer)
		case n.wiped != nil:
			s.count(WipedElection)
		case before.State == raft.Candidate:
			s.count(SplitVote)
		}
	case raft.QuorumCheckTimeout:
		if before.State == raft.Leader && n.status.State != raft.Leader {
			s.count(QuorumCheckFailed)
		}
	}
	if n.status.State == raft.Leader && before.State != raft.Leader {
		s.count(ElectionWon)
	}
	if first := r.Effects.Save.FirstIndex; first != 0 && first <= before.LastIndex {
		s.count(ConflictTruncated)
	}
	for _, a := range r.Effects.Submitted {
		if a.Err != nil {
			s.count(SubmitRefused)
		}
	}
	withEntries := 0
	for i := range r.Effects.Send {
		if args, ok := r.Effects.Send[i].Body.(raft.AppendEntriesArgs); ok && len(args.Entries) > 0 &&
			r.Effects.Send[i].To == r.Effects.Send[0].To {
			withEntries++
		}
	}
	if withEntries > 1 {
		s.count(WindowUsed)
	}
	if n.status.CommitIndex > before.CommitIndex && n.status.State == raft.Leader {
		s.noteCommit(n)
	}
	s.countSnapshots(n, before)
	s.countChanges(n, before)
	s.countTransfers(n, before)
	if len(r.Effects.Answers) > 1 && r.Effects.Answers[1].Err == nil {
		s.count(RoundShared)
	}
}

func changes(timers raft.Timers) bool {
	for _, t := range timers {
		if t.Action != raft.LeaveTimer {
			return true
		}
	}
	return false
}

func (s *simulation) countMessage(n *node, before *raft.Status, body raft.Body) {
	switch m := body.(type) {
	case raft.AppendEntriesArgs:
		if m.Term < before.Term {
			s.count(OldLeaderRefused)
		}
	case raft.AppendEntriesReply:
		if before.State == raft.Leader && m.AskedTerm < before.Term {
			s.count(StaleReply)
		}
	case raft.RequestVoteReply:
		if before.State == raft.Candidate && m.AskedTerm < before.Term && m.VoteGranted {
			s.count(LateVote)
		}
	case raft.PreVoteReply:
		if !m.VoteGranted {
			s.count(PreVoteRefused)
		}
	}
}
