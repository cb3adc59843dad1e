package lincheck

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

const budget = 1 << 20

func applied(client int, kind Kind, val string, call, ret int64, found bool, before string) Operation {
	return Operation{
		Client: client, Kind: kind, Key: "k", Value: val, Call: call, Return: ret,
		Outcome: Applied, Answered: true, KeyFound: found, Before: before,
	}
}

func without(outcome Outcome, client int, kind Kind, val string, call int64) Operation {
	return Operation{Client: client, Kind: kind, Key: "k", Value: val, Call: call, Outcome: outcome}
}

func cas(client int, expect, val string, call, ret int64, before string, swapped bool) Operation {
	op := applied(client, CAS, val, call, ret, true, before)
	op.Expect, op.Swapped = expect, swapped
	return op
}

func at(version uint64, op Operation) Operation {
	op.Version = version
	return op
}

func ifVersion(version uint64, op Operation) Operation {
	op.IfVersion = &version
	return op
}

func refused(op Operation) Operation {
	op.Refused = true
	return op
}

func expectAbsent(op Operation) Operation {
	op.ExpectAbsent, op.KeyFound = true, op.Before != ""
	return op
}

func TestHistories(t *testing.T) {
	tests := []struct {
		name    string
		history []Operation
		ok      bool
	}{
		{"a read sees the write before it", []Operation{
			applied(1, Put, "a", 1, 2, false, ""),
			applied(2, Get, "", 3, 4, true, "a"),
		}, true},
		{"a read may not miss it", []Operation{
			applied(1, Put, "a", 1, 2, false, ""),
			applied(2, Get, "", 3, 4, false, ""),
		}, false},
		{"while both are under way, either is right", []Operation{
			applied(1, Put, "a", 1, 4, false, ""),
			applied(2, Get, "", 2, 3, false, ""),
		}, true},
		{"two reads do not go back in time", []Operation{
			applied(1, Put, "a", 1, 8, false, ""),
			applied(2, Get, "", 2, 3, true, "a"),
			applied(2, Get, "", 4, 5, false, ""),
		}, false},
		{"an unknown write may be seen much later", []Operation{
			without(Unknown, 1, Put, "a", 1),
			applied(2, Get, "", 2, 3, false, ""),
			applied(2, Get, "", 4, 5, true, "a"),
		}, true},
		{"or never", []Operation{
			without(Unknown, 1, Put, "a", 1),
			applied(2, Get, "", 2, 3, false, ""),
		}, true},
		{"but not before it was called", []Operation{
			applied(2, Get, "", 1, 2, true, "a"),
			without(Unknown, 1, Put, "a", 3),
		}, false},
		{"nor twice", []Operation{
			without(Unknown, 1, Append, "a", 1),
			applied(2, Get, "", 2, 3, true, "aa"),
		}, false},
		{"a refused write may not be seen", []Operation{
			without(NotApplied, 1, Put, "a", 1),
			applied(2, Get, "", 2, 3, true, "a"),
		}, false},
		{"an unknown read says nothing", []Operation{
			without(Unknown, 1, Get, "", 1),
			applied(1, Put, "a", 2, 3, false, ""),
		}, true},
		{"an absent key is not an empty value", []Operation{
			applied(1, Put, "", 1, 2, false, ""),
			applied(2, Get, "", 3, 4, false, ""),
		}, false},
		{"append answers the value before it", []Operation{
			applied(1, Append, "a", 1, 2, false, ""),
			applied(1, Append, "b", 3, 4, true, "a"),
			applied(2, Get, "", 5, 6, true, "ab"),
		}, true},
		{"a lost append is noticed by the next", []Operation{
			applied(1, Append, "a", 1, 2, false, ""),
			applied(1, Append, "b", 3, 4, false, ""),
		}, false},
		{"delete leaves nothing", []Operation{
			applied(1, Put, "a", 1, 2, false, ""),
			applied(1, Delete, "", 3, 4, true, "a"),
			applied(2, Get, "", 5, 6, false, ""),
		}, true},
		{"cas swaps what it expected", []Operation{
			applied(1, Put, "a", 1, 2, false, ""),
			cas(1, "a", "b", 3, 4, "a", true),
			applied(2, Get, "", 5, 6, true, "b"),
		}, true},
		{"cas leaves what it did not expect", []Operation{
			applied(1, Put, "a", 1, 2, false, ""),
			cas(1, "x", "b", 3, 4, "a", false),
			applied(2, Get, "", 5, 6, true, "a"),
		}, true},
		{"cas must not refuse what it expected", []Operation{
			applied(1, Put, "a", 1, 2, false, ""),
			cas(1, "a", "b", 3, 4, "a", false),
		}, false},
		{"only one of two swaps from the same value", []Operation{
			applied(1, Put, "a", 1, 2, false, ""),
			cas(1, "a", "b", 3, 6, "a", true),
			cas(2, "a", "c", 4, 5, "a", true),
		}, false},
		{"an applied write whose result was dropped still happened", []Operation{
			{Client: 1, Kind: Put, Key: "k", Value: "a", Call: 1, Return: 2, Outcome: Applied},
			applied(2, Get, "", 3, 4, false, ""),
		}, false},
		{"a condition that held", []Operation{
			at(3, applied(1, Put, "a", 1, 2, false, "")),
			at(5, ifVersion(3, applied(1, Put, "b", 3, 4, true, "a"))),
		}, true},
		{"a condition on another version must fail", []Operation{
			at(3, applied(1, Put, "a", 1, 2, false, "")),
			at(5, ifVersion(2, applied(1, Put, "b", 3, 4, true, "a"))),
		}, false},
		{"only one of two writes on one version", []Operation{
			at(3, applied(1, Put, "a", 1, 2, false, "")),
			at(5, ifVersion(3, applied(1, Put, "b", 3, 6, true, "a"))),
			at(6, ifVersion(3, applied(2, Put, "c", 4, 5, true, "a"))),
		}, false},
		{"a condition that failed has seen another version", []Operation{
			at(3, applied(1, Put, "a", 1, 2, false, "")),
			refused(ifVersion(2, applied(1, Put, "b", 3, 4, false, ""))),
			at(3, applied(2, Get, "", 5, 6, true, "a")),
		}, true},
		{"and not the one that it wanted", []Operation{
			at(3, applied(1, Put, "a", 1, 2, false, "")),
			refused(ifVersion(3, applied(1, Put, "b", 3, 4, false, ""))),
		}, false},
		{"a key that must be absent and is not", []Operation{
			at(3, applied(1, Put, "a", 1, 2, false, "")),
			at(5, ifVersion(0, applied(1, Put, "b", 3, 4, true, "a"))),
		}, false},
		{"an unknown write may have made any version", []Operation{
			without(Unknown, 1, Put, "a", 1),
			at(5, ifVersion(4, applied(2, Put, "b", 2, 3, true, "a"))),
		}, true},
		{"versions do not go back", []Operation{
			at(3, applied(1, Put, "a", 1, 2, false, "")),
			at(2, applied(1, Put, "b", 3, 4, true, "a")),
		}, false},
		{"nor does a read see another one", []Operation{
			at(3, applied(1, Put, "a", 1, 2, false, "")),
			at(4, applied(1, Get, "", 3, 4, true, "a")),
		}, false},
		{"a swap of what was absent", []Operation{
			expectAbsent(cas(1, "", "a", 1, 2, "", true)),
			expectAbsent(cas(1, "", "b", 3, 4, "a", false)),
			applied(2, Get, "", 5, 6, true, "a"),
		}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Check(tt.history, budget)
			if tt.ok {
				require.NoError(t, err)
				return
			}
			var violation *Violation
			require.ErrorAs(t, err, &violation)
			require.NotEmpty(t, violation.Next)
		})
	}
}

func TestKeysAreIndependent(t *testing.T) {
	a := applied(1, Put, "a", 1, 2, false, "")
	b := applied(1, Get, "", 3, 4, false, "")
	b.Key = "other"
	require.NoError(t, Check([]Operation{a, b}, budget))
}

func TestViolationNamesTheOperation(t *testing.T) {
	err := Check([]Operation{
		applied(1, Put, "a", 1, 2, false, ""),
		applied(2, Get, "", 3, 4, true, "a"),
		applied(2, Get, "", 5, 6, true, "b"),
	}, budget)
	require.EqualError(t, err, `not linearizable: key k: 2 of 3 operations can be ordered, none of these can follow:
	client 2: get k = "b", from 5 to 6`)
}

// Twenty writes at once whose results nobody knows, and a read of what none of
// them wrote: all their orders would have to be tried.
func TestUndecidedIsAFailure(t *testing.T) {
	var history []Operation
	for i := range 20 {
		history = append(history, without(Unknown, i, Append, fmt.Sprint(i%10), int64(i+1)))
	}
	history = append(history, applied(20, Get, "", 30, 31, true, "x"))
	require.ErrorIs(t, Check(history, 10_000), ErrUndecided)
}
