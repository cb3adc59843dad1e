package scenario

import (
	"bytes"
	"errors"
	"hash/crc32"
	"slices"

	"raftkv/raft"
)

// disk is what of a server survives a crash, and how fast it is.
type disk struct {
	raft.PersistentState
	snapshots []image // that were published, in that order
	incoming  []byte  // of a snapshot that is being received; a crash loses it

	slow bool // writes take until "saves"
}

// image is a whole snapshot.
type image struct {
	raft.Snapshot
	bytes []byte
}

func (d *disk) lastIndex() raft.Index { return d.Start.Index + raft.Index(len(d.Entries)) }

// entriesAfter returns the entries behind index i, which the log must reach.
func (d *disk) entriesAfter(i raft.Index) []raft.LogEntry { return d.Entries[i-d.Start.Index:] }

func (d *disk) save(save raft.Save) {
	d.CurrentTerm, d.VotedFor = save.CurrentTerm, save.VotedFor
	if save.Reset.Index != 0 {
		d.Start, d.Entries = save.Reset, nil
	}
	if first := save.FirstIndex; first != 0 {
		kept := first - 1 - d.Start.Index
		d.Entries = append(d.Entries[:kept:kept], save.Entries...)
	}
}

// compact forgets the log up to index i.
func (d *disk) compact(i raft.Index) {
	if i > d.Start.Index {
		d.Start, d.Entries = raft.LogPosition{Index: i, Term: d.Entries[i-d.Start.Index-1].Term}, slices.Clone(d.entriesAfter(i))
	}
}

// publish makes a snapshot one that the server starts with, unless there is a
// newer one.
func (d *disk) publish(i image) {
	d.snapshots = append(d.snapshots, i)
	if i.Index > d.Snapshot.Index {
		d.Snapshot = i.Snapshot
	}
}

// load returns what a server finds when it starts, whenever it had stopped: a
// snapshot may be there and the log not yet be what follows it.
func (d *disk) load() raft.PersistentState {
	if at := d.Snapshot.Index; at > d.Start.Index && (at > d.lastIndex() || d.Entries[at-d.Start.Index-1].Term != d.Snapshot.Term) {
		d.Start, d.Entries = raft.LogPosition{Index: at, Term: d.Snapshot.Term}, nil
	}
	// The core gets a copy: what it does to the slice must not reach the disk.
	saved := d.PersistentState
	saved.Entries = slices.Clone(saved.Entries)
	return saved
}

// find returns the bytes of a snapshot; nil if it is not here.
func (d *disk) find(s raft.Snapshot) []byte {
	for _, i := range d.snapshots {
		if i.Index == s.Index && i.Checksum == s.Checksum {
			return i.bytes
		}
	}
	return nil
}

// fillIn gives a part of a snapshot its bytes, and reports whether m can be sent.
func (d *disk) fillIn(m *raft.Message) bool {
	args, ok := m.Body.(raft.InstallSnapshotArgs)
	if !ok || args.Length == 0 {
		return true
	}
	all := d.find(args.Snapshot)
	if uint64(len(all)) < args.Offset+args.Length {
		return false
	}
	args.Data = all[args.Offset : args.Offset+args.Length]
	m.Body = args
	return true
}

// receive writes a part of a snapshot. After the last one the event is that it
// is stored, or damaged; before, nil.
func (d *disk) receive(c raft.Chunk) (raft.Event, error) {
	if c.Offset == 0 {
		d.incoming = nil
	}
	if uint64(len(d.incoming)) != c.Offset {
		return nil, errors.New("a part of a snapshot is given to the disk out of order")
	}
	d.incoming = append(slices.Clone(d.incoming), c.Data...)
	if !c.Last() {
		return nil, nil
	}
	whole := image{c.Snapshot, d.incoming}
	d.incoming = nil
	if checksum(whole.bytes) != whole.Checksum {
		return raft.SnapshotDamaged{Snapshot: c.Snapshot}, nil
	}
	d.publish(whole)
	return raft.SnapshotStored{Snapshot: c.Snapshot}, nil
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

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
