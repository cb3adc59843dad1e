package trace

import (
	"encoding/json"
	"reflect"
	"strings"

	"raftkv/raft"
)

// MarshalJSON returns the record as one JSON object. Events and messages become
// objects with a "Kind" beside their own fields, which have the paper's names;
// commands are base64, as in all of Go's JSON.
func (r *Record) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Number        uint64
		AtNanos       int64 `json:",omitempty"`
		Server        raft.ServerID
		State         string
		Event         any    `json:",omitempty"`
		Note          string `json:",omitempty"`
		Before, After raft.Status
		Submitted     []any              `json:",omitempty"`
		Send          []any              `json:",omitempty"`
		Save          *raft.Save         `json:",omitempty"`
		SendAfter     []any              `json:",omitempty"`
		Commit        []raft.CommitEntry `json:",omitempty"`
		Timers        []timerOrder       `json:",omitempty"`
	}{
		Number: r.Number, AtNanos: int64(r.At), Server: r.Server, State: r.After.State.String(),
		Event: eventJSON(r.Event), Note: r.Note, Before: r.Before, After: r.After,
		Submitted: submittedJSON(r.Effects.Submitted),
		Send:      messagesJSON(r.Effects.Send), Save: saveJSON(r.Effects.Save), SendAfter: messagesJSON(r.Effects.SendAfter),
		Commit: r.Effects.Commit, Timers: timersJSON(r.Effects.Timers),
	})
}

type timerOrder struct {
	Timer  string
	Action string
	Number raft.TimerNumber `json:",omitempty"`
}

func eventJSON(event raft.Event) any {
	switch ev := event.(type) {
	case nil:
		return nil
	case raft.Message:
		return messageJSON(ev)
	}
	return struct {
		Kind  string
		Event any
	}{kind(event), event}
}

func messageJSON(m raft.Message) any {
	return struct {
		Kind     string
		Cluster  raft.ClusterID
		From, To raft.ServerID
		Body     any
	}{kind(m.Body), m.Cluster, m.From, m.To, m.Body}
}

func messagesJSON(ms []raft.Message) []any {
	var out []any
	for _, m := range ms {
		out = append(out, messageJSON(m))
	}
	return out
}

func submittedJSON(ss []raft.Submitted) []any {
	var out []any
	for _, s := range ss {
		var refused string
		if s.Err != nil {
			refused = s.Err.Error()
		}
		out = append(out, struct {
			FirstIndex raft.Index
			Term       raft.Term
			Err        string `json:",omitempty"`
		}{s.FirstIndex, s.Term, refused})
	}
	return out
}

func saveJSON(s raft.Save) *raft.Save {
	if !s.Needed() {
		return nil
	}
	return &s
}

func timersJSON(timers raft.Timers) []timerOrder {
	var out []timerOrder
	for i, change := range timers {
		name := strings.TrimSuffix(kind(raft.Timeout(raft.TimerKind(i), 1)), "Timeout")
		switch change.Action {
		case raft.RestartTimer:
			out = append(out, timerOrder{name, "restart", change.Number})
		case raft.StopTimer:
			out = append(out, timerOrder{name, "stop", 0})
		}
	}
	return out
}

// kind returns the name of a value's type, without its package.
func kind(v any) string { return reflect.TypeOf(v).Name() }
