package transport

import (
	"bufio"
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/raft"
)

func appendOf(n int) raft.Message {
	return raft.Message{Cluster: testCluster, From: 1, To: 2, Body: raft.AppendEntriesArgs{Term: 1, LeaderID: 1, Entries: entries(n, 128)}}
}

func BenchmarkEncodeAppendEntries(b *testing.B) {
	for _, n := range []int{1, 16, 256} {
		b.Run(fmt.Sprint("entries=", n), func(b *testing.B) {
			o := outgoing{kind: messageFrame, message: appendOf(n)}
			var frame []byte
			b.ReportAllocs()
			for b.Loop() {
				frame = o.appendTo(frame[:0])
			}
			b.SetBytes(int64(len(frame)))
		})
	}
}

func BenchmarkDecodeAppendEntries(b *testing.B) {
	for _, n := range []int{1, 16, 256} {
		b.Run(fmt.Sprint("entries=", n), func(b *testing.B) {
			frame := outgoing{kind: messageFrame, message: appendOf(n)}.appendTo(nil)
			source := bytes.NewReader(frame)
			r := bufio.NewReaderSize(source, readBuffer)
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			for b.Loop() {
				source.Reset(frame)
				r.Reset(source)
				payload, err := readFrame(r, 16<<20)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := decodeMessage(payload[1:]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The steady state: a message is encoded into memory that is there, and decoded
// with as many allocations as there are parts, not entries. (docs/performance.md)
func TestMessagesAllocateByMessage(t *testing.T) {
	for _, n := range []int{1, 256} {
		o := outgoing{kind: messageFrame, message: appendOf(n)}
		frame := o.appendTo(nil)
		require.Zero(t, testing.AllocsPerRun(100, func() { frame = o.appendTo(frame[:0]) }))

		source := bytes.NewReader(nil)
		r := bufio.NewReaderSize(source, readBuffer)
		require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
			source.Reset(frame)
			r.Reset(source)
			payload, _ := readFrame(r, 16<<20)
			if _, err := decodeMessage(payload[1:]); err != nil {
				t.Error(err)
			}
		}), 3.0)
	}
}

// BenchmarkRoundTrip sends messages over loopback TCP and waits for one reply
// to each, with so many under way at a time.
func BenchmarkRoundTrip(b *testing.B) {
	for _, window := range []int{1, 64} {
		for _, n := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("window=%d/entries=%d", window, n), func(b *testing.B) {
				roundTrips(b, window, appendOf(n))
			})
		}
	}
}

func roundTrips(b *testing.B, window int, m raft.Message) {
	replies := make(chan struct{}, window)
	reply := raft.Message{Cluster: testCluster, From: 2, To: 1, Body: raft.AppendEntriesReply{Term: 1, Success: true}}
	var nodes []*tcpNode
	nodes = startNodes(b, 2, func(c *Config) {
		c.Deliver = func(messages []raft.Message) {
			for range messages {
				if c.ID == 2 {
					nodes[1].Send([]raft.Message{reply})
				} else {
					replies <- struct{}{}
				}
			}
		}
	})
	eventually(b, "no connection", func() bool { return nodes[0].PeerHTTP(2) != "" && nodes[1].PeerHTTP(1) != "" })
	b.SetBytes(int64(outgoing{kind: messageFrame, message: m}.size()))
	b.ReportAllocs()
	underWay := 0
	for b.Loop() {
		if underWay == window {
			<-replies
			underWay--
		}
		nodes[0].Send([]raft.Message{m})
		underWay++
	}
	for ; underWay > 0; underWay-- {
		<-replies
	}
}
