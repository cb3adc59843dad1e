// Package search visits every state that a small cluster can reach: whatever
// timer fires next, whichever message arrives next and how often, whoever
// crashes next. It runs the core itself, no model of it.
//
// Messages are a set and are never used up. One that was sent may arrive at any
// time, any number of times, or never: loss, doubling, delay and reordering need
// no steps of their own.
//
// The core is a function: the same server state and the same event always give
// the same next state and the same messages. So each pair is stepped once and
// remembered, and a state of the cluster is a few small numbers and a set.
//
// Reading order: search.go (the bounds, the loop), cluster.go (one step of the
// cluster), step.go (one step of a server), messages.go, check.go (the
// properties), visited.go (which states need no second look) and spent.go (which
// messages need none). What is left out, and why that misses nothing, stands
// where it is left out; docs/search.md has the list, the figures and the limits.
package search

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"raftkv/raft"
)

// The largest bounds that the fixed sizes in this package allow.
const (
	maxNodes = 5
	maxTerm  = 7
	maxIndex = 12
)

// Config bounds a search.
type Config struct {
	Nodes   int       // 1 to 5; zero means 3
	Terms   raft.Term // no election begins beyond this term; 1 to 7, zero means 3
	Entries int       // commands that clients submit in all; a leader's empty entries come on top
	Crashes int       // crashes in all, each with an immediate restart

	// Prune leaves out messages of a term below their receiver's. That makes the
	// search small enough to be complete, and blind for what such messages do.
	Prune bool

	// Single makes every message carry at most one entry. Otherwise one carries all
	// that its receiver lacks, and a leader's empty entry always comes along.
	Single bool

	// MaxStates and MaxDepth cut a search off after so many states or steps. Zero
	// means 4 million states, some 3 GB, and any depth.
	MaxStates, MaxDepth int

	Progress func(Report) // called now and then; may be nil
}

// Report tells what a search has seen.
type Report struct {
	States   int  // states of the cluster that had to be looked at
	Clusters int  // of these, how many differ in a server and not only in messages
	Servers  int  // distinct states of a server
	Messages int  // distinct messages
	Steps    int  // distinct pairs of server state and event: steps of the core
	Depth    int  // steps of the longest path looked at
	Complete bool // nothing within Nodes, Terms, Entries and Crashes was left out
	Deposed  int  // states with two leaders, of different terms
	Commits  int  // states in which something was applied
}

// Violation is a property that does not hold, and a way there.
type Violation struct {
	Property string
	Path     []string // a line per step
	Shortest bool     // no shorter path is there
}

func (v *Violation) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, after %d steps", v.Property, len(v.Path))
	if !v.Shortest {
		b.WriteString(" (a shorter path may exist)")
	}
	for i, step := range v.Path {
		fmt.Fprintf(&b, "\n%3d  %s", i+1, step)
	}
	return b.String()
}

// Run searches within the bounds. The error is a *Violation, or says what is
// wrong with the bounds, or is nil. It runs in the caller's goroutine.
//
// A search that may be complete goes depth first and takes the states with the
// most messages first, because those make others superfluous. One that is to be
// cut off, with MaxDepth or without Prune and with MaxStates, goes breadth first;
// so does a second search for the shortest path to what the first has found.
func Run(config Config) (Report, error) { return run(config, newModule) }

