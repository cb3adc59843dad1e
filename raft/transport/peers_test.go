package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fortytw2/leaktest"
	"github.com/stretchr/testify/require"

	"raftkv/raft"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// startAlone starts a server that knows nobody.
func startAlone(t *testing.T, id raft.ServerID, change func(*Config)) *tcpNode {
	t.Helper()
	return startNode(t, id, listen(t), nil, change)
}

func (n *tcpNode) addr() string { return n.Addr().String() }

// dialAs makes the raw peer server 2, which says that it is reached at addr.
func dialAs(t *testing.T, to *tcpNode, addr string) *rawPeer {
	t.Helper()
	p := dialRaw(t, to)
	p.write(t, greeting(func(h *hello) { h.Addr = addr }))
	kind, _ := p.answer(t)
	require.Equal(t, acceptFrame, kind)
	return p
}

// rejected reports that the other side refuses what it is greeted with, and why.
func (p *rawPeer) rejected(t *testing.T, greeting []byte, reason string) {
	t.Helper()
	p.write(t, greeting)
	kind, text := p.answer(t)
	require.Equal(t, refuseFrame, kind)
	require.Contains(t, string(text), reason)
	p.closed(t)
}

// receives waits for a message of server 1 to arrive at the raw peer.
func (p *rawPeer) receives(t *testing.T) raft.Message {
	t.Helper()
	kind, rest := p.next(t)
	require.Equal(t, messageFrame, kind)
	m, err := decodeMessage(rest)
	require.NoError(t, err)
	return m
}

// goroutinesEnd waits until there are no more goroutines than before. (Eventually
// would count its own.)
func goroutinesEnd(t *testing.T, before int) {
	t.Helper()
	for deadline := time.Now().Add(patience); runtime.NumGoroutine() > before; <-time.After(time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "%d goroutines are left over", runtime.NumGoroutine()-before)
	}
}

// sayUntilHeard sends a message until it arrives. Connections come and go in these
// tests, and messages with them; what counts is that one arrives.
func sayUntilHeard(t *testing.T, from, to *tcpNode, term raft.Term) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for heard := false; !heard; {
		require.True(t, time.Now().Before(deadline), "server %d does not hear", to.cfg.ID)
		from.Send([]raft.Message{heartbeat(from.cfg.ID, to.cfg.ID, term)})
		select {
		case m := <-to.in:
			heard = m.Term() == term
		case <-time.After(time.Millisecond):
		}
	}
}

func TestPeersAreAddedAtRunTime(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	first, second := startAlone(t, 1, withHandle(echo)), startAlone(t, 2, withHandle(echo))
	first.Send([]raft.Message{heartbeat(1, 2, 1)}) // to a stranger
	_, err := first.Call(t.Context(), 2, []byte("put"))
	require.ErrorIs(t, err, ErrNotSent)

	all := map[raft.ServerID]string{1: first.addr(), 2: second.addr(), 0: "127.0.0.1:1"}
	first.SetPeers(all)
	second.SetPeers(all)
	clear(all) // it is the caller's
	reply, err := first.Call(t.Context(), 2, []byte("put"))
	require.NoError(t, err, "the call waits for the connection")
	require.Equal(t, "1 said put", string(reply))
	first.Send([]raft.Message{heartbeat(1, 2, 2)})
	require.Equal(t, raft.Term(2), second.in.wait(t).Term())
	second.Send([]raft.Message{heartbeat(2, 1, 3)})
	require.Equal(t, raft.Term(3), first.in.wait(t).Term())
	require.Equal(t, "http-2", first.PeerHTTP(2))
	require.Nil(t, first.peer(1), "a server is no peer of itself")
	require.Nil(t, first.peer(raft.None))
}

