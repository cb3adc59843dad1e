package machine

import (
	"slices"
	"strings"
)

// blockTree is an ordered map from keys to blocks: a B+ tree, in which all blocks
// stand in the lowest nodes. Two trees may share nodes and blocks. Each of these has
// an owner, and a tree changes only those that have its own; of another it makes a
// copy. So to copy the tree is to give both a new owner.
type blockTree struct {
	root  *node
	owner *owner
}

// owner is told from others by its address.
type owner struct {
	large string // of a block that has a large value, see largeBlock
}

// node has either children or, at the bottom of the tree, blocks. keys[i] is the
// lowest key in children[i], or that of blocks[i].
// Invariant: every node but the root has a key. The root has one before all else.
type node struct {
	owner    *owner
	keys     []string
	children []*node
	blocks   []block

	// For index: what all keys but the first begin with, and the head of what
	// follows it in each; see noteHeads. Invariant: nobody changes heads.
	prefix string
	heads  []uint32
}

// nodeWidth is how many keys a node may have.
const nodeWidth = 64

// newBlockTree returns a tree with an empty block under "". It is never removed,
// so that each key has a block that is not behind it.
func newBlockTree() blockTree {
	o := new(owner)
	return blockTree{&node{owner: o, keys: []string{""}, blocks: []block{{owner: o}}}, o}
}

// clone returns an independent copy. Another goroutine may have it.
func (t *blockTree) clone() blockTree {
	t.owner = new(owner)
	return blockTree{t.root, new(owner)}
}

// own returns n for t to change.
func (t *blockTree) own(n *node) *node {
	if n.owner == t.owner {
		return n
	}
	return &node{t.owner, slices.Clone(n.keys), slices.Clone(n.children), slices.Clone(n.blocks), n.prefix, n.heads}
}

