package transport

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/fortytw2/leaktest"
	"github.com/stretchr/testify/require"

	"raftkv/raft"
)

func TestMessagesArriveBothWays(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	nodes := startNodes(t, 2, nil)
	there := heartbeat(1, 2, 7)
	back := raft.Message{Cluster: testCluster, From: 2, To: 1, Body: raft.AppendEntriesReply{Term: 7, Success: true, AskedTerm: 7}}
	nodes[0].Send([]raft.Message{there, heartbeat(1, 9, 7)}) // nobody is server 9
	require.Equal(t, there, nodes[1].in.wait(t))
	nodes[1].Send([]raft.Message{back})
	require.Equal(t, back, nodes[0].in.wait(t))
	require.Equal(t, "http-2", nodes[0].PeerHTTP(2))
	require.Equal(t, "http-1", nodes[1].PeerHTTP(1))
	require.Empty(t, nodes[0].PeerHTTP(9))
}

func TestMessagesOfOneConnectionKeepTheirOrder(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	nodes := startNodes(t, 2, nil)
	eventually(t, "no connection", func() bool { return nodes[0].PeerHTTP(2) != "" })
	const n = 500
	for term := raft.Term(1); term <= n; term++ {
		nodes[0].Send([]raft.Message{heartbeat(1, 2, term)})
	}
	for term := raft.Term(1); term <= n; term++ {
		require.Equal(t, term, nodes[1].in.wait(t).Term())
	}
}

func TestListenReportsWhatCannotWork(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	first := startNodes(t, 1, nil)[0]
	deliver := func([]raft.Message) {}
	for name, c := range map[string]struct {
		cfg  Config
		text string
	}{
		"port taken":     {Config{ID: 1, Deliver: deliver, Addr: first.Addr().String()}, "address already in use"},
		"no id":          {Config{Deliver: deliver}, "ids start at 1"},
		"no Deliver":     {Config{ID: 1}, "Deliver"},
		"peer 0":         {Config{ID: 1, Deliver: deliver, Peers: map[raft.ServerID]string{0: "127.0.0.1:1"}}, "means nobody"},
		"peer's address": {Config{ID: 1, Deliver: deliver, Peers: map[raft.ServerID]string{2: "127.0.0.1"}}, "not host:port"},
		"long address":   {Config{ID: 1, Deliver: deliver, HTTPAddr: string(make([]byte, 256))}, "at most 255"},
		"long peer addr": {Config{ID: 1, Deliver: deliver, AdvertiseAddr: string(make([]byte, 256))}, "advertised address has 256 bytes"},
		"huge frames":    {Config{ID: 1, Deliver: deliver, MaxFrameBytes: math.MaxInt32}, "at most 1 GiB"},
	} {
		t.Run(name, func(t *testing.T) {
			node, err := ListenTCP(c.cfg)
			require.ErrorContains(t, err, c.text)
			require.Nil(t, node)
		})
	}
}

