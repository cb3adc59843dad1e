package machine

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"raftkv/api"
	"raftkv/raft"
)

// One client with 256 calls in flight writes 128-byte values to 1000 keys: beside
// as many other sessions as there may be, once with the time standing still and
// once with a millisecond between two writes, so that each is a later
// use of its session.
func BenchmarkApply(b *testing.B) {
	for _, millis := range []LogTime{0, 1} {
		b.Run(fmt.Sprint("millis=", millis), func(b *testing.B) {
			m, next := benchmarkClient()
			b.ReportAllocs()
			for b.Loop() {
				applyTo(m, next().at(m.Now()+millis))
			}
		})
	}
}

// The same writes in batches of 100; the time is that of one write.
func BenchmarkApplyBatch(b *testing.B) {
	m, next := benchmarkClient()
	b.ReportAllocs()
	operations := make([]Command, 0, 100)
	for b.Loop() {
		if operations = append(operations, next()); len(operations) == cap(operations) {
			applyTo(m, Command{Kind: KindBatch, Stamp: m.Now() + 1, Operations: operations})
			operations = operations[:0]
		}
	}
}

// benchmarkClient returns a machine and what gives the client's next write.
func benchmarkClient() (m *Machine, next func() Command) {
	m = New()
	applyTo(m, Command{Kind: KindSettings, Settings: DefaultSettings()})
	applyTo(m, opening(issued('C')))
	for i := range 99_999 {
		applyTo(m, opening(NewIssuedID(text(i))))
	}
	value := fmt.Sprintf("%0128d", 0)
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprint("key ", i)
	}
	var number uint64
	return m, func() Command {
		number++
		return Command{
			Kind: KindPut, ClientID: issued('C'), RequestID: number, AckedThrough: max(256, number) - 256,
			Key: keys[number%1000], Value: value,
		}
	}
}

// A store with a million keys of 100 bytes, and 10,000 sessions.
var million = sync.OnceValue(func() *Machine {
	m := New()
	applyTo(m, Command{Kind: KindSettings, Settings: DefaultSettings()})
	for i := range uint64(1_000_000) {
		client := api.ClientID(fmt.Sprint("client ", i%10_000))
		c := Command{Kind: KindPut, ClientID: client, RequestID: i/10_000 + 1, Key: millionKey(i), Value: strings.Repeat("v", 100)}
		if c.RequestID > 8 {
			c.AckedThrough = c.RequestID - 8
		}
		applyTo(m, c)
	}
	return m
})

// millionKey spreads the keys over the tree. The number has no factor in common
// with a million, so each key comes once.
func millionKey(i uint64) string { return fmt.Sprintf("key %08d", i*387_421%1_000_000) }

func applyTo(m *Machine, c Command) {
	if _, err := m.Apply(raft.CommitEntry{Index: m.AppliedIndex() + 1, Command: c.Encode()}); err != nil {
		panic(err)
	}
}

// The time of a copy does not depend on what there is to copy.
func BenchmarkClone(b *testing.B) {
	for _, tc := range []struct {
		name string
		m    *Machine
	}{{"empty", New()}, {"million", million()}} {
		b.Run(tc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				tc.m.Clone()
			}
		})
	}
}

