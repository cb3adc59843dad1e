// Package kv is the state machine of the contenders that are libraries, and of
// the yardsticks: a map and a table of sessions, as little as exactly once allows,
// so that only what is under it differs.
package kv

import (
	"encoding/binary"
	"errors"
	"sync"
)

// Put sets Key to Value, once for each pair of Client and Request. The requests of
// a client are numbered 1, 2, 3 and so on, and come one after another.
type Put struct {
	Client, Request uint64
	Key, Value      string
}

// putHeader is what stands before a put's key: how long the rest is (4 bytes),
// Client, Request, how long the key is (2 bytes), all little endian.
const putHeader = 4 + 8 + 8 + 2

// Append adds p to an entry of the log. An entry is one put or several, each in
// the form that putHeader tells, and then key and value.
func (p Put) Append(entry []byte) []byte {
	return AppendPut(entry, p.Client, p.Request, p.Key, p.Value)
}

// AppendPut is [Put.Append] for key and value of either kind.
func AppendPut[S string | []byte](entry []byte, client, request uint64, key, value S) []byte {
	entry = binary.LittleEndian.AppendUint32(entry, uint32(putHeader-4+len(key)+len(value)))
	entry = binary.LittleEndian.AppendUint64(entry, client)
	entry = binary.LittleEndian.AppendUint64(entry, request)
	entry = binary.LittleEndian.AppendUint16(entry, uint16(len(key)))
	entry = append(entry, key...)
	return append(entry, value...)
}

// Result is what a client is told of its put.
type Result struct {
	Found     bool // the key was there before
	Duplicate bool // an earlier copy of the put did it, and Found is that one's
}

// Machine is the state. Its methods may be called by several goroutines.
type Machine struct {
	mu       sync.RWMutex
	data     map[string]string
	sessions map[uint64]session // by Client
}

// session is what is remembered of a client: its newest request.
type session struct {
	last  uint64
	found bool
}

// New returns a machine without keys.
func New() *Machine {
	return &Machine{data: map[string]string{}, sessions: map[uint64]session{}}
}

var errEntry = errors.New("kv: the entry is cut short")

// Apply carries out the puts of an entry in their order and returns the result of
// the last one. An error says that the entry is none; then the rest is not done.
func (m *Machine) Apply(entry []byte) (Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var r Result
	for len(entry) > 0 {
		if len(entry) < putHeader {
			return Result{}, errEntry
		}
		end := 4 + int(binary.LittleEndian.Uint32(entry))
		value := putHeader + int(binary.LittleEndian.Uint16(entry[putHeader-2:]))
		if end > len(entry) || value > end {
			return Result{}, errEntry
		}
		client, request := binary.LittleEndian.Uint64(entry[4:]), binary.LittleEndian.Uint64(entry[12:])
		r = m.put(client, request, string(entry[putHeader:value]), string(entry[value:end]))
		entry = entry[end:]
	}
	return r, nil
}

func (m *Machine) put(client, request uint64, key, value string) Result {
	if s, known := m.sessions[client]; known && request <= s.last {
		return Result{Found: s.found, Duplicate: true}
	}
	_, found := m.data[key]
	m.data[key] = value
	m.sessions[client] = session{last: request, found: found}
	return Result{Found: found}
}

// Get returns what a key holds.
func (m *Machine) Get(key string) (value string, found bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	value, found = m.data[key]
	return value, found
}
