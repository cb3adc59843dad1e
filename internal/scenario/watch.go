package scenario

import (
	"fmt"

	"raftkv/internal/core"
	"raftkv/internal/trace"
	"raftkv/raft"
)

// What a watcher can be told.
type What int

// Every message is Sent or Copied once, and then Arrived or Lost, unless the
// story ends while it is in flight.
const (
	Stepped What = iota // a server has taken an event, crashed or restarted
	Sent
	Copied // by a "duplicate" of the story
	Arrived
	Lost // by a "drop", on a link that is cut, or because the server is down
)

// Happening is one thing that happens in a story.
type Happening struct {
	What What
	Line int // of the story

	Step *trace.Record // if Stepped
	Core core.Core     // if Stepped: the server's, as it is then

	// Otherwise: which message, counted from 1 in the order of sending.
	Number  int
	Message raft.Message
}

// Watch plays the story as Play does and tells watch what happens, for those who
// draw it.
func (s *Story) Watch(newCore core.New, watch func(Happening)) error {
	w := newWorld(newCore, s.config, false)
	for _, st := range s.statements {
		w.watch = func(h Happening) {
			h.Line = st.line
			watch(h)
		}
		if err := w.perform(st); err != nil {
			return fmt.Errorf("%s:%d: %s\n\t%w", s.File, st.line, st.text, err)
		}
	}
	return nil
}

func (w *world) tellOfStep(s *server, r *trace.Record) {
	w.tell(Happening{What: Stepped, Step: r, Core: s.core})
}

func (w *world) tell(h Happening) {
	if w.watch != nil {
		w.watch(h)
	}
}

func (w *world) tellOf(what What, f *flight) {
	w.tell(Happening{What: what, Number: f.number, Message: f.message})
}

// fly puts a message into flight.
func (w *world) fly(what What, m raft.Message) *flight {
	w.sent++
	f := &flight{message: m, number: w.sent}
	w.flying = append(w.flying, f)
	w.tellOf(what, f)
	return f
}
