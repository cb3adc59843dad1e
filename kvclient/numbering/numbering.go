// Package numbering is the arithmetic behind a client whose writes take effect
// exactly once: which number a write gets, how far everything is settled, and
// what may be said of a write after several attempts at it.
//
// [Numbers] and [Call] are plain values. They start no goroutine, take no lock
// and read no clock, so the simulator drives the same code that kvclient does.
// The rules they serve are in docs/sessions.md.
package numbering

import "fmt"

// Window is how far a client's newest number may be ahead of AckedThrough. It
// is smaller than any server's window, so a server never has to refuse a
// number of ours for being too far ahead.
const Window = 256

// Numbers allots the RequestIDs of one session and remembers which of them are
// settled: answered to the caller, or given up. The zero value is a new
// session, whose first number is 1. It must be used by one goroutine at a time.
type Numbers struct {
	last uint64 // the newest number allotted; never allotted again

	// ackedThrough: every number up to it is settled.
	// Invariant: ackedThrough <= last <= ackedThrough+Window.
	ackedThrough uint64

	// settled holds the settled numbers above ackedThrough.
	// Invariant: ackedThrough+1 is not among them.
	settled map[uint64]bool
}

// Next allots a new number. ok is false if the window is full: an old number
// must be settled first.
func (n *Numbers) Next() (requestID uint64, ok bool) {
	if n.Room() == 0 {
		return 0, false
	}
	n.last++
	return n.last, true
}

// Room returns how many numbers Next would allot now.
func (n *Numbers) Room() int { return int(n.ackedThrough + Window - n.last) }

// Settle notes that nobody waits for requestID any more: its caller has had the
// answer, or was told that the outcome is unknown. It panics if requestID was
// not allotted or is settled already, which is a mistake of the caller.
//
// The next request tells the server by its AckedThrough. From then on the
// server refuses late copies of requestID, so a write that was given up cannot
// take effect after a later write did.
func (n *Numbers) Settle(requestID uint64) {
	if requestID <= n.ackedThrough || requestID > n.last || n.settled[requestID] {
		panic(fmt.Sprintf("numbering: request %d is not open (settled through %d, last %d)", requestID, n.ackedThrough, n.last))
	}
	if requestID != n.ackedThrough+1 {
		if n.settled == nil {
			n.settled = make(map[uint64]bool)
		}
		n.settled[requestID] = true
		return
	}
	n.ackedThrough++
	for n.settled[n.ackedThrough+1] {
		n.ackedThrough++
		delete(n.settled, n.ackedThrough)
	}
}

// AckedThrough returns the number up to which all are settled; 0 if the first
// is still open. It never falls.
func (n *Numbers) AckedThrough() uint64 { return n.ackedThrough }

// Open returns how many numbers are allotted and not settled.
func (n *Numbers) Open() int {
	return int(n.last-n.ackedThrough) - len(n.settled)
}
