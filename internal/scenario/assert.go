package scenario

import (
	"fmt"
	"slices"
	"strings"

	"raftkv/internal/trace"
	"raftkv/raft"
)

// parseAssertion reads what follows a question mark.
func (p *parser) parseAssertion(words []string) (func(*world) error, error) {
	if len(words) < 2 {
		return nil, errStatement
	}
	if words[0] == "no" && words[1] == "leader" {
		if len(words) != 2 {
			return nil, errStatement
		}
		return assertNoLeader, nil
	}
	if words[0] == "read" {
		return parseReadAssertion(words[1:])
	}
	if words[0] == "disk" {
		id, err := p.server(words[1])
		if err != nil {
			return nil, err
		}
		return p.parseDiskAssertion(id, words[2:])
	}
	if strings.Contains(words[0], "->") && words[1] == "carries" {
		want := strings.Join(words[2:], " ")
		return p.parseLinks(words[:1], func(w *world, l link) error { return assertCarries(w, l, want) })
	}
	id, err := p.server(words[0])
	if err != nil {
		return nil, err
	}
	return p.parseServerAssertion(id, words[1:])
}

// parseServerAssertion is for what begins with a server's number.
func (p *parser) parseServerAssertion(id raft.ServerID, words []string) (func(*world) error, error) {
	rest := words[1:]
	switch words[0] {
	case "is":
		return p.parseRole(id, rest)
	case "term":
		return numberIs(running, id, words, func(s *server) uint64 { return uint64(s.core.Status().Term) })
	case "commit":
		return numberIs(running, id, words, func(s *server) uint64 { return uint64(s.core.Status().CommitIndex) })
	case "voted":
		return p.parseVote(running, id, rest, func(s *server) raft.ServerID { return s.core.Status().VotedFor })
	case "knows":
		return p.parseKnows(id, rest)
	case "log":
		want, err := logText(rest)
		return running.says(id, "log "+want, func(s *server) string { return "log " + formatLog(logOf(s)) }), err
	case "snapshot":
		return numberIs(running, id, words, func(s *server) uint64 { return uint64(s.core.Status().SnapshotIndex) })
	case "configuration":
		return p.parseConfigurationAssertion(id, rest)
	case "round":
		return numberIs(running, id, words, func(s *server) uint64 { return uint64(s.core.Status().Round) })
	case "lease":
		return parseLease(id, words)
	case "transfer":
		return parseTransferAssertion(id, rest)
	case "transfers":
		if len(rest) != 2 || rest[0] != "to" {
			return nil, errStatement
		}
		return running.says(id, strings.Join(words, " "), func(s *server) string { return "transfers to " + name(s.core.Status().TransferTo) }), nil
	case "applied":
		return running.says(id, "applied "+strings.Join(rest, " "), func(s *server) string {
			if len(s.machine.commands) == 0 {
				return "applied nothing"
			}
			return "applied " + strings.Join(s.machine.commands, " ")
		}), nil
	case "refuses":
		return p.parseRefusal(id, rest)
	case "waits":
		return parseWaits(id, rest)
	case "next", "match":
		return p.parseProgress(id, words)
	}
	return nil, errStatement
}

func (p *parser) parseDiskAssertion(id raft.ServerID, words []string) (func(*world) error, error) {
	if len(words) < 2 {
		return nil, errStatement
	}
	rest := words[1:]
	switch words[0] {
	case "term":
		return numberIs(onDisk, id, words, func(s *server) uint64 { return uint64(s.disk.CurrentTerm) })
	case "voted":
		return p.parseVote(onDisk, id, rest, func(s *server) raft.ServerID { return s.disk.VotedFor })
	case "log":
		want, err := logText(rest)
		return onDisk.says(id, "log "+want, func(s *server) string { return "log " + formatLog(s.disk.Start.Index, s.disk.Entries) }), err
	case "snapshot":
		return numberIs(onDisk, id, words, func(s *server) uint64 { return uint64(s.disk.Snapshot.Index) })
	}
	return nil, errStatement
}

