package machine

import (
	"encoding/binary"
	"slices"
	"strings"
)

// items is an ordered map from keys to what they hold, which takes little more
// memory than the bytes in it. A tree with an entry for each key needs some 80
// bytes more for each: two strings with their headers, the version, and the room
// that nodes leave for others. Here neighbours stand packed in one row, a block,
// and the tree holds the blocks. The collector has a thirtieth of the pointers to
// follow, too.
//
// Where two copies of the tree share a block, neither changes it, as with nodes.
// So to copy the tree, which takes no time, is to copy everything.
type items struct {
	// blocks has each block under a key: it takes the keys from that one on, up to
	// that of the next block. Invariant: only the block under "" may be empty.
	blocks blockTree
	count  int // of the items
}

// block is a row of items in the order of their keys, each behind the other: the
// lengths of key and value, the version, the key, the value. Numbers are uvarints.
// The value of an item that is longer than a block stands in the owner, and no
// value in the row: that one is not copied for each who reads it, slowly perhaps.
type block struct {
	packed
	owner *owner // the only tree that may change it
}

type packed []byte

// size returns how long b is, with all values.
func (b block) size() int { return len(b.packed) + len(b.owner.large) }

// blockBytes bounds a block with more than one item. With longer ones it takes
// longer to find an item and to copy them, with shorter ones the tree takes more
// memory.
const blockBytes = 2048

func newItems() *items { return &items{blocks: newBlockTree()} }

// Len returns how many items there are.
func (t *items) Len() int { return t.count }

// IsoCopy returns an independent copy. From then on another goroutine may have it.
func (t *items) IsoCopy() *items { return &items{t.blocks.clone(), t.count} }

// Get returns what key holds.
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
	p.start, p.end, p.found = p.block.find(key)
	if p.found {
		e, _ := p.block.at(p.start)
		p.item = item{e.text(), e.version}
	}
	return p
}

// setAt makes the key of p hold i. Nothing may have changed since find.
func (t *items) setAt(p place, i item) {
	left := p.block.size()
	if p.found {
		left -= p.end - p.start + len(p.block.owner.large)
	} else {
		t.count++
	}
	var room [headerBytes]byte
	header := appendHeader(room[:0], p.key, i)
	size := len(header) + len(p.key) + len(i.value)
	switch {
	case size > blockBytes:
		// Its text may be part of a command, which is not kept in memory for it.
		t.split(p, largeBlock(p.key, item{strings.Clone(i.value), i.version}))
	case left+size > blockBytes:
		t.split(p, block{pack(make(packed, 0, size), header, p.key, i.value), t.blocks.owner})
	default:
		b, gap := t.resize(p.block, p.start, p.end, size)
		t.blocks.replace(p.at, b)
		pack(gap[:0], header, p.key, i.value)
	}
}

// pack appends an item to b.
func pack(b packed, header []byte, key, value string) packed {
	return append(append(append(b, header...), key...), value...)
}

// largeBlock returns a block of one item that is longer than a block. Its owner is
// no tree, so nobody changes it, and who reads the value shares it.
func largeBlock(key string, i item) block {
	header := appendHeader(nil, key, item{"", i.version})
	return block{pack(nil, header, key, ""), &owner{large: i.value}}
}

// resize returns b with a gap of so many bytes, to be filled, in place of what
// stands from start to end. It is still the same memory if no other tree has it and
// it is as large as needed: nearly always, where values keep their length.
func (t *items) resize(b block, start, end, size int) (resized block, gap []byte) {
	before, after := b.packed[:start], b.packed[end:]
	length := start + size + len(after)
	// An eighth may be left over, about as much as between two sizes of the allocator.
	if b.owner != t.blocks.owner || length > cap(b.packed) || length < cap(b.packed)/8*7 {
		b = block{append(slices.Grow(packed(nil), length), before...), t.blocks.owner}
	}
	b.packed = b.packed[:length]
	copy(b.packed[start+size:], after)
	return b, b.packed[start : start+size]
}

// split puts in place of a block that has become too long what stands before an
// item, the item, and what stands behind it. The item goes with the shorter of
// the two, if it fits there. So keys that come in order fill one block after the
// other, and an item that is longer than a block has one to itself.
func (t *items) split(p place, item block) {
	before, after := t.part(p.block, 0, p.start), t.part(p.block, p.end, len(p.block.packed))
	pieces := []block{before, item, after}
	switch b, i, a := before.size(), item.size(), after.size(); {
	case b <= a && b+i <= blockBytes:
		pieces = []block{t.join(before, item), after}
	case a <= b && i+a <= blockBytes:
		pieces = []block{before, t.join(item, after)}
	}
	pieces = slices.DeleteFunc(pieces, func(piece block) bool { return len(piece.packed) == 0 })
	from := p.at.key()
	for n, piece := range pieces {
		if n > 0 {
			first, _ := piece.at(0)
			from = string(first.key)
		}
		t.blocks.set(from, piece)
	}
}

