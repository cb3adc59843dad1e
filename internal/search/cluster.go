package search

import (
	"fmt"
	"slices"
	"strings"

	"raftkv/raft"
)

// state is a state of the cluster.
type state struct {
	servers  [maxNodes]serverID
	messages set // not changed once the state is kept
	past     past
	node     nodeID
}

// node tells how a state was reached first.
type node struct {
	parent  nodeID
	depth   int32
	event   event
	server  int8 // index of the server at which the event happened
	cut     bool // the server crashed before all was saved
	covered bool // another state makes this one superfluous, see visit
}

type nodeID int32

// expand visits every state that is one step away.
func (s *search) expand(now *state) error {
	for i, server := range now.servers[:s.config.Nodes] {
		status := s.servers[server].status
		var events []event
		switch {
		case status.State == raft.Leader:
			events = append(events, event{kind: beats})
			if int(now.past.entries) < s.config.Entries {
				events = append(events, event{kind: submits})
			}
		case status.Term < s.config.Terms:
			events = append(events, event{kind: timesOut})
		}
		if int(now.past.crashes) < s.config.Crashes {
			events = append(events, event{kind: crashes})
		}
		for m := range s.to(i, now.messages) {
			events = append(events, event{receives, m})
		}
		for _, ev := range events {
			if err := s.take(now, i, ev); err != nil {
				return err
			}
		}
	}
	return nil
}

// take lets an event happen to server i of a state, and visits what results.
// With a crash left, it also lets the server crash before it has saved.
func (s *search) take(now *state, i int, ev event) error {
	out := *s.outcome(now.servers[i], ev)
	if out.idle(now.servers[i]) && (ev.kind == beats || ev.kind == receives) {
		return nil // it has happened in settle
	}
	how := node{parent: now.node, depth: s.nodes[now.node].depth + 1, event: ev, server: int8(i)}
	if out.broken != "" {
		return s.violation(out.broken, how)
	}
	next := state{servers: now.servers, past: now.past}
	next.servers[i] = out.next
	switch ev.kind {
	case submits:
		next.past.entries++
	case crashes:
		next.past.crashes++
	}
	if broken := s.note(&next.past, out.next, out.commit); broken != "" {
		return s.violation(broken, how)
	}
	next.messages = s.settle(&next, i, now.messages, out.sent)
	if err := s.visit(&next, how); err != nil {
		return err
	}
	if int(now.past.crashes) == s.config.Crashes {
		return nil
	}
	for _, cut := range out.cuts {
		half := state{servers: now.servers, past: next.past}
		half.servers[i] = cut.next
		// What the step has led or applied came after the save.
		half.past.leaderOf, half.past.applied = now.past.leaderOf, now.past.applied
		half.past.crashes++
		half.messages = s.settle(&half, i, now.messages, cut.sent)
		how.cut = true
		if err := s.visit(&half, how); err != nil {
			return err
		}
	}
	return nil
}

// settle returns the messages of a state in which server i is new and has sent
// some. It adds what is sent by events that change no server: heartbeats, and
// answers to what arrives a second time. They may happen at once, because a
// message more never makes less possible: it need not arrive.
//
// With Prune it leaves out what is too old for its receiver, and what is spent.
func (s *search) settle(st *state, i int, have set, sent []messageID) set {
	all := slices.Clone(have)
	var fresh []messageID
	add := func(messages []messageID) {
		for _, m := range messages {
			to := int(s.messages[m].To) - 1
			if all.has(m) || s.config.Prune && s.messages[m].Term() < s.servers[st.servers[to]].status.Term {
				continue
			}
			all.add(m)
			fresh = append(fresh, m)
		}
	}
	answer := func(server serverID, ev event) {
		if out := s.outcome(server, ev); out.idle(server) {
			add(out.sent)
		}
	}
	server := st.servers[i]
	if s.config.Prune {
		s.dropOlder(i, all, s.servers[server].status.Term)
	}
	add(sent)
	if s.servers[server].status.State == raft.Leader {
		answer(server, event{kind: beats})
	}
	for m := range s.to(i, all) {
		answer(server, event{receives, m})
	}
	for n := 0; n < len(fresh); n++ { // fresh grows on the way
		answer(st.servers[s.messages[fresh[n]].To-1], event{receives, fresh[n]})
	}
	if s.config.Prune && !s.keepSpent {
		s.dropSpent(st, all)
	}
	return all
}

func (s *search) violation(property string, last node) error {
	v := &Violation{Property: property}
	for n := last; n.parent >= 0; n = s.nodes[n.parent] {
		v.Path = append(v.Path, s.describe(n))
	}
	slices.Reverse(v.Path)
	v.Shortest = !s.deep
	return v
}

func (s *search) describe(n node) string {
	id, text := n.server+1, ""
	switch n.event.kind {
	case timesOut:
		text = fmt.Sprintf("%d times out", id)
	case beats:
		text = fmt.Sprintf("%d sends its heartbeats", id)
	case submits:
		text = fmt.Sprintf("%d is given a command", id)
	case crashes:
		text = fmt.Sprintf("%d crashes and restarts", id)
	case receives:
		m := s.messages[n.event.message]
		kind := strings.TrimPrefix(fmt.Sprintf("%T", m.Body), "raft.")
		text = fmt.Sprintf("%d receives from %d: %s%+v", id, m.From, kind, m.Body)
	}
	if n.cut {
		text += ", and crashes before all is saved"
	}
	return text
}