// index returns the last place whose key is not above key, or the first place. Every
// write does this on each level, and in a large store each key that it looks at has
// to come from memory. So it looks at heads, which stand side by side, and at a key
// only if the heads are equal.
func (n *node) index(key string) int {
	if !strings.HasPrefix(key, n.prefix) { // then all keys but the first are above key, or none
		if key < n.prefix {
			return 0
		}
		return len(n.keys) - 1
	}
	head := headOf(key[len(n.prefix):])
	low, high := 1, len(n.keys) // those from high on are above key; those before low are not, or it is the first
	for low < high {
		middle := int(uint(low+high) / 2)
		if h := n.heads[middle]; h < head || h == head && n.keys[middle] <= key {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low - 1
}

// noteHeads notes what index looks at. It has to be called when keys have changed.
func (n *node) noteHeads() {
	n.prefix, n.heads = "", make([]uint32, len(n.keys))
	if len(n.keys) < 2 {
		return
	}
	first, last := n.keys[1], n.keys[len(n.keys)-1]
	common := 0
	for common < len(first) && first[common] == last[common] { // last is above first, so it does not end before
		common++
	}
	n.prefix = first[:common]
	for i, key := range n.keys[1:] {
		n.heads[i+1] = headOf(key[common:])
	}
}

// headOf returns the first four bytes of a text as a number: of two texts, the
// lower one does not have the greater head.
func headOf(text string) (head uint32) {
	for i := range 4 {
		head <<= 8
		if i < len(text) {
			head |= uint32(text[i])
		}
	}
	return head
}

// below returns the last place whose key is below key; -1 if there is none.
func (n *node) below(key string) int {
	i, _ := slices.BinarySearch(n.keys, key)
	return i - 1
}

// blockPlace is where a block stands in a tree, until the next change.
type blockPlace struct {
	node  *node // at the bottom
	index int
}

func (p blockPlace) key() string  { return p.node.keys[p.index] }
func (p blockPlace) block() block { return p.node.blocks[p.index] }

// find returns the place of the last block whose key is not above key.
func (t *blockTree) find(key string) blockPlace {
	n := t.root
	for n.children != nil {
		n = n.children[n.index(key)]
	}
	return blockPlace{n, n.index(key)}
}

// floor returns the last block whose key is not above key.
func (t *blockTree) floor(key string) (from string, b block) {
	p := t.find(key)
	return p.key(), p.block()
}

// replace puts b in place of what stands at p.
func (t *blockTree) replace(p blockPlace, b block) {
	if p.node.owner == t.owner { // then all above it are t's own, too
		p.node.blocks[p.index] = b
		return
	}
	t.set(p.key(), b)
}

// after returns the block behind the one under from; ok is false if that is the
// last one.
func (t *blockTree) after(from string) (next string, b block, ok bool) {
	t.ascend(from, func(key string, found block) bool {
		next, b, ok = key, found, key != from
		return !ok
	})
	return next, b, ok
}

// before returns the block before the one under from, which must not be "".
func (t *blockTree) before(from string) (previous string, b block) {
	n := t.root
	for n.children != nil {
		n = n.children[n.below(from)]
	}
	i := n.below(from)
	return n.keys[i], n.blocks[i]
}

// ascend calls f for each block from the one under from on, until it returns
// false.
func (t *blockTree) ascend(from string, f func(key string, b block) bool) { t.root.ascend(from, f) }

func (n *node) ascend(from string, f func(key string, b block) bool) bool {
	for i := n.index(from); i < len(n.keys); i++ {
		if n.children != nil && !n.children[i].ascend(from, f) || n.children == nil && !f(n.keys[i], n.blocks[i]) {
			return false
		}
	}
	return true
}

// drain calls f for each block, until it returns false, and lets go of those that it
// has passed: t is a new tree from the beginning on, and of each level the walk has
// only what is still to come. What no other tree has is then free, bottom by bottom.
func (t *blockTree) drain(f func(block) bool) {
	root := t.root
	*t = newBlockTree()
	root.drain(f)
}

func (n *node) drain(f func(block) bool) bool {
	for _, b := range n.blocks {
		if !f(b) {
			return false
		}
	}
	children := slices.Clone(n.children) // another tree may have n
	for i, child := range children {
		children[i] = nil
		if !child.drain(f) {
			return false
		}
	}
	return true
}

// set puts b under key, in place of what is there.
func (t *blockTree) set(key string, b block) {
	root, right := t.setIn(t.root, key, b)
	if right != nil {
		root = &node{owner: t.owner, keys: []string{root.keys[0], right.keys[0]}, children: []*node{root, right}}
		root.noteHeads()
	}
	t.root = root
}

// setIn is set below a node. It returns the node that takes its place, and
// another to stand behind that one if it became too wide.
func (t *blockTree) setIn(n *node, key string, b block) (changed, right *node) {
	n = t.own(n)
	i := n.index(key)
	if n.children == nil {
		if n.keys[i] == key {
			n.blocks[i] = b
			return n, nil
		}
		n.keys = insert(n.keys, i+1, key)
		n.blocks = insert(n.blocks, i+1, b)
		return n, t.split(n)
	}
	n.children[i], right = t.setIn(n.children[i], key, b)
	if right == nil {
		return n, nil
	}
	n.keys = insert(n.keys, i+1, right.keys[0])
	n.children = insert(n.children, i+1, right)
	return n, t.split(n)
}

// split takes the second half from a node that has another key and is too wide
// now; nil if it is not.
func (t *blockTree) split(n *node) (right *node) {
	defer n.noteHeads()
	if len(n.keys) <= nodeWidth {
		return nil
	}
	half := len(n.keys) / 2
	right = &node{owner: t.owner}
	right.keys, n.keys = cut(n.keys, half)
	if n.children != nil {
		right.children, n.children = cut(n.children, half)
	} else {
		right.blocks, n.blocks = cut(n.blocks, half)
	}
	right.noteHeads()
	return right
}

// insert is slices.Insert with room for some more at a time, where that would make
// room for twice as many. Half of it would be free for long: blocks seldom come.
func insert[T any](s []T, at int, v T) []T {
	if len(s) == cap(s) {
		s = append(make([]T, 0, len(s)+nodeWidth/16), s...)
	}
	return slices.Insert(s, at, v)
}

// remove takes one away from s, and does not keep much more memory than is needed.
func remove[T any](s []T, at int) []T {
	s = slices.Delete(s, at, at+1)
	if len(s) < cap(s)/2 {
		s = slices.Clone(s)
	}
	return s
}

// cut divides s at a place. Neither part keeps in memory what the other one holds.
func cut[T any](s []T, at int) (second, first []T) {
	return slices.Clone(s[at:]), slices.Clone(s[:at])
}

// remove removes the block under key, which must be there, and not be "". Nodes
// are not made equally wide again: they go when they are empty.
func (t *blockTree) remove(key string) { t.root = t.removeIn(t.root, key) }

func (t *blockTree) removeIn(n *node, key string) *node {
	n = t.own(n)
	defer n.noteHeads()
	i := n.index(key)
	if n.children == nil {
		n.keys, n.blocks = remove(n.keys, i), remove(n.blocks, i)
		return n
	}
	child := t.removeIn(n.children[i], key)
	if len(child.keys) == 0 {
		n.keys, n.children = remove(n.keys, i), remove(n.children, i)
		return n
	}
	n.keys[i], n.children[i] = child.keys[0], child
	return n
}
