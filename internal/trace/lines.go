package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"reflect"
	"time"

	"raftkv/raft"
)

// A Line is one line of a trace file: one of the structs below. docs/replay.md
// describes the file. Whatever shows a run needs these lines and nothing else.
//
// At is virtual time since the run began, in nanoseconds in JSON. Lines stand in
// the order in which things happened. Messages, calls and faults have numbers,
// each from 1, so that later lines can name them; 0 means none.
type Line interface{ kind() string }

// Run is the first line: what was run.
type Run struct {
	Format  int    // FormatVersion
	Title   string // such as "seed 17, profile full"
	Repeat  string `json:",omitempty"` // the command that runs it again
	Servers []raft.ServerID
	Plan    string `json:",omitempty"` // what the seed drew, in a few lines
}

// FormatVersion is what Run.Format says in files that this package writes.
const FormatVersion = 1

// Step is one Step of one server, or something that happened to it from outside.
// Its numbers are those after the step.
type Step struct {
	At      time.Duration
	Number  uint64
	Server  raft.ServerID
	Outside bool `json:",omitempty"` // nothing was stepped; What says what happened
	Down    bool `json:",omitempty"` // the server is down now

	State    string // follower, precandidate, candidate or leader
	Term     raft.Term
	VotedFor raft.ServerID `json:",omitempty"`
	Leader   raft.ServerID `json:",omitempty"`
	Commit   raft.Index    `json:",omitempty"`
	Applied  raft.Index    `json:",omitempty"`
	Saved    raft.Index    `json:",omitempty"` // the end of what is on its disk
	Last     raft.Index    `json:",omitempty"`
	First    raft.Index    `json:",omitempty"` // where its log begins; left out if that is 1
	Snapshot raft.Index    `json:",omitempty"` // of its newest snapshot

	Message uint64 `json:",omitempty"` // the message that was stepped
	What    string // the event
	Changes string `json:",omitempty"`
	Todo    string `json:",omitempty"`
}

// Log says that a server's log changed in the step before: everything from index
// From on went, and Entries came. An entry that is the first has index From.
type Log struct {
	Server  raft.ServerID
	From    raft.Index
	Entries []Entry
}

// Entry is an entry of a log, for people.
type Entry struct {
	Term raft.Term
	Text string // the command; "" is a new leader's empty entry
}

// Send says that a server sent a message, and what the network will do with it.
type Send struct {
	At       time.Duration
	Message  uint64
	From, To raft.ServerID
	Type     string        // such as AppendEntriesArgs
	Text     string        // as Message describes it
	Body     any           `json:",omitempty"` // the message's own fields
	Lost     string        `json:",omitempty"` // why it never arrives; "" if it does
	Copies   int           `json:",omitempty"` // how often it arrives
	Late     time.Duration `json:",omitempty"` // how much longer than usual it takes
}

// Arrive says that a copy of a message arrived. It waits for the server's loop;
// the Step that names it may come later.
type Arrive struct {
	At      time.Duration
	Message uint64
	Server  raft.ServerID
	Down    bool `json:",omitempty"` // nobody was there
}

// Call says that a client began an operation.
type Call struct {
	At     time.Duration
	Client int
	Call   int
	Text   string // such as: put k1 "4.7;"
}

// Attempt says that a client sent the operation's request to a server.
type Attempt struct {
	At     time.Duration
	Client int
	Call   int
	Server raft.ServerID
}

// Effect says that the operation was carried out: here is the moment between
// call and answer at which it took effect (its linearization point). A read that
// is tried again has one for each attempt; the last one before the answer counts.
type Effect struct {
	At     time.Duration
	Client int
	Call   int
	Server raft.ServerID // the first whose state machine did it
	Index  raft.Index
}

// Answer says what the caller was told. A call without an Answer was still open
// at the end.
type Answer struct {
	At      time.Duration
	Client  int
	Call    int
	Outcome string // applied, not applied or unknown
	Text    string // the operation with its result
}

