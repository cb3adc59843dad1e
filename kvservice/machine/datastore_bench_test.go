package machine

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// What the operations of a store of a million keys cost, values of 100 bytes.
// Each round of a benchmark takes another key.
func BenchmarkDataStore(b *testing.B) {
	value := strings.Repeat("w", 100)
	full := million()
	run := func(name string, operation func(m *Machine, i uint64)) {
		b.Run(name, func(b *testing.B) {
			m := full.Clone()
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				operation(m, i)
			}
		})
	}
	run("get", func(m *Machine, i uint64) { m.store.get(millionKey(i)) })
	run("put", func(m *Machine, i uint64) { m.store.put(millionKey(i), value) })
	run("put new", func(m *Machine, i uint64) { m.store.put(millionKey(i)+"'", value) })
	run("delete", func(m *Machine, i uint64) { m.store.delete(millionKey(i)) })
	run("scan 100", func(m *Machine, i uint64) { m.View().Scan("", millionKey(i), 100, 1<<20) })
	run("key", func(m *Machine, i uint64) { millionKey(i) })
}

// How much of the heap a million keys of 16 bytes with values of 100 bytes take, by
// the order in which they came.
func BenchmarkHeapOfAMillionKeys(b *testing.B) {
	for _, order := range []struct {
		name string
		key  func(uint64) uint64
	}{
		{"ascending", func(i uint64) uint64 { return i }},
		{"descending", func(i uint64) uint64 { return 1_000_000 - i }},
		{"mixed", func(i uint64) uint64 { return i * 387_421 % 1_000_000 }},
	} {
		b.Run(order.name, func(b *testing.B) {
			before := heapBytes()
			var s DataStore
			for b.Loop() {
				s = newDataStore()
				for i := range uint64(1_000_000) {
					s.put(fmt.Sprintf("key %012d", order.key(i)), strings.Repeat("v", 100))
				}
			}
			b.ReportMetric(float64(heapBytes()-before)/(1<<20), "heap-MiB")
			runtime.KeepAlive(s)
		})
	}
}
