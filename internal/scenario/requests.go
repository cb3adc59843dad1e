package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"raftkv/internal/trace"
	"raftkv/raft"
)

// request is a question to a server that is answered later: a read, a change of
// the configuration or a transfer.
type request struct {
	id     raft.RequestID
	server raft.ServerID
	about  raft.Event

	answered, lost bool
	err            error
	index          raft.Index

	// Of a read: its name and what it saw.
	name   string
	served bool
	seen   []string
}

// ask gives a server an event that makes a request. The request may be answered
// by then or not.
func (w *world) ask(id raft.ServerID, event func(raft.RequestID) raft.Event) (*request, error) {
	s, err := w.running(id)
	if err != nil {
		return nil, err
	}
	r := w.newRequest(id)
	r.about = event(r.id)
	return r, w.happens(s, r.about)
}

func (w *world) newRequest(server raft.ServerID) *request {
	r := &request{id: raft.RequestID(len(w.requests) + 1), server: server}
	w.requests = append(w.requests, r)
	return r
}

// answered notes an answer of the core.
func (w *world) answered(s *server, a raft.Answer) error {
	n := int(a.Request) - 1
	if n < 0 || n >= len(w.requests) || w.requests[n].server != s.id || w.requests[n].answered {
		return fmt.Errorf("server %d answers request #%d, which does not wait there", s.id, a.Request)
	}
	r := w.requests[n]
	r.answered, r.err, r.index = true, a.Err, a.Index
	return nil
}

// serveReads lets the reads that have their index see the state machine, if it
// has come that far.
func (w *world) serveReads(s *server) {
	for _, r := range w.requests {
		if r.server == s.id && r.name != "" && !r.lost && !r.served && r.answered && r.err == nil && r.index <= s.machine.at.Index {
			r.served, r.seen = true, slices.Clone(s.machine.commands)
		}
	}
}

// loseRequests is for a server that has stopped: nobody is answered any more.
func (w *world) loseRequests(id raft.ServerID) {
	for _, r := range w.requests {
		if r.server == id && !r.served && (!r.answered || r.name != "") {
			r.lost = true
		}
	}
}

func (r *request) String() string {
	switch {
	case r.lost:
		return "lost"
	case errors.As(r.err, new(*raft.NotLeaderError)):
		return "failed"
	case errors.Is(r.err, raft.ErrTransferAborted), errors.Is(r.err, raft.ErrNotVoter):
		return "aborted"
	case r.err != nil:
		return r.err.Error()
	case !r.answered:
		return "waits"
	case r.name == "":
		return "done"
	case !r.served:
		return fmt.Sprintf("waits for %d", r.index)
	case len(r.seen) == 0:
		return "sees nothing"
	}
	return "sees " + strings.Join(r.seen, " ")
}

// Reads.

// parseRead reads "reads r" and "reads r by lease".
func parseRead(id raft.ServerID, words []string) (func(*world) error, error) {
	switch {
	case len(words) == 1:
		return func(w *world) error { return w.read(id, words[0], false) }, nil
	case len(words) == 3 && words[1] == "by" && words[2] == "lease":
		return func(w *world) error { return w.read(id, words[0], true) }, nil
	}
	return nil, errStatement
}

func (w *world) read(id raft.ServerID, name string, byLease bool) error {
	s, err := w.running(id)
	if err != nil {
		return err
	}
	if w.findRead(name) != nil {
		return fmt.Errorf("there is a read %s already", name)
	}
	r := w.newRequest(id)
	r.name = name
	if !byLease {
		return w.happens(s, raft.Read{Requests: []raft.RequestID{r.id}})
	}
	// What a server does whose clock has not ended the lease.
	status := s.core.Status()
	if status.LeaseRound == 0 || s.machine.at.Index < status.LeaseIndex {
		r.answered, r.err = true, &raft.NotLeaderError{Leader: status.LeaderID, Term: status.Term}
		return nil
	}
	if err := w.checker.LeaseRead(id); err != nil {
		return err
	}
	r.answered, r.index = true, status.LeaseIndex
	w.serveReads(s)
	return nil
}