func run(config Config, start newModuleFunc) (Report, error) {
	if config.Nodes == 0 {
		config.Nodes = 3
	}
	if config.Terms == 0 {
		config.Terms = 3
	}
	deep := config.MaxDepth == 0 && (config.Prune || config.MaxStates == 0)
	if config.MaxStates == 0 {
		config.MaxStates = 4_000_000
	}
	switch {
	case config.Nodes < 1 || config.Nodes > maxNodes:
		return Report{}, fmt.Errorf("search: %d nodes; 1 to %d can be searched", config.Nodes, maxNodes)
	case config.Terms > maxTerm:
		return Report{}, fmt.Errorf("search: %d terms; at most %d can be searched", config.Terms, maxTerm)
	case config.Entries < 0 || config.Entries+int(config.Terms) > maxIndex:
		return Report{}, fmt.Errorf("search: %d entries; 0 to %d can be searched with %d terms", config.Entries, maxIndex-int(config.Terms), config.Terms)
	case config.Crashes < 0 || config.Crashes > 100:
		return Report{}, fmt.Errorf("search: %d crashes; 0 to 100 can be searched", config.Crashes)
	}
	s := newSearch(config, start)
	report, err := s.run(deep)
	var found *Violation
	if deep && errors.As(err, &found) {
		config.MaxDepth = len(found.Path)
		again := newSearch(config, start)
		rest, err := again.run(false)
		var shorter *Violation
		switch {
		case errors.As(err, &shorter):
			return report, shorter
		case rest.States < config.MaxStates:
			found.Shortest = true
		}
		return report, found
	}
	return report, err
}

type search struct {
	config    Config
	start     newModuleFunc
	renamings []renaming
	deep      bool // depth first, not breadth first
	keepSpent bool // see spent.go
	refuted   bool

	// What is known about servers and messages (step.go, messages.go).
	forms     map[string]form
	serverOf  map[form]serverID
	servers   []serverState
	outcomes  []outcome
	messageOf map[string]messageID
	messages  []message
	inboxes   []int // by receiver: how many messages to it there are
	older     []set // by term: the messages of lower terms
	pack      []byte

	// What is known about clusters (visited.go).
	visited  map[key][]seen
	nodes    []node
	frontier []state

	report Report
}

func newSearch(config Config, start newModuleFunc) *search {
	return &search{
		config:    config,
		start:     start,
		renamings: renamings(config.Nodes),
		forms:     map[string]form{},
		serverOf:  map[form]serverID{},
		outcomes:  make([]outcome, 1), // so that 0 is no outcome
		messageOf: map[string]messageID{},
		inboxes:   make([]int, config.Nodes),
		older:     make([]set, config.Terms+1),
	}
}

// run searches depth first or breadth first, from the beginning. If a message
// that was taken for spent turns out not to be, it starts again with all.
func (s *search) run(deep bool) (Report, error) {
	s.deep = deep
	for {
		s.visited, s.nodes, s.frontier = map[key][]seen{}, nil, nil
		steps := s.report.Steps
		s.report = Report{Steps: steps}
		s.refuted = false
		complete, err := s.all()
		if !s.refuted || err != nil {
			return s.counted(complete), err
		}
		s.keepSpent = true
	}
}

func (s *search) all() (complete bool, err error) {
	first := state{}
	for i := range s.config.Nodes {
		first.servers[i] = s.born(raft.ServerID(i+1), raft.PersistentState{})
	}
	if err := s.visit(&first, node{parent: -1}); err != nil {
		return false, err
	}
	next := 0 // breadth first, the frontier is a queue that is read from here
	for done := 1; next < len(s.frontier) && !s.refuted; done++ {
		var now state
		if s.deep {
			last := len(s.frontier) - 1
			now, s.frontier = s.frontier[last], s.frontier[:last]
			if s.nodes[now.node].covered {
				continue
			}
		} else {
			now, s.frontier[next] = s.frontier[next], state{}
			next++
		}
		if len(s.nodes) >= s.config.MaxStates || s.config.MaxDepth > 0 && int(s.nodes[now.node].depth) >= s.config.MaxDepth {
			return false, nil
		}
		before := len(s.frontier)
		if err := s.expand(&now); err != nil {
			return false, err
		}
		if s.deep {
			slices.SortFunc(s.frontier[before:], func(a, b state) int { return a.messages.len() - b.messages.len() })
		}
		if s.config.Progress != nil && done%100_000 == 0 {
			s.config.Progress(s.counted(false))
		}
	}
	return true, nil
}

func (s *search) counted(complete bool) Report {
	r := s.report
	r.States, r.Clusters, r.Servers, r.Messages, r.Complete = len(s.nodes), len(s.visited), len(s.servers), len(s.messageOf), complete
	return r
}
