package machine

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"raftkv/api"
	"raftkv/raft"
)

// A snapshot is the whole state, from which a server goes on as if it had
// applied every entry itself (§7). docs/snapshot-format.md lists its bytes.
// Like a command a state has exactly one encoding, so that servers can compare
// theirs: everything has an order, and numbers are uvarints in their shortest
// form.

// The version stands first. A newer one is refused. Version 1, whose settings have
// no lifetimes, is still read. Version 3 is for a state that version 2 cannot have:
// duplicates are only reported, or a key has the records of a batch. Any other
// state has version 2, so that servers of before can read it.
const (
	snapshotVersion       = 2
	newestSnapshotVersion = 3
)

func (m *Machine) snapshotVersion() byte {
	if m.settings.ReportDuplicates || m.sessions.keyRecords > m.IdempotencyKeys() {
		return newestSnapshotVersion
	}
	return snapshotVersion
}

// snapshotPiece is how many bytes are gathered for one write, and how many are
// believed to come before they are there.
const snapshotPiece = 64 << 10

// The flags of a recorded result.
const (
	flagDropped  = 1 << iota // only the outcome is left of it
	flagKeyFound             // Result.KeyFound
	flagSwapped              // Result.Swapped
	allFlags     = flagDropped | flagKeyFound | flagSwapped
)

// WriteSnapshot writes the state to w: keys, values and versions, sessions with
// every recorded result and their last use, settings, log time and applied
// index. Machines in the same state write the same bytes. The memory that it
// needs does not depend on the size of the state.
//
// It changes nothing. To write while m goes on, write a [Machine.Clone] of it,
// in another goroutine. The error is w's, after which nothing more is written.
// Source: §7; that sessions are part of it, §8.
func (m *Machine) WriteSnapshot(w io.Writer) error { return m.write(w, m.store.items.Scan) }

// HandOver is WriteSnapshot of a copy that nobody needs afterwards: it writes the same
// bytes, and m has no keys from then on, whether there is an error or not. What has
// been written is free at once, unless another copy has it. As the original goes on
// it replaces what the two share, and the old of it would else stay in memory until
// the last byte is written. Sessions stay till then: they are written last, and fast.
func (m *Machine) HandOver(w io.Writer) error { return m.write(w, m.store.items.Drain) }

// write writes the state; items calls its argument for each item.
func (m *Machine) write(w io.Writer, items func(func(entry) bool)) error {
	out := snapshotWriter{bufio.NewWriterSize(w, snapshotPiece)}
	version := m.snapshotVersion()
	out.WriteByte(version)
	out.number(uint64(m.appliedIndex))
	out.number(uint64(m.now))
	out.number(m.settings.Window)
	out.number(m.settings.SessionBytes)
	out.number(m.settings.ValueBytes)
	out.number(m.settings.RetentionMillis)
	out.number(m.settings.MaxSessions)
	out.number(m.settings.MaxKeys)
	if version > 2 {
		out.flag(m.settings.ReportDuplicates)
	}
	out.number(m.store.writes)
	out.number(uint64(m.store.items.Len()))
	items(out.item)
	out.number(uint64(m.sessions.byClient.Len()))
	m.sessions.byClient.Scan(func(id api.ClientID, s *session) bool {
		out.text(string(id))
		out.session(s)
		return true
	})
	return out.Flush()
}

// snapshotWriter writes values behind each other. A bufio.Writer remembers the
// first error, does nothing from then on, and tells at the Flush.
type snapshotWriter struct{ *bufio.Writer }

func (out snapshotWriter) number(v uint64) {
	out.Write(binary.AppendUvarint(out.AvailableBuffer(), v))
}

func (out snapshotWriter) text(s string) {
	out.number(uint64(len(s)))
	out.WriteString(s)
}

func (out snapshotWriter) bytes(b []byte) {
	out.number(uint64(len(b)))
	out.Write(b)
}

func (out snapshotWriter) flag(set bool) {
	if set {
		out.number(1)
	} else {
		out.number(0)
	}
}

// item writes an item in one piece: there are many, and five pieces take longer. It
// returns false if that is in vain.
func (out snapshotWriter) item(e entry) bool {
	if e.large != "" {
		out.bytes(e.key)
		out.text(e.large)
		out.number(e.version)
		return true
	}
	// It is put together in the buffer, where it fits into what is free after this.
	if out.Available() < headerBytes+len(e.key)+len(e.value) && out.Flush() != nil {
		return false
	}
	b := binary.AppendUvarint(out.AvailableBuffer(), uint64(len(e.key)))
	b = append(b, e.key...)
	b = binary.AppendUvarint(b, uint64(len(e.value)))
	b = append(b, e.value...)
	out.Write(binary.AppendUvarint(b, e.version))
	return true
}

