package raft

// An Event is something that happened to a server: a timer fired or a message
// arrived.
type Event interface {
	isEvent()
}

// ElectionTimeout reports that the election timer fired (§5.2).
type ElectionTimeout struct{}

// HeartbeatTimeout reports that a leader's heartbeat timer fired (§5.2).
type HeartbeatTimeout struct{}

func (ElectionTimeout) isEvent()  {}
func (HeartbeatTimeout) isEvent() {}
func (Message) isEvent()          {}

// Effects is what a server must do after a Step. The zero value asks for
// nothing.
type Effects struct {
	Send []Message

	// Timers says per timer what to do with it.
	Timers Timers
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
