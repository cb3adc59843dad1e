package server

import (
	"sync"

	"raftkv/raft"
)

// inbox gathers what happens while the loop is busy. The loop takes all of it
// at once.
type inbox struct {
	wake chan struct{} // holds a token while something may be waiting

	mu       sync.Mutex
	room     chan struct{} // closed when the messages are taken; nil if nobody waits for it
	messages []raft.Message
	submits  []submit
	applied  raft.Index
}

type submit struct {
	command []byte
	answer  chan<- raft.Submitted // has room for the answer
}

func newInbox() inbox { return inbox{wake: make(chan struct{}, 1)} }

func (in *inbox) signal() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// putMessages waits for room until quit is closed.
func (in *inbox) putMessages(messages []raft.Message, quit <-chan struct{}) {
	for {
		in.mu.Lock()
		if len(in.messages) < maxWaiting {
			in.messages = append(in.messages, messages...)
			in.mu.Unlock()
			in.signal()
			return
		}
		if in.room == nil {
			in.room = make(chan struct{})
		}
		room := in.room
		in.mu.Unlock()
		select {
		case <-room:
		case <-quit:
			return
		}
	}
}

// putSubmit reports whether there was room.
func (in *inbox) putSubmit(s submit) bool {
	in.mu.Lock()
	full := len(in.submits) >= maxWaiting
	if !full {
		in.submits = append(in.submits, s)
	}
	in.mu.Unlock()
	in.signal()
	return !full
}

func (in *inbox) putApplied(index raft.Index) {
	in.mu.Lock()
	in.applied = index
	in.mu.Unlock()
	in.signal()
}

// take empties the inbox. applied is 0 if nothing was applied since.
func (in *inbox) take() (messages []raft.Message, submits []submit, applied raft.Index) {
	in.mu.Lock()
	defer in.mu.Unlock()
	messages, submits, applied = in.messages, in.submits, in.applied
	in.messages, in.submits, in.applied = nil, nil, 0
	if in.room != nil {
		close(in.room)
		in.room = nil
	}
	return messages, submits, applied
}
