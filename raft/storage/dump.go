package storage

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"raftkv/raft"
)

// Dump prints a data directory as text, a snapshot or a record a line. It only reads, and
// takes no lock: what a running server is writing at this moment may look torn.
// A nil fsys means OSFS.
//
// The error is nil if a server could start from the directory. Otherwise it is
// what Open would say, and Dump has printed it at its place and then every
// record it could still find, whether it makes sense or not.
func Dump(out io.Writer, dir string, fsys FS) error {
	if fsys == nil {
		fsys = OSFS{}
	}
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return err
	}
	if err := checkNames(dir, names); err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	err = dump(w, dir, names, fsys)
	if flushErr := w.Flush(); err == nil {
		err = flushErr
	}
	return err
}

func dump(w *bufio.Writer, dir string, names []string, fsys FS) error {
	store, err := dumpIdentity(w, dir, names, fsys)
	dumpSnapshots(w, dir, names, fsys, store)
	var shown string
	title := func(file string) {
		if file != shown {
			fmt.Fprintf(w, "%s:\n", file)
			shown = file
		}
	}
	log, seg, logErr := readLog(fsys, dir, names, store, func(s *segment, at int, r record) {
		title(s.file)
		dumpRecord(w, at, r)
	})
	if logErr == nil {
		title(seg.file)
		if log.torn != "" {
			fmt.Fprintf(w, "%10d  torn tail: %s; the next start cuts it off\n", log.end, log.torn)
		}
		if stateErr := dumpState(w, dir, names, fsys, store, &found{log: log, last: seg}); err == nil {
			err = stateErr
		}
		return err
	}
	fmt.Fprintf(w, "DAMAGED: %v\n", logErr)
	var corrupt *CorruptError
	if errors.As(logErr, &corrupt) {
		dumpRest(w, dir, names, fsys, corrupt)
	}
	if err == nil {
		err = logErr
	}
	return err
}

// dumpState prints what a server would start from.
func dumpState(w *bufio.Writer, dir string, names []string, fsys FS, store raft.StoreID, f *found) error {
	err := f.readSnapshots(fsys, dir, names, store)
	if err == nil {
		err = f.connect(dir)
	}
	if err != nil {
		fmt.Fprintf(w, "DAMAGED: %v\n", err)
		return err
	}
	state := f.log.state
	if f.dropped {
		fmt.Fprintf(w, "snapshot %d replaces the log; the next start writes a reset\n", state.Snapshot.Index)
	}
	fmt.Fprintf(w, "term %d, vote %s, ", state.CurrentTerm, voteText(state.VotedFor))
	if state.Snapshot.Index != 0 {
		fmt.Fprintf(w, "snapshot %d, ", state.Snapshot.Index)
	}
	fmt.Fprintf(w, "%d entries", len(state.Entries))
	if state.Start.Index != 0 {
		fmt.Fprintf(w, " behind index %d of term %d", state.Start.Index, state.Start.Term)
	}
	fmt.Fprintf(w, "; the log ends at offset %d of %s\n", f.log.end, f.last.file)
	return nil
}

func dumpSnapshots(w *bufio.Writer, dir string, names []string, fsys FS, store raft.StoreID) {
	for _, index := range snapshotIndexes(names) {
		s, err := readSnapshotHeader(fsys, dir, index, store)
		if err == nil {
			err = s.verify(fsys)
		}
		if err != nil {
			fmt.Fprintf(w, "DAMAGED: %v\n", err)
			continue
		}
		fmt.Fprintf(w, "%s: up to entry %d of term %d, %d bytes, configuration of entry %d: %s\n",
			s.file, s.Index, s.Term, s.Size, s.ConfigurationIndex, configurationText(s.Configuration))
	}
}

func configurationText(c raft.Configuration) string {
	text := fmt.Sprint("voters ", c.Voters)
	if c.Joint() {
		text += fmt.Sprint(" and of before ", c.OldVoters)
	}
	if len(c.Learners) > 0 {
		text += fmt.Sprint(", learners ", c.Learners)
	}
	for _, a := range c.Addresses {
		text += fmt.Sprintf(", %d=%s", a.ID, a.Addr)
		if a.Since != 0 {
			text += fmt.Sprint(" since ", a.Since)
		}
	}
	return text
}

