package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"raftkv/internal/cores"
	"raftkv/rafttest"
)

const playHelp = `  (empty), next [N]     the next event, or the next N
  second, run 300ms     let time pass
  leader                until a server leads
  back                  as it was before the last line
  crash 2, restart 2    a server; what its disk holds survives
  cut 1-3, isolate 2    a link; all links of a server
  heal                  all links
  submit x=1 [to 2]     parts 2, 3: a command, to the leader or to that server
  [B] put x 1           parts 4, 5: a client wants something. Also
  [B] append x 1          without a letter it is client A
  [B] get x
  lose B, hear B        parts 4, 5: answers to a client get lost, or no longer
  help, quit

  On the screen: * has changed since the screen before; ✓ is known, by that
  server, to be committed; "3 t2 x=1" is entry 3, of term 2; PrevLog=3/t2 stands
  for PrevLogIndex 3 and PrevLogTerm 2; s1=4 is what a leader knows of server 1.`

// part is a part of the tutorial as the game knows it.
type part struct {
	name  string
	start func(t rafttest.TB, seed uint64, servers int) (*rafttest.Cluster, *rafttest.KV)

	hasLog, hasDisk bool
}

var parts = []part{
	{name: "part1", start: func(t rafttest.TB, seed uint64, n int) (*rafttest.Cluster, *rafttest.KV) {
		return rafttest.NewSeed(t, seed, n, cores.NewPart1), nil
	}},
	{name: "part2", hasLog: true, start: func(t rafttest.TB, seed uint64, n int) (*rafttest.Cluster, *rafttest.KV) {
		return rafttest.NewSeed(t, seed, n, cores.NewPart2), nil
	}},
	{name: "part3", hasLog: true, hasDisk: true, start: func(t rafttest.TB, seed uint64, n int) (*rafttest.Cluster, *rafttest.KV) {
		return rafttest.NewSeed(t, seed, n, cores.NewPart3), nil
	}},
	{name: "part4", hasLog: true, hasDisk: true, start: func(t rafttest.TB, seed uint64, n int) (*rafttest.Cluster, *rafttest.KV) {
		kv := rafttest.NewKVSeed(t, seed, n, cores.NewPart4)
		return kv.Cluster, kv
	}},
	{name: "part5", hasLog: true, hasDisk: true, start: func(t rafttest.TB, seed uint64, n int) (*rafttest.Cluster, *rafttest.KV) {
		kv := rafttest.NewKVSeed(t, seed, n, cores.NewPart5)
		return kv.Cluster, kv
	}},
}

// game is a cluster and how it came to be what it is.
type game struct {
	part    part
	seed    uint64
	servers int

	c       *rafttest.Cluster
	kv      *rafttest.KV // nil but for parts 4 and 5
	clients []*player

	lines  []string // that have done something, since the beginning
	said   string   // to the player, about the last line
	broken string   // the rule that was broken; the game is over, but for back
}

// player is a client that the game has made.
type player struct {
	*rafttest.Client
	call *rafttest.Call // the latest; nil if there is none
}

// referee is told which rule was broken.
type referee struct{}

type brokenRule string

func (referee) Helper()             {}
func (referee) Name() string        { return "play" }
func (referee) Logf(string, ...any) {}
func (referee) Fatalf(format string, args ...any) {
	what, _, _ := strings.Cut(fmt.Sprintf(format, args...), "\n")
	panic(brokenRule(what))
}

func newGame(p part, seed uint64, servers int) *game {
	g := &game{part: p, seed: seed, servers: servers}
	g.restart()
	g.said = `an empty line is the next event; "help" lists all`
	return g
}

func (g *game) restart() {
	g.c, g.kv = g.part.start(referee{}, g.seed, g.servers)
	g.clients, g.lines, g.said, g.broken = nil, nil, "", ""
}

// do carries out a line. An error changes nothing; the screen shows it.
func (g *game) do(line string) error {
	g.said = ""
	words := strings.Fields(line)
	if len(words) == 0 {
		words = []string{"next"}
	}
	var err error
	switch {
	case words[0] == "back" || words[0] == "b":
		err = g.back()
	case words[0] == "help" || words[0] == "h":
		g.said = playHelp
	case g.broken != "":
		err = errors.New(`a rule is broken; "back" undoes it`)
	default:
		if err = g.try(words); err == nil {
			g.lines = append(g.lines, line)
		}
	}
	if err != nil {
		g.said = err.Error()
	}
	return err
}

// back plays everything again but the last line: the same lines with the same
// seed lead to the same cluster.
func (g *game) back() error {
	if len(g.lines) == 0 {
		return errors.New("this is the beginning")
	}
	lines := g.lines[:len(g.lines)-1]
	g.restart()
	for _, line := range lines {
		if err := g.do(line); err != nil {
			return err
		}
	}
	g.said = "back"
	return nil
}

