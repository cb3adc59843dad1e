package raft

import (
	"encoding/binary"
	"errors"
)

// The bytes of an entry: term (8, little endian), kind (1), command (the rest).
// raft/storage and raft/transport both put exactly these bytes behind a length
// of their own, so an entry looks the same in a log file and on the wire.
const entryHeader = 9

// ErrBadEntry reports bytes that are no entry.
var ErrBadEntry = errors.New("raft: not an encoded entry")

// EncodedSize returns how many bytes AppendTo adds.
func (e LogEntry) EncodedSize() int { return entryHeader + len(e.Command) }

// AppendTo appends the entry's bytes to b and returns the longer slice.
func (e LogEntry) AppendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(e.Term))
	b = append(b, byte(e.Kind))
	return append(b, e.Command...)
}

// DecodeEntry reads the entry that fills all of b. Its command shares b's
// memory, which must not change afterwards. Unknown kinds are ErrBadEntry, and
// what claims to be a configuration and is none is ErrBadConfiguration.
func DecodeEntry(b []byte) (LogEntry, error) {
	if len(b) < entryHeader || b[8] > byte(EntryConfiguration) {
		return LogEntry{}, ErrBadEntry
	}
	e := LogEntry{Term: Term(binary.LittleEndian.Uint64(b)), Kind: EntryKind(b[8])}
	if e.Kind == EntryConfiguration {
		if _, err := DecodeConfiguration(b[entryHeader:]); err != nil {
			return LogEntry{}, err
		}
	}
	if len(b) > entryHeader || e.Kind == EntryCommand {
		e.Command = b[entryHeader:len(b):len(b)]
	}
	return e, nil
}
