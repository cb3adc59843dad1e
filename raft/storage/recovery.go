package storage

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"

	"raftkv/raft"
)

// replay reads a log back, record by record, and tells a torn tail from
// corruption.
//
// A batch is one Save: written, then synced, then the next one. So when power
// is lost at most one batch is half on the disk, the last one, and of that one
// any sectors may be there. Where the first place without a valid record is
// the end of the log if nothing but zeros follows, and otherwise:
//
//	batch 1   batch 2   batch 3
//	[s e e]   [s e x]   [s . e]     x was written whole: batch 3 was begun only
//	                                after batch 2 had been synced. Corruption.
//
//	batch 1   batch 2   batch 3
//	[s e e]   [s e e]   [s x e]     A later record of the same batch says nothing:
//	                                sectors come in any order. A torn tail.
//
// What is left to decide by is therefore where the batch of a valid record
// starts, which every record tells: behind the damage, or before it.
type replay struct {
	sum   checksum
	visit func(*segment, int, record) // sees every accepted record and its place; may be nil

	state    raft.PersistentState // without a snapshot
	batch    uint64               // the number of the last batch, 0 before the first
	segments logSegments

	// What stands before the first segment that is left has been forgotten, so
	// where the log begins is told by its lowest entry: state.Start is that place.
	// A Reset ends this.
	headless bool

	// Of the segment that was read last, in bytes from its beginning.
	start int    // of its last batch; 0 if it has none
	end   int    // of its last record
	torn  string // what is wrong behind end; "" if only zeros follow
}

// readLog replays all segments of a directory and also returns the last one.
// names are the directory's. It changes nothing. Whether there is a snapshot for
// what the log has forgotten is a question of readState.
func readLog(fsys FS, dir string, names []string, store raft.StoreID, visit func(*segment, int, record)) (*replay, *segment, error) {
	r := &replay{sum: newChecksum(store), visit: visit}
	sequences := segmentSequences(names)
	if len(sequences) == 0 {
		return nil, nil, &CorruptError{filepath.Join(dir, segmentName(1)), 0, "it is missing"}
	}
	r.headless = sequences[0] != 1
	var seg *segment
	for i, sequence := range sequences {
		before := seg
		var err error
		if seg, err = readSegment(fsys, dir, sequence, sequences[0]+uint64(i), store); err != nil {
			return nil, nil, err
		}
		if before == nil && r.headless {
			r.batch = seg.firstBatch - 1
		}
		if seg.firstBatch != r.batch+1 {
			if before == nil {
				return nil, nil, &CorruptError{seg.file, 0, "the first segment does not begin with the first batch"}
			}
			return nil, nil, &CorruptError{before.file, int64(r.end), fmt.Sprintf("batch %d is missing", r.batch+1)}
		}
		r.segments = append(r.segments, logSegment{sequence, noEntry})
		if err := r.segment(seg, i == len(sequences)-1); err != nil {
			return nil, nil, err
		}
	}
	return r, seg, nil
}

// segment is a segment in memory.
type segment struct {
	segmentInfo
	file  string // its path
	bytes []byte
}

func readSegment(fsys FS, dir string, sequence, expected uint64, store raft.StoreID) (*segment, error) {
	if sequence != expected {
		return nil, &CorruptError{filepath.Join(dir, segmentName(expected)), 0, "it is missing"}
	}
	file := filepath.Join(dir, segmentName(sequence))
	b, err := readFile(fsys, file)
	if err != nil {
		return nil, err
	}
	info, err := parseSegment(file, b)
	if err != nil {
		return nil, err
	}
	if info.sequence != sequence {
		return nil, &CorruptError{file, 16, fmt.Sprintf("it is segment %d under another name", info.sequence)}
	}
	if info.store != store {
		return nil, &CorruptError{file, 32, "it belongs to another data directory"}
	}
	return &segment{info, file, b}, nil
}

// segmentSequences returns the sequence numbers of the segments among names, in order.
func segmentSequences(names []string) []uint64 {
	var sequences []uint64
	for _, name := range names {
		if sequence, ok := segmentSequence(name); ok {
			sequences = append(sequences, sequence)
		}
	}
	slices.Sort(sequences)
	return sequences
}

// segment replays one segment. last tells whether no other follows.
func (r *replay) segment(s *segment, last bool) error {
	r.start, r.end, r.torn = 0, segmentHeader, ""
	damage := ""
	for r.end < len(s.bytes) {
		var rec record
		if rec, damage = r.sum.read(s.bytes[r.end:]); damage != "" {
			break
		}
		// Its checksums are right, so somebody wrote it like this. If it makes no
		// sense, no loss of power is to blame, and nothing may be cut off.
		if nonsense := r.accept(rec); nonsense != "" {
			return &CorruptError{s.file, int64(r.end), nonsense}
		}
		if r.visit != nil {
			r.visit(s, r.end, rec)
		}
		r.end += recordSize(len(rec.payload))
	}
	if isZero(s.bytes[r.end:]) {
		return nil
	}
	// A segment is begun after everything in the one before has been synced.
	if !last {
		return &CorruptError{s.file, int64(r.end), damage + ", and the log goes on in the next segment"}
	}
	if at, batch := r.laterBatch(s.bytes); at != 0 {
		return &CorruptError{s.file, int64(r.end), fmt.Sprintf("%s, and batch %d, written later, is there at offset %d", damage, batch, at)}
	}
	r.torn = damage
	return nil
}

