package machine

import (
	"cmp"
	"slices"
)

// records are the executed requests of a session above its Acked, in the order of
// their numbers. A client counts up and acknowledges from below, so nearly always
// a record is added at the end and taken away at the front, and a row is all that
// is needed.
type records struct {
	rows  []row
	gone  int  // so many at the front of rows are acknowledged, and zero
	lends bool // somebody else reads rows, see lend
}

type row struct {
	number uint64
	record record
}

// Len returns how many records there are.
func (t *records) Len() int { return len(t.rows) - t.gone }

// find returns where the record of a number stands, or would stand.
func (t *records) find(number uint64) (at int, found bool) {
	if last := len(t.rows); last == t.gone || number > t.rows[last-1].number {
		return last, false
	}
	at, found = slices.BinarySearchFunc(t.rows[t.gone:], number, func(r row, n uint64) int { return cmp.Compare(r.number, n) })
	return t.gone + at, found
}

// Get returns the record of a number.
func (t *records) Get(number uint64) (r record, found bool) {
	at, found := t.find(number)
	if !found {
		return record{}, false
	}
	return t.rows[at].record, true
}

// Set makes r the record of a number.
func (t *records) Set(number uint64, r record) {
	t.own()
	at, found := t.find(number)
	if found {
		t.rows[at].record = r
		return
	}
	t.rows = slices.Insert(t.rows, at, row{number, r})
}

// acknowledge takes away the records of all numbers up to through, and returns how
// many bytes of values they had.
func (t *records) acknowledge(through uint64) (valueBytes uint64) {
	if t.Len() == 0 || t.rows[t.gone].number > through {
		return 0
	}
	t.own()
	for t.Len() > 0 && t.rows[t.gone].number <= through {
		valueBytes += t.rows[t.gone].record.valueBytes()
		t.rows[t.gone] = row{} // its value is not kept in memory
		t.gone++
	}
	// Half of the rows may be gone: each is then moved once for each that goes.
	if t.gone > t.Len() {
		t.rows = slices.Delete(t.rows, 0, t.gone)
		t.gone = 0
	}
	return valueBytes
}

// Scan calls f for each record, in the order of the numbers, until it returns
// false.
func (t *records) Scan(f func(number uint64, r record) bool) {
	for _, r := range t.rows[t.gone:] {
		if !f(r.number, r.record) {
			return
		}
	}
}

// lend returns records that share their rows with t until they are changed. From
// then on nobody may change t, but others may read it.
func (t *records) lend() records { return records{rows: t.rows, gone: t.gone, lends: true} }

// own makes rows that nobody else reads.
func (t *records) own() {
	if t.lends {
		t.rows, t.gone, t.lends = slices.Clone(t.rows[t.gone:]), 0, false
	}
}
