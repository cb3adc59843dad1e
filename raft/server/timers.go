package server

import (
	"math/rand/v2"
	"time"

	"raftkv/raft"
)

// timers holds when each timer is due, as a point of the monotonic clock. One
// restart costs a store; the clock is read once a round.
type timers [len(raft.Timers{})]struct {
	due    time.Time // zero: not running
	number raft.TimerNumber
}

func (t *timers) set(changes raft.Timers, config Config) {
	for kind, change := range changes {
		switch change.Action {
		case raft.RestartTimer:
			t[kind].due, t[kind].number = time.Now().Add(timeout(raft.TimerKind(kind), config)), change.Number
		case raft.StopTimer:
			t[kind].due = time.Time{}
		}
	}
}

func timeout(kind raft.TimerKind, config Config) time.Duration {
	switch kind {
	case raft.ElectionTimer:
		return config.ElectionTimeout + rand.N(config.ElectionTimeout)
	case raft.HeartbeatTimer:
		return config.HeartbeatInterval
	}
	return config.ElectionTimeout
}

// wait returns how long it is until the next timer is due.
func (t *timers) wait(now time.Time) time.Duration {
	wait := time.Hour
	for _, timer := range t {
		if !timer.due.IsZero() {
			wait = min(wait, timer.due.Sub(now))
		}
	}
	return max(wait, 0)
}

// fired returns the events of the timers that are due, and stops these.
func (t *timers) fired(now time.Time) []raft.Event {
	var events []raft.Event
	for kind := range t {
		if due := t[kind].due; !due.IsZero() && !due.After(now) {
			t[kind].due = time.Time{}
			events = append(events, raft.Timeout(raft.TimerKind(kind), t[kind].number))
		}
	}
	return events
}
