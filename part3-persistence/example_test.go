package raft_test

import (
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	raft "raftkv/part3-persistence"
)

// Three servers on loopback TCP elect a leader, and two commands come out of
// all three. What happens to the servers they print to standard error, so that
// go test -v -run Example shows it.
func Example() {
	listeners := map[raft.ServerID]net.Listener{}
	for id := raft.ServerID(1); id <= 3; id++ {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		listeners[id] = listener
	}
	var servers []*raft.Server
	var commitChans []chan raft.CommitEntry
	for id, listener := range listeners {
		peers := map[raft.ServerID]string{}
		for peerID, l := range listeners {
			if peerID != id {
				peers[peerID] = l.Addr().String()
			}
		}
		commitChan := make(chan raft.CommitEntry)
		s, err := raft.NewServer(id, listener, peers, raft.NewMapStorage(), commitChan)
		if err != nil {
			panic(err)
		}
		s.Trace = trace
		s.Serve()
		defer s.Shutdown()
		servers, commitChans = append(servers, s), append(commitChans, commitChan)
	}

	submit := func(command string) {
		for range time.Tick(10 * time.Millisecond) {
			for _, s := range servers {
				if s.IsLeader() {
					if _, _, err := s.Submit([]byte(command)); err == nil {
						return
					}
				}
			}
		}
	}
	submit("x=1")
	submit("x=2")
	for _, commitChan := range commitChans {
		for range 3 { // the first is the new leader's empty entry
			e := <-commitChan
			fmt.Printf("%d:%s ", e.Index, e.Command)
		}
		fmt.Println("on every server")
	}
	// Output:
	// 1: 2:x=1 3:x=2 on every server
	// 1: 2:x=1 3:x=2 on every server
	// 1: 2:x=1 3:x=2 on every server
}

// trace prints one step: who, what happened, what is sent.
func trace(s raft.Status, event raft.Event, out raft.Effects) {
	what := fmt.Sprintf("%T", event)
	if m, ok := event.(raft.Message); ok {
		what = fmt.Sprintf("%d: %T%+v", m.From, m.Body, m.Body)
	}
	line := fmt.Sprintf("n%d %-9s t%d | %s |", s.ID, s.State, s.Term, what)
	for _, m := range out.Send {
		line += fmt.Sprintf(" →n%d %T%+v", m.To, m.Body, m.Body)
	}
	if out.Save.Needed() {
		line += " save,"
	}
	for _, m := range out.SendAfter {
		line += fmt.Sprintf(" →n%d %T%+v", m.To, m.Body, m.Body)
	}
	fmt.Fprintln(os.Stderr, strings.ReplaceAll(line, "raft.", ""))
}