// The configuration changes, and servers 2 and 3 stay: so do their connections.
func TestPeersThatStayKeepTheirConnections(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	l, node := listenRaw(t, nil)
	in := accept(t, l, 1)
	out := dialRaw(t, node)
	out.shakeHands(t)
	for term := raft.Term(1); term <= 3; term++ {
		node.SetPeers(map[raft.ServerID]string{2: l.Addr().String(), 10 + raft.ServerID(term): "127.0.0.1:1"})
		node.SetPeers(map[raft.ServerID]string{2: ""}) // known, but not to the one who asks
		node.Send([]raft.Message{heartbeat(1, 2, term)})
		require.Equal(t, term, in.receives(t).Term())
		out.write(t, outgoing{kind: messageFrame, message: heartbeat(2, 1, term)}.appendTo(nil))
		require.Equal(t, term, node.in.wait(t).Term())
	}
}

// Of a server that is removed nothing is left: no connection in either
// direction, nobody who waits for it, no goroutine, no line in the log.
func TestRemovedPeerIsLetGo(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	l, node := listen(t), startAlone(t, 1, nil)
	alone := runtime.NumGoroutine()
	for range 3 {
		node.SetPeers(map[raft.ServerID]string{2: l.Addr().String()})
		in := accept(t, l, 1)
		out := dialRaw(t, node)
		out.shakeHands(t)
		sent := make(chan error, 1)
		go func() {
			_, err := node.Call(context.Background(), 2, []byte("put"))
			sent <- err
		}()
		kind, _ := in.next(t)
		require.Equal(t, requestFrame, kind)

		node.SetPeers(nil)
		require.ErrorIs(t, <-sent, ErrReplyLost)
		in.closed(t)
		out.closed(t)
		require.Empty(t, node.PeerHTTP(2))
		node.Send([]raft.Message{heartbeat(1, 2, 1)})
		_, err := node.Call(t.Context(), 2, []byte("put"))
		require.ErrorIs(t, err, ErrNotSent)
		goroutinesEnd(t, alone)
	}
	require.Empty(t, node.log.String())
	require.Empty(t, node.complaints.last)
}

// What waits for a peer in trouble ends with the peer, too.
func TestRemovedPeerThatCannotBeReached(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	l, node := listen(t), startAlone(t, 1, nil)
	alone := runtime.NumGoroutine()
	node.SetPeers(map[raft.ServerID]string{2: l.Addr().String()}) // which accepts, and says nothing
	p := node.peer(2)
	waiting := make(chan error, 1)
	go func() {
		_, err := node.Call(context.Background(), 2, []byte("put"))
		waiting <- err
	}()
	eventually(t, "the call does not wait", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.queue) == 1
	})
	node.SetPeers(nil)
	require.ErrorIs(t, <-waiting, ErrNotSent)
	require.Zero(t, p.queued)
	goroutinesEnd(t, alone)

	// The log's memory ends with it, so that ids that come and go cost nothing.
	node.SetPeers(map[raft.ServerID]string{2: ""})
	eventually(t, "no line about it", func() bool { return node.log.count("cannot connect") == 1 })
	node.SetPeers(nil)
	require.Empty(t, node.complaints.last)
}

// A server that waits to be added knows nobody. Its leader dials it, and hears
// its answers, and takes its clients' requests.
func TestJoinerAnswersItsLeader(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	var asked sync.Map
	leader := startAlone(t, 1, withHandle(echo))
	joiner := startAlone(t, 2, func(c *Config) {
		c.CheckStore = func(id raft.ServerID, s raft.StoreID, _ raft.Index) (bool, error) {
			asked.Store(id, s)
			return false, nil
		}
	})
	checked := func() bool {
		known, found := asked.LoadAndDelete(raft.ServerID(1))
		return found && known == store(1)
	}
	leader.SetPeers(map[raft.ServerID]string{2: joiner.addr()})
	leader.Send([]raft.Message{heartbeat(1, 2, 1)})
	require.Equal(t, raft.Term(1), joiner.in.wait(t).Term())
	require.True(t, checked(), "the store of a stranger is checked like any other")
	joiner.Send([]raft.Message{heartbeat(2, 1, 2)})
	require.Equal(t, raft.Term(2), leader.in.wait(t).Term())
	require.Equal(t, "http-1", joiner.PeerHTTP(1))
	reply, err := joiner.Call(t.Context(), 1, []byte("put"))
	require.NoError(t, err)
	require.Equal(t, "2 said put", string(reply))

	// The configuration arrives, and the guest becomes a peer, of which more may
	// be asked: nothing of it is passed on before its store is checked again.
	checked()
	joiner.SetPeers(map[raft.ServerID]string{1: leader.addr()})
	sayUntilHeard(t, leader, joiner, 3)
	require.True(t, checked())
	sayUntilHeard(t, joiner, leader, 3)
	require.Equal(t, "http-1", joiner.PeerHTTP(1))
}

