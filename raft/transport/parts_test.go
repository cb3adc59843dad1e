package transport

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"raftkv/raft"
)

const partBytes = 256 << 10 // the largest part that raft/ asks for

var partData = bytes.Repeat([]byte{1}, partBytes)

// part is a part of a snapshot from server 1 to server 2.
func part(offset uint64) raft.Message {
	return raft.Message{Cluster: testCluster, From: 1, To: 2, Body: raft.InstallSnapshotArgs{
		Term: 1, LeaderID: 1, Offset: offset, Length: partBytes, Data: partData,
		Snapshot: raft.Snapshot{Index: 1, Term: 1, Configuration: raft.NewConfiguration(1, 2), Size: 1 << 30},
	}}
}

func partOffset(m raft.Message) (offset uint64, isPart bool) {
	args, isPart := m.Body.(raft.InstallSnapshotArgs)
	return args.Offset, isPart
}

// Server 2 is slow, and server 1 has parts and heartbeats for it. However many
// parts there are, a heartbeat waits for one of them, and the newest part comes
// next.
func TestHeartbeatsWaitForOnePartAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resume := make(chan struct{})
		var got []raft.Message
		_, nodes := join(t, 2, func(c *Config) {
			if c.ID == 2 {
				c.Deliver = func(m []raft.Message) {
					<-resume
					got = append(got, m...)
				}
			}
		})
		settle()
		nodes[0].Send([]raft.Message{heartbeat(1, 2, 1)}) // server 2 now reads nothing more
		synctest.Wait()
		nodes[0].Send([]raft.Message{
			part(1), heartbeat(1, 2, 2), part(2), heartbeat(1, 2, 3), part(3), heartbeat(1, 2, 4), part(4), part(5), heartbeat(1, 2, 5),
		})
		synctest.Wait()
		require.Less(t, nodes[0].peer(2).queued, 3*partBytes, "parts pile up")
		close(resume)
		synctest.Wait()
		want := []raft.Message{
			heartbeat(1, 2, 1),
			part(1), heartbeat(1, 2, 2), heartbeat(1, 2, 3), heartbeat(1, 2, 4), heartbeat(1, 2, 5),
			part(5),
		}
		require.Equal(t, want, got)
		require.Zero(t, nodes[0].peer(2).queued)

		// The next one is not held up by what was before.
		nodes[0].Send([]raft.Message{part(6)})
		synctest.Wait()
		require.Equal(t, part(6), got[len(got)-1])
	})
}

// Server 2 takes 100 ms for a part, and far more parts are sent than that. The
// heartbeats between them all arrive, and none of them is late.
func TestHeartbeatsBetweenEndlessParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perPart, interval = 100 * time.Millisecond, 15 * time.Millisecond
		var latest time.Duration
		beats, parts := 0, 0
		_, nodes := join(t, 2, func(c *Config) {
			if c.ID == 2 {
				c.Deliver = func(messages []raft.Message) {
					for _, m := range messages {
						if _, isPart := partOffset(m); isPart {
							parts++
							<-time.After(perPart)
							continue
						}
						beats++
						latest = max(latest, time.Since(time.UnixMilli(int64(m.Term()))))
					}
				}
			}
		})
		settle()
		for offset := range uint64(200) {
			nodes[0].Send([]raft.Message{part(offset), heartbeat(1, 2, raft.Term(time.Now().UnixMilli()))})
			<-time.After(interval)
		}
		settle()
		require.Equal(t, 200, beats)
		require.Greater(t, parts, 20, "the link is idle while parts wait")
		require.LessOrEqual(t, latest, 2*perPart, "one part being read there, and one being written here")
	})
}

// The same with large requests, which a follower passes on for its clients: the
// messages of Raft overtake them, and each request is answered.
func TestHeartbeatsWaitForOneLargeCallAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resume := make(chan struct{})
		var handled atomic.Int64
		var seen []int64 // how many requests had come before each heartbeat
		_, nodes := join(t, 2, func(c *Config) {
			if c.ID == 2 {
				c.Deliver = func(m []raft.Message) {
					<-resume
					synctest.Wait()
					for range m {
						seen = append(seen, handled.Load())
					}
				}
				c.Handle = func(_ context.Context, _ raft.ServerID, payload []byte) []byte {
					handled.Add(1)
					return payload[:1]
				}
			}
		})
		settle()
		nodes[0].Send([]raft.Message{heartbeat(1, 2, 1)}) // server 2 now reads nothing more
		synctest.Wait()
		var calls sync.WaitGroup
		for i := range 8 {
			calls.Go(func() {
				reply, err := nodes[0].Call(t.Context(), 2, bytes.Repeat([]byte{byte(i)}, 1<<20))
				if err != nil || !bytes.Equal(reply, []byte{byte(i)}) {
					t.Error(reply, err)
				}
			})
			synctest.Wait()
			nodes[0].Send([]raft.Message{heartbeat(1, 2, raft.Term(i+2))})
		}
		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := nodes[0].Call(impatient, 2, make([]byte, 1<<20))
		require.ErrorIs(t, err, ErrNotSent, "it waits behind the others")
		close(resume)
		calls.Wait()
		settle()
		require.Len(t, seen, 9)
		require.LessOrEqual(t, seen[8], int64(2), "heartbeats wait for large requests")
		require.Zero(t, nodes[0].peer(2).queued)
		require.EqualValues(t, 8, handled.Load())
	})
}

