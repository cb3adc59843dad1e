package rafttest

// Node is one server's algorithm: something happens to it, and it says what is
// to be done about it. It needs no lock: one call is made at a time.
//
// Servers are numbered from 1, 0 is nobody. The first entry of a log has index
// 1. An entry without a command (nil) is one that a new leader appends for
// itself; the tests do not count it.
type Node interface {
	// ElectionTimeout tells that the election timer has fired (§5.2).
	ElectionTimeout() Effects

	// HeartbeatTimeout tells that a leader's heartbeat timer has fired (§5.2).
	HeartbeatTimeout() Effects

	// Receive delivers a message: what another server has put into
	// Effects.Send. It may come late, in another order, or never.
	Receive(body any) Effects

	// Status tells what the node thinks at the moment.
	Status() Status
}

// A LogNode is a Node that has a log.
type LogNode interface {
	Node

	// Submit asks to append a command. If it was appended, Effects.Index and
	// Effects.Term say where; if this server does not lead, they are 0.
	Submit(command []byte) Effects

	// Log returns all entries of the log, from index 1 on, in a new slice. Their
	// Index need not be set.
	Log() []Entry
}

// Start starts the algorithm of server id. The other servers are peers, in order.
// disk is all that survives a crash: it is made once for each server, as new(D),
// and handed over again at each start. A node that keeps nothing takes a
// *struct{}. The effects are those of starting.
type Start[ID ~uint64, D any, N Node] func(id ID, peers []ID, disk *D) (N, Effects)

// Effects is what a node asks for. The zero value asks for nothing. It is
// carried out in the order of the fields.
type Effects struct {
	// Index and Term answer LogNode.Submit.
	Index, Term int

	// Send leaves at once, even if the server crashes before Save is written.
	Send []Message

	// Save writes to the disk and returns what is to be done when all is
	// written. nil means that there is nothing to write.
	Save func() Effects

	// SendAfter leaves when Save is written.
	SendAfter []Message

	// What to do with the timers.
	ElectionTimer, HeartbeatTimer TimerAction

	// Commit is what is newly committed, in the order of the log and without a
	// gap: it goes to the state machine.
	Commit []Entry
}

// Message is on its way to another server.
type Message struct {
	To   int
	Body any // nobody but the nodes looks inside; the trace prints it
}

// Entry is a command at its place in the log.
type Entry struct {
	Index, Term int
	Command     []byte // nil if it is a new leader's own
}

// At returns an Entry, from an implementation's own types of numbers.
func At[I, T ~int | ~uint64](index I, term T, command []byte) Entry {
	return Entry{int(index), int(term), command}
}

// text is how the trace shows the command.
func (e Entry) text() string {
	if e.Command == nil {
		return "-"
	}
	return string(e.Command)
}

// TimerAction says what to do with a timer.
type TimerAction uint8

// What to do with a timer. The zero value leaves it alone. A timer that was
// restarted or stopped does not report that it had fired before.
const (
	LeaveTimer TimerAction = iota
	RestartTimer
	StopTimer
)

// Status is what a node thinks at one moment. A node without a log leaves the
// indexes at 0.
type Status struct {
	State    string // "follower", "candidate" or "leader"
	Term     int
	VotedFor int
	LeaderID int // who leads the term, as far as this node knows

	CommitIndex int
}

// The state of a server that leads.
const leader = "leader"

// Map returns f of each element: a slice of an implementation's own messages or
// entries as one of ours.
func Map[A, B any](as []A, f func(A) B) []B {
	bs := make([]B, len(as))
	for i, a := range as {
		bs[i] = f(a)
	}
	return bs
}
