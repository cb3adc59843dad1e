package kvservice

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"raftkv/api"
	"raftkv/kvservice/machine"
	"raftkv/raft"
)

// Are the servers' states the same? While writes go on, no two servers are asked
// at one moment, so they must be asked about one index. A mark in the log names
// it: every server comes by, takes a copy of its state, which takes no time, and
// reckons the hash of the copy beside its work. Nobody reckons anything unless
// there is a mark. (The other way, a hash at every so many entries, would cost as
// much as the store is large, again and again, and nobody would look at it.)

// keptHashes is how many marks a server remembers. It bounds the copies of the
// state that are kept for a hash, too.
const keptHashes = 4

// stateHash is what the state was at one index.
type stateHash struct {
	index raft.Index
	known chan struct{} // closed when the rest is there

	hash           string
	keys, sessions int
}

// noteHash is called when a mark has been applied, with the lock held.
func (s *KVService) noteHash(index raft.Index) {
	h := &stateHash{index: index, known: make(chan struct{})}
	s.hashes = append(s.hashes, h)
	if len(s.hashes) > keptHashes {
		s.hashes = slices.Delete(s.hashes, 0, 1)
	}
	state := s.machine.Clone()
	s.background.Go(func() {
		defer close(h.known)
		s.hashing.Lock()
		defer s.hashing.Unlock()
		// A server that reads its log again comes by many old marks.
		if s.hashAt(index) == h {
			h.compute(state)
		}
	})
}

func (h *stateHash) compute(state *machine.Machine) {
	sum := state.Hash()
	h.hash, h.keys, h.sessions = hex.EncodeToString(sum[:]), state.Keys(), state.Sessions()
}

// hashAt returns what is remembered of an index; nil if nothing is.
func (s *KVService) hashAt(index raft.Index) *stateHash {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.hashes {
		if h.index == index {
			return h
		}
	}
	return nil
}

// mark puts a mark into the log and tells where it stands.
func (s *KVService) mark(ctx context.Context) api.Response {
	return s.propose(ctx, machine.Command{Kind: machine.KindMark})
}

// serveHash tells this server's hash at the mark with the index in the query,
// and waits until it has come there.
func (s *KVService) serveHash(w http.ResponseWriter, req *http.Request) {
	index, err := strconv.ParseUint(req.URL.Query().Get("index"), 10, 64)
	if err != nil || index == 0 {
		writeAnswer(w, api.Refuse(api.StatusBadRequest, "?index= must be the Index of the answer to a POST "+api.PathAdminHash))
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), s.config.RequestTimeout)
	defer cancel()
	if refusal := s.awaitApplied(ctx, raft.Index(index)); refusal != nil {
		writeAnswer(w, refusal)
		return
	}
	h := s.hashAt(raft.Index(index))
	if h != nil {
		select {
		case <-h.known:
		case <-ctx.Done():
			writeAnswer(w, s.refuse(api.StatusTimeout, "the hash is not reckoned yet; ask again"))
			return
		}
	}
	if h == nil || h.hash == "" {
		writeAnswer(w, s.refuse(api.StatusNotFound, fmt.Sprintf("server %d has no hash at %d: there is no mark, or newer ones, or the server got a snapshot instead of it; set another mark", s.config.ID, index)))
		return
	}
	writeAnswer(w, &api.HashResponse{
		RespStatus: api.StatusOK,
		Outcome:    api.OutcomeApplied,
		Index:      index,
		Hash:       h.hash,
		Keys:       h.keys,
		Sessions:   h.sessions,
	})
}
