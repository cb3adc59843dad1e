package scenario

import (
	"bytes"
	"errors"
	"fmt"

	"raftkv/raft"
)

// machine is a state machine: it remembers the commands that it was given.
type machine struct {
	commands []string
	at       raft.LogPosition // the last entry that it was given

	configuration      raft.Configuration
	configurationIndex raft.Index
}

func (m *machine) apply(e raft.CommitEntry, d *disk) error {
	m.at = raft.LogPosition{Index: e.Index, Term: e.Term}
	switch e.Kind {
	case raft.EntryCommand:
		m.commands = append(m.commands, string(e.Command))
	case raft.EntryConfiguration:
		c, err := raft.DecodeConfiguration(e.Command)
		if err != nil {
			return err
		}
		m.configuration, m.configurationIndex = c, e.Index
	case raft.EntrySnapshot:
		s := e.Installed.Snapshot
		state := d.find(s)
		if state == nil {
			return errors.New("there is no such snapshot to go on from")
		}
		m.commands = nil
		for _, word := range bytes.Fields(state) {
			m.commands = append(m.commands, string(word))
		}
		m.configuration, m.configurationIndex = s.Configuration, s.ConfigurationIndex
	}
	return nil
}

// snapshot returns the state as it is now.
func (m *machine) snapshot() *image {
	var b []byte
	for _, c := range m.commands {
		b = append(append(b, c...), ' ')
	}
	if b == nil {
		b = []byte{' '} // no snapshot is empty
	}
	return &image{raft.Snapshot{
		Index: m.at.Index, Term: m.at.Term,
		Configuration: m.configuration, ConfigurationIndex: m.configurationIndex,
		Size: uint64(len(b)), Checksum: checksum(b),
	}, b}
}

// apply gives the state machine all that waits for it.
func (w *world) apply(s *server) error {
	for _, e := range s.waiting {
		if err := w.checker.Applied(s.id, e); err != nil {
			return err
		}
		if err := s.machine.apply(e, &s.disk); err != nil {
			return err
		}
	}
	s.waiting = nil
	w.serveReads(s)
	return nil
}

// applies lets a slow state machine take in what waits for it.
func (w *world) applies(id raft.ServerID) error {
	s, err := w.running(id)
	if err != nil {
		return err
	}
	if len(s.waiting) == 0 {
		return fmt.Errorf("state machine %d has nothing to apply", id)
	}
	if err := w.apply(s); err != nil {
		return err
	}
	return w.happens(s, raft.Applied{Index: s.machine.at.Index})
}

func (w *world) setLazy(id raft.ServerID, lazy bool) error {
	s, err := w.running(id)
	if err != nil {
		return err
	}
	s.lazy = lazy
	if !lazy && len(s.waiting) > 0 {
		return w.applies(id)
	}
	return nil
}

// copyState begins a snapshot: the state machine is copied as it is now.
func (w *world) copyState(id raft.ServerID) error {
	s, err := w.running(id)
	if err != nil {
		return err
	}
	if s.machine.at.Index == 0 {
		return fmt.Errorf("state machine %d has applied nothing yet", id)
	}
	s.copied = s.machine.snapshot()
	return nil
}

// storeSnapshot ends it: the copy is on the disk.
func (w *world) storeSnapshot(id raft.ServerID) error {
	s, err := w.running(id)
	if err != nil {
		return err
	}
	if s.copied == nil {
		return fmt.Errorf("server %d is not taking a snapshot", id)
	}
	i := *s.copied
	s.copied = nil
	s.disk.publish(i)
	if err := w.checker.SnapshotStored(id, i.Snapshot); err != nil {
		return err
	}
	return w.happens(s, raft.SnapshotStored{Snapshot: i.Snapshot})
}

// parseMachine reads "machine 1 slow" and "machine 1 fast".
func (p *parser) parseMachine(words []string) (func(*world) error, error) {
	if len(words) != 2 || words[1] != "slow" && words[1] != "fast" {
		return nil, errStatement
	}
	id, err := p.server(words[0])
	return func(w *world) error { return w.setLazy(id, words[1] == "slow") }, err
}
