package main

import (
	"encoding/binary"
	"io"
	"log"
	"net"
	"sync"
	"time"

	"raftkv/bench/peers/internal/kv"
)

// A frame on the wire is 8 bytes with the length of what follows, and one entry of
// package kv. The answer to a frame is one byte.
const frameHeader = 8

// waiter is one request and its answer.
type waiter struct {
	entry  []byte
	result kv.Result
	done   chan struct{} // holds one token when result is there
}

type leader struct {
	journal *journal
	machine *kv.Machine
	peers   []net.Conn
	wake    chan struct{} // holds a token when something waits

	mu      sync.Mutex
	waiting []*waiter

	ackMu sync.Mutex
	acked uint64 // the newest frame that a follower has on its disk
	more  *sync.Cond
}

func newLeader(peers []string, j *journal, m *kv.Machine) (*leader, error) {
	l := &leader{journal: j, machine: m, wake: make(chan struct{}, 1)}
	l.more = sync.NewCond(&l.ackMu)
	for _, addr := range peers {
		conn, err := dial(addr)
		if err != nil {
			return nil, err
		}
		l.peers = append(l.peers, conn)
		go func() { log.Fatal(l.countAnswers(conn)) }()
	}
	return l, nil
}

// dial waits for a follower that has not started yet.
func dial(addr string) (conn net.Conn, err error) {
	again, late := time.Tick(10*time.Millisecond), time.After(5*time.Second)
	for {
		if conn, err = net.Dial("tcp", addr); err == nil {
			return conn, nil
		}
		select {
		case <-again:
		case <-late:
			return nil, err
		}
	}
}

// countAnswers notes which frame a follower has come to: it answers them in order.
func (l *leader) countAnswers(conn net.Conn) error {
	answers := make([]byte, 64)
	for frame := uint64(0); ; {
		n, err := conn.Read(answers)
		if err != nil {
			return err
		}
		frame += uint64(n)
		l.ackMu.Lock()
		if frame > l.acked {
			l.acked = frame
			l.more.Broadcast()
		}
		l.ackMu.Unlock()
	}
}

func (l *leader) submit(w *waiter) {
	l.mu.Lock()
	l.waiting = append(l.waiting, w)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default: // it has a token already
	}
	<-w.done
}

// run carries out what waits, all of it at once, until something fails.
func (l *leader) run() error {
	frame := make([]byte, frameHeader, 1<<20)
	var batch []*waiter
	for number := uint64(1); ; number++ {
		for len(batch) == 0 {
			<-l.wake
			l.mu.Lock()
			batch, l.waiting = l.waiting, batch
			l.mu.Unlock()
		}
		frame = frame[:frameHeader]
		for _, w := range batch {
			frame = append(frame, w.entry...)
		}
		binary.LittleEndian.PutUint64(frame, uint64(len(frame)-frameHeader))
		for _, conn := range l.peers {
			if _, err := conn.Write(frame); err != nil {
				return err
			}
		}
		if err := l.journal.append(frame[frameHeader:]); err != nil {
			return err
		}
		l.ackMu.Lock()
		for l.acked < number {
			l.more.Wait()
		}
		l.ackMu.Unlock()
		for i, w := range batch {
			result, err := l.machine.Apply(w.entry)
			if err != nil {
				return err
			}
			w.result = result
			w.done <- struct{}{}
			batch[i] = nil
		}
		batch = batch[:0]
	}
}

// Apply makes leader a front.Store.
func (l *leader) Apply(entry []byte) (kv.Result, error) {
	w := &waiter{entry: entry, done: make(chan struct{}, 1)}
	l.submit(w)
	return w.result, nil
}

// Get reads the map and asks nobody: who leads for ever needs no confirmation.
func (l *leader) Get(key string) (string, bool, error) {
	value, found := l.machine.Get(key)
	return value, found, nil
}

func (l *leader) Leads() bool { return true }

// readFrame reads a frame into b, which it makes longer if need be.
func readFrame(r io.Reader, b []byte) ([]byte, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	n := int(binary.LittleEndian.Uint64(header[:]))
	if cap(b) < n {
		b = make([]byte, n)
	}
	_, err := io.ReadFull(r, b[:n])
	return b[:n], err
}
