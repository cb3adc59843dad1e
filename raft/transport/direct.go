package transport

import (
	"slices"
	"syscall"
)

// A message that finds nobody writing to its peer is written by who sends it. To wake
// the goroutine that is there for it costs more than the write: where there are few
// messages, as with reads, nearly half of what a follower does.
//
// The sender is the server's loop, which must not wait for a slow peer. So it writes
// what the system takes at once, and leaves the rest to the goroutine. That one also
// meets the error, if there is one.

// directBytes bounds what a sender writes by itself. Longer ones take their time.
const directBytes = 16 << 10

// isDirect reports whether the sender of a frame of so many bytes should write it.
// Needs p.mu.
func (p *peer) isDirect(o outgoing, size int) bool {
	return p.direct != nil && !p.writing && len(p.queue) == 0 &&
		o.kind == messageFrame && size <= directBytes && !o.isPart()
}

// writeDirectly writes a frame to a connection on which p.writing was set for it.
func (p *peer) writeDirectly(o outgoing, conn syscall.RawConn) {
	p.frame = o.appendTo(p.frame[:0])
	n := writeSome(conn, p.frame)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing = false
	p.forget(o)
	if n < len(p.frame) && p.direct == conn { // else the connection has ended, and the frame with it
		begun := outgoing{kind: begunFrame, rest: slices.Clone(p.frame[n:])}
		p.queued += begun.size()
		p.queue = slices.Insert(p.queue, 0, begun)
	}
	if len(p.queue) > 0 {
		p.wakeWriter()
	}
}
