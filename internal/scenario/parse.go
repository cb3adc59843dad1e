package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"raftkv/raft"
)

// config is what a story sets for all its servers.
type config struct {
	preVote, quorumCheck     bool
	batch, inflight, backlog int // as in raft.Config; 0 means the default

	// trailing too, but nothing trails behind a snapshot unless the story says so.
	trailing int
}

// Parse reads a story. Errors name file and line.
func Parse(file, text string) (*Story, error) {
	p := newParser(file)
	for n, line := range strings.Split(text, "\n") {
		if err := p.parseLine(n+1, line); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n+1, err)
		}
	}
	switch {
	case p.story.Title == "":
		return nil, fmt.Errorf("%s:1: a story begins with a comment that says what it shows", file)
	case p.servers == nil:
		return nil, fmt.Errorf("%s: no line says which servers there are, such as: cluster 1 2 3", file)
	}
	return p.story, nil
}

func newParser(file string) *parser {
	return &parser{story: &Story{File: file, From: "raft", config: config{preVote: true, quorumCheck: true, trailing: 1}}}
}

type parser struct {
	story   *Story
	servers []raft.ServerID
	headers bool // the headers have begun, so the title has ended
	opened  bool // the opening comment has ended
}

func (p *parser) parseLine(number int, line string) error {
	if comment, ok := strings.CutPrefix(line, "#"); ok {
		if p.opened {
			return nil
		}
		return p.parseComment(strings.TrimSpace(comment))
	}
	p.opened = p.opened || p.story.Title != ""
	text, _, _ := strings.Cut(strings.ReplaceAll(line, "\t", " "), " #")
	text = strings.TrimSpace(text)
	if text == "" {
		return nil
	}
	do, err := p.parseStatement(strings.Fields(text))
	if err != nil {
		return err
	}
	p.story.statements = append(p.story.statements, statement{number, text, do})
	return nil
}

// parseComment reads the title or, from the first "rules:" or the like on, headers:
//
//	rules: AE-3 ALL-2     paper: §5.3     from: part2     config: prevote=off
func (p *parser) parseComment(text string) error {
	first, _, _ := strings.Cut(text, " ")
	if !p.headers && !isHeader(first) {
		p.story.Title = strings.TrimSpace(p.story.Title + " " + text)
		return nil
	}
	p.headers = true
	var name string
	for _, word := range strings.Fields(text) {
		if isHeader(word) {
			name = word
			continue
		}
		if err := p.header(name, word); err != nil {
			return err
		}
	}
	return nil
}

func isHeader(word string) bool {
	return slices.Contains([]string{"rules:", "pitfalls:", "paper:", "from:", "config:"}, word)
}

func (p *parser) header(name, value string) error {
	s := p.story
	switch name {
	case "rules:":
		s.Rules = append(s.Rules, value)
	case "pitfalls:":
		s.Pitfalls = append(s.Pitfalls, value)
	case "paper:":
		s.Paper = strings.TrimSpace(s.Paper + " " + value)
	case "from:":
		if !slices.Contains(Stages, value) {
			return fmt.Errorf("from: is one of %v, not %q", Stages, value)
		}
		s.From = value
	case "config:":
		return s.config.set(value)
	default:
		return fmt.Errorf("%q stands before any of rules: pitfalls: paper: from: config:", value)
	}
	return nil
}

func (c *config) set(word string) error {
	name, value, _ := strings.Cut(word, "=")
	flag := func(to *bool) error {
		if value != "on" && value != "off" {
			return fmt.Errorf("%s is on or off, not %q", name, value)
		}
		*to = value == "on"
		return nil
	}
	number := func(to *int) error {
		n, err := strconv.Atoi(value)
		if err != nil || n <= 0 {
			return fmt.Errorf("%s is a number above 0, not %q", name, value)
		}
		*to = n
		return nil
	}
	switch name {
	case "prevote":
		return flag(&c.preVote)
	case "quorumcheck":
		return flag(&c.quorumCheck)
	case "batch":
		return number(&c.batch)
	case "inflight":
		return number(&c.inflight)
	case "backlog":
		return number(&c.backlog)
	case "trailing":
		return number(&c.trailing)
	}
	return fmt.Errorf("no setting %q; there are prevote quorumcheck batch inflight backlog trailing", name)
}

var errStatement = errors.New("no such statement; docs/scenarios.md lists them")

