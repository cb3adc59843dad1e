package sim

import (
	"errors"
	"fmt"
	"time"

	"raftkv/raft"
	"raftkv/raft/storage"
)

// Every data directory has a random id, and servers remember which one each of
// the others had (design: storage and identity). raft/transport asks in its
// handshake, on both sides, and so does this network: a message passes only
// between two stores that accept each other.

// flight is a message under way, from one store to another.
type flight struct {
	id      uint64 // counts the messages of a run, from 1
	sent    time.Duration
	message raft.Message
	from    raft.StoreID
	since   raft.Index   // what the sender announces
	to      raft.StoreID // whom the sender knows; zero if it has not met anybody there
}

// address says between which stores a message is about to go. ok is false if
// the sender does not talk to who is there now.
func (s *simulation) address(m raft.Message) (f flight, ok bool) {
	f = flight{message: m, sent: s.now}
	n, peer := s.nodes[index(m.From)], s.nodes[index(m.To)]
	if n.met == nil {
		return f, true // without files there are no stores
	}
	f.from, f.since = n.store, n.since
	if peer.up && !s.accepts(n, peer.id, peer.store, peer.since) {
		return f, false
	}
	f.to = n.met[peer.index].store
	if peer.up {
		f.to = peer.store
	}
	return f, true
}

// heard reports whether a message that has come to a running server is for it,
// and from somebody whom it knows, or may get to know.
func (s *simulation) heard(n *node, f *flight) bool {
	if n.met == nil {
		return true
	}
	if f.to != n.store && f.to != (raft.StoreID{}) {
		s.count(StoreRefused)
		return false
	}
	return s.accepts(n, f.message.From, f.from, f.since)
}

// met is a store that another server has, and since when that server takes part.
type met struct {
	store raft.StoreID
	since raft.Index
}

// accepts is what the handshake of raft/transport asks. A connection is asked
// about once in a server's life, and again when its server is a new one under an
// old id, by the configuration here or by what it announces itself; that another
// store is accepted must be on the disk before it is heard. Who does not take part
// may have any store.
func (s *simulation) accepts(n *node, peer raft.ServerID, store raft.StoreID, announced raft.Index) bool {
	if !n.configuration.Has(peer) {
		return true
	}
	told := n.configuration.Address(peer).Since
	now := met{store, max(announced, told)}
	before := &n.met[index(peer)]
	if before.store == store && before.since >= now.since {
		return true
	}
	if other := s.nodes[index(peer)]; !other.up || other.store != store {
		// It is down, or has another disk by now, and this is a late message: nobody is
		// there to shake hands with. To note the lost store would be to refuse for ever
		// the one that was added in its place (seed 709554).
		return false
	}
	files := n.disk.storage.(*storage.FileStorage)
	had, known := files.KnownStores()[peer]
	power := !known && !s.healed && s.powerFailsInHandshake(n, peer, store)
	err := files.RememberStore(peer, now.since, store)
	if s.config.credulous && errors.Is(err, storage.ErrForeignStore) {
		err = nil
	}
	switch {
	case err == nil && !power:
		*before = now
		if known && had != store && announced > told {
			s.count(StoreAnnounced)
		}
		return true
	case errors.Is(err, storage.ErrForeignStore):
		s.count(StoreRefused)
	case !power:
		s.stopSoon(n, "stops: it cannot write down whom it has met", false)
		s.count(NotRemembered)
	}
	return false
}

// noteSince lets a server announce since when it takes part: what is on its disk
// says it, as in raft/server.
func (s *simulation) noteSince(n *node) {
	n.since = n.configuration.Address(n.id).Since
	if n.since <= n.disk.addedAfter || s.config.silent {
		n.since = 0
	}
}

