// Package rawhttp is a cheap client of HTTP/1.1: one connection that is kept, one
// request at a time, no goroutine. On a machine where clients and servers share two
// cores, net/http's client would take as much as a server; this one leaves nearly
// all to the servers. It understands only answers that state their length.
package rawhttp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// Conn is a connection to one server. Only one goroutine may use it at a time.
type Conn struct {
	addr    string
	timeout time.Duration // of one request

	conn net.Conn // nil before the first request and after an error
	in   *bufio.Reader
	out  []byte
	body []byte
}

// New returns a connection to addr, which the first request opens.
func New(addr string, timeout time.Duration) *Conn {
	return &Conn{addr: addr, timeout: timeout}
}

// Close ends the connection. A later request opens another.
func (c *Conn) Close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// Post sends a JSON body and returns the status and the body of the answer, which
// is good until the next call.
func (c *Conn) Post(path string, body []byte) (status int, answer []byte, err error) {
	if c.conn == nil {
		conn, err := net.DialTimeout("tcp", c.addr, c.timeout)
		if err != nil {
			return 0, nil, err
		}
		c.conn, c.in = conn, bufio.NewReader(conn)
	}
	c.out = append(c.out[:0], "POST "...)
	c.out = append(c.out, path...)
	c.out = append(c.out, " HTTP/1.1\r\nHost: "...)
	c.out = append(c.out, c.addr...)
	c.out = append(c.out, "\r\nContent-Type: application/json\r\nContent-Length: "...)
	c.out = strconv.AppendInt(c.out, int64(len(body)), 10)
	c.out = append(c.out, "\r\n\r\n"...)
	c.out = append(c.out, body...)
	c.conn.SetDeadline(time.Now().Add(c.timeout))
	if _, err = c.conn.Write(c.out); err == nil {
		status, answer, err = c.read()
	}
	if err != nil {
		c.Close() // what comes on it next would be the answer to this request
	}
	return status, answer, err
}

var (
	lengthHeader = []byte("content-length:")
	errNoLength  = errors.New("rawhttp: the answer does not state its length")
)

func (c *Conn) read() (status int, body []byte, err error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, nil, err
	}
	// HTTP/1.1 200 OK
	if len(line) < 12 {
		return 0, nil, fmt.Errorf("rawhttp: %q is no status line", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, nil, err
	}
	length := -1
	for {
		if line, err = c.in.ReadSlice('\n'); err != nil {
			return 0, nil, err
		}
		if len(line) <= len("\r\n") {
			break
		}
		if len(line) > len(lengthHeader) && bytes.EqualFold(line[:len(lengthHeader)], lengthHeader) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(lengthHeader):]))); err != nil {
				return 0, nil, err
			}
		}
	}
	if length < 0 {
		return 0, nil, errNoLength
	}
	if cap(c.body) < length {
		c.body = make([]byte, length)
	}
	c.body = c.body[:length]
	_, err = io.ReadFull(c.in, c.body)
	return status, c.body, err
}