// Whatever is wrong with what arrives, the connection is closed, one line says
// why even if it happens again, nothing is delivered, and others are served.
func TestBadConnectionsAreClosedAndLogged(t *testing.T) {
	type fault struct {
		handshake bool   // the fault comes after a good handshake
		bytes     []byte // what server 1 reads
		refused   bool   // server 1 says why
		reason    string // what server 1 logs
	}
	frame := func(kind frameKind, rest []byte) []byte {
		return endFrame(append(beginFrame(nil, kind), rest...), 0)
	}
	damage := func(b []byte, at int) []byte {
		b[at] ^= 0x40
		return b
	}
	preamble := appendPreamble(nil, protocolVersion)
	faults := map[string]fault{
		"another protocol":          {false, []byte("GET / HTTP/1.1\r\n\r\n"), false, "no raftkv server"},
		"another protocol, briefly": {false, []byte("hi"), false, "no raftkv server"},
		"another version":           {false, append(appendPreamble(nil, 3), greeting(nil)[preambleBytes:]...), true, "version 3"},
		"another cluster":           {false, greeting(func(h *hello) { h.Cluster = 0xbad }), true, "cluster 0000000000000bad"},
		"another recipient":         {false, greeting(func(h *hello) { h.To = 3 }), true, "looks for server 3"},
		"no sender":                 {false, greeting(func(h *hello) { h.From = 0 }), true, "ids start at 1"},
		"our own id":                {false, greeting(func(h *hello) { h.From = 1 }), true, "two servers call themselves server 1"},
		"another store":             {false, greeting(func(h *hello) { h.Store = store(9) }), true, "had another one"},
		"damaged header":            {false, damage(greeting(nil), preambleBytes), false, "header is damaged"},
		"damaged hello":             {false, damage(greeting(nil), preambleBytes+frameHeader+5), false, "frame is damaged"},
		"large hello":               {false, append(preamble, header(16<<20, 0)...), false, "1 to 1024 are allowed"},
		"hello with a tail":         {false, append(preamble, frame(helloFrame, append(greeting(nil)[preambleBytes+frameHeader+1:], 0))...), false, "handshake has the wrong length"},
		"short hello":               {false, append(preamble, frame(helloFrame, []byte{1})...), false, "handshake has the wrong length"},
		"message first":             {false, append(preamble, frame(messageFrame, nil)...), false, "begins with a frame of kind 4"},

		"empty frame":       {true, header(0, 0), false, "1 to 65536 are allowed"},
		"large frame":       {true, header(64<<10+1, 0), false, "1 to 65536 are allowed"},
		"huge frame":        {true, header(math.MaxUint32, 0), false, "1 to 65536 are allowed"},
		"garbage":           {true, []byte("this is no header at all"), false, "header is damaged"},
		"damaged message":   {true, damage(outgoing{kind: messageFrame, message: heartbeat(2, 1, 1)}.appendTo(nil), frameHeader+20), false, "frame is damaged"},
		"unknown kind":      {true, frame(99, nil), false, "kind 99"},
		"hello again":       {true, greeting(nil)[preambleBytes:], false, "kind 1 has no place"},
		"short request":     {true, frame(requestFrame, []byte{1}), false, "request has the wrong length"},
		"short reply":       {true, frame(replyFrame, make([]byte, 8)), false, "reply has the wrong length"},
		"unknown reply":     {true, frame(replyFrame, append(make([]byte, 8), 2)), false, "reply has the wrong length"},
		"refusal with text": {true, frame(replyFrame, append(make([]byte, 8), unhandled, 'x')), false, "reply has the wrong length"},
	}
	for name, payload := range badMessages() {
		faults["message: "+name] = fault{true, frame(messageFrame, payload), false, "reason="}
	}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(leaktest.Check(t))
			_, node := listenRaw(t, func(c *Config) {
				c.MaxFrameBytes = 64 << 10
				c.CheckStore = onlyStores(map[raft.ServerID]raft.StoreID{2: store(2)})
			})
			for range 3 {
				p := dialRaw(t, node)
				if f.handshake {
					p.shakeHands(t)
				}
				p.write(t, f.bytes)
				if f.refused {
					kind, reason := p.answer(t)
					require.Equal(t, refuseFrame, kind)
					require.Contains(t, string(reason), f.reason)
				} else if !f.handshake {
					p.Conn.(*net.TCPConn).CloseWrite() // what is too short must not wait for more
				}
				p.closed(t)
			}
			eventually(t, "no line about it", func() bool { return node.log.count(f.reason) > 0 })
			good := dialRaw(t, node)
			good.shakeHands(t)
			good.write(t, outgoing{kind: messageFrame, message: heartbeat(2, 1, 42)}.appendTo(nil))
			require.Equal(t, raft.Term(42), node.in.wait(t).Term(), "the first message that is delivered")
			require.Equal(t, 1, node.log.count(f.reason), "lines about it:\n%s", node.log)
		})
	}
}

// onlyStores is a CheckStore that knows the stores of some servers.
func onlyStores(known map[raft.ServerID]raft.StoreID) func(raft.ServerID, raft.StoreID, raft.Index) (bool, error) {
	return func(id raft.ServerID, s raft.StoreID, _ raft.Index) (bool, error) {
		if want, found := known[id]; found && s != want {
			return false, errors.New("it had another one before")
		}
		return false, nil
	}
}

