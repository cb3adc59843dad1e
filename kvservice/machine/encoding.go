package machine

import (
	"encoding/binary"
	"errors"
	"fmt"

	"raftkv/api"
)

// The bytes of a command. Numbers are uvarints in their shortest form, texts a
// uvarint length and the bytes, so a command has exactly one encoding.
//
//	version    1 byte
//	stamp      number
//	client     text
//	request    number
//	acked      number      only if request > 0
//	nonce      16 bytes    only if request = 0
//	kind       1 byte
//	operation  depends on kind:
//	             settings            window, session bytes, value bytes; in version 2
//	                                 also retention, sessions, keys: numbers
//	             open session        nothing
//	             close session       nothing; version 2
//	             put, append         key, value: texts
//	             compare-and-set     key, compare value, value: texts
//	             delete, get         key: text
//
// A command has the oldest version that can say it. So two programs of different
// age either read the same in it, or the older one stops; and commands of before
// keep their bytes and their fingerprints. Version 2 has all that is marked so
// above, and Idempotency-Keys. A kind that a version does not have is unknown in
// it, also for a program that has it in a newer one: what an older program has
// refused must be refused for ever.
//
// The fingerprint covers everything from the kind on.
const newestVersion = 2

// lastKind is the last kind that each version has.
var lastKind = [newestVersion + 1]Kind{1: KindGet, 2: KindCloseSession}

// version returns the oldest version that can say c.
func (c Command) version() byte {
	if c.Kind > lastKind[1] || c.Settings.hasLifetimes() || IsKey(c.ClientID) {
		return 2
	}
	return 1
}

// ErrNewerVersion reports a command or a snapshot that a newer program wrote. The
// server must stop: to skip it is to become different from the others.
var ErrNewerVersion = errors.New("machine: a newer program has written this command or snapshot; this program must be replaced by a newer one")

var (
	errMalformed   = errors.New("machine: not an encoded command")
	errUnknownKind = errors.New("machine: unknown kind of command")
)

// Encode returns the bytes of c for the log. It panics if the fields of c contradict each
// other: a command that every server would refuse must not get into a log.
func (c Command) Encode() []byte {
	if err := c.check(); err != nil {
		panic(fmt.Sprintf("%v: kind %d, client %q, request %d, acked through %d", err, c.Kind, c.ClientID, c.RequestID, c.AckedThrough))
	}
	b := make([]byte, 0, 64+len(c.ClientID)+len(c.Key)+len(c.Value)+len(c.CompareValue))
	b = append(b, c.version())
	b = binary.AppendUvarint(b, uint64(c.Stamp))
	b = appendText(b, string(c.ClientID))
	b = binary.AppendUvarint(b, c.RequestID)
	if c.RequestID > 0 {
		b = binary.AppendUvarint(b, c.AckedThrough)
	} else {
		b = append(b, c.Nonce[:]...)
	}
	return c.appendOperation(b)
}

// appendOperation appends what the command does, without who asked for it.
func (c Command) appendOperation(b []byte) []byte {
	b = append(b, byte(c.Kind))
	switch c.Kind {
	case KindSettings:
		b = binary.AppendUvarint(b, c.Settings.Window)
		b = binary.AppendUvarint(b, c.Settings.SessionBytes)
		b = binary.AppendUvarint(b, c.Settings.ValueBytes)
		if c.Settings.hasLifetimes() {
			b = binary.AppendUvarint(b, c.Settings.RetentionMillis)
			b = binary.AppendUvarint(b, c.Settings.MaxSessions)
			b = binary.AppendUvarint(b, c.Settings.MaxKeys)
		}
	case KindPut, KindAppend:
		b = appendText(b, c.Key)
		b = appendText(b, c.Value)
	case KindCAS:
		b = appendText(b, c.Key)
		b = appendText(b, c.CompareValue)
		b = appendText(b, c.Value)
	case KindDelete, KindGet:
		b = appendText(b, c.Key)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// Decode reads a command that fills all of b. The result shares no memory with
// b. The error is ErrNewerVersion, or another for bytes that Encode does not
// produce. A command of a kind that this program does not know comes with its
// stamp all the same.
func Decode(b []byte) (Command, error) {
	r := reader{b: b}
	version := r.byte()
	switch {
	case r.bad || version == 0:
		return Command{}, errMalformed
	case version > newestVersion:
		return Command{}, ErrNewerVersion
	}
	c := Command{
		Stamp:     LogTime(r.number()),
		ClientID:  api.ClientID(r.text()),
		RequestID: r.number(),
	}
	if c.RequestID > 0 {
		c.AckedThrough = r.number()
	} else {
		copy(c.Nonce[:], r.bytes(uint64(len(c.Nonce))))
	}
	c.Kind = Kind(r.byte())
	if r.bad {
		return Command{}, errMalformed
	}
	if c.Kind == 0 || c.Kind > lastKind[version] {
		return Command{Stamp: c.Stamp}, errUnknownKind
	}
	switch c.Kind {
	case KindSettings:
		c.Settings = Settings{Window: r.number(), SessionBytes: r.number(), ValueBytes: r.number()}
		if version > 1 {
			c.Settings.RetentionMillis, c.Settings.MaxSessions, c.Settings.MaxKeys = r.number(), r.number(), r.number()
		}
	case KindPut, KindAppend:
		c.Key, c.Value = r.text(), r.text()
	case KindCAS:
		c.Key, c.CompareValue, c.Value = r.text(), r.text(), r.text()
	case KindDelete, KindGet:
		c.Key = r.text()
	}
	if r.bad || len(r.b) > 0 || c.version() != version {
		return Command{}, errMalformed
	}
	if err := c.check(); err != nil {
		return Command{}, err
	}
	return c, nil
}

// reader takes values from the front of b. Once something does not fit, bad is
// set and all that follows is zero, so callers check once.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) bytes(n uint64) []byte {
	if r.bad || n > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	taken := r.b[:n]
	r.b = r.b[n:]
	return taken
}

func (r *reader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.b)
	// A last byte of 0 adds nothing: the same number has a shorter form.
	if r.bad || n <= 0 || n > 1 && r.b[n-1] == 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) text() string { return string(r.bytes(r.number())) }