// Fault says that something is wrong from now on, until FaultEnd names it or the
// run ends.
type Fault struct {
	At      time.Duration
	Fault   int
	Text    string
	Servers []raft.ServerID    `json:",omitempty"` // whom it concerns; none means all
	Links   [][2]raft.ServerID `json:",omitempty"` // directions that carry nothing
}

// FaultEnd says that a fault is over.
type FaultEnd struct {
	At    time.Duration
	Fault int
}

// Verdict is the last line: what came of the run.
type Verdict struct {
	At         time.Duration
	Failure    string `json:",omitempty"` // the property that failed; "" if none did
	Text       string `json:",omitempty"`
	Hash       string
	Steps      int64
	Operations int
}

func (Run) kind() string      { return "run" }
func (Step) kind() string     { return "step" }
func (Log) kind() string      { return "log" }
func (Send) kind() string     { return "send" }
func (Arrive) kind() string   { return "arrive" }
func (Call) kind() string     { return "call" }
func (Attempt) kind() string  { return "attempt" }
func (Effect) kind() string   { return "effect" }
func (Answer) kind() string   { return "answer" }
func (Fault) kind() string    { return "fault" }
func (FaultEnd) kind() string { return "fault end" }
func (Verdict) kind() string  { return "verdict" }

// NewStep returns the line of a record. describe turns a command into words.
func NewStep(r *Record, message uint64, describe func([]byte) string) Step {
	s := &r.After
	step := Step{
		At: r.At, Number: r.Number, Server: r.Server, Outside: r.Event == nil,
		State: s.State.String(), Term: s.Term, VotedFor: s.VotedFor, Leader: s.LeaderID,
		Commit: s.CommitIndex, Applied: s.LastApplied, Saved: s.SavedIndex, Last: s.LastIndex, Snapshot: s.SnapshotIndex,
		Message: message, What: r.what(describe), Changes: r.changes(), Todo: todo(&r.Effects),
	}
	if s.FirstIndex > 1 {
		step.First = s.FirstIndex
	}
	return step
}

// NewSend returns the line of a message that is being sent.
func NewSend(m raft.Message) Send {
	return Send{From: m.From, To: m.To, Type: kind(m.Body), Text: Message(m), Body: m.Body}
}

// Marshal returns a line as it stands in a file, without its end.
func Marshal(l Line) ([]byte, error) {
	fields, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	out := fmt.Appendf(nil, `{"Kind":%q,`, l.kind())
	return append(out, fields[1:]...), nil // no line is without fields
}

// maxLine bounds a line in bytes: a log that is shown as a whole is the longest.
const maxLine = 64 << 20

// Read reads a trace file. It ends at the first line that is none, with an error
// that names it; kinds that it does not know it passes over.
func Read(r io.Reader) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxLine)
		for n := 1; lines.Scan(); n++ {
			line, err := unmarshal(lines.Bytes())
			if err != nil {
				yield(nil, fmt.Errorf("line %d of the trace: %w", n, err))
				return
			}
			if line != nil && !yield(line, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(nil, err)
		}
	}
}

func unmarshal(text []byte) (Line, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	var head struct{ Kind string }
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, err
	}
	switch head.Kind {
	case "run":
		return parse[Run](text)
	case "step":
		return parse[Step](text)
	case "log":
		return parse[Log](text)
	case "send":
		return parse[Send](text)
	case "arrive":
		return parse[Arrive](text)
	case "call":
		return parse[Call](text)
	case "attempt":
		return parse[Attempt](text)
	case "effect":
		return parse[Effect](text)
	case "answer":
		return parse[Answer](text)
	case "fault":
		return parse[Fault](text)
	case "fault end":
		return parse[FaultEnd](text)
	case "verdict":
		return parse[Verdict](text)
	}
	return nil, nil
}

func parse[T Line](text []byte) (Line, error) {
	var line T
	err := json.Unmarshal(text, &line)
	return line, err
}

// kind returns the name of a value's type, without its package.
func kind(v any) string { return reflect.TypeOf(v).Name() }