// Frames that are read together are delivered together, so that a server can
// sync them together; those before a bad one arrived whole, and count.
func TestFramesReadTogetherAreDeliveredTogether(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	batches := make(chan []raft.Message, 3)
	_, node := listenRaw(t, func(c *Config) { c.Deliver = func(m []raft.Message) { batches <- m } })
	p := dialRaw(t, node)
	p.shakeHands(t)
	var b []byte
	for term := raft.Term(1); term <= 3; term++ {
		b = outgoing{kind: messageFrame, message: heartbeat(2, 1, term)}.appendTo(b)
	}
	b[len(b)-1] ^= 1
	p.write(t, b)
	p.closed(t)
	require.Equal(t, []raft.Message{heartbeat(2, 1, 1), heartbeat(2, 1, 2)}, <-batches)
	require.Empty(t, batches)
}

// The dialled side is checked as strictly as the one that dials.
func TestBadAnswersToAHelloAreRefused(t *testing.T) {
	accept := func(change func(*hello)) []byte {
		h := hello{Cluster: testCluster, From: 2, To: 1, Store: store(2)}
		change(&h)
		return appendHello(appendPreamble(nil, protocolVersion), acceptFrame, h)
	}
	for name, c := range map[string]struct {
		answer []byte
		reason string
	}{
		"another protocol":  {[]byte("SSH-2.0-OpenSSH"), "no raftkv server"},
		"another version":   {append(appendPreamble(nil, 3), accept(func(*hello) {})[preambleBytes:]...), "version 3"},
		"another cluster":   {accept(func(h *hello) { h.Cluster = 0xbad }), "cluster 0000000000000bad"},
		"another server":    {accept(func(h *hello) { h.From = 3 }), "server 3 answers at the address of server 2"},
		"another recipient": {accept(func(h *hello) { h.To = 3 }), "looks for server 3"},
		"another store":     {accept(func(h *hello) { h.Store = store(9) }), "had another one"},
		"a hello":           {greeting(nil), "kind 1"},
		"a refusal":         {appendRefusal(appendPreamble(nil, protocolVersion), "not today"), "it refuses: not today"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(leaktest.Check(t))
			l, node := listenRaw(t, func(c *Config) {
				c.Peers[3] = "127.0.0.1:1" // nobody listens there
				c.CheckStore = onlyStores(map[raft.ServerID]raft.StoreID{2: store(2)})
			})
			for node.log.count(c.reason) == 0 {
				conn, err := l.Accept()
				require.NoError(t, err)
				p := newRawPeer(t, conn)
				p.answer(t)
				p.write(t, c.answer)
				p.closed(t)
			}
			require.Empty(t, node.PeerHTTP(2))
		})
	}
}

func TestPeerMustNotWriteOnOurConnection(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	l, node := listenRaw(t, nil)
	p := accept(t, l, 1)
	p.write(t, outgoing{kind: messageFrame, message: heartbeat(2, 1, 1)}.appendTo(nil))
	p.closed(t)
	eventually(t, "no line about it", func() bool { return node.log.count("ours to write") == 1 })
	require.Empty(t, node.in)
}

func TestRestartedPeerHearsFromUsPromptly(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	nodes := startNodes(t, 2, nil)
	nodes[0].Send([]raft.Message{heartbeat(1, 2, 1)})
	nodes[1].in.wait(t)
	for term := raft.Term(2); term < 5; term++ {
		nodes[1].restart(t)
		restarted := time.Now()
		// A leader sends heartbeats all the time, and the first that arrives must
		// not be one that waited since before the restart.
		heartbeats := time.NewTicker(20 * time.Millisecond)
		var m raft.Message
		for m.Body == nil {
			select {
			case m = <-nodes[1].in:
			case <-heartbeats.C:
				nodes[0].Send([]raft.Message{heartbeat(1, 2, term)})
			}
		}
		heartbeats.Stop()
		require.Equal(t, term, m.Term())
		require.Less(t, time.Since(restarted), patience)
		t.Logf("heard from a peer %v after the restart", time.Since(restarted))
		for len(nodes[1].in) > 0 {
			<-nodes[1].in
		}
	}
}

// The machine of server 2 lost its power: nobody closed the connection to it.
// When the server is back and dials, the old connection is given up at once.
func TestPeerThatVanishedSilentlyIsDialledAgain(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	l, node := listenRaw(t, nil)
	accept(t, l, 1)
	eventually(t, "no connection", func() bool { return node.PeerHTTP(2) != "" })

	back := dialRaw(t, node)
	back.write(t, greeting(func(h *hello) { h.Run = 2 }))
	kind, _ := back.answer(t)
	require.Equal(t, acceptFrame, kind)
	again := accept(t, l, 2)
	node.Send([]raft.Message{heartbeat(1, 2, 3)})
	kind, _ = again.next(t)
	require.Equal(t, messageFrame, kind)
}