// parseStatement is the grammar.
func (p *parser) parseStatement(words []string) (func(*world) error, error) {
	verb, rest := words[0], words[1:]
	if p.servers == nil && verb != "cluster" && verb != "disk" {
		return nil, errors.New("the first statement says which servers there are, such as: cluster 1 2 3")
	}
	switch verb {
	case "?":
		return p.parseAssertion(rest)
	case "cluster":
		return p.parseCluster(rest)
	case "join":
		return p.parseJoin(rest)
	case "disk":
		return p.parseDisk(rest)
	case "machine":
		return p.parseMachine(rest)
	case "deliver":
		if len(rest) == 1 && rest[0] == "all" {
			return (*world).deliverAll, nil
		}
		return p.parseTraffic(rest, (*world).deliver)
	case "drop":
		return p.parseTraffic(rest, (*world).drop)
	case "damage":
		return p.parseTraffic(rest, (*world).damage)
	case "duplicate":
		return p.parseTraffic(rest, (*world).duplicate)
	case "hold":
		return p.parseTraffic(rest, (*world).hold)
	case "release":
		return p.parseLinks(rest, (*world).release)
	case "cut":
		return p.parseLinks(rest, (*world).cut)
	case "heal":
		return p.parseLinks(rest, (*world).heal)
	case "crash":
		return p.parseServers(rest, (*world).crash)
	case "restart":
		return p.parseServers(rest, (*world).restart)
	}
	id, err := p.server(verb)
	if err != nil {
		return nil, errStatement
	}
	return p.parseServerStatement(id, rest)
}

// parseServerStatement is for what begins with a server's number.
func (p *parser) parseServerStatement(id raft.ServerID, words []string) (func(*world) error, error) {
	if len(words) == 0 {
		return nil, errStatement
	}
	switch rest := words[1:]; words[0] {
	case "submits":
		if len(rest) == 0 {
			return nil, errStatement
		}
		commands := commandsOf(rest)
		return func(w *world) error { return w.submit(id, commands) }, nil
	case "reads":
		return parseRead(id, rest)
	case "changes":
		ask, err := p.parseChange(id, rest)
		return mustTake(id, ask), err
	case "transfers":
		ask, err := p.parseTransfer(id, rest)
		return mustTake(id, ask), err
	}
	switch strings.Join(words, " ") {
	case "times out":
		return func(w *world) error { return w.timesOut(id) }, nil
	case "heartbeats":
		return func(w *world) error { return w.fire(id, raft.HeartbeatTimer) }, nil
	case "checks quorum":
		return func(w *world) error { return w.fire(id, raft.QuorumCheckTimer) }, nil
	case "loses contact":
		return func(w *world) error { return w.fire(id, raft.LeaderContactTimer) }, nil
	case "ends transfer":
		return func(w *world) error { return w.fire(id, raft.TransferTimer) }, nil
	case "saves":
		return func(w *world) error { return w.saves(id) }, nil
	case "applies":
		return func(w *world) error { return w.applies(id) }, nil
	case "copies state":
		return func(w *world) error { return w.copyState(id) }, nil
	case "stores snapshot":
		return func(w *world) error { return w.storeSnapshot(id) }, nil
	case "takes snapshot":
		return func(w *world) error {
			if err := w.copyState(id); err != nil {
				return err
			}
			return w.storeSnapshot(id)
		}, nil
	}
	return nil, errStatement
}

// parseJoin reads "join 4": servers that wait to be added.
func (p *parser) parseJoin(words []string) (func(*world) error, error) {
	ids, err := newServers(words, p.servers)
	if err == nil && ids == nil {
		err = errors.New("which servers join?")
	}
	p.servers = append(slices.Clone(p.servers), ids...)
	return func(w *world) error {
		for _, id := range ids {
			if err := w.join(id); err != nil {
				return err
			}
		}
		return nil
	}, err
}

func (p *parser) parseCluster(words []string) (func(*world) error, error) {
	if p.servers != nil {
		return nil, errors.New("there is one cluster already")
	}
	ids, err := newServers(words, nil)
	if err == nil && ids == nil {
		err = errors.New("a cluster has servers, such as: cluster 1 2 3")
	}
	p.servers = ids
	return func(w *world) error { return w.begin(ids) }, err
}

// newServers reads the numbers of servers that are not there yet.
func newServers(words []string, there []raft.ServerID) (ids []raft.ServerID, err error) {
	for _, word := range words {
		n, err := number(word)
		id := raft.ServerID(n)
		if err != nil || id == raft.None {
			return nil, fmt.Errorf("a server is a number above 0, not %q", word)
		}
		if slices.Contains(ids, id) || slices.Contains(there, id) {
			return nil, fmt.Errorf("server %d is there twice", id)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func (p *parser) parseServers(words []string, do func(*world, raft.ServerID) error) (func(*world) error, error) {
	if len(words) == 0 {
		return nil, errors.New("which servers?")
	}
	var ids []raft.ServerID
	for _, word := range words {
		id, err := p.server(word)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return func(w *world) error {
		for _, id := range ids {
			if err := do(w, id); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

func (p *parser) server(word string) (raft.ServerID, error) {
	n, err := number(word)
	if err != nil {
		return 0, err
	}
	if !slices.Contains(p.servers, raft.ServerID(n)) {
		return 0, fmt.Errorf("server %d is not in the cluster", n)
	}
	return raft.ServerID(n), nil
}

func number(word string) (uint64, error) {
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", word)
	}
	return n, nil
}

func commandsOf(words []string) [][]byte {
	var commands [][]byte
	for _, word := range words {
		commands = append(commands, []byte(word))
	}
	return commands
}
