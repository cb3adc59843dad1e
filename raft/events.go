package raft

import (
	"fmt"
	"io"
)

// An Event is something that happened to a server: a timer fired, a message
// arrived, a client wants something, the disk or the state machine caught up.
type Event interface {
	isEvent()
}

// ElectionTimeout reports that the election timer fired (§5.2). Number is the
// one that [Effects] gave when it last restarted the timer.
type ElectionTimeout struct{ Number TimerNumber }

// HeartbeatTimeout reports that a leader's heartbeat timer fired (§5.2).
type HeartbeatTimeout struct{ Number TimerNumber }

// LeaderContactTimeout reports that no leader was heard for the minimum
// election timeout (thesis 4.2.3, 9.6).
type LeaderContactTimeout struct{ Number TimerNumber }

// QuorumCheckTimeout tells a leader to look whether a majority has answered it
// since the last check (thesis 6.2).
type QuorumCheckTimeout struct{ Number TimerNumber }

// TransferTimeout reports that a transfer of leadership has taken an election
// timeout without success (thesis 3.10).
type TransferTimeout struct{ Number TimerNumber }

// Submit asks to append commands to the log. Effects.Submitted says what became
// of it. The module keeps the slices; the caller must not change them.
type Submit struct{ Commands [][]byte }

// Saved reports that everything in the Saves returned so far is durable. Index
// is the last index of the log and Term the current term then. A server steps
// it right after it has carried out Effects.Save, before any other event.
type Saved struct {
	Index Index
	Term  Term
}

// Applied reports that the state machine has taken in every entry up to Index.
type Applied struct{ Index Index }

// Read asks up to which index the state machine must have come to answer reads
// that are as fresh as now (thesis 6.4). All Requests get the same [Answer].
type Read struct{ Requests []RequestID }

// ChangeConfiguration asks for another configuration (§6). The [Answer] says
// whether the change has begun; a committed EntryConfiguration that is not
// joint, that it has ended.
type ChangeConfiguration struct {
	Request RequestID

	// Expected is the index of the configuration that the change was made for
	// (Status.ConfigurationIndex). If another one is in force by now the change
	// is refused, so a request may be repeated.
	Expected Index

	// Next is what shall be in force in the end. Its OldVoters are empty.
	Next Configuration
}

// TransferLeadership asks a leader to hand its office to another voter (thesis
// 3.10). None means the one that lacks least. The [Answer] comes when the
// transfer has ended.
type TransferLeadership struct {
	Request RequestID
	To      ServerID
}

// SnapshotStored reports a whole snapshot that is durable in the storage: one
// of this server's own state machine, or one whose last [Chunk] was written.
type SnapshotStored struct{ Snapshot Snapshot }

// SnapshotDamaged reports that the bytes received for a snapshot are not the
// ones that were sent. They are gone from the storage.
type SnapshotDamaged struct{ Snapshot Snapshot }

// RequestID is a number by which a server knows its own question again.
type RequestID uint64

func (ElectionTimeout) isEvent()      {}
func (HeartbeatTimeout) isEvent()     {}
func (LeaderContactTimeout) isEvent() {}
func (QuorumCheckTimeout) isEvent()   {}
func (TransferTimeout) isEvent()      {}
func (Message) isEvent()              {}
func (Submit) isEvent()               {}
func (Saved) isEvent()                {}
func (Applied) isEvent()              {}
func (Read) isEvent()                 {}
func (ChangeConfiguration) isEvent()  {}
func (TransferLeadership) isEvent()   {}
func (SnapshotStored) isEvent()       {}
func (SnapshotDamaged) isEvent()      {}

