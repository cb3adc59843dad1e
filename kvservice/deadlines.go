package kvservice

import (
	"net"
	"os"
	"sync"
	"time"
)

// For each request net/http sets eight deadlines, most of which are replaced before
// anybody waits under them. And while the handler runs it reads one byte in the
// background, to notice that the client has gone: a system call that finds nothing,
// and a deadline in the past to end it.
//
// So a client's connection passes a deadline on when something is about to wait
// under it, and the background read begins when the request has lasted for a while.
// Such a read is told by its single byte and its lack of a deadline. If another looks
// like that, it begins late and nothing else.

// goneAfter is how long a request lasts, up to twice that, before anybody looks
// whether its client is still there.
const goneAfter = 100 * time.Millisecond

// deadlines are those of one connection.
type deadlines struct {
	opened time.Time   // a deadline before that is to end the read under way
	turn   chan bool   // tells the read that waits whether it shall begin; has room for that
	alarm  *time.Timer // runs look

	mu                sync.Mutex
	read, write       time.Time // as net/http wants them
	setRead, setWrite time.Time // as the system has them
	reading, writing  bool
	waiting           bool   // a read, to begin
	waits             uint64 // how many have waited
	alarmSet          bool
	alarmFor          uint64 // waits when it was set
}

func newClientConn(conn net.Conn) *clientConn {
	c := &clientConn{Conn: conn, close: conn.Close, deadlines: deadlines{opened: time.Now(), turn: make(chan bool, 1)}}
	c.alarm = time.AfterFunc(goneAfter, c.look)
	c.alarm.Stop()
	return c
}

// SetDeadline implements net.Conn.
func (c *clientConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline counts at once for a read that is under way, and otherwise for the
// next one.
func (c *clientConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = t
	switch {
	case c.waiting && c.isOver():
		c.endWait(false)
	case c.reading:
		return c.applyRead()
	}
	return nil
}

// SetWriteDeadline counts at once for a write that is under way, and otherwise for
// the next one.
func (c *clientConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write = t
	if c.writing {
		return c.applyWrite()
	}
	return nil
}

// isOver reports whether no read shall begin. The lock is held.
func (c *clientConn) isOver() bool { return !c.read.IsZero() && c.read.Before(c.opened) }

// applyRead passes the deadline on. The lock is held.
func (c *clientConn) applyRead() error {
	if c.setRead.Equal(c.read) {
		return nil
	}
	c.setRead = c.read
	return c.Conn.SetReadDeadline(c.read)
}

// applyWrite passes the deadline on. The lock is held.
func (c *clientConn) applyWrite() error {
	if c.setWrite.Equal(c.write) {
		return nil
	}
	c.setWrite = c.write
	return c.Conn.SetWriteDeadline(c.write)
}

// Read is for one goroutine at a time.
func (c *clientConn) Read(p []byte) (int, error) {
	if err := c.beginRead(len(p)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	c.reading = false
	c.mu.Unlock()
	return n, err
}

// beginRead waits if the read is one in the background. After an error the read
// must not begin.
func (c *clientConn) beginRead(bytes int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if bytes == 1 && c.read.IsZero() && !c.waitToBegin() || c.isOver() {
		return os.ErrDeadlineExceeded
	}
	if err := c.applyRead(); err != nil {
		return err
	}
	c.reading = true
	return nil
}

// waitToBegin reports whether the read shall begin after all. The lock is held,
// but not while it waits.
func (c *clientConn) waitToBegin() bool {
	c.waiting = true
	c.waits++
	if !c.alarmSet {
		c.setAlarm()
	}
	c.mu.Unlock()
	begins := <-c.turn
	c.mu.Lock()
	return begins
}

// endWait tells the read that waits. The lock is held.
func (c *clientConn) endWait(begins bool) {
	c.waiting = false
	c.turn <- begins
}

// setAlarm makes look run after goneAfter. The alarm is not stopped with each
// request, for that would cost as much as what is saved here. The lock is held.
func (c *clientConn) setAlarm() {
	c.alarmSet, c.alarmFor = true, c.waits
	c.alarm.Reset(goneAfter)
}

// look lets the read begin that has waited since the alarm was set.
func (c *clientConn) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alarmSet = false
	switch {
	case c.waiting && c.waits == c.alarmFor:
		c.endWait(true)
	case c.waiting:
		c.setAlarm()
	}
}

// Write is for one goroutine at a time.
func (c *clientConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	err := c.applyWrite()
	c.writing = err == nil
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	c.mu.Lock()
	c.writing = false
	c.mu.Unlock()
	return n, err
}
