package storage

import (
	"encoding/binary"
	"hash/crc32"

	"raftkv/raft"
)

// A record in a segment, all numbers little endian:
//
//	offset  0       4       8    9        12        16      24       28        32
//	        header  payload type reserved distance  batch   payload  reserved  payload,
//	        CRC     length       (zero)   from the  number  CRC      (zero)    zeros up to
//	                                      batch's                              a multiple
//	                                      start                                of 8 bytes
//
// A header is believed only if its checksum is right, its length included; and
// a payload only if its own is. Both checksums are seeded with the store id, so
// that a record of another directory is no record here.
const (
	recordHeader = 32 // bytes
	recordAlign  = 8  // bytes; a scan finds the next record without knowing a length
)

// recordType says what a payload is. 0 is no record: untouched space is zero.
type recordType uint8

const (
	// Term and vote, 8 bytes each: the first record of every batch.
	recordState recordType = 1
	// An index of 8 bytes and the bytes of raft.LogEntry.AppendTo. The entry
	// replaces everything in the log from its index on.
	recordEntry recordType = 2
	// An index and a term, 8 bytes each: a Reset. Nothing of the log before it
	// counts any more; it goes on behind that place.
	recordReset recordType = 3
)

const (
	statePayload = 16 // bytes
	resetPayload = 16
)

// record is a record whose checksums are right. Its payload shares the memory
// it was read from.
type record struct {
	kind     recordType
	distance int // from the start of the batch to this record, in bytes
	batch    uint64
	reserved bool // whether a byte that should be zero is not
	payload  []byte
}

// recordSize returns how many bytes a record with a payload of n bytes takes.
func recordSize(n int) int {
	return (recordHeader + n + recordAlign - 1) / recordAlign * recordAlign
}

// checksum is CRC32C, begun with the store id.
type checksum uint32

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func newChecksum(store raft.StoreID) checksum {
	return checksum(crc32.Checksum(store[:], castagnoli))
}

func (c checksum) of(b []byte) uint32 { return crc32.Update(uint32(c), castagnoli, b) }

// batchWriter encodes the records of one batch, one behind the other.
type batchWriter struct {
	sum    checksum
	number uint64
	bytes  []byte
}

func (w *batchWriter) state(term raft.Term, vote raft.ServerID) {
	at := w.begin()
	w.bytes = binary.LittleEndian.AppendUint64(w.bytes, uint64(term))
	w.bytes = binary.LittleEndian.AppendUint64(w.bytes, uint64(vote))
	w.end(at, recordState)
}

func (w *batchWriter) reset(to raft.LogPosition) {
	at := w.begin()
	w.bytes = binary.LittleEndian.AppendUint64(w.bytes, uint64(to.Index))
	w.bytes = binary.LittleEndian.AppendUint64(w.bytes, uint64(to.Term))
	w.end(at, recordReset)
}

func (w *batchWriter) entry(index raft.Index, e raft.LogEntry) {
	at := w.begin()
	w.bytes = binary.LittleEndian.AppendUint64(w.bytes, uint64(index))
	w.bytes = e.AppendTo(w.bytes)
	w.end(at, recordEntry)
}

// begin leaves room for a header and returns where.
func (w *batchWriter) begin() (at int) {
	at = len(w.bytes)
	w.bytes = append(w.bytes, make([]byte, recordHeader)...)
	return at
}

// end fills in the header of the record that began at the given place.
func (w *batchWriter) end(at int, kind recordType) {
	header := w.bytes[at : at+recordHeader]
	payload := w.bytes[at+recordHeader:]
	binary.LittleEndian.PutUint32(header[4:], uint32(len(payload)))
	header[8] = byte(kind)
	binary.LittleEndian.PutUint32(header[12:], uint32(at)) // the batch starts at 0 here
	binary.LittleEndian.PutUint64(header[16:], w.number)
	binary.LittleEndian.PutUint32(header[24:], w.sum.of(payload))
	binary.LittleEndian.PutUint32(header[0:], w.sum.of(header[4:]))
	padding := recordSize(len(payload)) - recordHeader - len(payload)
	w.bytes = append(w.bytes, make([]byte, padding)...)
}

// read reads the record at the beginning of b, which may go on behind it.
// damage says why there is none; it is "" if there is one.
func (c checksum) read(b []byte) (r record, damage string) {
	r, length, damage := c.readHeader(b)
	if damage != "" {
		return record{}, damage
	}
	r.payload = b[recordHeader : recordHeader+length : recordHeader+length]
	if c.of(r.payload) != binary.LittleEndian.Uint32(b[24:]) {
		return record{}, "the checksum of the record does not match"
	}
	if !isZero(b[recordHeader+length : recordSize(length)]) {
		return record{}, "the bytes that fill up the record are not zero"
	}
	return r, ""
}

// readHeader reads all but the payload, which fits into b if damage is "".
func (c checksum) readHeader(b []byte) (r record, length int, damage string) {
	if len(b) < recordHeader {
		return record{}, 0, "the file ends within a record"
	}
	header := b[:recordHeader]
	if header[8] == 0 {
		return record{}, 0, "there is no record"
	}
	if c.of(header[4:]) != binary.LittleEndian.Uint32(header) {
		return record{}, 0, "the checksum of the record's header does not match"
	}
	n := int64(binary.LittleEndian.Uint32(header[4:]))
	if n > maxSegmentBytes || recordSize(int(n)) > len(b) {
		return record{}, 0, "the file ends within a record"
	}
	return record{
		kind:     recordType(header[8]),
		distance: int(binary.LittleEndian.Uint32(header[12:])),
		batch:    binary.LittleEndian.Uint64(header[16:]),
		reserved: !isZero(header[9:12]) || !isZero(header[28:32]),
	}, int(n), ""
}

// scan calls found for every record in b from a place on, wherever it starts,
// until found returns false.
func (c checksum) scan(b []byte, from int, found func(at int, r record) (more bool)) {
	for at := from; at+recordHeader <= len(b); {
		// A record is never empty, so its first 8 bytes, with the length, are not zero.
		if binary.LittleEndian.Uint64(b[at:]) != 0 {
			if r, damage := c.read(b[at:]); damage == "" {
				if !found(at, r) {
					return
				}
				at += recordSize(len(r.payload))
				continue
			}
		}
		at += recordAlign
	}
}

func isZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}
