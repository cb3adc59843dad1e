package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

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

// A link is one direction between two servers.
type link struct{ from, to raft.ServerID }

// which says which messages of a link are meant.
type which int

const (
	every  which = iota // all that are in flight
	oldest              // "one"
	newest              // "last"
)

// parseTraffic reads [one|last] LINK... for what is done to messages in flight.
func (p *parser) parseTraffic(words []string, do func(*world, link, which) error) (func(*world) error, error) {
	what := every
	if len(words) > 0 && words[0] == "one" {
		what, words = oldest, words[1:]
	} else if len(words) > 0 && words[0] == "last" {
		what, words = newest, words[1:]
	}
	return p.parseLinks(words, func(w *world, l link) error { return do(w, l, what) })
}

// parseLinks reads links: 1->2, both directions 1<->2, or * for all others.
func (p *parser) parseLinks(words []string, do func(*world, link) error) (func(*world) error, error) {
	if len(words) == 0 {
		return nil, errors.New("between which servers? such as: 1->2, 1<->2, 1->*")
	}
	var links []link
	for _, word := range words {
		a, b, ok := strings.Cut(word, "<->")
		both := ok
		if !ok {
			a, b, ok = strings.Cut(word, "->")
		}
		from, err1 := p.side(a)
		to, err2 := p.side(b)
		if !ok || err1 != nil || err2 != nil {
			return nil, fmt.Errorf("a link is 1->2, 1<->2 or 1->*, not %q", word)
		}
		for _, f := range from {
			for _, t := range to {
				if f == t {
					continue
				}
				links = append(links, link{f, t})
				if both {
					links = append(links, link{t, f})
				}
			}
		}
	}
	return func(w *world) error {
		done := 0
		var nothing error
		for _, l := range links {
			switch err := do(w, l); {
			case errors.As(err, new(nothingInFlight)):
				nothing = err
			case err != nil:
				return err
			default:
				done++
			}
		}
		// A link that is named must carry something, or the line says nothing;
		// of a * it is enough that one does.
		if nothing != nil && (done == 0 || !strings.Contains(strings.Join(words, " "), "*")) {
			return nothing
		}
		return nil
	}, nil
}

func (p *parser) side(word string) ([]raft.ServerID, error) {
	if word == "*" {
		return p.servers, nil
	}
	id, err := p.server(word)
	return []raft.ServerID{id}, err
}
