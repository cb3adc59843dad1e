package machine

import (
	"bytes"

	"raftkv/raft"
)

// DataStore holds the keys and values. (The posts' DataStore. Theirs is a map
// under a lock; this one is ordered and is copied in one step, so that a copy
// can be read while writes go on.)
type DataStore struct {
	items *items

	// writes counts the writes that have changed something since the first entry
	// of the log. It gives versions, so it never goes back.
	writes uint64
}

// item is what a key holds. version is the count of writes at its last write;
// 0 stands for an absent key, which has no item.
type item struct {
	value   string
	version uint64
}

func newDataStore() DataStore { return DataStore{items: newItems()} }

func (s *DataStore) clone() DataStore {
	return DataStore{items: s.items.IsoCopy(), writes: s.writes}
}

// get returns what key holds; found is false, and the item zero, if it is absent.
func (s *DataStore) get(key string) (i item, found bool) { return s.items.Get(key) }

// put sets key to value and returns the key's new version.
func (s *DataStore) put(key, value string) uint64 { return s.putAt(s.items.find(key), value) }

// putAt is put for who has looked already what the key holds.
func (s *DataStore) putAt(p place, value string) uint64 {
	s.writes++
	s.items.setAt(p, item{value, s.writes})
	return s.writes
}

// delete removes key. Removing an absent key changes nothing and does not count.
func (s *DataStore) delete(key string) {
	if s.items.Delete(key) {
		s.writes++
	}
}

// Item is a key with what it holds.
type Item struct {
	Key, Value string
	Version    uint64
}

// View is what all keys held at one index. It never changes, and any goroutine may
// read it.
type View struct {
	store        DataStore
	appliedIndex raft.Index
}

// View returns the present state of the keys. It takes the same short time
// however much there is. As long as it is kept, what changes afterwards is in
// memory twice, as it was and as it is.
func (m *Machine) View() *View { return &View{m.store.clone(), m.appliedIndex} }

// AppliedIndex returns the index of the last entry that v has seen.
func (v *View) AppliedIndex() raft.Index { return v.appliedIndex }

// Scan returns the keys that begin with prefix and come behind after, in the
// order of their bytes: at most limit, and no more once keys and values have
// reached maxBytes. limit must be at least 1. more says that there are others;
// then go on after the last one. after "" begins with the first.
func (v *View) Scan(prefix, after string, limit, maxBytes int) (items []Item, more bool) {
	size := 0
	v.store.items.Ascend(max(prefix, after), func(e entry) bool {
		switch {
		case after != "" && string(e.key) == after:
			return true
		case !bytes.HasPrefix(e.key, []byte(prefix)):
			return false
		case len(items) == limit, len(items) > 0 && size >= maxBytes:
			more = true
			return false
		}
		items = append(items, Item{string(e.key), e.text(), e.version})
		size += len(e.key) + len(e.value) + len(e.large)
		return true
	})
	return items, more
}