// subject is whom an assertion is about.
type subject struct {
	name string
	find func(*world, raft.ServerID) (*server, error)
}

var (
	running = subject{"server", (*world).running}
	onDisk  = subject{"disk", (*world).server} // of a server that is up or down
)

// says returns the assertion that got, of this server, is want.
func (sub subject) says(id raft.ServerID, want string, got func(*server) string) func(*world) error {
	return func(w *world) error {
		s, err := sub.find(w, id)
		if err != nil {
			return err
		}
		return compare(fmt.Sprintf("%s %d", sub.name, id), want, got(s))
	}
}

// compare puts what is expected and what is beside each other, or below each
// other where that reads better.
func compare(who, want, got string) error {
	switch {
	case got == want:
		return nil
	case len(want)+len(got) < 60:
		return fmt.Errorf("%s: expected %s, actually %s", who, want, got)
	}
	return fmt.Errorf("%s: expected %s\n\t%s  actually %s", who, want, strings.Repeat(" ", len(who)), got)
}

// numberIs reads "term 2" and "commit 3".
func numberIs(sub subject, id raft.ServerID, words []string, get func(*server) uint64) (func(*world) error, error) {
	if len(words) != 2 {
		return nil, errStatement
	}
	_, err := number(words[1])
	return sub.says(id, strings.Join(words, " "), func(s *server) string { return fmt.Sprintf("%s %d", words[0], get(s)) }), err
}

// parseRole reads "is leader" and "is leader in term 2".
func (p *parser) parseRole(id raft.ServerID, words []string) (func(*world) error, error) {
	if len(words) != 1 && len(words) != 4 {
		return nil, errStatement
	}
	if !slices.Contains([]string{"follower", "precandidate", "candidate", "leader"}, words[0]) {
		return nil, fmt.Errorf("a server is follower, precandidate, candidate or leader, not %q", words[0])
	}
	if len(words) == 4 {
		if words[1] != "in" || words[2] != "term" {
			return nil, errStatement
		}
		if _, err := number(words[3]); err != nil {
			return nil, err
		}
	}
	return running.says(id, strings.Join(words, " "), func(s *server) string {
		status := s.core.Status()
		if len(words) == 1 {
			return status.State.String()
		}
		return fmt.Sprintf("%s in term %d", status.State, status.Term)
	}), nil
}

// parseVote reads "voted for 2" and "voted for nobody".
func (p *parser) parseVote(sub subject, id raft.ServerID, words []string, get func(*server) raft.ServerID) (func(*world) error, error) {
	if len(words) != 2 || words[0] != "for" {
		return nil, errStatement
	}
	if words[1] != "nobody" {
		if _, err := p.server(words[1]); err != nil {
			return nil, err
		}
	}
	return sub.says(id, "vote for "+words[1], func(s *server) string { return "vote for " + name(get(s)) }), nil
}

// parseKnows reads "knows leader 2" and "knows leader nobody".
func (p *parser) parseKnows(id raft.ServerID, words []string) (func(*world) error, error) {
	if len(words) != 2 || words[0] != "leader" {
		return nil, errStatement
	}
	return running.says(id, "leader "+words[1], func(s *server) string { return "leader " + name(s.core.Status().LeaderID) }), nil
}

func name(id raft.ServerID) string {
	if id == raft.None {
		return "nobody"
	}
	return fmt.Sprint(uint64(id))
}

// parseWaits reads "waits anew" (the statement before restarted the election
// timer) and "waits on" (it did not).
func parseWaits(id raft.ServerID, words []string) (func(*world) error, error) {
	if len(words) != 1 || words[0] != "anew" && words[0] != "on" {
		return nil, errStatement
	}
	return func(w *world) error {
		if _, err := w.running(id); err != nil {
			return err
		}
		got := "on"
		for _, r := range w.records[w.current:] {
			if r.Server == id && r.Effects.Timers[raft.ElectionTimer].Action == raft.RestartTimer {
				got = "anew"
			}
		}
		return compare(fmt.Sprintf("server %d", id), "waits "+words[0], "waits "+got)
	}, nil
}