// The list changes while a server shakes hands. What CheckStore has said was
// about a stranger, and counts no longer.
func TestGuestIsNamedDuringItsHandshake(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	asked, answer := make(chan struct{}), make(chan error)
	l := listen(t)
	node := startAlone(t, 1, func(c *Config) {
		c.CheckStore = func(raft.ServerID, raft.StoreID, raft.Index) (bool, error) {
			asked <- struct{}{}
			return false, <-answer
		}
	})
	early := dialRaw(t, node)
	early.write(t, greeting(nil))
	<-asked
	node.SetPeers(map[raft.ServerID]string{2: l.Addr().String()})
	answer <- nil
	early.closed(t)

	again := dialRaw(t, node)
	again.write(t, greeting(nil))
	<-asked
	answer <- nil
	kind, _ := again.answer(t)
	require.Equal(t, acceptFrame, kind)
}

func TestGuestsEndWithTheirConnections(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	l, node := listen(t), startAlone(t, 1, nil)
	alone := runtime.NumGoroutine()
	guest := dialAs(t, node, l.Addr().String())
	node.Send([]raft.Message{heartbeat(1, 2, 7)})
	back := accept(t, l, 1)
	require.Equal(t, raft.Term(7), back.receives(t).Term())
	node.SetPeers(map[raft.ServerID]string{3: ""}) // says nothing of guests
	require.NotNil(t, node.peer(2))
	guest.Close()
	back.closed(t)
	eventually(t, "the guest is still there", func() bool { return node.peer(2) == nil })
	node.SetPeers(nil)
	require.Empty(t, node.PeerHTTP(2))

	// Whoever makes up ids gets no more than his connections can hold.
	for id := raft.ServerID(100); id < 200; id++ {
		p := dialRaw(t, node)
		p.write(t, greeting(func(h *hello) { h.From, h.Addr = id, fmt.Sprint("127.0.0.1:", uint64(id)) }))
		p.answer(t)
		require.NotNil(t, node.peer(id))
		p.Close()
		eventually(t, "the guest is still there", func() bool { return node.peer(id) == nil })
	}
	goroutinesEnd(t, alone)
	require.LessOrEqual(t, len(node.complaints.last), 2)
	require.Less(t, node.log.count("a peer"), 20, "%s", node.log)
}

// A guest dials anew: the end of the connection that it has given up is not its own.
func TestGuestThatDialsAgain(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	l, node := listen(t), startAlone(t, 1, nil)
	older := dialAs(t, node, l.Addr().String())
	back := accept(t, l, 1)
	newer := dialAs(t, node, l.Addr().String())
	older.closed(t)
	eventually(t, "the older connection is not given up", func() bool { return len(node.conns) == 1 })
	newer.write(t, outgoing{kind: messageFrame, message: heartbeat(2, 1, 1)}.appendTo(nil))
	require.Equal(t, raft.Term(1), node.in.wait(t).Term())
	node.Send([]raft.Message{heartbeat(1, 2, 2)})
	require.Equal(t, raft.Term(2), back.receives(t).Term())
}

// A guest comes back at another address, while its old connection still seems
// to be open.
func TestGuestThatMoved(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	before, after, node := listen(t), listen(t), startAlone(t, 1, nil)
	older := dialAs(t, node, before.Addr().String())
	accept(t, before, 1)
	newer := dialAs(t, node, after.Addr().String())
	older.closed(t)
	back := accept(t, after, 1)
	node.Send([]raft.Message{heartbeat(1, 2, 1)})
	require.Equal(t, raft.Term(1), back.receives(t).Term())
	newer.write(t, outgoing{kind: messageFrame, message: heartbeat(2, 1, 2)}.appendTo(nil))
	require.Equal(t, raft.Term(2), node.in.wait(t).Term())
}