// powerFailsInHandshake draws whether power fails while a new store is being
// written down. Nobody may have been heard before that was durable.
func (s *simulation) powerFailsInHandshake(n *node, peer raft.ServerID, store raft.StoreID) bool {
	random := newSource(s.seed, fmt.Sprint("handshake ", n.id, " ", peer, " ", n.life, " ", store))
	if !s.decide(failHandshake, int(n.id), int(peer), random.oneIn(16)) {
		return false
	}
	n.disk.files.CrashAfter(random.below(6))
	s.stopSoon(n, "", true)
	s.count(CrashInHandshake)
	return true
}

// stopSoon stops a server after what it is doing now, if it is still up then.
func (s *simulation) stopSoon(n *node, why string, power bool) {
	life := n.life
	s.after(0, func() {
		if !n.up || n.life != life {
			return
		}
		if why != "" {
			s.note(n, why)
		}
		s.stop(n, power)
		s.after(n.luck.around(s.plan.downTime), func() { s.start(n) })
	})
}

// wipe lets a server come back with an empty disk, and with it without its
// votes and entries. It is let alone if anybody might not notice: who has never
// met the old store cannot refuse the new one, and docs/storage.md says so. One
// at a time, because two that know nobody would listen to each other. With a
// change of the members in mind, see loseDisk.
func (s *simulation) wipe(victim *node, lasts time.Duration, random *source) {
	for _, n := range s.nodes {
		if n.wiped != nil || n != victim && (!n.up || !n.knows(victim)) {
			return
		}
	}
	if len(s.nodes) == 1 || victim.damage != nil || victim.disk.storage == nil {
		return
	}
	s.stop(victim, true)
	old := victim.disk
	victim.wiped = &old
	victim.wipes++
	victim.disk = s.newDisk(victim.index, fmt.Sprint("disk ", victim.index, " ", victim.wipes), false)
	// The rest can do without it if they are a majority.
	victim.out = len(s.nodes) > 2 && random.oneIn(3)
	s.note(victim, "has lost its disk")
	s.count(DiskWiped)
	s.after(random.around(s.plan.downTime), func() { s.start(victim) })
	over := s.watcher.network(fmt.Sprintf("server %d has an empty disk", victim.id), []raft.ServerID{victim.id}, nil)
	if victim.out {
		s.because("server %d comes back with an empty disk, for good", victim.id)
		return
	}
	s.because("server %d comes back with an empty disk, for %v", victim.id, lasts)
	s.atEnd(lasts, func() {
		over()
		s.putBack(victim)
		s.after(random.around(s.plan.downTime), func() { s.start(victim) })
	})
}

// knows reports whether a server that is up has written down the present store
// of another one.
func (n *node) knows(peer *node) bool {
	if peer.disk.storage == nil {
		return false
	}
	store, known := n.disk.storage.(*storage.FileStorage).KnownStores()[peer.id]
	return known && store == peer.disk.storage.(*storage.FileStorage).StoreID()
}

// putBack gives a wiped server its old disk. It has to be started.
func (s *simulation) putBack(n *node) {
	if n.wiped == nil {
		return
	}
	s.stop(n, true)
	n.disk = *n.wiped
	n.wiped = nil
	s.note(n, "has its old disk back")
	s.count(DiskBack)
}

// participants returns the servers that count in the end: those whom the latest
// leader's configuration names, but for one that has lost its disk for good.
func (s *simulation) participants() []*node {
	nodes := make([]*node, 0, len(s.nodes))
	leader := s.latestLeader()
	for _, n := range s.nodes {
		if n.wiped == nil && !n.lost && !n.spared && (leader == nil || len(leader.configuration.Voters) == 0 || leader.configuration.Has(n.id)) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// latestLeader returns who leads in the highest term, as far as anybody does.
func (s *simulation) latestLeader() (leader *node) {
	for _, n := range s.nodes {
		if n.up && n.wiped == nil && n.status.State == raft.Leader && (leader == nil || n.status.Term > leader.status.Term) {
			leader = n
		}
	}
	return leader
}
