package scenario

import (
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

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

// fillDisk says what a server finds when it starts for the first time.
func (w *world) fillDisk(id raft.ServerID, saved raft.PersistentState) error {
	if len(w.servers) > 0 {
		return fmt.Errorf("what disk %d holds at the start is said before the cluster begins", id)
	}
	w.disks[id] = saved
	return nil
}

func (w *world) setSlow(id raft.ServerID, slow bool) error {
	s, err := w.server(id)
	if err != nil {
		return err
	}
	if s.writing {
		return fmt.Errorf("disk %d is being written", id)
	}
	s.disk.slow = slow
	return nil
}

// loseDisk gives a server that is down an empty disk. It begins like one that
// waits to be added to the cluster.
func (w *world) loseDisk(id raft.ServerID) error {
	s, err := w.server(id)
	if err != nil {
		return err
	}
	if s.core != nil {
		return fmt.Errorf("server %d is running", id)
	}
	*s = server{id: id, joins: true, replaces: true}
	return nil
}

// saves lets the write that is under way on a slow disk end.
func (w *world) saves(id raft.ServerID) error {
	s, err := w.running(id)
	if err != nil {
		return err
	}
	if !s.writing {
		return fmt.Errorf("disk %d has nothing to write", id)
	}
	s.writing = false
	if err := w.afterWrite(s); err != nil {
		return err
	}
	return w.work(s)
}

// parseDisk reads "disk 1 slow", "disk 1 fast", "disk 1 lost" and "disk 1 holds LOG [term T] [vote V]".
func (p *parser) parseDisk(words []string) (func(*world) error, error) {
	if len(words) < 2 {
		return nil, errStatement
	}
	n, err := number(words[0])
	if err != nil {
		return nil, err
	}
	id := raft.ServerID(n)
	switch {
	case words[1] == "holds":
		saved, err := parsePersistentState(words[2:])
		return func(w *world) error { return w.fillDisk(id, saved) }, err
	case len(words) == 2 && words[1] == "slow":
		return func(w *world) error { return w.setSlow(id, true) }, nil
	case len(words) == 2 && words[1] == "fast":
		return func(w *world) error { return w.setSlow(id, false) }, nil
	case len(words) == 2 && words[1] == "lost":
		return func(w *world) error { return w.loseDisk(id) }, nil
	}
	return nil, errStatement
}

func parsePersistentState(words []string) (s raft.PersistentState, err error) {
	at := 0
	for at < len(words) && strings.Contains(words[at], ":") {
		at++
	}
	if s.Entries, err = parseLog(words[:at]); err != nil {
		return s, err
	}
	if n := len(s.Entries); n > 0 {
		s.CurrentTerm = s.Entries[n-1].Term
	}
	for ; at < len(words); at += 2 {
		if at+1 == len(words) {
			return s, errStatement
		}
		n, err := number(words[at+1])
		if err != nil {
			return s, err
		}
		switch words[at] {
		case "term":
			s.CurrentTerm = raft.Term(n)
		case "vote":
			s.VotedFor = raft.ServerID(n)
		default:
			return s, errStatement
		}
	}
	return s, nil
}

// parseLog reads entries as term:command, where "-" is a leader's empty entry.
func parseLog(words []string) ([]raft.LogEntry, error) {
	var entries []raft.LogEntry
	for _, word := range words {
		t, command, ok := strings.Cut(word, ":")
		term, err := number(t)
		if !ok || err != nil || command == "" {
			return nil, fmt.Errorf("an entry is term:command, term:- or term:{configuration}, not %q", word)
		}
		e := raft.LogEntry{Term: raft.Term(term), Command: []byte(command)}
		if command == "-" {
			e.Kind, e.Command = raft.EntryEmpty, nil
		}
		if inner, ok := strings.CutPrefix(command, "{"); ok && strings.HasSuffix(inner, "}") {
			c, err := configurationOf(strings.TrimSuffix(inner, "}"))
			if err != nil {
				return nil, err
			}
			e.Kind, e.Command = raft.EntryConfiguration, c.AppendTo(nil)
		}
		entries = append(entries, e)
	}
	return entries, nil
}
