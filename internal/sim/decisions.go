package sim

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// A Decision is one thing that a seed drew while it ran and that might as well
// not have happened: a fault, or a call of a client. A run is its seed and the
// list of its decisions. Run again with a part of the list, only that part
// happens; whatever else a seed draws (how long a message is under way, when a
// timer runs out, what a client writes) comes from streams of random numbers
// that a missing decision does not shift.
type Decision struct {
	What choice
	// Where: a server, or a link from A to B, or a client; and, of faults that
	// strike by time, which. All count from 1, 0 means none.
	A, B int `json:",omitempty"`
	// Nth counts the occasions of this kind in this place, from 1: of the messages
	// of the link, or the saves of the server.
	Nth int
	// At is when it happened in the run that wrote it down, for readers. It plays
	// no part in a replay.
	At   time.Duration
	Note string `json:",omitempty"` // as At
}

// choice is what a decision is about.
type choice string

const (
	loseMessage   choice = "lose message"       // A to B
	doubleMessage choice = "double message"     // A to B
	delayMessage  choice = "delay message"      // A to B
	slowDownLink  choice = "slow link"          // A to B, for the whole run
	oddClock      choice = "odd clock"          // server A, for the whole run
	strikeFault   choice = "fault"              // A is 1 + the fault
	crashTrigger  choice = "crash"              // server A at a chosen moment, B is 1 + the trigger
	failStart     choice = "crash in start"     // server A loses power while it starts
	failHandshake choice = "crash in handshake" // server A loses power while it writes down B's store
	slowSave      choice = "slow save"          // server A
	loseRequest   choice = "lose request"       // client A
	delayRequest  choice = "delay request"      // client A
	loseAnswer    choice = "lose answer"        // client A
	doubleRequest choice = "double request"     // client A
	killClient    choice = "client dies"        // client A
	makeCall      choice = "call"               // client A
	spoilPart     choice = "spoil part"         // of a snapshot, A to B
	changeMembers choice = "change members"     // an operator
)

// IsFault reports whether the decision is for something to go wrong, not for a
// client to call.
func (d Decision) IsFault() bool { return d.What != makeCall }

// Class names what the decision is about and, of faults that strike by time, which.
func (d Decision) Class() string {
	if d.What == strikeFault {
		return fmt.Sprint(d.What, d.A)
	}
	return string(d.What)
}

func (d Decision) String() string {
	where := fmt.Sprintf(" %d", d.A)
	switch d.What {
	case loseMessage, doubleMessage, delayMessage, slowDownLink, spoilPart:
		where = fmt.Sprintf(" %d→%d", d.A, d.B)
	case strikeFault, changeMembers:
		where = ""
	}
	s := fmt.Sprintf("%.3fs %s%s", d.At.Seconds(), d.What, where)
	if d.Note != "" {
		s += ": " + d.Note
	}
	return s
}

// key is a decision without what is for readers.
func (d Decision) key() Decision { return Decision{What: d.What, A: d.A, B: d.B, Nth: d.Nth} }

// Decisions are the decisions of a run, as a file keeps them.
type Decisions struct {
	Seed    uint64
	Profile string
	Fails   string `json:",omitempty"` // the property that fails

	// HealAt is when everything is healed; 0 means when the seed says.
	HealAt time.Duration `json:",omitempty"`
	List   []Decision
}

// Count counts the decisions for something to go wrong, and those of clients to call.
func Count(list []Decision) (faults, calls int) {
	for _, d := range list {
		if d.IsFault() {
			faults++
		} else {
			calls++
		}
	}
	return faults, calls
}

// Write writes the decisions as JSON, one on each line.
func (d *Decisions) Write(w io.Writer) error {
	head := *d
	head.List = nil
	b, err := json.Marshal(head)
	if err != nil {
		return err
	}
	text := append(b[:len(b)-len("null}")], '[')
	for i, one := range d.List {
		if b, err = json.Marshal(one); err != nil {
			return err
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = append(append(text, "\n  "...), b...)
	}
	_, err = w.Write(append(text, "\n]}\n"...))
	return err
}

// ReadDecisions reads what Write wrote.
func ReadDecisions(r io.Reader) (*Decisions, error) {
	d := &Decisions{}
	in := json.NewDecoder(r)
	in.DisallowUnknownFields()
	if err := in.Decode(d); err != nil {
		return nil, fmt.Errorf("not a file of decisions: %w", err)
	}
	if _, err := ProfileNamed(d.Profile); err != nil {
		return nil, err
	}
	return d, nil
}

// decider is asked for each decision.
type decider struct {
	record bool              // write down what happens
	only   map[Decision]bool // nil: everything that is drawn
	counts map[Decision]int  // occasions, by kind and place
	made   []Decision
}

func newDecider(config *Config) decider {
	d := decider{record: config.Record || config.Only != nil}
	if d.record {
		d.counts = map[Decision]int{}
	}
	if config.Only != nil {
		d.only = map[Decision]bool{}
		for _, one := range config.Only.List {
			d.only[one.key()] = true
		}
	}
	return d
}

// decide is called at each occasion on which something may go wrong, or a client
// may call, with what was drawn. It reports whether it happens.
func (s *simulation) decide(what choice, a, b int, drawn bool) bool {
	d := &s.decisions
	if !d.record {
		return drawn
	}
	one := Decision{What: what, A: a, B: b}
	d.counts[one]++
	one.Nth = d.counts[Decision{What: what, A: a, B: b}]
	if !drawn || d.only != nil && !d.only[one] {
		return false
	}
	one.At = s.now
	d.made = append(d.made, one)
	return true
}

// because says more about the latest decision, for readers.
func (s *simulation) because(format string, args ...any) {
	if n := len(s.decisions.made); n > 0 {
		s.decisions.made[n-1].Note = fmt.Sprintf(format, args...)
	}
}

// tame takes out of the plan what is not to be. Clocks and links are odd or slow
// for the whole run, so it is decided before it starts.
func (s *simulation) tame() {
	for i, rate := range s.plan.clockRate {
		if !s.decide(oddClock, i+1, 0, rate != 1000) {
			s.plan.clockRate[i] = 1000
		} else {
			s.because("its timers run at %d/1000", rate)
		}
	}
	s.plan.slowLinks = slices.DeleteFunc(s.plan.slowLinks, func(l slowLink) bool {
		slow := s.decide(slowDownLink, l.from+1, l.to+1, true)
		if slow {
			s.because("each message takes %v longer", l.delay)
		}
		return !slow
	})
	s.healAt = s.plan.healAt
	if only := s.config.Only; only != nil && only.HealAt != 0 {
		s.healAt = only.HealAt
	}
}
