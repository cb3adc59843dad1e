package raft

// An Event is something that happened to a server: a timer fired, a message
// arrived, a client submitted a command or the disk caught up.
type Event interface {
	isEvent()
}

// ElectionTimeout reports that the election timer fired (§5.2).
type ElectionTimeout struct{}

// HeartbeatTimeout reports that a leader's heartbeat timer fired (§5.2).
type HeartbeatTimeout struct{}

// Submit asks to append a command to the log. Effects.Submitted says what became
// of it. The module keeps the slice; the caller must not change it.
type Submit struct{ Command []byte }

// Saved reports that everything in the Saves returned so far is durable. Index
// is the last index of the log and Term the current term then. A server steps
// it right after it has carried out Effects.Save, before any other event.
type Saved struct {
	Index Index
	Term  Term
}

func (ElectionTimeout) isEvent()  {}
func (HeartbeatTimeout) isEvent() {}
func (Message) isEvent()          {}
func (Submit) isEvent()           {}
func (Saved) isEvent()            {}

// Effects is what a server must do after a Step, in the order of the fields.
// The zero value asks for nothing.
//
// The order is a safety rule (§5.1, Figure 2 "updated on stable storage before
// responding"): no message promises more than is durable. Only a leader's
// AppendEntries may leave before the disk write, because it promises nothing
// about the leader's own copy; the leader counts that copy when Saved tells it to.
type Effects struct {
	// Submitted answers Submit. Not a promise to a client: an accepted command is
	// in this log and may still be overwritten.
	Submitted Submitted

	// Send leaves at once and may be under way while Save is written.
	Send []Message

	// Save is written and synced next, in one go. Then step Saved.
	Save Save

	// SendAfter leaves when Save is durable; at once if there is nothing to save.
	SendAfter []Message

	// Commit goes to the state machine, in order.
	Commit []CommitEntry

	// Timers says per timer what to do with it.
	Timers Timers
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
}

// Needed reports whether there is anything to write.
func (s Save) Needed() bool { return s.CurrentTerm != 0 }

// Submitted answers a Submit.
type Submitted struct {
	Index Index // where the command now stands
	Term  Term  // the term it was appended in

	// Err is nil if the command was appended. Otherwise it is a *NotLeaderError,
	// and nothing has happened.
	Err error
}

// CommitEntry is a committed entry on its way to the state machine. Every
// server delivers the same entries in the same order, each index once.
type CommitEntry struct {
	Index   Index
	Term    Term // the entry's own term, not the current one
	Kind    EntryKind
	Command []byte // nil for a new leader's empty entry
}

// TimerKind names one of a server's timers.
type TimerKind uint8

// The timers of a server. T is the minimum election timeout.
const (
	ElectionTimer  TimerKind = iota // drawn anew from [T, 2T) at each restart
	HeartbeatTimer                  // fixed, a fraction of T
	timerKinds
)

// TimerAction says what to do with a timer. A timer that was restarted or
// stopped must not report that it had fired before.
type TimerAction uint8

// What to do with a timer; the zero value leaves it alone.
const (
	LeaveTimer TimerAction = iota
	RestartTimer
	StopTimer
)

// Timers holds an order for each timer, indexed by TimerKind.
type Timers [timerKinds]TimerAction