func (out snapshotWriter) session(s *session) {
	out.number(s.acked)
	out.number(uint64(s.lastUse))
	out.number(uint64(s.records.Len()))
	s.records.Scan(func(number uint64, r record) bool {
		out.number(number)
		out.record(r)
		return true
	})
}

func (out snapshotWriter) record(r record) {
	out.Write(append(out.AvailableBuffer(), r.fingerprint[:]...)) // r stays on the stack
	var flags byte
	if r.dropped {
		flags |= flagDropped
	}
	if r.result.KeyFound {
		flags |= flagKeyFound
	}
	if r.result.Swapped {
		flags |= flagSwapped
	}
	out.WriteByte(flags)
	out.text(string(r.result.Outcome))
	if r.dropped {
		return
	}
	out.text(string(r.result.Status))
	out.text(r.result.Value)
	out.number(r.result.Version)
	out.text(r.result.Error)
}

// ReadSnapshot reads what WriteSnapshot wrote, to the end of r. The machine is
// in the state of the one that was written: it has the same hash, gives the same
// answers and takes in the entry after the same index.
//
// The error is ErrNewerVersion, or wraps r's error (io.ErrUnexpectedEOF if the
// snapshot has been cut off), or is another for bytes that WriteSnapshot does not
// produce. It finds everything that would break an invariant, but a letter
// changed in a value it cannot see; whoever stores a snapshot adds a checksum.
// Whatever r holds, memory is used only for bytes that have come.
func ReadSnapshot(r io.Reader) (*Machine, error) {
	in := snapshotReader{r: bufio.NewReaderSize(r, snapshotPiece)}
	version := in.byte()
	switch {
	case in.err == nil && version > newestSnapshotVersion:
		return nil, fmt.Errorf("machine: a snapshot of version %d, and this program knows versions up to %d: %w", version, newestSnapshotVersion, ErrNewerVersion)
	case in.err == nil && version == 0:
		in.refuse("it has no version")
	}
	m := New()
	m.appliedIndex = raft.Index(in.number())
	m.now = LogTime(in.number())
	m.settings = Settings{Window: in.number(), SessionBytes: in.number(), ValueBytes: in.number()}
	if version > 1 {
		m.settings.RetentionMillis, m.settings.MaxSessions, m.settings.MaxKeys = in.number(), in.number(), in.number()
	}
	if version > 2 {
		m.settings.ReportDuplicates = in.flag()
	}
	if m.settings != (Settings{}) && !m.settings.complete() {
		in.refuse("its settings are incomplete")
	}
	in.store(&m.store)
	in.sessions(m)
	if !m.settings.complete() && (m.store.writes > 0 || m.store.items.Len() > 0 || m.sessions.byClient.Len() > 0) {
		in.refuse("something was written before the settings")
	}
	if needed := m.snapshotVersion(); needed != version && (needed > 2 || version > 2) {
		in.refuse("a state of version %d stands under version %d", needed, version)
	}
	in.end()
	if in.err != nil {
		return nil, in.err
	}
	return m, nil
}

// snapshotReader takes values from the front of r. Once something does not fit,
// err is set and all that follows is zero, so callers check at the end of a loop.
type snapshotReader struct {
	r   *bufio.Reader
	buf []byte // the last text
	err error
}

// refuse gives a reason why this is not a snapshot. The first one counts.
func (in *snapshotReader) refuse(format string, args ...any) {
	if in.err == nil {
		in.err = fmt.Errorf("machine: not a snapshot: "+format, args...)
	}
}

// failed takes an error from r.
func (in *snapshotReader) failed(err error) {
	switch {
	case in.err != nil:
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		in.err = fmt.Errorf("machine: the snapshot has been cut off: %w", io.ErrUnexpectedEOF)
	default:
		in.err = fmt.Errorf("machine: reading a snapshot: %w", err)
	}
}

func (in *snapshotReader) byte() byte {
	if in.err != nil {
		return 0
	}
	b, err := in.r.ReadByte()
	if err != nil {
		in.failed(err)
	}
	return b
}

