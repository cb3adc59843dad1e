// Command boundnode is a node of the yardstick. It is no Raft: node 0 leads for
// ever, and there are no terms, elections, repairs, snapshots or restarts. It does
// the least that a durable, replicated store must do, to see what this machine
// allows a Go program: the leader gathers the puts that wait, sends them to its two
// followers, writes them to its journal and syncs it, and answers when it and one
// follower have done so.
//
// Its front is package front, as the libraries have it, or with --fast one by hand.
//
//	main.go       who does what
//	journal.go    the file
//	leader.go     gathering, sending, waiting
//	follower.go   the other side
//	fast.go       HTTP by hand
//	scan.go       JSON by hand
package main

import (
	"flag"
	"log"
	"path/filepath"

	"raftkv/bench/peers/internal/front"
	"raftkv/bench/peers/internal/kv"
	"raftkv/bench/peers/internal/node"
)

func main() {
	fast := flag.Bool("fast", false, "HTTP and JSON by hand")
	sync := flag.Bool("sync", true, "sync the journal; without it nothing is durable, and the check of syncs must notice")
	c := node.Parse()

	j, err := openJournal(filepath.Join(c.Dir, "journal"), *sync)
	node.Check(err)
	machine := kv.New()
	if c.ID != 0 {
		go func() { log.Fatal(follow(c.Peers[c.ID], j, machine)) }()
		log.Fatal(front.Serve(c.Clients[c.ID], follower{}))
	}
	l, err := newLeader(c.Peers[1:], j, machine)
	node.Check(err)
	go func() { log.Fatal(l.run()) }()
	if *fast {
		log.Fatal(serveFast(c.Clients[c.ID], l))
	}
	log.Fatal(front.Serve(c.Clients[c.ID], l))
}
