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
//	             settings            window, session bytes, value bytes; from version 2 on
//	                                 also retention, sessions, keys; in version 3 also
//	                                 how duplicates are answered, 1: numbers
//	             open session        nothing
//	             put, append         key, value: texts
//	             compare-and-set     key, compare value, value: texts
//	             delete, get         key: text
//	             close session       nothing; version 2
//	             mark                nothing; version 2
//	             batch               how many operations: a number; for each: client,
//	                                 request, acked (only if request > 0), kind,
//	                                 operation, condition; version 2
//	condition  of a write, from version 2 on: 1 byte, 0 for none, 1 if the key must be
//	           absent (compare-and-set), 2 if it must have a version: a number
//
// A command has the oldest version that can say it. So two programs of different
// age either read the same in it, or the older one stops; and commands of before
// keep their bytes and their fingerprints. Version 2 has all that is marked so
// above, and Idempotency-Keys; version 3 has settings by which duplicates are only
// reported, and batches with an Idempotency-Key. A kind that a version does not have is unknown in
// it, also for a program that has it in a newer one: what an older program has
// refused must be refused for ever.
//
// The fingerprint covers everything from the kind on, but for a condition of 0:
// whether a write has come alone or in a batch makes no other request.
const newestVersion = 3

// lastKind is the last kind that each version has.
var lastKind = [newestVersion + 1]Kind{1: KindGet, 2: KindMark, 3: KindMark}

// The conditions.
const (
	conditionNone    = 0
	conditionAbsent  = 1
	conditionVersion = 2
)

// How duplicates are answered; what older versions do, which do not say it, is 0.
const duplicatesReported = 1

// version returns the oldest version that can say c.
func (c *Command) version() byte {
	switch {
	case c.Settings.ReportDuplicates, c.Kind == KindBatch && c.isKeyed():
		return 3
	case c.Kind > lastKind[1], c.Settings.hasLifetimes(), c.isKeyed(), c.conditional():
		return 2
	}
	return 1
}

// ErrNewerVersion reports a command or a snapshot that a newer program wrote. The
// server must stop: to skip it is to become different from the others. It comes
// wrapped in a text that says which version it is.
var ErrNewerVersion = errors.New("a newer program has written this; replace raftkv by a newer one")

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
	room := c.room()
	for i := range c.Operations {
		room += c.Operations[i].room()
	}
	b := make([]byte, 0, room)
	b = append(b, c.version())
	b = binary.AppendUvarint(b, uint64(c.Stamp))
	b = c.appendRequest(b)
	if c.RequestID == 0 {
		b = append(b, c.Nonce[:]...)
	}
	b = c.appendOperation(b)
	if c.Kind.isWrite() && c.version() > 1 {
		b = c.appendCondition(b)
	}
	return b
}

// room is about how many bytes c takes, and seldom less.
func (c *Command) room() int {
	return 32 + len(c.ClientID) + len(c.Key) + len(c.Value) + len(c.CompareValue)
}

// appendRequest appends who asks.
func (c *Command) appendRequest(b []byte) []byte {
	b = appendText(b, string(c.ClientID))
	b = binary.AppendUvarint(b, c.RequestID)
	if c.RequestID > 0 {
		b = binary.AppendUvarint(b, c.AckedThrough)
	}
	return b
}

// appendOperation appends what the command does, without who asked for it.
func (c *Command) appendOperation(b []byte) []byte {
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
		if c.Settings.ReportDuplicates {
			b = binary.AppendUvarint(b, duplicatesReported)
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
	case KindBatch:
		b = binary.AppendUvarint(b, uint64(len(c.Operations)))
		for i := range c.Operations {
			o := &c.Operations[i]
			b = o.appendRequest(b)
			b = o.appendOperation(b)
			if o.Kind.isWrite() {
				b = o.appendCondition(b)
			}
		}
	}
	return b
}