// An operator replaces server 2 by another machine under the same id: the
// configuration gives the new address, and the old disk is forgotten. The old
// machine, which nobody has told, goes on dialling.
func TestServerIsReplacedInPlace(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	var good sync.Map
	good.Store(raft.ServerID(2), store(2))
	before, after := listen(t), listen(t)
	node := startAlone(t, 1, func(c *Config) {
		c.CheckStore = func(id raft.ServerID, s raft.StoreID, since raft.Index) (bool, error) {
			want, _ := good.Load(id)
			return onlyStores(map[raft.ServerID]raft.StoreID{id: want.(raft.StoreID)})(id, s, since)
		}
	})
	node.SetPeers(map[raft.ServerID]string{2: before.Addr().String()})
	oldIn := accept(t, before, 1)
	oldOut := dialAs(t, node, before.Addr().String())

	good.Store(raft.ServerID(2), store(9))
	node.SetPeers(map[raft.ServerID]string{2: after.Addr().String()})
	oldIn.closed(t)
	oldOut.closed(t)
	newIn := newRawPeer(t, acceptConn(t, after))
	kind, _ := newIn.answer(t)
	require.Equal(t, helloFrame, kind)
	replacement := func(h *hello) { h.Store, h.Run, h.Addr = store(9), 2, after.Addr().String() }
	acceptance := hello{Cluster: testCluster, From: 2, To: 1}
	replacement(&acceptance)
	newIn.write(t, appendHello(appendPreamble(nil, protocolVersion), acceptFrame, acceptance))
	newOut := dialRaw(t, node)
	newOut.write(t, greeting(replacement))
	kind, _ = newOut.answer(t)
	require.Equal(t, acceptFrame, kind)

	for range 3 {
		dialRaw(t, node).rejected(t, greeting(func(h *hello) { h.Addr = before.Addr().String() }), "had another one before")
	}
	require.Equal(t, 1, node.log.count("had another one before"), "lines about it:\n%s", node.log)
	node.Send([]raft.Message{heartbeat(1, 2, 5)})
	require.Equal(t, raft.Term(5), newIn.receives(t).Term())
	newOut.write(t, outgoing{kind: messageFrame, message: heartbeat(2, 1, 6)}.appendTo(nil))
	require.Equal(t, raft.Term(6), node.in.wait(t).Term())
	require.Equal(t, after.Addr().String(), node.peer(2).addr)
}

// The configuration that added server 2 anew, on another machine, has not come here.
// The new server says so itself, as soon as it knows, and the old one is given up.
func TestPeerAddedAnewSaysSoItself(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	before, after := listen(t), listen(t)
	var since atomic.Uint64
	since.Store(3)
	node := startAlone(t, 1, func(c *Config) {
		c.CheckStore = func(_ raft.ServerID, s raft.StoreID, announced raft.Index) (bool, error) {
			if s == store(9) && announced < 20 {
				return false, errors.New("it had another one before")
			}
			return announced == 20, nil
		}
		c.Since = func() raft.Index { return raft.Index(since.Load()) }
	})
	node.SetPeers(map[raft.ServerID]string{2: before.Addr().String()})
	oldIn := newRawPeer(t, acceptConn(t, before))
	_, payload := oldIn.answer(t)
	ours, err := decodeHello(payload)
	require.NoError(t, err)
	require.EqualValues(t, 3, ours.Since)
	oldIn.write(t, appendHello(appendPreamble(nil, protocolVersion), acceptFrame, hello{Cluster: testCluster, From: 2, To: 1, Store: store(2)}))
	oldOut := dialAs(t, node, before.Addr().String())

	added := func(since raft.Index) []byte {
		return greeting(func(h *hello) { h.Store, h.Since, h.Run, h.Addr = store(9), since, 2, after.Addr().String() })
	}
	dialRaw(t, node).rejected(t, added(0), "had another one before")
	since.Store(5)
	newOut := dialRaw(t, node)
	newOut.write(t, added(20))
	kind, payload := newOut.answer(t)
	require.Equal(t, acceptFrame, kind)
	ours, err = decodeHello(payload)
	require.NoError(t, err)
	require.EqualValues(t, 5, ours.Since, "as it is now")
	oldIn.closed(t)
	oldOut.closed(t)

	newIn := newRawPeer(t, acceptConn(t, after))
	newIn.answer(t)
	newIn.write(t, appendHello(appendPreamble(nil, protocolVersion), acceptFrame, hello{Cluster: testCluster, From: 2, To: 1, Store: store(9), Since: 20, Run: 2}))
	node.Send([]raft.Message{heartbeat(1, 2, 5)})
	require.Equal(t, raft.Term(5), newIn.receives(t).Term())
	newOut.write(t, outgoing{kind: messageFrame, message: heartbeat(2, 1, 6)}.appendTo(nil))
	require.Equal(t, raft.Term(6), node.in.wait(t).Term())
	node.SetPeers(map[raft.ServerID]string{2: after.Addr().String()})
	node.Send([]raft.Message{heartbeat(1, 2, 7)}) // the list says the same, so nothing ends
	require.Equal(t, raft.Term(7), newIn.receives(t).Term())
}