// Effects is what a server must do after a Step, in the order of the fields.
// The zero value asks for nothing.
//
// The order is a safety rule (§5.1, Figure 2 "updated on stable storage before
// responding"): no message promises more than is durable. Only what a leader
// sends may leave before the disk write, because it promises nothing about the
// leader's own copy; the leader counts that copy when Saved tells it to.
type Effects struct {
	// Submitted answers each Submit, in order. Not a promise to a client: an
	// accepted command is in this log and may still be overwritten.
	Submitted []Submitted

	// Answers are for Read, ChangeConfiguration and TransferLeadership.
	Answers []Answer

	// Send leaves at once and may be under way while Save is written. The Data of
	// an InstallSnapshotArgs is left for the server to fill in.
	Send []Message

	// Save is written and synced next, in one go. Then step Saved.
	Save Save

	// Receive is written to the storage then. When the last chunk of a snapshot is
	// durable step SnapshotStored, or SnapshotDamaged.
	Receive []Chunk

	// SendAfter leaves when Save is durable; at once if there is nothing to save.
	SendAfter []Message

	// Commit goes to the state machine, in order. Step Applied when it is done.
	Commit []CommitEntry

	// Timers says per timer what to do with it.
	Timers Timers

	// Compact allows the storage to forget the log up to this index; 0 if nothing
	// has changed.
	Compact Index
}

// Save is what must survive a crash (Figure 2, "Persistent state on all
// servers"). The zero value means that there is nothing to save.
type Save struct {
	// Term and vote are one record: a vote without its term could be cast twice.
	// CurrentTerm is 0 only if nothing is to be saved.
	CurrentTerm Term
	VotedFor    ServerID

	// Entries replace everything in the log from FirstIndex on. FirstIndex 0
	// means that the log has not changed.
	FirstIndex Index
	Entries    []LogEntry

	// Reset, if its Index is not 0, comes before the entries: the whole log is
	// dropped and begins anew behind this place, which a stored snapshot covers.
	Reset LogPosition
}

// LogPosition is a place in the log and the term of the entry there.
type LogPosition struct {
	Index Index
	Term  Term
}

// Needed reports whether there is anything to write.
func (s Save) Needed() bool { return s.CurrentTerm != 0 }

// Submitted answers one Submit.
type Submitted struct {
	FirstIndex Index // where the first command now stands; the others follow
	Term       Term  // the term they were appended in

	// Err is nil if all commands were appended. Otherwise none was: a
	// *NotLeaderError if this server does not lead, ErrTransferring if it is handing
	// over, ErrBusy if too much is unfinished. All may be retried, and nothing has
	// happened.
	Err error
}

// Answer answers one request.
type Answer struct {
	Request RequestID

	// Index, after a Read, is what the state machine must have reached; after a
	// ChangeConfiguration, where the change stands in the log.
	Index Index

	// Err is nil if the request has succeeded, or, for a transfer, if this server
	// does not lead any more. Otherwise nothing was done. Ask again where a
	// *NotLeaderError says; after a pause if it is ErrTransferring,
	// ErrTransferAborted, ErrChanging or ErrNotCaughtUp; and after a look at the
	// present configuration if it is ErrChanged. An ErrConfig or ErrNotVoter comes
	// again however often the same is asked for.
	Err error
}

// CommitEntry is a committed entry on its way to the state machine. Every
// server delivers the same entries in the same order, each index once; only a
// snapshot stands for all up to its index at once.
type CommitEntry struct {
	Index   Index
	Term    Term // the entry's own term, not the current one
	Kind    EntryKind
	Command []byte // nil for a new leader's empty entry and for a snapshot

	// Installed is the snapshot to go on from if Kind is EntrySnapshot: the state
	// after Index. Nil otherwise.
	Installed *InstalledSnapshot
}

// InstalledSnapshot is a snapshot on its way to the state machine.
type InstalledSnapshot struct {
	Snapshot

	// Data are its bytes. The module leaves it nil and raft/server fills it in. The
	// consumer closes it.
	Data io.ReadCloser
}

// TimerKind names one of a server's timers.
type TimerKind uint8

