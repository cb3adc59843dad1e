package transport

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"raftkv/raft"
)

// complaints keeps a trouble that lasts from filling the log. Attempts are
// many and reasons are few, so a line is written only when the reason changes.
type complaints struct {
	log *slog.Logger

	mu           sync.Mutex
	last         map[subject]string
	lastStranger time.Time
}

// subject is what a complaint is about: one side of one server. Complaints about
// strangers are counted together, so that nobody can make the table grow.
type subject struct {
	peer     raft.ServerID // None if that is not known
	side     side
	stranger bool // not a peer by Config.Peers or SetPeers
}

// key is where a subject stands in the table.
func (s subject) key() subject {
	if s.stranger {
		s.peer = raft.None
	}
	return s
}

type side uint8

const (
	outgoingSide side = iota // our connection to the server
	incomingSide             // the server's connections to us
	queueSide                // what waits for the server
)

// about writes one line, unless that would repeat the last one on the subject.
// Strangers, who could make up new reasons, get at most one line a second.
func (c *complaints) about(s subject, text, addr string, err error) {
	reason := cause(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last[s.key()] == text+addr+reason {
		return
	}
	if s.stranger {
		if time.Since(c.lastStranger) < time.Second {
			return
		}
		c.lastStranger = time.Now()
	}
	c.last[s.key()] = text + addr + reason
	c.log.Warn(text, "peer", uint64(s.peer), "addr", addr, "reason", reason)
}

// settled makes the next complaint about the subject worth a line again.
func (c *complaints) settled(s subject) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.last, s.key())
}

// cause returns an error's text without the addresses of the connection. They
// have a new port at each attempt and would make every reason look new.
func cause(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "it does not answer in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "it closed the connection"
	case closedHere(err):
		return "it was started anew"
	}
	return err.Error()
}

// closedHere reports whether err says that this side closed the connection. It
// does so when it learns that the peer was started anew, and in Close.
func closedHere(err error) bool {
	return errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe)
}
