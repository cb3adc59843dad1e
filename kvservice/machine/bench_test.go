package machine

import (
	"fmt"
	"testing"

	"raftkv/api"
	"raftkv/raft"
)

// One client with 256 calls in flight writes 128-byte values to 1000 keys.
func BenchmarkApply(b *testing.B) {
	m := New()
	apply := func(c Command) {
		if _, err := m.Apply(raft.CommitEntry{Index: m.AppliedIndex() + 1, Command: c.Encode()}); err != nil {
			b.Fatal(err)
		}
	}
	apply(Command{Kind: KindSettings, Settings: DefaultSettings()})
	apply(Command{Kind: KindOpenSession, ClientID: issued('C')})
	value := fmt.Sprintf("%0128d", 0)
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprint("key ", i)
	}
	b.ReportAllocs()
	var number uint64
	for b.Loop() {
		number++
		apply(Command{
			Kind: KindPut, ClientID: issued('C'), RequestID: number, AckedThrough: max(256, number) - 256,
			Key: keys[number%1000], Value: value,
		})
	}
}

// A copy of a store with 100,000 keys and 1000 sessions.
func BenchmarkClone(b *testing.B) {
	m := New()
	settings := Command{Kind: KindSettings, Settings: DefaultSettings()}
	m.Apply(raft.CommitEntry{Index: 1, Command: settings.Encode()})
	for i := range uint64(100_000) {
		c := appending(api.ClientID(fmt.Sprint("client ", i%1000)), i/1000+1, fmt.Sprint("key ", i), "value")
		m.Apply(raft.CommitEntry{Index: m.AppliedIndex() + 1, Command: c.Encode()})
	}
	b.ReportAllocs()
	for b.Loop() {
		m.Clone()
	}
}
