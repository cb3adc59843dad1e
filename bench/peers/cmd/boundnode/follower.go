package main

import (
	"bufio"
	"net"

	"raftkv/bench/peers/internal/front"
	"raftkv/bench/peers/internal/kv"
)

// follow takes the frames of the one connection that the leader opens.
func follow(addr string, j *journal, m *kv.Machine) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	in := bufio.NewReaderSize(conn, 1<<20)
	var entry []byte
	for {
		if entry, err = readFrame(in, entry); err != nil {
			return err
		}
		if err := j.append(entry); err != nil {
			return err
		}
		if _, err := conn.Write([]byte{1}); err != nil {
			return err
		}
		if _, err := m.Apply(entry); err != nil {
			return err
		}
	}
}

// follower is what a client finds that asks here.
type follower struct{}

func (follower) Apply([]byte) (kv.Result, error)  { return kv.Result{}, front.ErrNotLeader }
func (follower) Get(string) (string, bool, error) { return "", false, front.ErrNotLeader }
func (follower) Leads() bool                      { return false }