func (w *world) findRead(name string) *request {
	for _, r := range w.requests {
		if r.name == name {
			return r
		}
	}
	return nil
}

// parseReadAssertion reads what follows "read": "r waits", "r waits for 3",
// "r sees x=1", "r failed" or "r lost".
func parseReadAssertion(words []string) (func(*world) error, error) {
	if len(words) < 2 || !slices.Contains([]string{"waits", "sees", "failed", "lost"}, words[1]) {
		return nil, errStatement
	}
	return func(w *world) error {
		r := w.findRead(words[0])
		if r == nil {
			return fmt.Errorf("there is no read %s", words[0])
		}
		return compare("read "+words[0], strings.Join(words[1:], " "), r.String())
	}, nil
}

// Changes of the configuration.

// parseChange reads "changes to 1,2,3+4" and "changes to 1,2,3+4 expecting 5";
// without an expectation it is the configuration that the server has.
func (p *parser) parseChange(id raft.ServerID, words []string) (func(*world) (*request, error), error) {
	if len(words) != 2 && (len(words) != 4 || words[2] != "expecting") || words[0] != "to" {
		return nil, errStatement
	}
	next, err := p.parseConfiguration(words[1])
	if err != nil {
		return nil, err
	}
	var expected uint64
	if len(words) == 4 {
		if expected, err = number(words[3]); err != nil {
			return nil, err
		}
	}
	return func(w *world) (*request, error) {
		s, err := w.running(id)
		if err != nil {
			return nil, err
		}
		index := raft.Index(expected)
		if len(words) == 2 {
			index = s.core.Status().ConfigurationIndex
		}
		return w.ask(id, func(r raft.RequestID) raft.Event {
			return raft.ChangeConfiguration{Request: r, Expected: index, Next: next.WithAddresses(w.addresses()...)}
		})
	}, nil
}

// addresses returns those of the servers that have joined. Nobody is called by
// them, but they say since when a server takes part.
func (w *world) addresses() (all []raft.Address) {
	for _, s := range w.servers {
		if s.joins {
			all = append(all, raft.Address{ID: s.id, Addr: fmt.Sprintf("server-%d", s.id)})
		}
	}
	return all
}

// parseConfiguration reads what trace.Configuration writes, of this story's servers.
func (p *parser) parseConfiguration(word string) (raft.Configuration, error) {
	c, err := configurationOf(word)
	for _, id := range c.Members() {
		if !slices.Contains(p.servers, id) {
			return c, fmt.Errorf("there is no server %d; a server that is not in the cluster begins with: join %d", id, id)
		}
	}
	return c, err
}

func configurationOf(word string) (c raft.Configuration, err error) {
	voters, learners, _ := strings.Cut(word, "+")
	old, now, joint := strings.Cut(voters, ">")
	if !joint {
		old, now = "", old
	}
	for _, part := range []struct {
		text string
		ids  *[]raft.ServerID
	}{{now, &c.Voters}, {old, &c.OldVoters}, {learners, &c.Learners}} {
		for text := range strings.SplitSeq(part.text, ",") {
			if text == "" {
				continue
			}
			id, err := number(text)
			if err != nil {
				return c, err
			}
			*part.ids = append(*part.ids, raft.ServerID(id))
		}
	}
	if trace.Configuration(c) != word {
		err = fmt.Errorf("a configuration is voters+learners or old>new+learners, such as 1,2,3>2,3,4+5, not %q", word)
	}
	return c, err
}