func (c *Command) appendCondition(b []byte) []byte {
	switch {
	case c.ExpectAbsent:
		return append(b, conditionAbsent)
	case c.IfVersion != nil:
		return binary.AppendUvarint(append(b, conditionVersion), *c.IfVersion)
	}
	return append(b, conditionNone)
}

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// Decode reads a command that fills all of b. The result shares no memory with
// b; its texts share theirs, so who keeps one for long keeps a copy. The error is ErrNewerVersion, or another for bytes that Encode does not
// produce. A command of a kind that this program does not know comes with its
// stamp all the same.
func Decode(b []byte) (Command, error) {
	r := reader{all: string(b)}
	version := r.byte()
	switch {
	case r.bad || version == 0:
		return Command{}, errMalformed
	case version > newestVersion:
		return Command{}, fmt.Errorf("machine: a command of version %d, and this program knows versions up to %d: %w", version, newestVersion, ErrNewerVersion)
	}
	c := Command{Stamp: LogTime(r.number())}
	r.request(&c)
	if c.RequestID == 0 {
		copy(c.Nonce[:], r.bytes(uint64(len(c.Nonce))))
	}
	c.Kind = Kind(r.byte())
	if r.bad {
		return Command{}, errMalformed
	}
	if c.Kind == 0 || c.Kind > lastKind[version] {
		return Command{Stamp: c.Stamp}, errUnknownKind
	}
	r.operation(&c, version)
	if r.bad || r.left() > 0 || c.version() != version {
		return Command{}, errMalformed
	}
	if err := c.check(); err != nil {
		return Command{}, err
	}
	return c, nil
}

func (r *reader) request(c *Command) {
	c.ClientID, c.RequestID = api.ClientID(r.text()), r.number()
	if c.RequestID > 0 {
		c.AckedThrough = r.number()
	}
}

func (r *reader) operation(c *Command, version byte) {
	switch c.Kind {
	case KindSettings:
		c.Settings = Settings{Window: r.number(), SessionBytes: r.number(), ValueBytes: r.number()}
		if version > 1 {
			c.Settings.RetentionMillis, c.Settings.MaxSessions, c.Settings.MaxKeys = r.number(), r.number(), r.number()
		}
		if version > 2 {
			c.Settings.ReportDuplicates = r.number() == duplicatesReported
		}
	case KindPut, KindAppend:
		c.Key, c.Value = r.text(), r.text()
	case KindCAS:
		c.Key, c.CompareValue, c.Value = r.text(), r.text(), r.text()
	case KindDelete, KindGet:
		c.Key = r.text()
	case KindBatch:
		r.operations(c, version)
	}
	if c.Kind.isWrite() && version > 1 {
		r.condition(c)
	}
}

func (r *reader) operations(c *Command, version byte) {
	count := r.number()
	if count > MaxBatchOperations || count > uint64(r.left()) {
		r.bad = true
		return
	}
	c.Operations = make([]Command, count)
	for i := range c.Operations {
		o := &c.Operations[i]
		r.request(o)
		o.Kind = Kind(r.byte())
		if o.Kind == KindBatch {
			r.bad = true // a batch of batches of batches would never end
			return
		}
		r.operation(o, version)
	}
}

func (r *reader) condition(c *Command) {
	switch r.byte() {
	case conditionNone:
	case conditionAbsent:
		c.ExpectAbsent = true
	case conditionVersion:
		c.IfVersion = new(r.number())
	default:
		r.bad = true
	}
}

// reader takes values one behind the other. Once something does not fit, bad is set
// and all that follows is zero, so callers check once.
type reader struct {
	all string // texts are parts of it: a copy for all of them
	at  int    // so much has been read
	bad bool
}

// left returns how many bytes are still to be read.
func (r *reader) left() int { return len(r.all) - r.at }

func (r *reader) bytes(n uint64) string {
	if r.bad || n > uint64(r.left()) {
		r.bad = true
		return ""
	}
	r.at += int(n)
	return r.all[r.at-int(n) : r.at]
}

func (r *reader) byte() byte {
	if b := r.bytes(1); b != "" {
		return b[0]
	}
	return 0
}

func (r *reader) number() uint64 {
	if r.left() > 0 && r.all[r.at] < 0x80 && !r.bad { // most are
		r.at++
		return uint64(r.all[r.at-1])
	}
	v, n := binary.Uvarint([]byte(r.all[r.at:min(r.at+binary.MaxVarintLen64, len(r.all))]))
	// A last byte of 0 adds nothing: the same number has a shorter form.
	if r.bad || n <= 0 || n > 1 && r.all[r.at+n-1] == 0 {
		r.bad = true
		return 0
	}
	r.at += n
	return v
}

func (r *reader) text() string { return r.bytes(r.number()) }