// The timers of a server. T is the minimum election timeout.
const (
	ElectionTimer      TimerKind = iota // drawn anew from [T, 2T) at each restart
	HeartbeatTimer                      // fixed, a fraction of T
	LeaderContactTimer                  // fixed at T
	QuorumCheckTimer                    // fixed at T
	TransferTimer                       // fixed at T
	timerKinds
)

// TimerNumber tells one run of a timer from the next. A timer that fired while
// its event waited behind a slow disk may have been restarted meanwhile; its
// old number shows that, and the event is ignored.
type TimerNumber uint64

// TimerAction says what to do with a timer.
type TimerAction uint8

// What to do with a timer; the zero value leaves it alone.
const (
	LeaveTimer TimerAction = iota
	RestartTimer
	StopTimer
)

// TimerChange is an order for one timer. When the timer fires, its event
// carries Number.
type TimerChange struct {
	Action TimerAction
	Number TimerNumber
}

// Timers holds an order for each timer, indexed by TimerKind.
type Timers [timerKinds]TimerChange

// Timeout returns the event that reports timer kind's run number n as fired.
func Timeout(kind TimerKind, n TimerNumber) Event {
	switch kind {
	case ElectionTimer:
		return ElectionTimeout{n}
	case HeartbeatTimer:
		return HeartbeatTimeout{n}
	case LeaderContactTimer:
		return LeaderContactTimeout{n}
	case QuorumCheckTimer:
		return QuorumCheckTimeout{n}
	case TransferTimer:
		return TransferTimeout{n}
	}
	panic(fmt.Sprintf("raft: no timer of kind %d", kind))
}

// Merge adds the effects of a later Step, so that a server can step every
// event that is waiting and then write and sync once.
//
// Why that is safe: call e the effects merged so far and next the later ones.
// Either the one Save that results becomes durable, and then all of SendAfter
// may leave; or the server crashes before that, and none of it has left. To
// everyone else the second case looks as if the events had never arrived, and
// the first as if each Save had been synced on time and the messages had been
// a little slow. A message of e may promise something that next has already
// replaced (a vote of an older term, an acknowledged entry that was then
// overwritten). It was true when it was made, and the durable record holds a
// higher term, in which this server cannot go back on it. Send holds only a
// leader's messages of a term that was durable before, which no Save of the
// same batch can undo.
func (e *Effects) Merge(next Effects) {
	e.Submitted = join(e.Submitted, next.Submitted)
	e.Answers = join(e.Answers, next.Answers)
	e.Send = join(e.Send, next.Send)
	e.Save.merge(next.Save)
	e.Receive = join(e.Receive, next.Receive)
	e.SendAfter = join(e.SendAfter, next.SendAfter)
	e.Commit = join(e.Commit, next.Commit)
	for kind, change := range next.Timers {
		if change.Action != LeaveTimer {
			e.Timers[kind] = change // the last word on each timer counts
		}
	}
	e.Compact = max(e.Compact, next.Compact)
}

// join is append, but takes over a list as it is where there was none: the module
// has given it away, and mostly one event of a batch has all of a kind.
func join[T any](list, more []T) []T {
	if len(list) == 0 {
		return more
	}
	return append(list, more...)
}

func (s *Save) merge(next Save) {
	if !next.Needed() {
		return
	}
	s.CurrentTerm, s.VotedFor = next.CurrentTerm, next.VotedFor
	switch {
	case next.Reset.Index != 0: // nothing of before is left
		s.Reset, s.FirstIndex, s.Entries = next.Reset, next.FirstIndex, next.Entries
	case next.FirstIndex == 0:
	case s.FirstIndex == 0 || next.FirstIndex <= s.FirstIndex:
		s.FirstIndex, s.Entries = next.FirstIndex, next.Entries
	default:
		// The later entries begin within or right after the earlier ones. The cap
		// keeps append from writing into a slice that a log still shares.
		keep := next.FirstIndex - s.FirstIndex
		s.Entries = append(s.Entries[:keep:keep], next.Entries...)
	}
}
