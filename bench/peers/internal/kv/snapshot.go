package kv

import (
	"bufio"
	"encoding/binary"
	"io"
	"maps"
)

// Copy returns the state as it is now. It takes time and memory for every key, as
// in most programs on these libraries: a map cannot be copied otherwise.
func (m *Machine) Copy() *Machine {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return &Machine{data: maps.Clone(m.data), sessions: maps.Clone(m.sessions)}
}

// Save writes a snapshot: how many keys there are, then each with its value, both
// with their lengths; the same of the sessions, in three numbers each. Numbers are
// unsigned varints.
func (m *Machine) Save(to io.Writer) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	w := bufio.NewWriterSize(to, 1<<16)
	var b []byte
	w.Write(binary.AppendUvarint(nil, uint64(len(m.data))))
	for key, value := range m.data {
		b = binary.AppendUvarint(b[:0], uint64(len(key)))
		b = append(b, key...)
		b = binary.AppendUvarint(b, uint64(len(value)))
		b = append(b, value...)
		w.Write(b)
	}
	w.Write(binary.AppendUvarint(nil, uint64(len(m.sessions))))
	for client, s := range m.sessions {
		found := uint64(0)
		if s.found {
			found = 1
		}
		b = binary.AppendUvarint(b[:0], client)
		b = binary.AppendUvarint(b, s.last)
		b = binary.AppendUvarint(b, found)
		w.Write(b)
	}
	return w.Flush() // which returns the error of any Write above
}

// Load replaces the state with one that Save has written. After an error the state
// is the old one.
func (m *Machine) Load(from io.Reader) error {
	r := loader{r: bufio.NewReaderSize(from, 1<<16)}
	data := map[string]string{}
	for range r.number() {
		key := r.text()
		data[key] = r.text()
		if r.err != nil {
			return r.err
		}
	}
	sessions := map[uint64]session{}
	for range r.number() {
		client, last, found := r.number(), r.number(), r.number()
		sessions[client] = session{last: last, found: found == 1}
		if r.err != nil {
			return r.err
		}
	}
	if r.err != nil {
		return r.err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.data, m.sessions = data, sessions
	return nil
}

// loader reads until its first error, and then nothing but zeros.
type loader struct {
	r   *bufio.Reader
	err error
}

func (l *loader) number() uint64 {
	if l.err != nil {
		return 0
	}
	var n uint64
	n, l.err = binary.ReadUvarint(l.r)
	if l.err != nil {
		return 0
	}
	return n
}

func (l *loader) text() string {
	b := make([]byte, l.number())
	if l.err == nil {
		_, l.err = io.ReadFull(l.r, b)
	}
	return string(b)
}
