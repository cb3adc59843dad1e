package machine

import (
	"slices"

	"raftkv/api"
)

// Result is what a command came to. It is the same on every server.
type Result struct {
	Status  api.Status
	Outcome api.Outcome

	KeyFound bool
	Value    string // of a read, what the key holds; of a write, what it held before (PrevValue)
	Version  uint64 // the key's version after the command; 0 if the key is absent then
	Swapped  bool   // of a compare-and-set

	// Duplicate says that an earlier copy of the request was executed, and that
	// this is the result it had.
	Duplicate bool

	Error string // why there is no result, for people
}

func refuse(status api.Status, outcome api.Outcome, text string) Result {
	return Result{Status: status, Outcome: outcome, Error: text}
}

// Event says in a word what the machine did with an entry, for logs and counters.
type Event string

// The events.
const (
	EventNone      Event = ""                   // an entry of raft's own, such as a new leader's empty one
	EventCommitted Event = "committed"          // a command was carried out
	EventDuplicate Event = "duplicate_detected" // a repetition was given the recorded result
	EventRefused   Event = "refused"            // nothing was done
	EventMark      Event = "mark"               // the state is to be noted
)

// Applied tells what became of an entry.
type Applied struct {
	Identity Identity // whom to answer; zero if nobody can be waiting
	Result   Result
	Event    Event

	// How many sessions were forgotten with this entry: because nobody had used
	// them for the retention, and to make room for a new one.
	Expired int
	Evicted int

	// Operations says of each operation of a batch what became of it, in their
	// order; whoever waits for one by its own identity is answered, too. The batch
	// itself is always OK.
	Operations []Applied
}

// Equal reports whether two servers made the same of an entry.
func (a Applied) Equal(b Applied) bool {
	return a.Identity == b.Identity && a.Result == b.Result && a.Event == b.Event &&
		a.Expired == b.Expired && a.Evicted == b.Evicted && slices.EqualFunc(a.Operations, b.Operations, Applied.Equal)
}

// Premature reports whether the entry is a write whose session is not there,
// though its client still uses it: it was forgotten too early, or was closed, or
// has never been in this cluster. If there are many, retention or room are too
// small for how long clients retry.
func (a Applied) Premature() bool { return a.Result.Status == api.StatusSessionExpired }

// Response returns the answer to the client that sent c.
func (c Command) Response(r Result) api.Response {
	if r.Status != api.StatusOK {
		// No fields for a result: an empty PrevValue could be taken for one.
		return &api.ErrorResponse{RespStatus: r.Status, Outcome: r.Outcome, Error: r.Error}
	}
	switch c.Kind {
	case KindOpenSession, KindCloseSession:
		return &api.SessionResponse{RespStatus: r.Status, Outcome: r.Outcome, ClientID: c.ClientID}
	case KindGet:
		return &api.GetResponse{RespStatus: r.Status, Outcome: r.Outcome, KeyFound: r.KeyFound, Value: r.Value, Version: r.Version}
	case KindCAS:
		return &api.CASResponse{
			RespStatus: r.Status, Outcome: r.Outcome, KeyFound: r.KeyFound, PrevValue: r.Value,
			Swapped: r.Swapped, Version: r.Version, Duplicate: r.Duplicate,
		}
	case KindPut, KindAppend, KindDelete:
		put := api.PutResponse{
			RespStatus: r.Status, Outcome: r.Outcome, KeyFound: r.KeyFound, PrevValue: r.Value,
			Version: r.Version, Duplicate: r.Duplicate,
		}
		switch c.Kind {
		case KindAppend:
			return (*api.AppendResponse)(&put)
		case KindDelete:
			return (*api.DeleteResponse)(&put)
		}
		return &put
	}
	return &api.ErrorResponse{RespStatus: r.Status, Outcome: r.Outcome}
}
