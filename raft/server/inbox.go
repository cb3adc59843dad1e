package server

import (
	"sync"

	"raftkv/raft"
)

// inbox gathers what happens while the loop is busy. The loop takes all of it
// at once, as far as maxRoundBytes allows.
type inbox struct {
	wake chan struct{} // holds a token while something may be waiting

	mu      sync.Mutex
	room    chan struct{} // closed when the messages are taken; nil if nobody waits for it
	waiting waiting
}

// waiting is what the loop has not seen yet.
type waiting struct {
	messages  []raft.Message
	applied   raft.Index // 0 if nothing was applied since
	events    []raft.Event
	submits   []submit
	bytes     int // of the commands of submits
	questions []question
	reads     []chan<- raft.Answer // each has room for the answer
}

type submit struct {
	command []byte
	told    func(raft.Submitted) // runs in the loop
}

// question is an event that will be answered under the number given to it.
type question struct {
	event  func(raft.RequestID) raft.Event
	answer chan<- raft.Answer // has room for the answer
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
		if len(in.waiting.messages) < maxWaiting {
			in.waiting.messages = append(in.waiting.messages, messages...)
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

// putSubmit reports whether there was room; so do putRead and putQuestion. Bytes
// count, too: while the disk hangs, clients may give up and send the next large
// value, and what they have given up still waits here.
func (in *inbox) putSubmit(s submit) bool {
	in.mu.Lock()
	full := len(in.waiting.submits) >= maxWaiting || in.waiting.bytes > 0 && in.waiting.bytes+len(s.command) > maxWaitingBytes
	if !full {
		in.waiting.submits = append(in.waiting.submits, s)
		in.waiting.bytes += len(s.command)
	}
	in.mu.Unlock()
	in.signal()
	return !full
}

func (in *inbox) putRead(answer chan<- raft.Answer) bool { return put(in, &in.waiting.reads, answer) }

func (in *inbox) putQuestion(q question) bool { return put(in, &in.waiting.questions, q) }

// put appends to a list of the inbox, if it is not full.
func put[T any](in *inbox, list *[]T, item T) bool {
	in.mu.Lock()
	full := len(*list) >= maxWaiting
	if !full {
		*list = append(*list, item)
	}
	in.mu.Unlock()
	in.signal()
	return !full
}

func (in *inbox) putEvent(event raft.Event) {
	in.mu.Lock()
	in.waiting.events = append(in.waiting.events, event)
	in.mu.Unlock()
	in.signal()
}

func (in *inbox) putApplied(index raft.Index) {
	in.mu.Lock()
	in.waiting.applied = index
	in.mu.Unlock()
	in.signal()
}

// take empties the inbox, but for commands that are too many bytes for one round.
func (in *inbox) take() waiting {
	in.mu.Lock()
	defer in.mu.Unlock()
	taken := in.waiting
	in.waiting = waiting{}
	if taken.bytes > maxRoundBytes {
		n, bytes := 1, len(taken.submits[0].command)
		for n < len(taken.submits) && bytes+len(taken.submits[n].command) <= maxRoundBytes {
			bytes += len(taken.submits[n].command)
			n++
		}
		in.waiting.submits, in.waiting.bytes = taken.submits[n:], taken.bytes-bytes
		taken.submits = taken.submits[:n:n]
		in.signal()
	}
	if in.room != nil {
		close(in.room)
		in.room = nil
	}
	return taken
}
