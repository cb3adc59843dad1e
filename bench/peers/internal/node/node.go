// Package node holds what the programs of the contenders have in common: their
// flags and their end.
package node

import (
	"flag"
	"log"
	"strings"
)

// Config is which node of which cluster a process is.
type Config struct {
	ID      int      // from 0
	Dir     string   // the node's own, and it exists
	Peers   []string // where the nodes listen for each other
	Clients []string // where they listen for clients
}

// Parse reads the command line: these flags, and those that the program has defined.
func Parse() Config {
	id := flag.Int("id", 0, "which of the nodes this is, from 0")
	dir := flag.String("dir", "", "the data directory of this node")
	peers := flag.String("peers", "", "the addresses of all nodes for each other, comma between")
	clients := flag.String("clients", "", "their addresses for clients")
	flag.Parse()
	c := Config{ID: *id, Dir: *dir, Peers: strings.Split(*peers, ","), Clients: strings.Split(*clients, ",")}
	if *dir == "" || *id < 0 || *id >= len(c.Peers) || len(c.Peers) != len(c.Clients) {
		log.Fatal("give --id, --dir, and as many --peers as --clients")
	}
	return c
}

// Check ends the process if there is an error.
func Check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
