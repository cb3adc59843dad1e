package server

import (
	"errors"

	"raftkv/raft"
	"raftkv/raft/storage"
)

// A server that lost its disk is removed, and added again with another store
// (docs/protocol.md, "Stores"). Those who get the log learn of both. But one that
// was away goes on to know the old store. If the new server leads by then, it is the
// only one that would send the log, and it is refused. So each handshake carries since
// when the sender takes part, by its own log, and a later one counts for more than
// the store that is known.
//
// Can who listens be misled? It may still be in a configuration C in which the old
// server has a vote, and take the new one's votes and acknowledgements for the old
// one's. Let the new one have been added at index i by the leader of term t. That
// leader had committed the removal, a configuration without the server, and an entry
// of term t (raft/membership.go#planChange). Whoever announces i has all these on its
// disk, and is in term t or a later one, for ever:
//
//   - It acknowledges entries only to leaders of t or later. Each of these has the
//     removal (Figure 3, Leader Completeness), so none counts by C.
//   - It votes only for logs that are no less up to date than its own. Its own has what
//     was committed in t, so the candidate's has that, too (§5.4.3), with the removal,
//     and does not count by C either.
//
// It may lead, and then it has won by the configuration in its own log. Before the entry
// at i has come it announces 0 and stays refused, and what its log says of the old server
// makes it neither lead nor vote (raft.Config's AddedAfter). The old server, if it still
// runs, announces what it was told, which is less: whoever has met the new one refuses it.

// checkStore wraps what the transport asks about the store of another server,
// before anything that it says is heard. A server that does not take part may
// have any store: it counts for nothing. A foreign store is the other one's
// trouble. If our own disk has failed, the server ends as after a failed Save: it
// would go on to refuse everybody, and a follower that hears nobody might have
// nothing to save for ever.
func (s *Server) checkStore(remember func(raft.ServerID, raft.Index, raft.StoreID) error) func(raft.ServerID, raft.StoreID, raft.Index) (bool, error) {
	return func(id raft.ServerID, store raft.StoreID, since raft.Index) (newer bool, err error) {
		c, _ := s.Configuration()
		if !c.Has(id) {
			return false, nil
		}
		known := c.Address(id).Since
		err = remember(id, max(since, known), store)
		if err != nil && !errors.Is(err, storage.ErrForeignStore) {
			s.fail(err)
		}
		return since > known, err
	}
}

// takesPartSince is what this server announces: the index of the configuration that
// added it, if that has come to its disk, else 0.
func (s *Server) takesPartSince() raft.Index { return raft.Index(s.since.Load()) }

// noteSince is called when all that the module holds is on the disk. If more were
// announced, a server that crashes then could come back without the term that the
// argument above relies on, and would be believed.
func (s *Server) noteSince() {
	since := s.configuration.Address(s.config.Raft.ID).Since
	if since <= s.config.Raft.AddedAfter {
		since = 0 // that is about the server in whose place this one is
	}
	s.since.Store(uint64(since))
}