// dumpIdentity prints the two text files and returns the store id. If the
// identity cannot be read the first segment that can be tells it.
func dumpIdentity(w *bufio.Writer, dir string, names []string, fsys FS) (raft.StoreID, error) {
	id, store, err := readIdentity(fsys, dir)
	if err != nil {
		fmt.Fprintf(w, "DAMAGED: %v\n", err)
		for _, sequence := range segmentSequences(names) {
			file := filepath.Join(dir, segmentName(sequence))
			b, _ := readFile(fsys, file)
			if info, segErr := parseSegment(file, b); segErr == nil {
				return info.store, err
			}
		}
		return store, err
	}
	fmt.Fprintf(w, "server %d of cluster %q (%016x), members %s, store %x\n",
		id.Server, id.ClusterName, uint64(id.Cluster), memberList(id.Members), store)
	known, err := readPeers(fsys, dir, store)
	if err != nil {
		fmt.Fprintf(w, "DAMAGED: %v\n", err)
	}
	for _, server := range slices.Sorted(maps.Keys(known)) {
		fmt.Fprintf(w, "server %d has store %x\n", server, known[server].store)
	}
	return store, err
}

// dumpRest prints the records behind a damage, of which no order is known.
func dumpRest(w *bufio.Writer, dir string, names []string, fsys FS, damage *CorruptError) {
	from := int(damage.Offset)
	for _, sequence := range segmentSequences(names) {
		file := filepath.Join(dir, segmentName(sequence))
		if file < damage.File {
			continue
		}
		if file != damage.File {
			from = segmentHeader
		}
		b, err := readFile(fsys, file)
		if err != nil {
			fmt.Fprintf(w, "DAMAGED: %v\n", err)
			continue
		}
		info, err := parseSegment(file, b)
		if err != nil {
			fmt.Fprintf(w, "DAMAGED: %v\n", err)
			continue
		}
		fmt.Fprintf(w, "%s, what can still be read:\n", file)
		from = max(from, segmentHeader) / recordAlign * recordAlign
		newChecksum(info.store).scan(b, from, func(at int, r record) bool {
			dumpRecord(w, at, r)
			return true
		})
	}
}

func dumpRecord(w *bufio.Writer, at int, r record) {
	fmt.Fprintf(w, "%10d  batch %d  ", at, r.batch)
	index, e, err := decodeEntry(r.payload)
	switch {
	case r.kind == recordState && len(r.payload) == statePayload:
		term := binary.LittleEndian.Uint64(r.payload)
		vote := raft.ServerID(binary.LittleEndian.Uint64(r.payload[8:]))
		fmt.Fprintf(w, "term %d, vote %s\n", term, voteText(vote))
	case r.kind == recordReset && len(r.payload) == resetPayload:
		fmt.Fprintf(w, "  reset: the log begins behind index %d of term %d\n", index, binary.LittleEndian.Uint64(r.payload[8:]))
	case r.kind == recordEntry && err == nil && e.Kind == raft.EntryConfiguration:
		c, _ := raft.DecodeConfiguration(e.Command) // decodeEntry has checked it
		fmt.Fprintf(w, "  %d: term %d, configuration: %s\n", index, e.Term, configurationText(c))
	case r.kind == recordEntry && err == nil && e.Kind == raft.EntryEmpty:
		fmt.Fprintf(w, "  %d: term %d, empty\n", index, e.Term)
	case r.kind == recordEntry && err == nil:
		fmt.Fprintf(w, "  %d: term %d, %d bytes %s\n", index, e.Term, len(e.Command), shorten(e.Command))
	default:
		fmt.Fprintf(w, "unknown type %d, %d bytes %s\n", r.kind, len(r.payload), shorten(r.payload))
	}
}

func voteText(vote raft.ServerID) string {
	if vote == raft.None {
		return "nobody"
	}
	return fmt.Sprint("server ", vote)
}

// shorten returns the beginning of b as one quoted piece of text.
func shorten(b []byte) string {
	const most = 60
	if len(b) > most {
		return fmt.Sprintf("%q…", b[:most])
	}
	return fmt.Sprintf("%q", b)
}
