package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"

	"raftkv/bench/peers/internal/kv"
)

// serveFast speaks just enough HTTP/1.1 for the clients of this harness.
func serveFast(addr string, l *leader) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		c := &fastConn{leader: l, conn: conn, in: bufio.NewReaderSize(conn, 8192)}
		c.waiter.done = make(chan struct{}, 1)
		go c.serve()
	}
}

// fastConn is one connection. Whatever a request needs is used again for the next.
type fastConn struct {
	leader *leader
	conn   net.Conn
	in     *bufio.Reader
	waiter waiter

	path, body, text, out []byte
}

func (c *fastConn) serve() {
	defer c.conn.Close()
	for c.read() == nil && c.handle() == nil {
	}
}

var (
	errBad       = errors.New("that is no request")
	lengthHeader = []byte("content-length:")
)

// read takes one request in.
func (c *fastConn) read() error {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return err
	}
	words := bytes.SplitN(line, []byte(" "), 3)
	if len(words) != 3 {
		return errBad
	}
	c.path = append(c.path[:0], words[1]...)
	length := 0
	for {
		if line, err = c.in.ReadSlice('\n'); err != nil {
			return err
		}
		if len(line) <= len("\r\n") {
			break
		}
		if len(line) > len(lengthHeader) && bytes.EqualFold(line[:len(lengthHeader)], lengthHeader) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(lengthHeader):]))); err != nil {
				return err
			}
		}
	}
	if cap(c.body) < length {
		c.body = make([]byte, length)
	}
	c.body = c.body[:length]
	_, err = io.ReadFull(c.in, c.body)
	return err
}

func (c *fastConn) handle() error {
	switch string(c.path) {
	case "/put", "/batch":
		entry := c.waiter.entry[:0]
		s := scanner{b: c.body}
		for s.object() {
			entry = kv.AppendPut(entry, s.client, s.request, s.key, s.value)
		}
		if c.waiter.entry = entry; len(entry) == 0 {
			return errBad
		}
		c.leader.submit(&c.waiter)
		return c.answer(fmt.Appendf(c.text[:0], `{"ok":true,"found":%t}`, c.waiter.result.Found))
	case "/get":
		s := scanner{b: c.body}
		if !s.object() {
			return errBad
		}
		value, found, _ := c.leader.Get(string(s.key))
		return c.answer(fmt.Appendf(c.text[:0], `{"ok":true,"found":%t,"value":"%s"}`, found, value))
	case "/leader":
		return c.answer(nil)
	case "/metrics":
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return c.answer(fmt.Appendln(c.text[:0], "go_memstats_heap_inuse_bytes", m.HeapInuse))
	}
	return errBad
}

func (c *fastConn) answer(body []byte) error {
	c.text = body
	c.out = append(c.out[:0], "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "...)
	c.out = strconv.AppendInt(c.out, int64(len(body)), 10)
	c.out = append(c.out, "\r\n\r\n"...)
	c.out = append(c.out, body...)
	_, err := c.conn.Write(c.out)
	return err
}
