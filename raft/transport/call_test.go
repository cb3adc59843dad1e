package transport

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fortytw2/leaktest"
	"github.com/stretchr/testify/require"

	"raftkv/raft"
)

// echo is a Handle.
func echo(_ context.Context, from raft.ServerID, payload []byte) []byte {
	return fmt.Appendf(nil, "%d said %s", from, payload)
}

func withHandle(h func(context.Context, raft.ServerID, []byte) []byte) func(*Config) {
	return func(c *Config) { c.Handle = h }
}

func TestCallOverTCP(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	nodes := startNodes(t, 2, withHandle(echo))
	failed := make(chan error, 100)
	for i := range cap(failed) {
		go func() {
			request := fmt.Sprint("request ", i)
			reply, err := nodes[0].Call(t.Context(), 2, []byte(request))
			if err == nil && string(reply) != "1 said "+request {
				err = fmt.Errorf("%q was answered by %q", request, reply)
			}
			failed <- err
		}()
	}
	for range cap(failed) {
		require.NoError(t, <-failed)
	}
}

// result is what became of a Call that runs beside the test.
type result struct {
	reply []byte
	err   error
	after time.Duration
}

func startCall(ctx context.Context, n *memoryNode, to raft.ServerID, payload string) <-chan result {
	done := make(chan result, 1)
	began := time.Now()
	go func() {
		reply, err := n.Call(ctx, to, []byte(payload))
		done <- result{reply, err, time.Since(began)}
	}()
	return done
}

// Each way in which a call may fail, and what its error lets the caller
// conclude. executed counts what the other side really did.
func TestCallTellsWhetherTheRequestMayHaveBeenExecuted(t *testing.T) {
	var executed atomic.Int32
	block := func(ctx context.Context, _ raft.ServerID, _ []byte) []byte {
		executed.Add(1)
		<-ctx.Done()
		return []byte("too late")
	}
	// run starts two servers, of which the second never answers by itself.
	run := func(name string, change func(*Config), f func(*testing.T, []*memoryNode)) {
		bubble(t, name, func(t *testing.T) {
			executed.Store(0)
			_, nodes := join(t, 2, func(c *Config) {
				c.Handle = block
				if change != nil {
					change(c)
				}
			})
			settle()
			f(t, nodes)
		})
	}

	run("to nobody", nil, func(t *testing.T, nodes []*memoryNode) {
		_, err := nodes[0].Call(t.Context(), 9, nil)
		require.ErrorIs(t, err, ErrNotSent)
	})
	run("context has ended before", nil, func(t *testing.T, nodes []*memoryNode) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := nodes[0].Call(ctx, 2, nil)
		require.ErrorIs(t, err, ErrNotSent)
		require.ErrorIs(t, err, context.Canceled)
	})
	run("larger than a frame", func(c *Config) { c.MaxFrameBytes = 100 }, func(t *testing.T, nodes []*memoryNode) {
		_, err := nodes[0].Call(t.Context(), 2, make([]byte, 100))
		require.ErrorIs(t, err, ErrNotSent)
	})
	run("server is gone", nil, func(t *testing.T, nodes []*memoryNode) {
		require.NoError(t, nodes[1].Close())
		settle()
		r := <-startCall(t.Context(), nodes[0], 2, "put")
		require.ErrorIs(t, r.err, ErrNotSent)
		require.Less(t, r.after, 50*time.Millisecond, "one attempt to connect")
	})
	run("link is cut here", nil, func(t *testing.T, nodes []*memoryNode) {
		nodes[0].Cut(2)
		_, err := nodes[0].Call(t.Context(), 2, nil)
		require.ErrorIs(t, err, ErrNotSent)
	})
	run("link is cut there", nil, func(t *testing.T, nodes []*memoryNode) {
		nodes[1].Cut(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r := <-startCall(ctx, nodes[0], 2, "put")
		require.ErrorIs(t, r.err, ErrReplyLost)
		require.ErrorIs(t, r.err, context.DeadlineExceeded)
		require.Equal(t, time.Second, r.after)
		require.Zero(t, executed.Load())
	})
	run("no Handle", func(c *Config) { c.Handle = nil }, func(t *testing.T, nodes []*memoryNode) {
		_, err := nodes[0].Call(t.Context(), 2, nil)
		require.ErrorIs(t, err, ErrNotSent)
	})
	run("too many requests", func(c *Config) { c.MaxRequests = 2 }, func(t *testing.T, nodes []*memoryNode) {
		ctx, cancel := context.WithCancel(t.Context())
		first, second := startCall(ctx, nodes[0], 2, "put"), startCall(ctx, nodes[0], 2, "put")
		synctest.Wait()
		_, err := nodes[0].Call(ctx, 2, nil)
		require.ErrorIs(t, err, ErrNotSent)
		require.EqualValues(t, 2, executed.Load())
		// The messages behind the requests are not held up.
		nodes[0].Send([]raft.Message{heartbeat(1, 2, 1)})
		require.Equal(t, 1, nodes[1].waiting())
		cancel()
		require.ErrorIs(t, (<-first).err, ErrReplyLost)
		require.ErrorIs(t, (<-second).err, ErrReplyLost)
	})
	run("context ends while it is handled", nil, func(t *testing.T, nodes []*memoryNode) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r := <-startCall(ctx, nodes[0], 2, "put")
		require.ErrorIs(t, r.err, ErrReplyLost)
		require.Equal(t, time.Second, r.after)
		require.EqualValues(t, 1, executed.Load())
		require.Empty(t, nodes[0].peer(2).calls, "a call is left over")
	})
	run("server crashes while it handles it", nil, func(t *testing.T, nodes []*memoryNode) {
		done := startCall(t.Context(), nodes[0], 2, "put")
		synctest.Wait()
		require.NoError(t, nodes[1].Close())
		r := <-done
		require.ErrorIs(t, r.err, ErrReplyLost)
		require.EqualValues(t, 1, executed.Load())
	})
	run("the way there breaks", nil, func(t *testing.T, nodes []*memoryNode) {
		done := startCall(t.Context(), nodes[0], 2, "put")
		synctest.Wait()
		nodes[0].peer(2).out.Close()
		require.ErrorIs(t, (<-done).err, ErrReplyLost)
	})
	run("the way back breaks", nil, func(t *testing.T, nodes []*memoryNode) {
		done := startCall(t.Context(), nodes[0], 2, "put")
		synctest.Wait()
		nodes[1].peer(1).out.Close()
		require.ErrorIs(t, (<-done).err, ErrReplyLost)
	})
	run("we close", nil, func(t *testing.T, nodes []*memoryNode) {
		done := startCall(t.Context(), nodes[0], 2, "put")
		synctest.Wait()
		require.NoError(t, nodes[0].Close())
		require.ErrorIs(t, (<-done).err, ErrReplyLost)
	})

	// In the last three, server 2 reads nothing more until it is told to resume.
	var resume chan struct{}
	stopped := func(c *Config) {
		c.MaxQueueBytes = 1000
		if c.ID == 2 {
			resume = make(chan struct{})
			c.Deliver = func([]raft.Message) { <-resume }
		}
	}
	stop := func(nodes []*memoryNode) {
		nodes[0].Send([]raft.Message{heartbeat(1, 2, 1)})
		synctest.Wait()
	}
	run("queue is full", stopped, func(t *testing.T, nodes []*memoryNode) {
		defer close(resume)
		stop(nodes)
		done := startCall(t.Context(), nodes[0], 2, string(make([]byte, 1200))) // is being written
		synctest.Wait()
		r := <-startCall(t.Context(), nodes[0], 2, "")
		require.ErrorIs(t, r.err, ErrNotSent)
		require.Zero(t, r.after, "it waited where there was no room")
		r = <-done
		require.ErrorIs(t, r.err, ErrReplyLost, "some of it was written")
		require.Equal(t, 5*time.Second, r.after, "WriteTimeout")
	})
	run("link is cut while it waits in the queue", stopped, func(t *testing.T, nodes []*memoryNode) {
		defer close(resume)
		stop(nodes)
		first := startCall(t.Context(), nodes[0], 2, "put") // is being written
		synctest.Wait()
		second := startCall(t.Context(), nodes[0], 2, "put")
		synctest.Wait()
		nodes[0].Cut(2)
		r := <-second
		require.ErrorIs(t, r.err, ErrNotSent)
		require.Zero(t, r.after)
		require.ErrorIs(t, (<-first).err, ErrReplyLost)
	})
	run("context ends while it waits in the queue", stopped, func(t *testing.T, nodes []*memoryNode) {
		stop(nodes)
		first := startCall(t.Context(), nodes[0], 2, "put") // is being written
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r := <-startCall(ctx, nodes[0], 2, "put")
		require.ErrorIs(t, r.err, ErrNotSent)
		require.ErrorIs(t, r.err, context.DeadlineExceeded)
		close(resume)
		synctest.Wait()
		require.EqualValues(t, 1, executed.Load(), "what was not sent must not be executed later")
		require.NoError(t, nodes[1].Close())
		require.ErrorIs(t, (<-first).err, ErrReplyLost)
	})
}

