package machine

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/api"
)

// Put, append and delete of a key that is absent, or has version 2, under each
// condition; and the answer stays the same when the key has changed.
func TestIfVersion(t *testing.T) {
	for _, kind := range []Kind{KindPut, KindAppend, KindDelete} {
		for _, present := range []bool{false, true} {
			for _, version := range []uint64{0, 1, 2, 3} {
				t.Run(fmt.Sprint(kind, present, version), func(t *testing.T) {
					l := newLog(t)
					c := l.opened('C')
					l.set("other", "") // version 1
					if present {
						l.set("x", "a")
					}
					write := Command{Kind: kind, ClientID: c, RequestID: 1, Key: "x", Value: "b", IfVersion: &version}
					if kind == KindDelete {
						write.Value = ""
					}
					fits := present && version == 2 || !present && version == 0
					before := l.get("x")
					first := l.apply(write)
					if fits {
						require.Equal(t, api.StatusOK, first.Status)
						require.Equal(t, present, first.KeyFound)
						require.Equal(t, before, first.Value)
					} else {
						requireRefused(t, first, api.StatusConditionFailed, api.OutcomeNotApplied)
						require.Equal(t, before, l.get("x"))
					}
					// SE-10: the retry must not be luckier, nor unluckier.
					l.apply(Command{Kind: KindDelete, Key: "x", Nonce: l.nonce()})
					if version > 0 {
						l.set("x", "c")
					}
					before = l.get("x")
					require.Equal(t, repeated(first), l.apply(write))
					require.Equal(t, before, l.get("x"))
				})
			}
		}
	}
}

// Without a session nothing remembers the first copy, but a version comes only
// once: a condition on one never takes effect twice. A condition on absence may,
// if the key was deleted in between.
func TestConditionsWithoutASession(t *testing.T) {
	l := newLog(t)
	l.set("x", "a")
	write := Command{Kind: KindAppend, Key: "x", Value: "b", IfVersion: new(uint64(1)), Nonce: Nonce{9}}
	require.Equal(t, api.StatusOK, l.apply(write).Status)
	requireRefused(t, l.apply(write), api.StatusConditionFailed, api.OutcomeNotApplied)
	l.apply(Command{Kind: KindDelete, Key: "x", Nonce: l.nonce()})
	l.set("x", "a")
	requireRefused(t, l.apply(write), api.StatusConditionFailed, api.OutcomeNotApplied)

	for _, create := range []Command{
		{Kind: KindPut, Key: "y", Value: "1", IfVersion: new(uint64(0)), Nonce: Nonce{9}},
		{Kind: KindCAS, Key: "z", Value: "1", ExpectAbsent: true, Nonce: Nonce{9}},
	} {
		l.apply(create)
		before := l.get(create.Key)
		l.apply(create)
		require.Equal(t, before, l.get(create.Key))
		l.apply(Command{Kind: KindDelete, Key: create.Key, Nonce: l.nonce()})
		l.apply(create)
		require.Equal(t, "1", l.get(create.Key), "the second effect")
	}
}

// A condition is a part of what is asked, so it is in the fingerprint. Without
// one the fingerprint is as it always was.
func TestConditionsAreInTheFingerprint(t *testing.T) {
	put := Command{Kind: KindPut, ClientID: "c", RequestID: 1, Key: "k", Value: "v"}
	cas := Command{Kind: KindCAS, ClientID: "c", RequestID: 1, Key: "k", Value: "v"}
	with := func(c Command, change func(c *Command)) Command {
		change(&c)
		return c
	}
	seen := map[Identity]int{}
	for i, c := range []Command{
		put,
		with(put, func(c *Command) { c.IfVersion = new(uint64(0)) }),
		with(put, func(c *Command) { c.IfVersion = new(uint64(1)) }),
		cas,
		with(cas, func(c *Command) { c.ExpectAbsent = true }),
	} {
		require.NotContains(t, seen, c.Identity())
		seen[c.Identity()] = i
	}
	l := newLog(t)
	l.apply(put)
	requireRefused(t, l.apply(with(put, func(c *Command) { c.IfVersion = new(uint64(0)) })), api.StatusRequestMismatch, api.OutcomeNotApplied)
}

// A condition that its kind does not have gets into no log.
func TestConditionsOfOtherKinds(t *testing.T) {
	version := new(uint64(1))
	for _, c := range []Command{
		{Kind: KindGet, Key: "x", IfVersion: version},
		{Kind: KindGet, Key: "x", ExpectAbsent: true},
		{Kind: KindPut, Key: "x", ExpectAbsent: true},
		{Kind: KindCAS, Key: "x", IfVersion: version},
		{Kind: KindCAS, Key: "x", CompareValue: "a", ExpectAbsent: true},
		{Kind: KindOpenSession, ClientID: issued('C'), IfVersion: version},
	} {
		require.Panics(t, func() { c.Encode() }, "%+v", c)
	}
	// The last byte of a conditional put is its version, the one before says that
	// it has one.
	b := Command{Kind: KindPut, Key: "x", IfVersion: version}.Encode()
	for _, condition := range []byte{conditionNone, conditionAbsent, 3} {
		b[len(b)-2] = condition
		_, err := Decode(b)
		require.Error(t, err)
		_, err = Decode(b[:len(b)-1])
		require.Error(t, err)
	}
}
