package machine

import (
	"encoding/binary"
	"slices"
	"strings"
)

// items is an ordered map from keys to what they hold, which takes little more
// memory than the bytes in it. A tree with an entry for each key needs some 80
// bytes more for each: two strings with their headers, the version, and the room
// that nodes leave for others. Here neighbours stand packed in one string, a
// block, and the tree holds the blocks. The collector has a thirtieth of the
// pointers to follow, too.
//
// A block is never changed: a write makes another one. So to copy the tree, which
// takes no time, is to copy everything.
type items struct {
	// blocks has each block under a key: it takes the keys from that one on, up to
	// that of the next block. Invariant: only the block under "" may be empty.
	blocks blockTree
	count  int // of the items
}

// block is a row of items in the order of their keys, each behind the other: the
// lengths of key and value, the version, the key, the value. Numbers are uvarints.
type block string

// blockBytes bounds a block with more than one item. Each write copies a block,
// so with longer ones writes take longer; with shorter ones the tree takes more
// memory.
const blockBytes = 2048

func newItems() *items { return &items{blocks: newBlockTree()} }

// Len returns how many items there are.
func (t *items) Len() int { return t.count }

// IsoCopy returns an independent copy. From then on another goroutine may have it.
func (t *items) IsoCopy() *items { return &items{t.blocks.clone(), t.count} }

// Get returns what key holds. The value shares the memory of its block: whoever
// keeps it for long keeps a copy.
func (t *items) Get(key string) (i item, found bool) {
	p := t.find(key)
	return p.item, p.found
}

// Set makes key hold i.
func (t *items) Set(key string, i item) { t.setAt(t.find(key), i) }

// place is where a key stands, or would stand, until the next change.
type place struct {
	key        string
	at         blockPlace
	block      block
	start, end int // of the item in the block
	item       item
	found      bool
}

// find looks for a key. Nearly every write looks first what was there, and to look
// once more where to write would cost as much again.
func (t *items) find(key string) place {
	p := place{key: key}
	p.at = t.blocks.find(key)
	p.block = p.at.block()
	p.start, p.end, p.item, p.found = p.block.find(key)
	return p
}

// setAt makes the key of p hold i. Nothing may have changed since find.
func (t *items) setAt(p place, i item) {
	if !p.found {
		t.count++
	}
	var room [headerBytes]byte
	header := block(appendHeader(room[:0], p.key, i))
	if p.start+len(header)+len(p.key)+len(i.value)+len(p.block)-p.end <= blockBytes {
		t.blocks.replace(p.at, p.block[:p.start]+header+block(p.key)+block(i.value)+p.block[p.end:])
		return
	}
	t.split(p.at.key(), p.block.part(0, p.start), header+block(p.key)+block(i.value), p.block.part(p.end, len(p.block)))
}

// split puts in place of a block that has become too long what stands before an
// item, the item, and what stands behind it. The item goes with the shorter of
// the two, if it fits there. So keys that come in order fill one block after the
// other, and an item that is longer than a block has one to itself.
func (t *items) split(from string, before, item, after block) {
	pieces := []block{before, item, after}
	switch {
	case len(before) <= len(after) && len(before)+len(item) <= blockBytes:
		pieces = []block{before + item, after}
	case len(after) <= len(before) && len(item)+len(after) <= blockBytes:
		pieces = []block{before, item + after}
	}
	pieces = slices.DeleteFunc(pieces, func(piece block) bool { return piece == "" })
	for n, piece := range pieces {
		if n > 0 {
			key, _, _ := piece.at(0)
			from = strings.Clone(key)
		}
		t.blocks.set(from, piece)
	}
}

// Delete removes key and reports whether it was there. If what is left of the
// block is short, its neighbour takes it in.
func (t *items) Delete(key string) (found bool) {
	from, b := t.blocks.floor(key)
	start, end, _, found := b.find(key)
	if !found {
		return false
	}
	t.count--
	rest := block(strings.Clone(string(b[:start] + b[end:])))
	if next, following, ok := t.blocks.after(from); ok && len(rest)+len(following) <= blockBytes/2 {
		t.blocks.remove(next)
		rest += following
	}
	if from != "" {
		if previous, b := t.blocks.before(from); rest == "" || len(b)+len(rest) <= blockBytes/2 {
			t.blocks.remove(from)
			from, rest = previous, b+rest
		}
	}
	t.blocks.set(from, rest)
	return true
}

// Scan calls f for each item, in the order of the keys, until it returns false.
func (t *items) Scan(f func(key string, i item) bool) { t.Ascend("", f) }

// Ascend is Scan that begins with pivot, or behind it if nobody has that key.
func (t *items) Ascend(pivot string, f func(key string, i item) bool) {
	from, _ := t.blocks.floor(pivot)
	t.blocks.ascend(from, func(_ string, b block) bool {
		for start := 0; start < len(b); {
			key, i, end := b.at(start)
			if key >= pivot && !f(key, i) {
				return false
			}
			start = end
		}
		return true
	})
}

// headerBytes is the most that stands before an item's key.
const headerBytes = 3 * binary.MaxVarintLen64

func appendHeader(b []byte, key string, i item) []byte {
	b = binary.AppendUvarint(b, uint64(len(key)))
	b = binary.AppendUvarint(b, uint64(len(i.value)))
	return binary.AppendUvarint(b, i.version)
}

// at returns the item that stands at start, and where it ends. Key and value
// share the block's memory.
func (b block) at(start int) (key string, i item, end int) {
	keyBytes, start := b.number(start)
	valueBytes, start := b.number(start)
	i.version, start = b.number(start)
	middle := start + int(keyBytes)
	end = middle + int(valueBytes)
	i.value = string(b[middle:end])
	return string(b[start:middle]), i, end
}

func (b block) number(start int) (v uint64, end int) {
	for shift := 0; ; shift += 7 {
		c := b[start]
		start++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v, start
		}
	}
}

// find returns where the item of key stands, from start to end. If there is none,
// it would stand at start, which is the end as well.
func (b block) find(key string) (start, end int, i item, found bool) {
	for start < len(b) {
		keyBytes, at := b.number(start)
		valueBytes, at := b.number(at)
		for b[at] >= 0x80 { // the version of others is of no interest
			at++
		}
		middle := at + 1 + int(keyBytes)
		end = middle + int(valueBytes)
		if k := string(b[at+1 : middle]); k >= key {
			if k > key {
				break
			}
			_, i, _ = b.at(start)
			return start, end, i, true
		}
		start = end
	}
	return start, start, item{}, false
}

// part returns a part of b, which does not keep the rest in memory.
func (b block) part(start, end int) block {
	if end-start == len(b) {
		return b
	}
	return block(strings.Clone(string(b[start:end])))
}

// itemLoader makes items of what comes in the order of the keys.
type itemLoader struct {
	items *items
	from  string // of the block that is being filled
	block []byte
}

func newItemLoader() *itemLoader { return &itemLoader{items: newItems()} }

func (l *itemLoader) add(key string, i item) {
	var room [headerBytes]byte
	header := appendHeader(room[:0], key, i)
	if len(l.block) > 0 && len(l.block)+len(header)+len(key)+len(i.value) > blockBytes {
		l.flush()
		l.from = key
	}
	l.block = append(append(append(l.block, header...), key...), i.value...)
	l.items.count++
}

func (l *itemLoader) flush() {
	l.items.blocks.set(l.from, block(l.block))
	l.block = l.block[:0]
}

// done returns all that were added.
func (l *itemLoader) done() *items {
	l.flush()
	return l.items
}
