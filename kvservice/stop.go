package kvservice

import (
	"context"
	"errors"
	"time"

	"raftkv/raft"
)

// patience is how long a node waits for others. A client that is slower is cut
// off, so that it cannot hold on to what others need.
type patience struct {
	header time.Duration // for the head of a request, on a new connection too
	body   time.Duration // for a request with its body
	answer time.Duration // for an answer to be taken
	idle   time.Duration // between two requests

	handOver time.Duration // for another server to take over when the node stops
	drain    time.Duration // then, for requests under way to come to their end
	lastWord time.Duration // then, for those to be told that they will not
}

var usualPatience = patience{
	header:   5 * time.Second,
	body:     30 * time.Second,
	answer:   30 * time.Second,
	idle:     2 * time.Minute,
	handOver: time.Second,
	drain:    4 * time.Second,
	lastWord: time.Second,
}

// stop ends everything, in an order in which nobody is left without an answer
// that could have had one. It returns what went wrong.
func (n *Node) stop() error {
	n.service.stopping.Store(true)
	n.handOver()
	n.drain()
	return n.raft.Stop()
}

// handOver lets another server lead before this one stops, so that nobody has to
// notice its absence first. If nobody can, it stops all the same.
func (n *Node) handOver() {
	if n.raft.Status().State != raft.Leader {
		return
	}
	ctx, cancel := context.WithTimeout(n.unhurried, n.patience.handOver)
	defer cancel()
	err := raft.ErrTransferAborted
	for errors.Is(err, raft.ErrTransferAborted) {
		err = n.raft.TransferLeadership(ctx, raft.None)
	}
	if err != nil { // there is nobody else, or no time left
		n.service.config.Logger.Debug("stopping without a successor", "err", err)
	}
}

// drain ends the service for clients while there is still somebody to give them
// their answers. No more connections are taken; requests under way may come to
// their end; those that do not are told that nobody knows their outcome; and what
// is open even then, because the client is slow, is closed.
func (n *Node) drain() {
	for _, step := range []time.Duration{n.patience.drain, n.patience.lastWord} {
		ctx, cancel := context.WithTimeout(n.unhurried, step)
		err := n.http.Shutdown(ctx)
		cancel()
		if err == nil {
			return
		}
		n.giveUp()
	}
	n.http.Close()
}

// Stop ends the node: it hands leadership over if it leads, lets requests under
// way come to their end, then closes everything, and returns what had gone wrong
// before, or nil. It takes at most six seconds, and what a write to the disk
// takes that is under way. Calling it twice is fine.
func (n *Node) Stop() error {
	n.endWith(nil)
	<-n.done
	return n.err
}

// Hurry makes Stop, now or later, wait for no other server and no client: their
// connections are closed at once. Nothing that was acknowledged is lost.
func (n *Node) Hurry() { n.hurry() }
