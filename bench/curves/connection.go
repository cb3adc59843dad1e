package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// connection is a cheap HTTP/1.1 client: one connection, one request at a time,
// no goroutine, answers with a Content-Length only. net/http's client costs more
// than the server that answers it, and here both share a machine.
type connection struct {
	addr string
	conn net.Conn
	in   *bufio.Reader
	out  []byte
	body []byte
}

// answerTimeout is longer than a server takes to say "unknown".
const answerTimeout = 15 * time.Second

func dial(addr string) (*connection, error) {
	conn, err := net.DialTimeout("tcp", addr, answerTimeout)
	if err != nil {
		return nil, err
	}
	return &connection{addr: addr, conn: conn, in: bufio.NewReader(conn)}, nil
}

func (c *connection) close() { c.conn.Close() }

// post sends a request and returns the body of the answer, which holds until the
// next call. Any status but 200 is an error.
func (c *connection) post(path string, body []byte) ([]byte, error) {
	c.out = append(c.out[:0], "POST "...)
	c.out = append(c.out, path...)
	c.out = append(c.out, " HTTP/1.1\r\nHost: "...)
	c.out = append(c.out, c.addr...)
	c.out = append(c.out, "\r\nContent-Type: application/json\r\nContent-Length: "...)
	c.out = strconv.AppendInt(c.out, int64(len(body)), 10)
	c.out = append(c.out, "\r\n\r\n"...)
	c.out = append(c.out, body...)
	c.conn.SetDeadline(time.Now().Add(answerTimeout))
	if _, err := c.conn.Write(c.out); err != nil {
		return nil, err
	}
	return c.read()
}

func (c *connection) read() ([]byte, error) {
	status, err := c.line()
	if err != nil {
		return nil, err
	}
	ok := bytes.HasPrefix(status, []byte("HTTP/1.1 200 "))
	length := -1
	for {
		line, err := c.line()
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			break
		}
		if value, found := bytes.CutPrefix(line, []byte("Content-Length: ")); found {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return nil, err
			}
		}
	}
	if length < 0 {
		return nil, fmt.Errorf("an answer without Content-Length")
	}
	if cap(c.body) < length {
		c.body = make([]byte, length)
	}
	c.body = c.body[:length]
	if _, err := io.ReadFull(c.in, c.body); err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("the server answered %s", c.body)
	}
	return c.body, nil
}

// line returns the next line without its end; it holds until the next call.
func (c *connection) line() ([]byte, error) {
	line, err := c.in.ReadSlice('\n')
	return bytes.TrimSuffix(line, []byte("\r\n")), err
}