// A server that was refused soon dials again, and what it says then is new.
func TestRefusedServerSoonSaysMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var since atomic.Uint64
		_, nodes := join(t, 2, func(c *Config) {
			if c.ID == 1 {
				c.CheckStore = func(_ raft.ServerID, _ raft.StoreID, since raft.Index) (bool, error) {
					if since < 20 {
						return false, errors.New("it had another one before")
					}
					return true, nil
				}
				return
			}
			c.Since = func() raft.Index { return raft.Index(since.Load()) }
		})
		<-time.After(time.Minute) // the pauses are as long as they get
		require.Empty(t, nodes[0].PeerHTTP(2))
		since.Store(20)
		<-time.After(nodes[0].endpoint.cfg.MaxBackoff + time.Millisecond)
		nodes[1].Send([]raft.Message{heartbeat(2, 1, 1)})
		nodes[0].Send([]raft.Message{heartbeat(1, 2, 2)})
		require.Equal(t, 1, nodes[0].waiting())
		require.Equal(t, 1, nodes[1].waiting())
	})
}

// What SetPeers says of a peer's address is worth more than what the peer says:
// it may have been started with a wrong one.
func TestPeerDoesNotMoveByItself(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	l, node := listenRaw(t, nil)
	in := accept(t, l, 1)
	dialAs(t, node, "127.0.0.1:1")
	node.Send([]raft.Message{heartbeat(1, 2, 1)})
	require.Equal(t, raft.Term(1), in.receives(t).Term())
	require.Equal(t, l.Addr().String(), node.peer(2).addr)
}

// A configuration need not know where a member is.
func TestPeerWithoutAddressIsDialledWhenItHasSpoken(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	l, node := listen(t), startAlone(t, 1, nil)
	node.SetPeers(map[raft.ServerID]string{2: ""})
	eventually(t, "no line about it", func() bool { return node.log.count("nobody has said where it is") == 1 })
	out := dialAs(t, node, l.Addr().String())
	in := accept(t, l, 1)
	out.Close()
	p := node.peer(2)
	eventually(t, "the connection has not ended", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.in == nil
	})
	node.SetPeers(map[raft.ServerID]string{2: ""})
	node.Send([]raft.Message{heartbeat(1, 2, 1)}) // it is a peer, and no guest that leaves
	require.Equal(t, raft.Term(1), in.receives(t).Term())
}

// Two strangers say that they are server 2. The first one's disk is remembered,
// and the second is refused as it would be by a peer's id.
func TestTwoStrangersWithOneID(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	var known sync.Map
	node := startAlone(t, 1, func(c *Config) {
		c.CheckStore = func(id raft.ServerID, s raft.StoreID, since raft.Index) (bool, error) {
			want, _ := known.LoadOrStore(id, s)
			return onlyStores(map[raft.ServerID]raft.StoreID{id: want.(raft.StoreID)})(id, s, since)
		}
	})
	l := listen(t)
	first := dialAs(t, node, l.Addr().String())
	back := accept(t, l, 1)
	dialRaw(t, node).rejected(t, greeting(func(h *hello) { h.Store, h.Addr = store(9), "127.0.0.1:1" }), "had another one before")
	first.write(t, outgoing{kind: messageFrame, message: heartbeat(2, 1, 1)}.appendTo(nil))
	require.Equal(t, raft.Term(1), node.in.wait(t).Term())
	node.Send([]raft.Message{heartbeat(1, 2, 2)})
	require.Equal(t, raft.Term(2), back.receives(t).Term())

	// A refused stranger is no guest.
	dialRaw(t, node).rejected(t, greeting(func(h *hello) { h.From, h.Cluster = 3, 0xbad }), "cluster")
	require.Nil(t, node.peer(3))
}