// A peer that dials again has given its older connection up.
func TestNewerConnectionReplacesTheOlder(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	_, node := listenRaw(t, nil)
	older := dialRaw(t, node)
	older.shakeHands(t)
	newer := dialRaw(t, node)
	newer.shakeHands(t)
	older.closed(t)
	newer.write(t, outgoing{kind: messageFrame, message: heartbeat(2, 1, 5)}.appendTo(nil))
	require.Equal(t, raft.Term(5), node.in.wait(t).Term())
}

func TestPeerThatNeverReads(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	const maxQueue = 1 << 20
	l, node := listenRaw(t, func(c *Config) {
		c.MaxQueueBytes = maxQueue
		c.WriteTimeout = 50 * time.Millisecond
	})
	first := accept(t, l, 1)
	eventually(t, "no connection", func() bool { return node.PeerHTTP(2) != "" })
	big := heartbeat(1, 2, 1)
	big.Body = raft.AppendEntriesArgs{Term: 1, LeaderID: 1, Entries: entries(100, 1000)}

	// When the sockets' buffers are full, the writer hangs; then the queue fills;
	// then a write has taken too long, and there is another connection.
	another := make(chan net.Conn)
	go func() {
		if conn, err := l.Accept(); err == nil {
			another <- conn
		}
	}()
	p := node.peer(2)
	goroutines := runtime.NumGoroutine()
	var second *rawPeer
	for second == nil {
		began := time.Now()
		node.Send([]raft.Message{big})
		require.Less(t, time.Since(began), patience, "Send blocks")
		p.mu.Lock()
		queued := p.queued
		p.mu.Unlock()
		require.LessOrEqual(t, queued, maxQueue)
		require.Less(t, runtime.NumGoroutine(), goroutines+10) // connecting takes a few
		select {
		case conn := <-another:
			second = answerHello(t, conn, 1)
		default:
		}
	}
	require.NotZero(t, node.log.count("too much is waiting"))
	node.Send([]raft.Message{big})
	kind, _ := second.next(t)
	require.Equal(t, messageFrame, kind)
	first.Close()
}

// A stopped process: its machine accepts connections, and nobody answers.
func TestHangingPeer(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	_, node := listenRaw(t, func(c *Config) { c.HandshakeTimeout = 20 * time.Millisecond })
	p := node.peer(2)
	for term := raft.Term(1); term <= 5; term++ {
		node.Send([]raft.Message{heartbeat(1, 2, term)})
		_, err := node.Call(t.Context(), 2, []byte("put"))
		require.ErrorIs(t, err, ErrNotSent)
		require.ErrorContains(t, err, "server 2")
	}
	// What waited is out of date by the time the peer is back.
	eventually(t, "messages are kept", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.queued == 0 && len(p.queue) == 0
	})
	require.Equal(t, 1, node.log.count("does not answer in time"))
}

// A frame that begins must end; a connection at rest may rest.
func TestFrameThatNeverEnds(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	_, node := listenRaw(t, func(c *Config) { c.WriteTimeout = 20 * time.Millisecond })
	p := dialRaw(t, node)
	p.shakeHands(t)
	p.write(t, header(1000, 0)[:7])
	p.closed(t)
	eventually(t, "no line about it", func() bool { return node.log.count("does not answer in time") == 1 })
}

