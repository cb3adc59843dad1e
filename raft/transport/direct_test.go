package transport

import (
	"bufio"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/raft"
)

// directPeer returns server 2 as server 1 knows it, with a connection and without the
// goroutine that writes to it, and the other end of that connection.
func directPeer(t *testing.T) (*endpoint, *peer, net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	ours, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	theirs, err := listener.Accept()
	require.NoError(t, err)
	theirs.SetReadDeadline(time.Now().Add(patience)) // a frame that does not come fails the test
	t.Cleanup(func() {
		ours.Close()
		theirs.Close()
	})
	p := &peer{id: 2, maxFrame: 16 << 20, maxQueue: 64 << 20, wake: make(chan struct{}, 1), calls: map[uint64]*call{}}
	p.connected(ours, hello{})
	return &endpoint{cfg: Config{WriteTimeout: patience}, peers: map[raft.ServerID]*peer{2: p}, cuts: map[raft.ServerID]cut{}}, p, theirs
}

// readMessage reads one frame, which must be a message.
func readMessage(t *testing.T, r *bufio.Reader) raft.Message {
	t.Helper()
	payload, err := readFrame(r, 16<<20)
	require.NoError(t, err)
	require.Equal(t, messageFrame, frameKind(payload[0]))
	m, err := decodeMessage(payload[1:])
	require.NoError(t, err)
	return m
}

// A short message needs nobody but its sender.
func TestSenderWritesByItself(t *testing.T) {
	e, p, theirs := directPeer(t)
	r := bufio.NewReader(theirs)
	for term := range raft.Term(3) {
		e.Send([]raft.Message{heartbeat(1, 2, term+1)})
		require.Equal(t, heartbeat(1, 2, term+1), readMessage(t, r))
	}
	require.Zero(t, p.queued)
	require.Empty(t, p.wake, "the writer was woken for nothing")
}

// What takes its time is left to the writer, and so is what comes behind it.
func TestSenderLeavesLongOnes(t *testing.T) {
	for name, long := range map[string]outgoing{
		"entries":            {kind: messageFrame, message: appendOf(200)},
		"part of a snapshot": {kind: messageFrame, message: raft.Message{Body: raft.InstallSnapshotArgs{Length: 1, Data: []byte{1}}}},
		"request":            {kind: requestFrame, rest: requestPayload(1, nil)},
	} {
		t.Run(name, func(t *testing.T) {
			e, p, _ := directPeer(t)
			require.NoError(t, e.enqueue(p, long))
			require.NoError(t, e.enqueue(p, outgoing{kind: messageFrame, message: heartbeat(1, 2, 1)}))
			require.Len(t, p.queue, 2)
			require.Len(t, p.wake, 1)
		})
	}
}

// stall sends until the system takes no more, and returns the last term.
func stall(e *endpoint, p *peer) (last raft.Term) {
	for len(p.queue) == 0 {
		last++
		m := appendOf(100)
		args := m.Body.(raft.AppendEntriesArgs)
		args.Term = last
		m.Body = args
		e.Send([]raft.Message{m})
	}
	return last
}

// The system takes no more, in the middle of a frame as likely as not. The writer goes
// on there, and nothing is lost, doubled or out of order.
func TestWriterGoesOnWhereTheSenderStopped(t *testing.T) {
	e, p, theirs := directPeer(t)
	last := stall(e, p)
	require.Equal(t, begunFrame, p.queue[0].kind)
	require.Equal(t, p.queue[0].size(), p.queued)
	for range 3 {
		last++
		e.Send([]raft.Message{heartbeat(1, 2, last)}) // must not overtake it
	}
	ended := make(chan error, 1)
	var writer sync.WaitGroup
	writer.Go(func() { e.writeAll(p, p.out, ended) })
	r := bufio.NewReader(theirs)
	for term := range last {
		require.Equal(t, term+1, readMessage(t, r).Term())
	}
	ended <- net.ErrClosed
	writer.Wait()
	require.Zero(t, p.queued)

	e.Send([]raft.Message{heartbeat(1, 2, last+1)}) // directly again
	require.Equal(t, last+1, readMessage(t, r).Term())
	require.Empty(t, p.queue)
}

// While the sender writes, others find the turn taken: they wait, and the writer is
// woken when it has ended.
func TestNobodyWritesBesideASender(t *testing.T) {
	e, p, theirs := directPeer(t)
	first, second := outgoing{kind: messageFrame, message: heartbeat(1, 2, 1)}, outgoing{kind: messageFrame, message: heartbeat(1, 2, 2)}
	direct, err := p.enqueue(first)
	require.NoError(t, err)
	require.NotNil(t, direct)
	require.NoError(t, e.enqueue(p, second))
	<-p.wake
	require.Empty(t, p.take(nil), "two write at a time")
	require.Len(t, p.queue, 1)
	p.writeDirectly(first, direct)
	require.Len(t, p.wake, 1, "nobody writes the second")
	r := bufio.NewReader(theirs)
	require.Equal(t, raft.Term(1), readMessage(t, r).Term())
	require.Len(t, p.take(nil), 1)
	direct, err = p.enqueue(first)
	require.NoError(t, err)
	require.Nil(t, direct, "a sender writes beside the writer")
}

// What comes while a sender writes goes behind the rest of its frame.
func TestRestOfAFrameComesFirst(t *testing.T) {
	e, p, _ := directPeer(t)
	first, second := outgoing{kind: messageFrame, message: heartbeat(1, 2, 1)}, outgoing{kind: messageFrame, message: heartbeat(1, 2, 2)}
	_, err := p.enqueue(first)
	require.NoError(t, err)
	require.NoError(t, e.enqueue(p, second))
	p.direct = fullConn{}
	p.writeDirectly(first, fullConn{})
	require.Len(t, p.queue, 2)
	require.Equal(t, first.appendTo(nil), p.queue[0].appendTo(nil))
	require.Equal(t, second.appendTo(nil), p.queue[1].appendTo(nil))
}

// The rest of a frame belongs to its connection: a cut leaves it, since what follows
// would be no frame without it, and the end of the connection takes it along.
func TestRestOfAFrameGoesWithItsConnection(t *testing.T) {
	e, p, _ := directPeer(t)
	stall(e, p)
	e.Send([]raft.Message{heartbeat(1, 2, 1)})
	require.Len(t, p.queue, 2)
	<-p.wake
	e.setCut(2, cut{mute: true})
	require.Len(t, p.queue, 1)
	require.Equal(t, p.queue[0].size(), p.queued)
	e.setCut(2, cut{})
	p.disconnected(errCut)
	require.Empty(t, p.queue)
	require.Zero(t, p.queued)

	// The same if the connection ends while the sender writes.
	e, p, _ = directPeer(t)
	stall(e, p)
	p.queue, p.queued = nil, 0
	o := outgoing{kind: messageFrame, message: appendOf(100)}
	direct, err := p.enqueue(o)
	require.NoError(t, err)
	_, other, _ := directPeer(t)
	p.disconnected(errCut)
	p.connected(other.out, hello{})
	p.writeDirectly(o, direct)
	require.Empty(t, p.queue, "the new connection begins with the rest of a frame")
	require.Zero(t, p.queued)
}
