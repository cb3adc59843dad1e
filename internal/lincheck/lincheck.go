// Package lincheck decides whether what the clients of the key/value store saw
// can be explained by one order of their operations, each taking effect at a
// single moment between its call and its answer (linearizability, §8).
//
// The search is porcupine's; this package adds the model of the store and two
// rules about answers that are easily got wrong. A write whose outcome is
// unknown stays open to the end of the history, because it may still happen; a
// write that was definitely refused is left out, so a read that saw it is an
// error. And a search that runs out of its budget is a failure, never a pass.
package lincheck

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// Kind says what an operation does.
type Kind uint8

// The operations of the store.
const (
	Get Kind = iota
	Put
	Append
	CAS
	Delete
)

func (k Kind) String() string {
	switch k {
	case Get:
		return "get"
	case Put:
		return "put"
	case Append:
		return "append"
	case CAS:
		return "cas"
	case Delete:
		return "delete"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Outcome is what the client knows about an operation when the history ends.
type Outcome uint8

const (
	// Unknown is also the outcome of a call that never came back.
	Unknown Outcome = iota
	Applied
	NotApplied
)

func (o Outcome) String() string {
	switch o {
	case Unknown:
		return "unknown"
	case Applied:
		return "applied"
	case NotApplied:
		return "not applied"
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// Operation is one call of one client and what came of it.
type Operation struct {
	Client int
	Kind   Kind
	Key    string
	Value  string // what Put, Append and CAS write
	Expect string // what CAS compares with

	// A condition. The key must have this version, or be absent if it is 0; nil is
	// none. ExpectAbsent, of CAS and instead of Expect: the key must be absent.
	IfVersion    *uint64
	ExpectAbsent bool

	// Call and Return order the calls and answers of all clients. The unit does
	// not matter; no two of them may be equal. Return means nothing if the
	// outcome is Unknown.
	Call, Return int64

	Outcome  Outcome
	Answered bool // an Applied operation's result is known and stands below

	KeyFound bool
	Before   string // the value before the operation; for Get the value read
	Swapped  bool   // CAS only
	Version  uint64 // of the key after the operation; 0 if it is absent then, or if nobody told

	// Refused: the answer was that the condition did not hold. Such an operation
	// is Applied and Answered here, for it has seen something, and it changes nothing.
	Refused bool
}

func (o Operation) String() string {
	return fmt.Sprintf("client %d: %s", o.Client, o.Text())
}

// Text returns the operation without its client.
func (o Operation) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", o.Kind, o.Key)
	switch o.Kind {
	case Put, Append:
		fmt.Fprintf(&b, " %q", o.Value)
	case CAS:
		if o.ExpectAbsent {
			fmt.Fprintf(&b, " absent to %q", o.Value)
		} else {
			fmt.Fprintf(&b, " %q to %q", o.Expect, o.Value)
		}
	}
	if o.IfVersion != nil {
		fmt.Fprintf(&b, " if version %d", *o.IfVersion)
	}
	switch {
	case o.Outcome != Applied:
		fmt.Fprintf(&b, " = %s, called at %d", o.Outcome, o.Call)
		return b.String()
	case o.Refused:
		b.WriteString(" = condition failed")
	case !o.Answered:
		b.WriteString(" = applied, result not told")
	case !o.KeyFound:
		b.WriteString(" = absent")
	default:
		fmt.Fprintf(&b, " = %q", o.Before)
	}
	if o.Kind == CAS && o.Answered {
		fmt.Fprintf(&b, " swapped=%t", o.Swapped)
	}
	if o.Version > 0 {
		fmt.Fprintf(&b, " version=%d", o.Version)
	}
	fmt.Fprintf(&b, ", from %d to %d", o.Call, o.Return)
	return b.String()
}

// ErrUndecided reports that the budget was spent before an order was found or
// excluded. That is a failure of the test, not a success of the store: make the
// history smaller or the budget larger.
var ErrUndecided = errors.New("lincheck: undecided, the search was given up")

// A Violation reports operations on one key that no order explains.
type Violation struct {
	Key     string
	Ordered int         // how many operations the longest order found holds
	Total   int         // of how many
	Next    []Operation // those of which one would have to come next, but none can
}

func (v *Violation) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "not linearizable: key %s: %d of %d operations can be ordered, none of these can follow:", v.Key, v.Ordered, v.Total)
	for _, op := range v.Next {
		fmt.Fprintf(&b, "\n\t%s", op)
	}
	return b.String()
}

// Check returns nil if the history can be explained, a *Violation if it
// cannot, and an error that is ErrUndecided if neither was shown within budget
// steps of the model per key. The budget is counted and not timed, so that the
// verdict is the same on every machine. Keys are independent of each other, so
// each is decided alone (linearizability is local).
func Check(history []Operation, budget int) error {
	byKey := make(map[string][]Operation)
	for _, op := range history {
		switch {
		case op.Outcome == NotApplied:
			continue // it did not happen: whoever saw it saw a ghost
		case op.Outcome == Unknown && op.Kind == Get:
			continue // nobody learned anything from it
		}
		byKey[op.Key] = append(byKey[op.Key], op)
	}
	keys := make([]string, 0, len(byKey))
	for key := range byKey {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		if err := checkKey(key, byKey[key], budget); err != nil {
			return err
		}
	}
	return nil
}

func checkKey(key string, history []Operation, budget int) error {
	operations := make([]porcupine.Operation, len(history))
	for i := range history {
		operations[i] = porcupine.Operation{
			ClientId: history[i].Client,
			Input:    &history[i],
			Call:     history[i].Call,
			Return:   history[i].Return,
			// Who must find the operation again in a partial order reads it here.
			Metadata: i,
		}
		if history[i].Outcome == Unknown {
			operations[i].Return = math.MaxInt64 // open to the end
		}
	}
	steps := 0
	model := register(func() bool {
		steps++
		return steps <= budget
	})
	if porcupine.CheckOperations(model, operations) {
		return nil
	}
	if steps > budget {
		return fmt.Errorf("%w: key %s, %d operations, %d steps", ErrUndecided, key, len(history), budget)
	}
	return explain(key, history, operations)
}

// explain runs the search again, this time keeping the orders it tries.
func explain(key string, history []Operation, operations []porcupine.Operation) error {
	v := &Violation{Key: key, Total: len(history)}
	_, info := porcupine.CheckOperationsVerbose(register(func() bool { return true }), operations, 0)
	ordered := make([]bool, len(history))
	for _, partial := range info.PartialLinearizationsOperations()[0] {
		if len(partial) <= v.Ordered {
			continue
		}
		v.Ordered = len(partial)
		clear(ordered)
		for _, op := range partial {
			ordered[op.Metadata.(int)] = true
		}
	}
	// Whoever was called before the first of the others returned could be next.
	first := int64(math.MaxInt64)
	for i, op := range operations {
		if !ordered[i] {
			first = min(first, op.Return)
		}
	}
	for i, op := range operations {
		if !ordered[i] && op.Call <= first {
			v.Next = append(v.Next, history[i])
		}
	}
	slices.SortFunc(v.Next, func(a, b Operation) int { return cmp.Compare(a.Call, b.Call) })
	return v
}

// value is what a key holds. The zero value is an absent key, which is not the
// same as a key with an empty value. version is 0 of a key that is there if
// nobody was told which it has.
type value struct {
	found   bool
	text    string
	version uint64
}

// register returns the model of one key. step is asked before each step; when
// it says no, nothing is possible any more and the search ends soon.
func register(step func() bool) porcupine.Model {
	seed := maphash.MakeSeed()
	return porcupine.Model{
		Init: func() any { return value{} },
		Step: func(state, input, _ any) (bool, any) {
			before, op := state.(value), input.(*Operation)
			if !step() || !possible(before, op) {
				return false, state
			}
			after := next(before, op)
			if after == before {
				return true, state
			}
			return true, after
		},
		Equal: func(a, b any) bool { return a.(value) == b.(value) },
		Hash:  func(state any) uint64 { return maphash.Comparable(seed, state.(value)) },
	}
}

// possible reports whether op may have answered what it did on this value, and,
// of one that certainly took effect, whether its condition let it.
func possible(before value, op *Operation) bool {
	switch {
	case op.Outcome != Applied:
		return true
	case op.Refused:
		return !holds(before, op) || before.found && before.version == 0
	case !holds(before, op):
		return false
	case !op.Answered:
		return true
	}
	return op.KeyFound == before.found && op.Before == before.text &&
		(op.Kind != CAS || op.Swapped == swaps(before, op)) && versionFits(before, op)
}

// versionFits compares versions, as far as they were told. A write gets a higher
// one than any before it; who writes nothing sees the one that is there.
func versionFits(before value, op *Operation) bool {
	switch {
	case op.Version == 0 || before.version == 0:
		return true
	case op.Kind == Get || op.Kind == CAS && !op.Swapped:
		return op.Version == before.version
	}
	return op.Version > before.version
}

// holds reports whether the version is the one that op wants. One that nobody was
// told may be any.
func holds(before value, op *Operation) bool {
	switch {
	case op.IfVersion == nil:
		return true
	case *op.IfVersion == 0:
		return !before.found
	}
	return before.found && (before.version == 0 || before.version == *op.IfVersion)
}

func swaps(before value, op *Operation) bool {
	if op.ExpectAbsent {
		return !before.found
	}
	return before.found && before.text == op.Expect
}

func next(before value, op *Operation) value {
	if op.Refused || op.Outcome != Applied && !holds(before, op) {
		return before
	}
	switch op.Kind {
	case Put:
		return value{true, op.Value, op.Version}
	case Append:
		return value{true, before.text + op.Value, op.Version}
	case CAS:
		if swaps(before, op) {
			return value{true, op.Value, op.Version}
		}
	case Delete:
		return value{}
	}
	return before
}
