// Package web lets a check be a client of a service over HTTP, and needs no
// network for it: a connection is a pipe in memory. The service has a [Log] in
// which the check commits what it likes.
//
// There are goroutines and a clock here, net/http's. So a check waits for what
// must come and never for a time, and the verdict is the same each time.
package web

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"

	raft "raftkv/part3-persistence"
)

// Log is the raft.Server of a service: a log in which the check commits what it
// likes. All is of term 1.
type Log struct {
	Refuse    atomic.Bool           // Submit takes no commands
	Submitted chan raft.CommitEntry // has room for one
	Committed chan raft.CommitEntry

	last raft.Index
}

// NewLog returns an empty log.
func NewLog() *Log {
	return &Log{Submitted: make(chan raft.CommitEntry, 1), Committed: make(chan raft.CommitEntry)}
}

// Submit sends to Submitted. The service calls it under its lock.
func (l *Log) Submit(command []byte) (raft.Index, raft.Term, error) {
	if l.Refuse.Load() {
		return 0, 0, &raft.NotLeaderError{Leader: 2, Term: 1}
	}
	l.last++
	l.Submitted <- raft.CommitEntry{Index: l.last, Term: 1, Kind: raft.EntryCommand, Command: command}
	return l.last, 1, nil
}

// Server is a service that waits for clients.
type Server struct{ listener listener }

// Serve starts a service: serve is its function that takes a listener over and
// returns.
func Serve(serve func(net.Listener)) *Server {
	s := &Server{listener{calls: make(chan net.Conn), closed: make(chan struct{})}}
	serve(&s.listener)
	return s
}

// Call is a request that a client has sent, over a connection of its own.
type Call struct {
	conn   net.Conn
	closed chan struct{} // by the service
}

// Post sends a request. It returns when the service has taken all of it; what the
// service makes of it is another matter.
func (s *Server) Post(path string, request any) *Call {
	ours, theirs := net.Pipe()
	c := &Call{ours, make(chan struct{})}
	s.listener.calls <- &seen{Conn: theirs, closed: c.closed}
	body, err := json.Marshal(request)
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	req, err := http.NewRequest(http.MethodPost, "http://service"+path, bytes.NewReader(body))
	if err != nil {
		panic(err) // the path is ours
	}
	req.Header.Set("Content-Type", "application/json")
	if err := req.Write(ours); err != nil {
		panic(err) // nobody but the service has the other end
	}
	return c
}

// Answer waits for the answer and reads it into response, which stays as it is if
// the answer is none that can be read. The connection is at its end then.
func (c *Call) Answer(response any) {
	answer, err := http.ReadResponse(bufio.NewReader(c.conn), nil)
	if err == nil {
		json.NewDecoder(answer.Body).Decode(response)
	}
	c.HangUp()
}

// HangUp ends the connection, answered or not, and returns when the service has
// noticed and done what it does then.
func (c *Call) HangUp() {
	c.conn.Close()
	<-c.closed
}

// things returns how many things are in memory that somebody can still get at.
func things() int {
	runtime.GC()
	runtime.GC() // what a sync.Pool holds goes with the second one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapObjects)
}

// Left returns how many things more than before are in memory after something has
// been done n times.
func Left(n int, do func()) int {
	for range 10 {
		do() // what is made once is made
	}
	before := things()
	for range n {
		do()
	}
	return things() - before
}

// listener hands connections over.
type listener struct {
	calls  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.calls:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "service"} }

// seen is the service's end of a connection. It tells when the service closes it,
// which net/http does when the handler has returned.
type seen struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (s *seen) Close() error {
	err := s.Conn.Close()
	s.once.Do(func() { close(s.closed) })
	return err
}
