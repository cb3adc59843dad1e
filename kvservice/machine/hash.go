package machine

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"raftkv/api"
)

// Hash returns the SHA-256 of the whole state: keys, values and versions,
// sessions, settings and log time. Two machines that have applied the same
// entries have the same hash. It takes time in proportion to the state.
//
// It lists the state a second time, beside WriteSnapshot, so that what the one
// forgets the other notices.
func (m *Machine) Hash() [sha256.Size]byte {
	d := digest{h: sha256.New()}
	d.number(uint64(m.now))
	d.number(m.settings.Window)
	d.number(m.settings.SessionBytes)
	d.number(m.settings.ValueBytes)
	d.number(m.settings.RetentionMillis)
	d.number(m.settings.MaxSessions)
	d.number(m.settings.MaxKeys)
	d.number(m.store.writes)
	d.number(uint64(m.store.items.Len()))
	// The trees are scanned in the order of their keys, whatever the order in
	// which the keys came.
	m.store.items.Scan(func(e entry) bool {
		d.text(string(e.key))
		d.text(e.text())
		d.number(e.version)
		return true
	})
	d.number(uint64(m.sessions.byClient.Len()))
	m.sessions.byClient.Scan(func(id api.ClientID, s *session) bool {
		d.text(string(id))
		d.session(s)
		return true
	})
	// Last, and only if set: a program that does not know it has the same hash
	// otherwise, and raftkv check may compare servers of both ages.
	if m.settings.ReportDuplicates {
		d.flag(true)
	}
	return [sha256.Size]byte(d.h.Sum(nil))
}

// digest feeds a hash. Every text is preceded by its length, or "ab","c" and
// "a","bc" would be the same.
type digest struct{ h hash.Hash }

func (d digest) number(v uint64) {
	d.h.Write(binary.LittleEndian.AppendUint64(nil, v))
}

func (d digest) text(s string) {
	d.number(uint64(len(s)))
	d.h.Write([]byte(s))
}

func (d digest) flag(b bool) {
	if b {
		d.number(1)
	} else {
		d.number(0)
	}
}

func (d digest) session(s *session) {
	d.number(s.acked)
	d.number(s.valueBytes)
	d.number(uint64(s.lastUse))
	d.number(uint64(s.records.Len()))
	s.records.Scan(func(number uint64, r record) bool {
		d.number(number)
		d.h.Write(r.fingerprint[:])
		d.flag(r.dropped)
		d.text(string(r.result.Status))
		d.text(string(r.result.Outcome))
		d.flag(r.result.KeyFound)
		d.text(r.result.Value)
		d.number(r.result.Version)
		d.flag(r.result.Swapped)
		d.text(r.result.Error)
		return true
	})
}