// A server that was removed and does not know it asks for votes for ever. It is
// heard and answered, for the answer may be how it learns. The log stays short.
func TestRemovedServerGoesOnDialling(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	nodes := startNodes(t, 2, nil)
	for term := raft.Term(1); term <= 5; term++ {
		nodes[0].SetPeers(nil)
		sayUntilHeard(t, nodes[1], nodes[0], term)
		sayUntilHeard(t, nodes[0], nodes[1], term)
		nodes[0].SetPeers(map[raft.ServerID]string{2: nodes[1].addr()})
	}
	require.LessOrEqual(t, nodes[0].log.count("peer=2"), 2, "%s", nodes[0].log)
	require.LessOrEqual(t, nodes[1].log.count("peer=1"), 5, "%s", nodes[1].log)
}

func TestAdvertisedAddress(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	for name, c := range map[string]struct {
		change func(*Config)
		listen string
		want   string // "" means the address listened on
	}{
		"given":                  {func(c *Config) { c.AdvertiseAddr = "h1:9080" }, "127.0.0.1:0", "h1:9080"},
		"from the list":          {func(c *Config) { c.Peers = map[raft.ServerID]string{1: "h1:9081"} }, "127.0.0.1:0", "h1:9081"},
		"where it listens":       {nil, "127.0.0.1:0", ""},
		"not that of everything": {nil, "0.0.0.0:0", "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", c.listen)
			require.NoError(t, err)
			node := startNode(t, 1, l, nil, c.change)
			switch c.want {
			case "":
				c.want = node.addr()
			case "nothing":
				c.want = ""
			}
			_, port, err := net.SplitHostPort(node.addr())
			require.NoError(t, err)
			conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
			require.NoError(t, err)
			p := newRawPeer(t, conn)
			p.write(t, greeting(nil))
			kind, rest := p.answer(t)
			require.Equal(t, acceptFrame, kind)
			h, err := decodeHello(rest)
			require.NoError(t, err)
			require.Equal(t, c.want, h.Addr)
			p.Close()
		})
	}
}

// Everything at once, for the race detector; and nothing is left at the end.
func TestPeersChangeUnderLoad(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	nodes := startNodes(t, 3, withHandle(echo))
	var load sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	repeat := func(f func(i int)) {
		load.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				f(i)
			}
		})
	}
	for i, n := range nodes {
		next := raft.ServerID(i+1)%3 + 1
		repeat(func(int) {
			n.Send([]raft.Message{heartbeat(n.cfg.ID, next, 1)})
			select {
			case <-n.in:
			case <-time.After(time.Millisecond):
			}
		})
		repeat(func(int) { n.Call(ctx, next, []byte("put")) })
		repeat(func(k int) {
			some := map[raft.ServerID]string{}
			for j, other := range nodes {
				if (k>>j)&1 == 0 {
					some[other.cfg.ID] = other.addr()
				}
			}
			n.SetPeers(some)
			n.PeerHTTP(next)
			<-time.After(time.Millisecond)
		})
		repeat(func(k int) {
			n.Cut(next)
			n.Heal(next)
			<-time.After(time.Millisecond)
		})
	}
	<-ctx.Done()
	require.NoError(t, nodes[0].Close())
	load.Wait()
	nodes[0].SetPeers(map[raft.ServerID]string{9: nodes[1].addr()})
	require.Nil(t, nodes[0].peer(9), "after Close nothing happens")
	for _, n := range nodes[1:] {
		n.SetPeers(map[raft.ServerID]string{2: nodes[1].addr(), 3: nodes[2].addr()})
	}
	deadline := time.Now().Add(patience)
	for { // what is broken is mended by the next attempts
		attempt, done := context.WithTimeout(t.Context(), patience/10) // a reply may be dropped with a connection
		reply, err := nodes[1].Call(attempt, 3, []byte("put"))
		done()
		if err == nil {
			require.Equal(t, "2 said put", string(reply))
			break
		}
		require.True(t, time.Now().Before(deadline), "%v", err)
	}
}

func TestMemoryChangesItsPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, nodes := join(t, 3, func(c *Config) {
			c.Handle = echo
			if c.ID == 3 {
				c.Peers = nil // waits to be added
			} else {
				c.Peers = map[raft.ServerID]string{1: "a", 2: "b"}
			}
		})
		leader, other, joiner := nodes[0], nodes[1], nodes[2]
		settle()
		leader.Send([]raft.Message{heartbeat(1, 3, 1)})
		require.Zero(t, joiner.waiting())

		leader.SetPeers(map[raft.ServerID]string{1: "a", 2: "b", 3: "c"})
		settle()
		leader.Send([]raft.Message{heartbeat(1, 2, 1), heartbeat(1, 3, 1)})
		require.Equal(t, 1, other.waiting())
		require.Equal(t, 1, joiner.waiting())
		joiner.Send([]raft.Message{heartbeat(3, 1, 1), heartbeat(3, 2, 1)})
		require.Equal(t, 1, leader.waiting(), "a guest is answered")
		require.Equal(t, 1, other.waiting(), "a stranger is not")
		reply, err := joiner.Call(t.Context(), 1, []byte("put"))
		require.NoError(t, err)
		require.Equal(t, "3 said put", string(reply))
		require.Equal(t, "http-1", joiner.PeerHTTP(1))

		// A cut holds for who comes later, and under any list of peers.
		network.Cut(1, 3)
		leader.Cut(2)
		for _, peers := range []map[raft.ServerID]string{nil, {2: "b", 3: "c"}, {2: "other", 3: "other"}} {
			leader.SetPeers(peers)
			settle()
			leader.Send([]raft.Message{heartbeat(1, 2, 2), heartbeat(1, 3, 2)})
			require.Equal(t, 1, other.waiting())
			require.Equal(t, 1, joiner.waiting())
		}
		network.Heal(1, 3)
		leader.Heal(2)
		leader.Send([]raft.Message{heartbeat(1, 2, 2), heartbeat(1, 3, 2)})
		require.Equal(t, 2, other.waiting())
		require.Equal(t, 2, joiner.waiting())

		leader.SetPeers(map[raft.ServerID]string{2: "b"})
		settle()
		require.Empty(t, joiner.PeerHTTP(1), "the guest has left")
		leader.Send([]raft.Message{heartbeat(1, 3, 3)})
		require.Equal(t, 2, joiner.waiting())
	})
}

// Server 2 has left and server 1 tries to reach it, until it is removed.
func TestRemovedPeerIsNotDialled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dialled []string
		var dialling atomic.Int32
		cfg, err := config(1, nil, &logbook{}).withDefaults()
		require.NoError(t, err)
		cfg.Peers = map[raft.ServerID]string{2: "before"}
		e := start(cfg, &pipes{made: make(chan net.Conn), closed: make(chan struct{})}, func(ctx context.Context, _ raft.ServerID, addr string) (net.Conn, error) {
			dialled = append(dialled, addr)
			dialling.Add(1)
			defer dialling.Add(-1)
			<-ctx.Done() // a packet filter that swallows everything
			return nil, ctx.Err()
		})
		synctest.Wait()
		began := time.Now()
		e.SetPeers(map[raft.ServerID]string{2: "after"})
		synctest.Wait()
		require.Equal(t, []string{"before", "after"}, dialled)
		require.EqualValues(t, 1, dialling.Load())
		e.SetPeers(nil)
		synctest.Wait()
		require.Zero(t, dialling.Load())
		require.Zero(t, time.Since(began), "something waits for an attempt at the old address")
		settle()
		require.Equal(t, []string{"before", "after"}, dialled)
		require.NoError(t, e.Close())
	})
}
