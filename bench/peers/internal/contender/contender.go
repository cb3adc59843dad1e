// Package contender knows the systems that are compared: how their processes are
// started, who of them leads, and how clients speak to them.
//
//	contender.go  what a contender is, and all of them by name
//	etcd.go       etcd
//	http.go       whatever speaks JSON over HTTP, with the cheap client
//	front.go      the libraries and the yardsticks, which share a front
//	raftkv.go     raftkv
package contender

import (
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"raftkv/bench/peers/internal/load"
)

// Place is where a cluster of three runs.
type Place struct {
	Programs string   // the folder with the programs of this module
	Raftkv   string   // the program raftkv
	Dirs     []string // one data directory for each node; they exist
	Peers    []string // the addresses of the nodes for each other
	Clients  []string // and those for clients
}

// Contender is a system that can be measured.
type Contender struct {
	Name string
	Ops  []load.Op // what clients can ask it for, Find apart

	// Command returns the command line of node i.
	Command func(p Place, i int) []string

	// Leads reports whether node i answers and says that it leads.
	Leads func(p Place, i int) bool

	// Dial returns a session of so many clients, each with a connection of its own or
	// a part in one, as the system is used best. They ask node first; when a request
	// fails, the next. timeout is that of one try.
	Dial func(p Place, clients, first int, timeout time.Duration) (load.Session, error)

	// Shared returns a session in which all clients use one client of the system's
	// own kind; nil if it has none. timeout is that of a call with all its tries.
	Shared func(p Place, timeout time.Duration) (load.Session, error)

	// Journal is part of the path of the files whose syncs make a write durable; ""
	// means all files.
	Journal string
}

var all = map[string]*Contender{}

func register(c *Contender) { all[c.Name] = c }

// Named returns a contender.
func Named(name string) (*Contender, error) {
	c, known := all[name]
	if !known {
		return nil, fmt.Errorf("there is no contender %q; there are %s", name, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	}
	return c, nil
}

// program returns the command line of one of this module's programs.
func program(name string, flags ...string) func(p Place, i int) []string {
	return func(p Place, i int) []string {
		return append([]string{
			filepath.Join(p.Programs, name), "--id", strconv.Itoa(i), "--dir", p.Dirs[i],
			"--peers", strings.Join(p.Peers, ","), "--clients", strings.Join(p.Clients, ","),
		}, flags...)
	}
}

// patient is for questions that are asked again when they are not answered soon.
var patient = &http.Client{Timeout: 300 * time.Millisecond}
