package scenario

import (
	"bytes"
	"fmt"
	"slices"

	"raftkv/raft"
)

// flight is a message that was sent and has not arrived.
type flight struct {
	message raft.Message
	number  int
	held    bool // by "hold": nothing touches it until it is released
}

// nothingInFlight is the error of a line about messages that are not there.
type nothingInFlight struct{ link }

func (e nothingInFlight) Error() string {
	return fmt.Sprintf("nothing is in flight from %d to %d", e.from, e.to)
}

func (w *world) send(m raft.Message) {
	f := w.fly(Sent, m)
	if w.isCut[link{m.From, m.To}] {
		w.lose(f)
	}
}

// inFlight returns what of a link is meant, oldest first.
func (w *world) inFlight(l link, what which) ([]*flight, error) {
	var found []*flight
	for _, f := range w.flying {
		if !f.held && f.message.From == l.from && f.message.To == l.to {
			found = append(found, f)
		}
	}
	switch {
	case len(found) == 0:
		return nil, nothingInFlight{l}
	case what == oldest:
		found = found[:1]
	case what == newest:
		found = found[len(found)-1:]
	}
	return found, nil
}

// land takes a message out of flight and gives it to its receiver. A server
// that is down never sees it.
func (w *world) land(f *flight) error {
	w.remove(f)
	s, err := w.server(f.message.To)
	if err != nil || s.core == nil {
		w.tellOf(Lost, f)
		return err
	}
	w.tellOf(Arrived, f)
	return w.happens(s, f.message)
}

func (w *world) remove(f *flight) {
	w.flying = slices.DeleteFunc(w.flying, func(o *flight) bool { return o == f })
}

func (w *world) lose(f *flight) {
	w.remove(f)
	w.tellOf(Lost, f)
}

func (w *world) deliver(l link, what which) error {
	flights, err := w.inFlight(l, what)
	for _, f := range flights {
		if err := w.land(f); err != nil {
			return err
		}
	}
	return err
}

// deliverAll delivers, oldest first, until nothing is in flight but what is held.
func (w *world) deliverAll() error {
	const enough = 10_000
	for range enough {
		at := slices.IndexFunc(w.flying, func(f *flight) bool { return !f.held })
		if at < 0 {
			return nil
		}
		if err := w.land(w.flying[at]); err != nil {
			return err
		}
	}
	return fmt.Errorf("after %d messages the servers still send more", enough)
}

func (w *world) drop(l link, what which) error {
	flights, err := w.inFlight(l, what)
	for _, f := range flights {
		w.lose(f)
	}
	return err
}

func (w *world) duplicate(l link, what which) error {
	flights, err := w.inFlight(l, what)
	for _, f := range flights {
		w.fly(Copied, f.message)
	}
	return err
}

func (w *world) hold(l link, what which) error {
	flights, err := w.inFlight(l, what)
	for _, f := range flights {
		f.held = true
	}
	return err
}

func (w *world) release(l link) error {
	released := false
	for _, f := range w.flying {
		if f.held && f.message.From == l.from && f.message.To == l.to {
			f.held, released = false, true
		}
	}
	if !released {
		return nothingInFlight{l}
	}
	return nil
}

// cut loses everything on a link, what is in flight included, until it is healed.
func (w *world) cut(l link) error {
	w.isCut[l] = true
	for _, f := range slices.Clone(w.flying) {
		if !f.held && f.message.From == l.from && f.message.To == l.to {
			w.lose(f)
		}
	}
	return nil
}

func (w *world) heal(l link) error {
	w.isCut[l] = false
	return nil
}

// damage changes the bytes of the parts of snapshots that are in flight.
func (w *world) damage(l link, what which) error {
	flights, err := w.inFlight(l, what)
	if err != nil {
		return err
	}
	done := false
	for _, f := range flights {
		if args, ok := f.message.Body.(raft.InstallSnapshotArgs); ok && len(args.Data) > 0 {
			args.Data = bytes.ToUpper(args.Data)
			f.message.Body, done = args, true
		}
	}
	if !done {
		return fmt.Errorf("no part of a snapshot is in flight from %d to %d", l.from, l.to)
	}
	return nil
}
