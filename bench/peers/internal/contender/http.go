package contender

import (
	"bytes"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"raftkv/bench/internal/rawhttp"
	"raftkv/bench/peers/internal/load"
)

// dialect is how a system writes its requests in JSON.
type dialect struct {
	// open returns the identity under which a client writes. It is called before the
	// client's first write, with the connection that the write will take.
	open func(*rawhttp.Conn) (identity, error)

	// write appends the body of a request and returns the path that it goes to.
	write func(body []byte, id identity, r load.Request) (path string, _ []byte)

	// good reports whether the answer says that all of the request was carried out;
	// for a Find, that the key is there.
	good func(op load.Op, answer []byte) bool
}

// identity is what tells a client's writes from those of others. Systems use the
// one or the other.
type identity struct {
	number uint64
	name   string
}

// httpSession is a session of clients that each have a connection to the node that
// is asked.
type httpSession struct {
	dialect dialect
	asks    atomic.Int32 // the node that all clients ask
	nodes   int
	clients []httpClient
}

type httpClient struct {
	id          identity
	opened      bool
	connections []*rawhttp.Conn // to each node
	body        []byte
}

func dialHTTP(p Place, d dialect, clients, first int, timeout time.Duration) *httpSession {
	s := &httpSession{dialect: d, nodes: len(p.Clients), clients: make([]httpClient, clients)}
	s.asks.Store(int32(first))
	for i := range s.clients {
		for _, addr := range p.Clients {
			s.clients[i].connections = append(s.clients[i].connections, rawhttp.New(addr, timeout))
		}
	}
	return s
}

func (s *httpSession) Do(client int, r load.Request) error {
	node := s.asks.Load()
	err := s.ask(&s.clients[client], int(node), r)
	if err != nil {
		// Only the first of the clients that fail here moves all of them on.
		s.asks.CompareAndSwap(node, (node+1)%int32(s.nodes))
	}
	return err
}

func (s *httpSession) ask(c *httpClient, node int, r load.Request) (err error) {
	if !c.opened && (r.Op == load.Put || r.Op == load.Batch) {
		if c.id, err = s.dialect.open(c.connections[node]); err != nil {
			return err
		}
		c.opened = true
	}
	path, body := s.dialect.write(c.body[:0], c.id, r)
	c.body = body
	status, answer, err := c.connections[node].Post(path, body)
	if err != nil {
		return err
	}
	if status != http.StatusOK || !s.dialect.good(r.Op, answer) {
		return fmt.Errorf("%s: status %d: %.200s", path, status, bytes.TrimSpace(answer))
	}
	return nil
}

func (s *httpSession) Close() {
	for _, c := range s.clients {
		for _, connection := range c.connections {
			connection.Close()
		}
	}
}
