package raft_test

import (
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	raft "raftkv/part1-election"
)

// Three servers on loopback TCP elect a leader. They print to standard error
// what happens to them, so that go test -v -run Example shows it.
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
	for id, listener := range listeners {
		peers := map[raft.ServerID]string{}
		for peerID, l := range listeners {
			if peerID != id {
				peers[peerID] = l.Addr().String()
			}
		}
		s := raft.NewServer(id, listener, peers)
		s.Trace = trace
		s.Serve()
		defer s.Shutdown()
		servers = append(servers, s)
	}

	for range time.Tick(10 * time.Millisecond) {
		leaders, followers := 0, 0
		for _, s := range servers {
			switch status := s.Status(); {
			case status.State == raft.Leader:
				leaders++
			case status.LeaderID != raft.None:
				followers++
			}
		}
		if leaders == 1 && followers == 2 {
			fmt.Println("one leader and two followers")
			return
		}
	}
	// Output: one leader and two followers
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
	fmt.Fprintln(os.Stderr, strings.ReplaceAll(line, "raft.", ""))
}