// A reply may come at the very moment at which nobody waits any longer.
func TestCallIsAnsweredOnce(t *testing.T) {
	c := &call{id: 1, sent: true, result: make(chan callResult, 1)}
	p := &peer{id: 2, calls: map[uint64]*call{c.id: c}}
	require.NoError(t, p.handleReply(replyPayload(c.id, answered, []byte("ok"))))
	p.abandon(c, context.Canceled)
	r := <-c.result
	require.NoError(t, r.err)
	require.Equal(t, "ok", string(r.reply))
}

// A reply that comes twice, late or unasked for is dropped, and the connection
// goes on.
func TestNeedlessRepliesAreHarmless(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	l, node := listenRaw(t, nil)
	in := accept(t, l, 1)
	out := dialRaw(t, node)
	out.shakeHands(t)
	replyTo := func(request []byte, text string) []byte {
		f := &fields{rest: request}
		return outgoing{kind: replyFrame, rest: replyPayload(f.uint64(), answered, []byte(text))}.appendTo(nil)
	}
	done := make(chan result, 1)
	call := func(ctx context.Context) {
		reply, err := node.Call(ctx, 2, []byte("put"))
		done <- result{reply: reply, err: err}
	}

	ctx, cancel := context.WithCancel(t.Context())
	go call(ctx)
	_, abandoned := in.next(t)
	cancel()
	require.ErrorIs(t, (<-done).err, ErrReplyLost)

	go call(t.Context())
	_, request := in.next(t)
	require.False(t, bytes.Equal(abandoned, request), "two calls with one id")
	out.write(t, replyTo(abandoned, "late"))
	out.write(t, replyTo(make([]byte, 8), "unasked for"))
	out.write(t, replyTo(request, "first"))
	out.write(t, replyTo(request, "second"))
	r := <-done
	require.NoError(t, r.err)
	require.Equal(t, "first", string(r.reply))

	out.write(t, outgoing{kind: messageFrame, message: heartbeat(2, 1, 1)}.appendTo(nil))
	require.Equal(t, raft.Term(1), node.in.wait(t).Term())
}