// part returns a part of b in memory of its own. All of it is b itself: a large
// value is not copied because it has got a neighbour.
func (t *items) part(b block, start, end int) block {
	if end-start == len(b.packed) {
		return b
	}
	return block{slices.Clone(b.packed[start:end]), t.blocks.owner}
}

// join returns a block of the items of two. If one has none, that is the other.
func (t *items) join(a, b block) block {
	switch {
	case len(a.packed) == 0:
		return b
	case len(b.packed) == 0:
		return a
	}
	return block{slices.Concat(a.packed, b.packed), t.blocks.owner}
}

// Delete removes key and reports whether it was there. If what is left of the
// block is short, its neighbour takes it in.
func (t *items) Delete(key string) (found bool) {
	from, b := t.blocks.floor(key)
	start, end, found := b.find(key)
	if !found {
		return false
	}
	t.count--
	rest, _ := t.resize(b, start, end, 0)
	if next, following, ok := t.blocks.after(from); ok && rest.size()+following.size() <= blockBytes/2 {
		t.blocks.remove(next)
		rest = t.join(rest, following)
	}
	if from != "" {
		if previous, b := t.blocks.before(from); len(rest.packed) == 0 || b.size()+rest.size() <= blockBytes/2 {
			t.blocks.remove(from)
			from, rest = previous, t.join(b, rest)
		}
	}
	t.blocks.set(from, rest)
	return true
}

// Scan calls f for each item, in the order of the keys, until it returns false.
func (t *items) Scan(f func(entry) bool) { t.Ascend("", f) }

// Ascend is Scan that begins with pivot, or behind it if nobody has that key.
func (t *items) Ascend(pivot string, f func(entry) bool) {
	from, _ := t.blocks.floor(pivot)
	t.blocks.ascend(from, func(_ string, b block) bool {
		return b.each(func(e entry) bool { return string(e.key) < pivot || f(e) })
	})
}

// Drain is Scan of what nobody needs afterwards: t is empty from then on, and what it
// has passed and no other copy has is free while it goes on.
func (t *items) Drain(f func(entry) bool) {
	t.count = 0
	t.blocks.drain(func(b block) bool { return b.each(f) })
}

// each calls f for each item of b, until it returns false.
func (b block) each(f func(entry) bool) bool {
	for start := 0; start < len(b.packed); {
		e, end := b.at(start)
		if !f(e) {
			return false
		}
		start = end
	}
	return true
}

// headerBytes is the most that stands before an item's key.
const headerBytes = 3 * binary.MaxVarintLen64

func appendHeader(b []byte, key string, i item) []byte {
	b = binary.AppendUvarint(b, uint64(len(key)))
	b = binary.AppendUvarint(b, uint64(len(i.value)))
	return binary.AppendUvarint(b, i.version)
}

// entry is an item where it stands. Key and value are the block's memory: whoever
// keeps one keeps a copy.
type entry struct {
	key, value []byte
	large      string // instead of value, if that is longer than a block
	version    uint64
}

// text returns the value for whoever keeps it.
func (e entry) text() string {
	if e.large != "" {
		return e.large
	}
	return string(e.value)
}

// at returns the item that stands at start, and where it ends.
func (b block) at(start int) (e entry, end int) {
	keyBytes, start := b.number(start)
	valueBytes, start := b.number(start)
	version, start := b.number(start)
	middle := start + int(keyBytes)
	end = middle + int(valueBytes)
	return entry{b.packed[start:middle], b.packed[middle:end], b.owner.large, version}, end
}

func (b packed) number(start int) (v uint64, end int) {
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
func (b packed) find(key string) (start, end int, found bool) {
	for start < len(b) {
		keyBytes, at := b.number(start)
		valueBytes, at := b.number(at)
		for b[at] >= 0x80 { // the version is of no interest
			at++
		}
		middle := at + 1 + int(keyBytes)
		end = middle + int(valueBytes)
		if k := b[at+1 : middle]; string(k) >= key {
			if string(k) > key {
				break
			}
			return start, end, true
		}
		start = end
	}
	return start, start, false
}

// itemLoader makes items of what comes in the order of the keys.
type itemLoader struct {
	items *items
	from  string // of the block that is being filled
	block packed
}

func newItemLoader() *itemLoader { return &itemLoader{items: newItems()} }

func (l *itemLoader) add(key string, i item) {
	var room [headerBytes]byte
	header := appendHeader(room[:0], key, i)
	size := len(header) + len(key) + len(i.value)
	if len(l.block) > 0 && len(l.block)+size > blockBytes {
		l.flush()
	}
	if len(l.block) == 0 && l.items.count > 0 {
		l.from = key
	}
	l.items.count++
	if size > blockBytes {
		l.items.blocks.set(l.from, largeBlock(key, i))
		return
	}
	l.block = pack(l.block, header, key, i.value)
}

func (l *itemLoader) flush() {
	l.items.blocks.set(l.from, block{slices.Clone(l.block), l.items.blocks.owner})
	l.block = l.block[:0]
}

// done returns all that were added.
func (l *itemLoader) done() *items {
	if len(l.block) > 0 {
		l.flush()
	}
	return l.items
}