// parseProgress reads "next 2 = 5" and "match 2 = 4": what a leader believes.
func (p *parser) parseProgress(id raft.ServerID, words []string) (func(*world) error, error) {
	if len(words) != 4 || words[2] != "=" {
		return nil, errStatement
	}
	peer, err := p.server(words[1])
	if err != nil {
		return nil, err
	}
	return running.says(id, strings.Join(words, " "), func(s *server) string {
		v, ok := s.core.(interface {
			Progress(raft.ServerID) (next, match raft.Index, ok bool)
		})
		if !ok {
			return "does not tell"
		}
		next, match, ok := v.Progress(peer)
		switch {
		case !ok:
			return "does not lead"
		case words[0] == "next":
			return fmt.Sprintf("next %d = %d", peer, next)
		}
		return fmt.Sprintf("match %d = %d", peer, match)
	}), nil
}

func assertNoLeader(w *world) error {
	for _, s := range w.servers {
		if s.core != nil && s.core.Status().State == raft.Leader {
			return fmt.Errorf("server %d is leader in term %d", s.id, s.core.Status().Term)
		}
	}
	return nil
}

// assertCarries compares the messages in flight on a link: their number, or
// their texts as in a trace with a semicolon between them.
func assertCarries(w *world, l link, want string) error {
	flights, _ := w.inFlight(l, every)
	var texts []string
	for _, f := range flights {
		texts = append(texts, trace.Message(f.message))
	}
	if n, err := number(want); err == nil && n == uint64(len(texts)) {
		return nil
	}
	got := strings.Join(texts, "; ")
	if got == "" {
		got = "nothing"
	}
	return compare(fmt.Sprintf("%d->%d", l.from, l.to), want, got)
}

// parseLease reads "lease 3", the round that a lease may rest on, and "lease none".
func parseLease(id raft.ServerID, words []string) (func(*world) error, error) {
	lease := func(s *server) uint64 { return uint64(s.core.Status().LeaseRound) }
	if len(words) == 2 && words[1] == "none" {
		return running.says(id, "lease 0", func(s *server) string { return fmt.Sprintf("lease %d", lease(s)) }), nil
	}
	return numberIs(running, id, words, lease)
}

// logOf returns where a server's log begins and what is in it.
func logOf(s *server) (after raft.Index, entries []raft.LogEntry) {
	first := max(1, s.core.Status().FirstIndex)
	for i := first; ; i++ {
		e, ok := s.core.Entry(i)
		if !ok {
			return first - 1, entries
		}
		entries = append(entries, e)
	}
}

// logText brings the log of an assertion into the form of formatLog.
func logText(words []string) (string, error) {
	var after uint64
	if len(words) > 2 && words[0] == "after" {
		var err error
		if after, err = number(words[1]); err != nil {
			return "", err
		}
		words = words[2:]
	}
	if slices.Equal(words, []string{"empty"}) {
		return formatLog(raft.Index(after), nil), nil
	}
	entries, err := parseLog(words)
	return formatLog(raft.Index(after), entries), err
}

// formatLog writes the entries of a log behind an index; one that begins at the
// beginning does not say so.
func formatLog(after raft.Index, entries []raft.LogEntry) string {
	var words []string
	if after > 0 {
		words = append(words, fmt.Sprintf("after %d", after))
	}
	for _, e := range entries {
		words = append(words, fmt.Sprintf("%d:%s", e.Term, trace.Content(e)))
	}
	if len(entries) == 0 {
		words = append(words, "empty")
	}
	return strings.Join(words, " ")
}
