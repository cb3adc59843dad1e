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
	if len(words) > 1 && words[0] == "submits" {
		commands := commandsOf(words[1:])
		return func(w *world) error { return w.submit(id, commands) }, nil
	}
	if len(words) > 0 {
		switch words[0] {
		case "reads":
			return parseRead(id, words[1:])
		case "changes":
			ask, err := p.parseChange(id, words[1:])
			return mustTake(id, ask), err
		case "transfers":
			ask, err := p.parseTransfer(id, words[1:])
			return mustTake(id, ask), err
		}
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

// parseMachine reads "machine 1 slow" and "machine 1 fast".
func (p *parser) parseMachine(words []string) (func(*world) error, error) {
	if len(words) != 2 || words[1] != "slow" && words[1] != "fast" {
		return nil, errStatement
	}
	id, err := p.server(words[0])
	return func(w *world) error { return w.setLazy(id, words[1] == "slow") }, err
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

// parseDisk reads "disk 1 slow", "disk 1 fast", "disk 1 lost" and "disk 1 holds LOG [term T] [vote V]".
func (p *parser) parseDisk(words []string) (func(*world) error, error) {
	if len(words) < 2 {
		return nil, errStatement
	}
	n, err := number(words[0])
	if err != nil {
		return nil, err
	}
	id := raft.ServerID(n)
	switch {
	case words[1] == "holds":
		saved, err := parsePersistentState(words[2:])
		return func(w *world) error { return w.fillDisk(id, saved) }, err
	case len(words) == 2 && words[1] == "slow":
		return func(w *world) error { return w.setSlow(id, true) }, nil
	case len(words) == 2 && words[1] == "fast":
		return func(w *world) error { return w.setSlow(id, false) }, nil
	case len(words) == 2 && words[1] == "lost":
		return func(w *world) error { return w.loseDisk(id) }, nil
	}
	return nil, errStatement
}

func parsePersistentState(words []string) (s raft.PersistentState, err error) {
	at := 0
	for at < len(words) && strings.Contains(words[at], ":") {
		at++
	}
	if s.Entries, err = parseLog(words[:at]); err != nil {
		return s, err
	}
	if n := len(s.Entries); n > 0 {
		s.CurrentTerm = s.Entries[n-1].Term
	}
	for ; at < len(words); at += 2 {
		if at+1 == len(words) {
			return s, errStatement
		}
		n, err := number(words[at+1])
		if err != nil {
			return s, err
		}
		switch words[at] {
		case "term":
			s.CurrentTerm = raft.Term(n)
		case "vote":
			s.VotedFor = raft.ServerID(n)
		default:
			return s, errStatement
		}
	}
	return s, nil
}

// parseLog reads entries as term:command, where "-" is a leader's empty entry.
func parseLog(words []string) ([]raft.LogEntry, error) {
	var entries []raft.LogEntry
	for _, word := range words {
		t, command, ok := strings.Cut(word, ":")
		term, err := number(t)
		if !ok || err != nil || command == "" {
			return nil, fmt.Errorf("an entry is term:command, term:- or term:{configuration}, not %q", word)
		}
		e := raft.LogEntry{Term: raft.Term(term), Command: []byte(command)}
		if command == "-" {
			e.Kind, e.Command = raft.EntryEmpty, nil
		}
		if inner, ok := strings.CutPrefix(command, "{"); ok && strings.HasSuffix(inner, "}") {
			c, err := configurationOf(strings.TrimSuffix(inner, "}"))
			if err != nil {
				return nil, err
			}
			e.Kind, e.Command = raft.EntryConfiguration, c.AppendTo(nil)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// A link is one direction between two servers.
type link struct{ from, to raft.ServerID }

// which says which messages of a link are meant.
type which int

const (
	every  which = iota // all that are in flight
	oldest              // "one"
	newest              // "last"
)

// parseTraffic reads [one|last] LINK... for what is done to messages in flight.
func (p *parser) parseTraffic(words []string, do func(*world, link, which) error) (func(*world) error, error) {
	what := every
	if len(words) > 0 && words[0] == "one" {
		what, words = oldest, words[1:]
	} else if len(words) > 0 && words[0] == "last" {
		what, words = newest, words[1:]
	}
	return p.parseLinks(words, func(w *world, l link) error { return do(w, l, what) })
}

// parseLinks reads links: 1->2, both directions 1<->2, or * for all others.
func (p *parser) parseLinks(words []string, do func(*world, link) error) (func(*world) error, error) {
	if len(words) == 0 {
		return nil, errors.New("between which servers? such as: 1->2, 1<->2, 1->*")
	}
	var links []link
	for _, word := range words {
		a, b, ok := strings.Cut(word, "<->")
		both := ok
		if !ok {
			a, b, ok = strings.Cut(word, "->")
		}
		from, err1 := p.side(a)
		to, err2 := p.side(b)
		if !ok || err1 != nil || err2 != nil {
			return nil, fmt.Errorf("a link is 1->2, 1<->2 or 1->*, not %q", word)
		}
		for _, f := range from {
			for _, t := range to {
				if f == t {
					continue
				}
				links = append(links, link{f, t})
				if both {
					links = append(links, link{t, f})
				}
			}
		}
	}
	return func(w *world) error {
		done := 0
		var nothing error
		for _, l := range links {
			switch err := do(w, l); {
			case errors.As(err, new(nothingInFlight)):
				nothing = err
			case err != nil:
				return err
			default:
				done++
			}
		}
		// A link that is named must carry something, or the line says nothing;
		// of a * it is enough that one does.
		if nothing != nil && (done == 0 || !strings.Contains(strings.Join(words, " "), "*")) {
			return nothing
		}
		return nil
	}, nil
}

func (p *parser) side(word string) ([]raft.ServerID, error) {
	if word == "*" {
		return p.servers, nil
	}
	id, err := p.server(word)
	return []raft.ServerID{id}, err
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