func (in *snapshotReader) number() uint64 {
	if in.err != nil {
		return 0
	}
	b, err := in.r.Peek(binary.MaxVarintLen64)
	v, n := binary.Uvarint(b)
	switch {
	case n == 0:
		in.failed(err) // fewer bytes than a number has, so there is an error
		return 0
	case n < 0, n > 1 && b[n-1] == 0:
		in.refuse("a number is not in its shortest form")
		return 0
	}
	in.r.Discard(n)
	return v
}

func (in *snapshotReader) flag() bool {
	v := in.number()
	if v > 1 {
		in.refuse("a flag is %d", v)
	}
	return v == 1
}

func (in *snapshotReader) fill(b []byte) {
	if in.err != nil {
		return
	}
	if _, err := io.ReadFull(in.r, b); err != nil {
		in.failed(err)
	}
}

// text believes a length piece by piece. The first thing that a damaged length
// would do otherwise is to ask for all the memory there is.
func (in *snapshotReader) text() string {
	in.buf = in.buf[:0]
	for left := in.number(); left > 0; {
		from := len(in.buf)
		piece := min(left, snapshotPiece)
		in.buf = slices.Grow(in.buf, int(piece))[:from+int(piece)]
		if in.fill(in.buf[from:]); in.err != nil {
			return ""
		}
		left -= piece
	}
	return string(in.buf)
}

func (in *snapshotReader) store(s *DataStore) {
	s.writes = in.number()
	loader := newItemLoader()
	last := ""
	for n, count := uint64(0), in.number(); n < count && in.err == nil; n++ {
		key := in.text()
		i := item{value: in.text(), version: in.number()}
		if n > 0 && key <= last {
			in.refuse("key %d of %d is not above the one before it", n+1, count)
		}
		if i.version == 0 || i.version > s.writes {
			in.refuse("key %d of %d has version %d after %d writes", n+1, count, i.version, s.writes)
		}
		loader.add(key, i)
		last = key
	}
	s.items = loader.done()
}

func (in *snapshotReader) sessions(m *Machine) {
	last := api.ClientID("")
	for n, count := uint64(0), in.number(); n < count && in.err == nil; n++ {
		id := api.ClientID(in.text())
		// Nobody has the empty id, so the first one is above it, too.
		if id <= last {
			in.refuse("client %d of %d is not above the one before it", n+1, count)
		}
		s := in.session(m)
		m.sessions.byClient.Load(id, s)
		m.sessions.byUse[classOf(id)].Set(use{s.lastUse, id})
		if IsKey(id) {
			m.sessions.keyRecords += s.records.Len()
		}
		last = id
	}
}

func (in *snapshotReader) session(m *Machine) *session {
	s := &session{
		acked:   in.number(),
		lastUse: LogTime(in.number()),
	}
	last := s.acked
	for n, count := uint64(0), in.number(); n < count && in.err == nil; n++ {
		number := in.number()
		if number <= last || number-s.acked > m.settings.Window {
			in.refuse("request %d stands behind %d of a client that has acknowledged %d", number, last, s.acked)
		}
		r := in.record()
		s.records.Set(number, r)
		s.valueBytes += r.valueBytes()
		last = number
	}
	s.place = s.lastUse
	if s.lastUse > m.now {
		in.refuse("a session was last used at %d, and it is %d", s.lastUse, m.now)
	}
	if s.valueBytes > m.settings.SessionBytes {
		in.refuse("a session has %d bytes of recorded values", s.valueBytes)
	}
	return s
}

func (in *snapshotReader) record() (r record) {
	in.fill(r.fingerprint[:])
	flags := in.byte()
	r.dropped = flags&flagDropped != 0
	r.result = Result{
		Outcome:  api.Outcome(in.text()),
		KeyFound: flags&flagKeyFound != 0,
		Swapped:  flags&flagSwapped != 0,
	}
	if flags > allFlags || r.dropped && flags != flagDropped {
		in.refuse("a result has the flags %#x", flags)
	}
	if r.dropped {
		return r
	}
	r.result.Status = api.Status(in.text())
	r.result.Value = in.text()
	r.result.Version = in.number()
	r.result.Error = in.text()
	return r
}

// end demands that nothing follows.
func (in *snapshotReader) end() {
	if in.err != nil {
		return
	}
	switch _, err := in.r.ReadByte(); {
	case err == nil:
		in.refuse("more bytes follow")
	case err != io.EOF:
		in.failed(err)
	}
}