// laterBatch looks behind the damage at r.end for a record of a batch that
// starts behind it too. Batch numbers only grow; an older one is a record that
// a client has stored as a value.
func (r *replay) laterBatch(b []byte) (at int, batch uint64) {
	r.sum.scan(b, r.end+recordAlign, func(place int, rec record) bool {
		if rec.batch > r.batch && place-rec.distance > r.end {
			at, batch = place, rec.batch
		}
		return at == 0
	})
	return at, batch
}

// accept takes in the record at r.end, or says why it cannot stand there.
func (r *replay) accept(rec record) (nonsense string) {
	if rec.reserved {
		return "reserved bytes are not zero"
	}
	switch rec.kind {
	case recordState:
		if rec.distance != 0 {
			return "a record of term and vote stands within a batch"
		}
		if rec.batch != r.batch+1 {
			return fmt.Sprintf("batch %d follows batch %d", rec.batch, r.batch)
		}
		if len(rec.payload) != statePayload {
			return "a record of term and vote has another length"
		}
		r.start, r.batch = r.end, rec.batch
		r.state.CurrentTerm = raft.Term(binary.LittleEndian.Uint64(rec.payload))
		r.state.VotedFor = raft.ServerID(binary.LittleEndian.Uint64(rec.payload[8:]))
		return ""
	case recordEntry, recordReset:
		if r.start == 0 || rec.batch != r.batch || rec.distance != r.end-r.start {
			return "a record stands in another place than it was written to"
		}
		if rec.kind == recordReset {
			return r.acceptReset(rec.payload)
		}
		return r.acceptEntry(rec.payload)
	}
	return fmt.Sprintf("a record has the unknown type %d", rec.kind)
}

func (r *replay) acceptReset(payload []byte) (nonsense string) {
	if len(payload) != resetPayload {
		return "a reset has another length"
	}
	if isZero(payload[:8]) {
		return "a reset to index 0"
	}
	r.state.Start = raft.LogPosition{
		Index: raft.Index(binary.LittleEndian.Uint64(payload)),
		Term:  raft.Term(binary.LittleEndian.Uint64(payload[8:])),
	}
	r.state.Entries, r.headless = nil, false
	r.segments.wrote(anyIndex)
	return ""
}

func (r *replay) acceptEntry(payload []byte) (nonsense string) {
	index, e, err := decodeEntry(payload)
	if err != nil {
		return "an entry cannot be decoded"
	}
	start, last := r.state.Start.Index, r.lastIndex()
	switch {
	case index != 0 && r.headless && (start == 0 || index <= start):
		r.state.Start, r.state.Entries = raft.LogPosition{Index: index, Term: e.Term}, nil
	case index <= start || index > last+1:
		return fmt.Sprintf("entry %d follows entry %d", index, last)
	default:
		// The entry voids everything at and after its index: that is how a log is cut.
		r.state.Entries = append(r.state.Entries[:index-start-1], e)
	}
	r.segments.wrote(index)
	return ""
}

func (r *replay) lastIndex() raft.Index {
	return r.state.Start.Index + raft.Index(len(r.state.Entries))
}

// decodeEntry reads the payload of an entry record. The command is a copy, so
// that one short entry does not keep a whole segment in memory.
func decodeEntry(payload []byte) (raft.Index, raft.LogEntry, error) {
	if len(payload) < 8 {
		return 0, raft.LogEntry{}, raft.ErrBadEntry
	}
	e, err := raft.DecodeEntry(slices.Clone(payload[8:]))
	return raft.Index(binary.LittleEndian.Uint64(payload)), e, err
}

// repair makes sure of what replay found in the last segment, and cuts off what
// is behind it: it writes the last batch once more, as it was read, and zeros
// over the torn tail.
//
// Why write again what is there: it may be in the memory of the operating
// system only. The process may have died before its sync, or the sync failed
// and the system has forgotten that the bytes are not on the disk. The server
// is about to act on them.
//
// Why zeros: a later batch written over a torn one must not find old records
// behind its end.
func (r *replay) repair(f File, b []byte) error {
	from := r.start
	if from == 0 {
		from = r.end
	}
	to := len(b)
	for to > r.end && b[to-1] == 0 {
		to--
	}
	again := slices.Clone(b[from:to])
	clear(again[r.end-from:])
	if _, err := f.WriteAt(again, int64(from)); err != nil {
		return err
	}
	return f.Sync()
}