// try is do for what changes the cluster. A rule that is broken on the way is
// no error but what has happened.
func (g *game) try(words []string) error {
	defer func() {
		if r := recover(); r != nil {
			rule, ok := r.(brokenRule)
			if !ok {
				panic(r)
			}
			g.broken = string(rule)
		}
	}()
	verb, args := words[0], words[1:]
	switch verb {
	case "next", "n":
		return g.next(args)
	case "second", "s":
		g.c.RunFor(time.Second)
	case "run":
		span, err := time.ParseDuration(strings.Join(args, ""))
		if err != nil || span <= 0 || span > time.Minute {
			return errors.New("run 300ms: a duration up to 1m")
		}
		g.c.RunFor(span)
	case "leader":
		for end := g.c.Now() + 5*time.Second; g.c.Leader() == nil; g.c.Step() {
			if next := g.c.Waiting(); len(next) == 0 || next[0].At > end {
				g.said = "no leader within five seconds"
				return nil
			}
		}
	case "crash":
		return g.server(args, "crash 2", g.c.Crash)
	case "restart":
		return g.server(args, "restart 2", g.c.Restart)
	case "isolate":
		return g.server(args, "isolate 2", g.c.Isolate)
	case "cut":
		a, b, _ := strings.Cut(strings.Join(args, "-"), "-")
		var from *rafttest.Server
		if err := g.server([]string{a}, "cut 1-3", func(s *rafttest.Server) { from = s }); err != nil {
			return err
		}
		return g.server([]string{b}, "cut 1-3", func(to *rafttest.Server) { g.c.Cut(from, to) })
	case "heal":
		g.c.Heal()
	case "submit":
		return g.submit(args)
	default:
		if g.kv != nil {
			return g.client(words)
		}
		return fmt.Errorf("%q? help lists what there is", verb)
	}
	return nil
}

func (g *game) next(args []string) error {
	n := 1
	if len(args) > 0 {
		var err error
		if n, err = strconv.Atoi(args[0]); err != nil || n < 1 || n > 10_000 {
			return errors.New("next 5: a number up to 10000")
		}
	}
	for range n {
		if !g.c.Step() {
			g.said = "nothing will happen any more: all servers are down"
		}
	}
	return nil
}

// server calls f with the server that the only argument names.
func (g *game) server(args []string, example string, f func(*rafttest.Server)) error {
	if len(args) == 1 {
		if id, err := strconv.Atoi(args[0]); err == nil && id >= 1 && id <= g.servers {
			f(g.c.Server(id))
			return nil
		}
	}
	return fmt.Errorf("%s: the servers are 1 to %d", example, g.servers)
}

func (g *game) submit(args []string) error {
	if !g.part.hasLog || g.kv != nil {
		return fmt.Errorf("%s takes no bare commands", g.part.name)
	}
	to := g.c.Leader()
	if len(args) == 3 && args[1] == "to" {
		if err := g.server(args[2:], "submit x=1 to 2", func(s *rafttest.Server) { to = s }); err != nil {
			return err
		}
		args = args[:1]
	}
	switch {
	case len(args) != 1:
		return errors.New("submit x=1, or submit x=1 to 2: a command without blanks")
	case to == nil:
		return errors.New("no server leads with a majority; to ask one all the same: submit x=1 to 2")
	case !to.Running():
		return fmt.Errorf("%v is down", to)
	}
	if sub := to.Submit(args[0]); sub.Refused() {
		g.said = fmt.Sprintf("%v refuses: it is no leader", to)
	}
	return nil
}

// client has a client start something: [letter] verb key [value].
func (g *game) client(words []string) error {
	letter := "A"
	if len(words[0]) == 1 && words[0] >= "A" && words[0] <= "Z" {
		letter, words = words[0], words[1:]
	}
	if len(words) == 2 && (words[0] == "lose" || words[0] == "hear") {
		p, err := g.player(words[1])
		if err != nil {
			return err
		}
		if words[0] == "lose" {
			g.kv.LoseAnswersTo(p.Client)
		} else {
			g.kv.HearAgain(p.Client)
		}
		return nil
	}
	verb, args := "", words
	if len(words) > 0 {
		verb, args = words[0], words[1:]
	}
	if wants := map[string]int{"get": 1, "put": 2, "append": 2}[verb]; wants == 0 || len(args) != wants {
		return errors.New("get x, put x 1 or append x 1, maybe with a client's letter before it; help lists all")
	}
	p, err := g.player(letter)
	switch {
	case err != nil:
		return err
	case p.call != nil && !p.call.Done():
		return fmt.Errorf("%v still waits for its answer; let another client ask: B %s", p, strings.Join(words, " "))
	case verb == "get":
		p.call = p.StartGet(args[0])
	case verb == "put":
		p.call = p.StartPut(args[0], args[1])
	default:
		p.call = p.StartAppend(args[0], args[1])
	}
	return nil
}

// player returns the client with a letter, and makes those up to it if need be.
func (g *game) player(letter string) (*player, error) {
	n := slices.Index([]string{"A", "B", "C"}, letter)
	if n < 0 {
		return nil, errors.New("the clients are A, B and C")
	}
	for len(g.clients) <= n {
		g.clients = append(g.clients, &player{Client: g.kv.Client()})
	}
	return g.clients[n], nil
}