// Somebody started two servers as server 2. Whoever has met the first one
// takes nothing from the second, and sends nothing to it.
func TestTwoServersWithOneID(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	nodes := startNodes(t, 2, func(c *Config) {
		if c.ID == 1 {
			c.CheckStore = onlyStores(map[raft.ServerID]raft.StoreID{2: store(2)})
		}
	})
	first := nodes[1]
	first.Send([]raft.Message{heartbeat(2, 1, 1)})
	require.Equal(t, raft.Term(1), nodes[0].in.wait(t).Term())

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	second := startNode(t, 2, l, first.cfg.Peers, func(c *Config) { c.Store = store(9) })
	_, err = second.Call(t.Context(), 1, []byte("put"))
	require.ErrorIs(t, err, ErrNotSent)
	require.ErrorContains(t, err, "it refuses: store of server 2: it had another one before")
	for _, n := range []*tcpNode{nodes[0], second} {
		eventually(t, "no line about it", func() bool { return n.log.count("had another one before") == 1 })
	}

	// The other direction: the first one leaves, and the second has its address.
	require.NoError(t, first.Close())
	require.NoError(t, second.Close())
	first.cfg.Store = store(9)
	first.restart(t)
	eventually(t, "server 1 does not notice", func() bool {
		return nodes[0].log.count("cannot connect") > 0 && nodes[0].log.count("had another one before") > 1
	})
	nodes[0].Send([]raft.Message{heartbeat(1, 2, 2)})
	_, err = nodes[0].Call(t.Context(), 2, []byte("put"))
	require.ErrorIs(t, err, ErrNotSent)
	require.Empty(t, first.in)
	require.Empty(t, nodes[0].in)
}

func TestConnectionsAreCounted(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	_, node := listenRaw(t, func(c *Config) { c.MaxConns = 2 })
	first, second := dialRaw(t, node), dialRaw(t, node)
	first.shakeHands(t)
	second.write(t, appendPreamble(nil, protocolVersion)) // and nothing more
	eventually(t, "not accepted", func() bool { return len(node.conns) == 2 })
	third := dialRaw(t, node)
	third.closed(t)
	require.Equal(t, 1, node.log.count("too many connections"))
	second.Close()
	eventually(t, "no place becomes free", func() bool { return len(node.conns) == 1 })
	dialRaw(t, node).shakeHands(t)
}

func TestCloseIsBoundedAndComplete(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	nodes := startNodes(t, 3, func(c *Config) {
		c.Handle = func(ctx context.Context, _ raft.ServerID, _ []byte) []byte {
			<-ctx.Done()
			return nil
		}
	})
	failed := make(chan error, 2)
	for _, to := range []raft.ServerID{2, 3} {
		go func() {
			_, err := nodes[0].Call(context.Background(), to, []byte("put"))
			failed <- err
		}()
	}
	eventually(t, "no request arrived", func() bool { return len(nodes[1].requests)+len(nodes[2].requests) == 2 })
	require.NoError(t, nodes[1].Close())
	require.ErrorIs(t, <-failed, ErrReplyLost) // the one to server 2
	require.NoError(t, nodes[0].Close())
	require.ErrorIs(t, <-failed, ErrReplyLost)
	require.NoError(t, nodes[0].Close(), "twice is fine")
	nodes[0].Send([]raft.Message{heartbeat(1, 2, 1)})
	_, err := nodes[0].Call(context.Background(), 2, nil)
	require.ErrorIs(t, err, ErrNotSent)
}

func TestTransportSurvivesALostListener(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	nodes := startNodes(t, 2, nil)
	eventually(t, "no connection", func() bool { return nodes[0].PeerHTTP(2) != "" && nodes[1].PeerHTTP(1) != "" })
	nodes[0].listener.Close()
	eventually(t, "no line about it", func() bool { return nodes[0].log.count("cannot accept connections") == 1 })
	nodes[0].Send([]raft.Message{heartbeat(1, 2, 1)})
	require.Equal(t, raft.Term(1), nodes[1].in.wait(t).Term())
}

func ExampleListenTCP() {
	received := make(chan []raft.Message, 1)
	second, err := ListenTCP(Config{
		ID:      2,
		Addr:    "127.0.0.1:0",
		Peers:   map[raft.ServerID]string{1: "127.0.0.1:1"},
		Deliver: func(m []raft.Message) { received <- m },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer second.Close()
	first, err := ListenTCP(Config{
		ID:      1,
		Addr:    "127.0.0.1:0",
		Peers:   map[raft.ServerID]string{2: second.Addr().String()},
		Deliver: func([]raft.Message) {},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer first.Close()

	first.Send([]raft.Message{{From: 1, To: 2, Body: raft.RequestVoteArgs{Term: 1, CandidateID: 1}}})
	fmt.Printf("%+v\n", <-received)
	// Output: [{Cluster:0 From:1 To:2 Body:{Term:1 CandidateID:1 LastLogIndex:0 LastLogTerm:0 Transfer:false}}]
}
