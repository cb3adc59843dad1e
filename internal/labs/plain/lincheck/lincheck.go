// Package lincheck is the lincheck of the labs: the same question as that of
// internal/lincheck, for the operations that rafttest has, and without a library,
// so that a student's module needs nothing from the network.
//
// It decides whether what clients saw can be explained by one order of their
// operations, each taking effect at a single moment between its call and its
// answer (linearizability, §8).
package lincheck

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Kind says what an operation does.
type Kind uint8

// The operations.
const (
	Get Kind = iota
	Put
	Append
)

// Outcome is what the client knows about an operation when the history ends.
type Outcome uint8

const (
	// Unknown is the outcome of a call that never came back.
	Unknown Outcome = iota
	Applied
)

// Operation is one call of one client and what came of it.
type Operation struct {
	Client     int
	Kind       Kind
	Key, Value string

	// Call and Return order the calls and answers of all clients. Return means
	// nothing if the outcome is Unknown.
	Call, Return int64

	Outcome  Outcome
	Answered bool // the result is known and stands below

	KeyFound bool
	Before   string // the value before the operation; for Get the value read
}

func (o Operation) String() string {
	words := fmt.Sprintf("client %d: %s %s", o.Client, [...]string{"get", "put", "append"}[o.Kind], o.Key)
	if o.Kind != Get {
		words += fmt.Sprintf(" %q", o.Value)
	}
	switch {
	case o.Outcome == Unknown:
		return words + " = unknown"
	case !o.Answered:
		return words + " = applied, result not told"
	case !o.KeyFound:
		return words + " = absent"
	}
	return words + fmt.Sprintf(" = %q", o.Before)
}

// ErrUndecided reports that the budget was spent before an order was found or
// excluded.
var ErrUndecided = errors.New("lincheck: undecided, the search was given up")

// Check returns nil if the history can be explained, and otherwise says which
// operations do not fit. It gives up after budget steps for a key.
func Check(history []Operation, budget int) error {
	byKey := map[string][]Operation{}
	for _, op := range history {
		if op.Outcome == Unknown {
			if op.Kind == Get {
				continue // nobody learned anything from it
			}
			op.Return = math.MaxInt64 // it may still happen
		}
		byKey[op.Key] = append(byKey[op.Key], op)
	}
	keys := make([]string, 0, len(byKey))
	for key := range byKey {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		s := search{ops: byKey[key], budget: budget, seen: map[string]bool{}}
		slices.SortFunc(s.ops, func(a, b Operation) int { return int(min(max(a.Call-b.Call, -1), 1)) })
		s.done = make([]byte, len(s.ops))
		if s.order(value{}, 0) {
			continue
		}
		if s.budget < 0 {
			return fmt.Errorf("%w: key %s, %d operations", ErrUndecided, key, len(s.ops))
		}
		var b strings.Builder
		fmt.Fprintf(&b, "not linearizable: key %s: %d of %d operations can be ordered, none of these can follow:", key, s.most, len(s.ops))
		for _, op := range s.next {
			fmt.Fprintf(&b, " %s;", op)
		}
		return errors.New(strings.TrimSuffix(b.String(), ";"))
	}
	return nil
}

type value struct {
	found bool
	text  string
}

// search looks for an order of the operations of one key.
type search struct {
	ops    []Operation
	done   []byte          // 1 for each operation that is in the order so far
	seen   map[string]bool // what was done and what the key held, where no order was found
	budget int

	most int         // how many operations the longest order so far has
	next []Operation // those that could have come next in it by their time
}

func (s *search) order(now value, n int) bool {
	if s.budget--; n == len(s.ops) || s.budget < 0 {
		return n == len(s.ops)
	}
	state := fmt.Sprintf("%s%t%s", s.done, now.found, now.text)
	if s.seen[state] {
		return false
	}
	// Whoever was called before the first of the others returned can be next.
	first := int64(math.MaxInt64)
	for i, op := range s.ops {
		if s.done[i] == 0 {
			first = min(first, op.Return)
		}
	}
	var next []Operation
	for i, op := range s.ops {
		if s.done[i] == 1 || op.Call > first {
			continue
		}
		next = append(next, op)
		if op.Answered && (op.KeyFound != now.found || op.Before != now.text) {
			continue
		}
		after := now
		switch op.Kind {
		case Put:
			after = value{true, op.Value}
		case Append:
			after = value{true, now.text + op.Value}
		}
		s.done[i] = 1
		found := s.order(after, n+1)
		s.done[i] = 0
		if found {
			return true
		}
	}
	if s.next == nil || n > s.most {
		s.most, s.next = n, next
	}
	s.seen[state] = true
	return false
}