// parseConfigurationAssertion reads "configuration 1,2,3+4".
func (p *parser) parseConfigurationAssertion(id raft.ServerID, words []string) (func(*world) error, error) {
	if len(words) != 1 {
		return nil, errStatement
	}
	if words[0] != "nobody" {
		if _, err := p.parseConfiguration(words[0]); err != nil {
			return nil, err
		}
	}
	return running.says(id, "configuration "+words[0], func(s *server) string {
		v, ok := s.core.(interface{ Configuration() raft.Configuration })
		if !ok {
			return "does not tell"
		}
		return "configuration " + trace.Configuration(v.Configuration())
	}), nil
}

// Transfers of leadership.

// parseTransfer reads "transfers" and "transfers to 2".
func (p *parser) parseTransfer(id raft.ServerID, words []string) (func(*world) (*request, error), error) {
	to := raft.None
	switch {
	case len(words) == 0:
	case len(words) == 2 && words[0] == "to":
		var err error
		if to, err = p.server(words[1]); err != nil {
			return nil, err
		}
	default:
		return nil, errStatement
	}
	return func(w *world) (*request, error) {
		return w.ask(id, func(r raft.RequestID) raft.Event { return raft.TransferLeadership{Request: r, To: to} })
	}, nil
}

// parseTransferAssertion reads "transfer waits", "done", "aborted" or "lost":
// how it went with the latest transfer that this server was asked for.
func parseTransferAssertion(id raft.ServerID, words []string) (func(*world) error, error) {
	if len(words) != 1 || !slices.Contains([]string{"waits", "done", "aborted", "lost"}, words[0]) {
		return nil, errStatement
	}
	return func(w *world) error {
		for _, r := range slices.Backward(w.requests) {
			if _, ok := r.about.(raft.TransferLeadership); ok && r.server == id {
				return compare(fmt.Sprintf("server %d", id), "transfer "+words[0], "transfer "+r.String())
			}
		}
		return fmt.Errorf("server %d was never asked for a transfer", id)
	}, nil
}

// What a server refuses.

// reasons are the words of a story for the errors of the core.
var reasons = map[string]error{
	"busy":         raft.ErrBusy,
	"transferring": raft.ErrTransferring,
	"changing":     raft.ErrChanging,
	"changed":      raft.ErrChanged,
	"behind":       raft.ErrNotCaughtUp,
	"no-voter":     raft.ErrNotVoter,
	"bad":          raft.ErrConfig,
}

// mustTake is the statement that a server is asked and does not refuse at once.
func mustTake(id raft.ServerID, ask func(*world) (*request, error)) func(*world) error {
	return func(w *world) error {
		r, err := ask(w)
		if err == nil && r.err != nil {
			err = fmt.Errorf("server %d refuses: %w", id, r.err)
		}
		return err
	}
}

// parseRefusal reads what follows "refuses": a command, "change to …" or
// "transfer …", and a reason; without one it is that the server does not lead.
func (p *parser) parseRefusal(id raft.ServerID, words []string) (func(*world) error, error) {
	if len(words) == 0 {
		return nil, errStatement
	}
	reason, known := reasons[words[len(words)-1]]
	if known {
		words = words[:len(words)-1]
	}
	try := func(w *world) (refusal, err error) { return w.trySubmit(id, commandsOf(words)) }
	if words[0] == "change" || words[0] == "transfer" {
		parse := p.parseTransfer
		if words[0] == "change" {
			parse = p.parseChange
		}
		ask, err := parse(id, words[1:])
		if err != nil {
			return nil, err
		}
		try = func(w *world) (refusal, err error) {
			r, err := ask(w)
			if err != nil {
				return nil, err
			}
			return r.err, nil
		}
	} else if len(words) != 1 {
		return nil, errStatement
	}
	return func(w *world) error {
		refusal, err := try(w)
		switch {
		case err != nil:
			return err
		case refusal == nil:
			return fmt.Errorf("server %d has taken it", id)
		case known && errors.Is(refusal, reason), !known && errors.As(refusal, new(*raft.NotLeaderError)):
			return nil
		}
		return fmt.Errorf("server %d refuses for another reason: %w", id, refusal)
	}, nil
}