// How long the updater is held up: the longest of 200,000 writes to a million
// keys, alone and while one snapshot after the other is taken and written. Of
// all that, only Clone and the nodes that it makes the next writes copy are the
// updater's; the rest is the processors and the collector being shared.
func BenchmarkApplyBesideASnapshot(b *testing.B) {
	for _, snapshots := range []bool{false, true} {
		b.Run(fmt.Sprint("snapshot=", snapshots), func(b *testing.B) {
			var apply, clone time.Duration
			var all []time.Duration
			written := 0
			for b.Loop() {
				m := million().Clone()
				var writing chan error
				for i := range uint64(200_000) {
					if snapshots && (writing == nil || len(writing) > 0) {
						begin := time.Now()
						c := m.Clone()
						clone = max(clone, time.Since(begin))
						done := make(chan error, 1)
						go func() { done <- c.WriteSnapshot(io.Discard) }()
						writing = done
						written++
					}
					client := api.ClientID(fmt.Sprint("client ", i%10_000))
					c := Command{Kind: KindPut, ClientID: client, RequestID: 101 + i/10_000, AckedThrough: 93 + i/10_000, Key: millionKey(i * 7), Value: strings.Repeat("w", 100)}
					e := raft.CommitEntry{Index: m.AppliedIndex() + 1, Command: c.Encode()}
					begin := time.Now()
					m.Apply(e)
					took := time.Since(begin)
					apply = max(apply, took)
					all = append(all, took)
				}
				if writing != nil {
					<-writing
				}
			}
			slices.Sort(all)
			b.ReportMetric(float64(apply.Microseconds()), "µs-longest")
			b.ReportMetric(float64(all[len(all)/1000*999].Nanoseconds())/1000, "µs-p99.9")
			b.ReportMetric(float64(all[len(all)/2].Nanoseconds())/1000, "µs-median")
			if snapshots {
				b.ReportMetric(float64(clone.Nanoseconds())/1000, "µs-longest-clone")
				b.ReportMetric(float64(written)/float64(b.N), "snapshots")
			}
		})
	}
}

// What is on the heap beside 300,000 keys while a snapshot of them is written, as half and
// nearly all of it is, if every piece takes so long that a hundredth of the keys is
// written anew meanwhile: by a copy that keeps all that it had, and by one that is
// handed over.
func BenchmarkHeapBesideASnapshot(b *testing.B) {
	const keys = 300_000
	for _, way := range []struct {
		name  string
		write func(*Machine, io.Writer) error
	}{{"kept", (*Machine).WriteSnapshot}, {"handed over", (*Machine).HandOver}} {
		b.Run(way.name, func(b *testing.B) {
			m := New()
			applyTo(m, Command{Kind: KindSettings, Settings: DefaultSettings()})
			put := func(i int, letter string) {
				m.store.put(fmt.Sprintf("key %012d", i*387_421%keys), strings.Repeat(letter, 100))
			}
			for i := range keys {
				put(i, "v")
			}
			size := len(snapshotOf(b, m))
			most, next := map[int]float64{}, 0
			for b.Loop() {
				alone := heapBytes()
				written := 0
				w := writerFunc(func(p []byte) (int, error) {
					for range keys / 100 {
						put(next, "w")
						next++
					}
					before := written * 10 / size
					written += len(p)
					if tenth := written * 10 / size; tenth != before && (tenth == 5 || tenth == 9) {
						most[tenth] = max(most[tenth], float64(int64(heapBytes()-alone))/(1<<20))
					}
					return len(p), nil
				})
				way.write(m.Clone(), w)
			}
			b.ReportMetric(most[5], "MiB-more-at-half")
			b.ReportMetric(most[9], "MiB-more-at-9/10")
		})
	}
}

// writerFunc is a function as a writer.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func BenchmarkWriteSnapshot(b *testing.B) {
	m := million()
	var size bytes.Buffer
	m.WriteSnapshot(&size)
	b.SetBytes(int64(size.Len()))
	b.ReportAllocs()
	for b.Loop() {
		m.WriteSnapshot(io.Discard)
	}
}

// Also reports what the restored state takes of the heap.
func BenchmarkReadSnapshot(b *testing.B) {
	var written bytes.Buffer
	million().WriteSnapshot(&written)
	b.SetBytes(int64(written.Len()))
	b.ReportAllocs()
	var m *Machine
	for b.Loop() {
		m, _ = ReadSnapshot(bytes.NewReader(written.Bytes()))
	}
	with := heapBytes()
	runtime.KeepAlive(m)
	m = nil
	b.ReportMetric(float64(with-heapBytes()), "heap-B")
}

func heapBytes() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}