// fullConn is a connection that takes nothing without waiting.
type fullConn struct{ syscall.RawConn }

func (fullConn) Write(func(uintptr) bool) error { return errCut }

// However frames come and go, the bytes that wait are counted right and stay
// within their bound, one part at most is in the queue, one goroutine at most
// writes, and what was dropped does not come back.
func TestQueueArithmetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &peer{maxFrame: 1 << 20, maxQueue: 600 << 10, wake: make(chan struct{}, 1), calls: map[uint64]*call{}}
		var written []outgoing // taken, and not yet given back
		var direct []outgoing  // what a sender writes
		if rapid.Bool().Draw(t, "tcp") {
			p.direct = fullConn{}
		}
		send := func(m raft.Message) {
			o := outgoing{kind: messageFrame, message: m}
			if conn, _ := p.enqueue(o); conn != nil {
				direct = append(direct, o)
			}
		}
		offset, lastOut := uint64(0), uint64(0)
		check := func() {
			size, parts, calls := 0, 0, 0
			for _, o := range slices.Concat(p.queue, written, direct) {
				size += o.size()
				if o.isPart() {
					parts++
				}
				if o.isLargeCall() {
					calls++
				}
			}
			require.LessOrEqual(t, calls, 1)
			require.Equal(t, calls == 1, p.callUnderWay)
			require.False(t, len(p.nextCalls) > 0 && calls == 0, "a call waits for nothing")
			for _, o := range p.nextCalls {
				size += o.size()
			}
			require.LessOrEqual(t, parts, 1)
			require.Equal(t, parts == 1, p.partUnderWay)
			require.False(t, p.nextPart != nil && parts == 0, "a part waits for nothing")
			if p.nextPart != nil {
				size += p.nextPart.size()
			}
			require.Equal(t, size, p.queued)
			require.LessOrEqual(t, p.queued, p.maxQueue)
			require.True(t, len(p.queue) == 0 || len(p.wake) == 1 || p.writing, "the writer sleeps")
			require.Equal(t, p.writing, len(written) > 0 || len(direct) > 0)
			require.False(t, len(written) > 0 && len(direct) > 0 || len(direct) > 1, "two write at a time")
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { check() },
			"part": func(*rapid.T) {
				offset++
				send(part(offset))
			},
			"heartbeat": func(*rapid.T) { send(heartbeat(1, 2, 1)) },
			"entries": func(*rapid.T) {
				m := heartbeat(1, 2, 1)
				m.Body = raft.AppendEntriesArgs{Term: 1, LeaderID: 1, Entries: entries(1, 200<<10)}
				send(m)
			},
			"call": func(t *rapid.T) {
				c := &call{id: uint64(len(p.calls)) + 1, result: make(chan callResult, 1)}
				for p.calls[c.id] != nil {
					c.id++
				}
				size := rapid.SampledFrom([]int{10, largeCall, 100 << 10}).Draw(t, "bytes")
				p.enqueue(outgoing{kind: requestFrame, rest: make([]byte, size), call: c})
			},
			"reply": func(*rapid.T) { p.enqueue(outgoing{kind: replyFrame, rest: make([]byte, largeCall)}) },
			"abandon": func(t *rapid.T) {
				if ids := slices.Sorted(maps.Keys(p.calls)); len(ids) > 0 {
					c := p.calls[rapid.SampledFrom(ids).Draw(t, "call")]
					p.abandon(c, errCut)
					require.Equal(t, !c.sent, errors.Is((<-c.result).err, ErrNotSent))
				}
			},
			"take": func(*rapid.T) {
				if len(written) > 0 {
					return // the writer is busy
				}
				select {
				case <-p.wake:
				default:
				}
				written = p.take(nil)
				for _, o := range written {
					if at, isPart := partOffset(o.message); isPart {
						require.Greater(t, at, lastOut, "an older part after a newer one")
						lastOut = at
					}
				}
			},
			"written": func(*rapid.T) {
				if len(written) > 0 {
					p.written(written)
					written = nil
				}
			},
			"written directly": func(*rapid.T) {
				if len(direct) > 0 {
					p.writeDirectly(direct[0], fullConn{})
					direct = nil
				}
			},
			"drop": func(*rapid.T) { p.dropWaiting(errCut) },
		})
		if len(direct) > 0 {
			p.writeDirectly(direct[0], fullConn{})
		}
		p.written(written)
		for p.queued > 0 {
			p.written(p.take(nil))
		}
		require.Empty(t, p.nextCalls)
		require.Nil(t, p.nextPart)
	})
}
