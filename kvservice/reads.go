package kvservice

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"raftkv/api"
	"raftkv/kvservice/machine"
	"raftkv/raft"
	"raftkv/raft/server"
)

// get answers a read of one key.
func (s *KVService) get(ctx context.Context, r *api.GetRequest) api.Response {
	return s.read(ctx, r.Consistency, func() (api.Response, *api.Age) {
		command := machine.Command{Kind: machine.KindGet, Key: r.Key}
		answer := command.Response(s.machine.Get(r.Key)).(*api.GetResponse)
		return answer, &answer.Age
	})
}

// read answers a read at its level. Every server answers reads from its own
// state; only how far that must have come is asked of the leader. look makes the
// answer of the state, with the lock held.
func (s *KVService) read(ctx context.Context, level api.Consistency, look func() (api.Response, *api.Age)) api.Response {
	s.countRead(level)
	if level == api.ConsistencyStale {
		return s.staleRead(look)
	}
	index, refusal := s.readIndex(ctx, level)
	if refusal != nil {
		return refusal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if refusal := s.appliedTo(ctx, index); refusal != nil {
		return refusal
	}
	answer, _ := look()
	return answer
}

// countRead counts a read under its level.
func (s *KVService) countRead(level api.Consistency) {
	if level == "" {
		level = api.ConsistencyLinearizable
	}
	s.metrics.reads[level].Inc()
}

// readIndexPath is what a follower asks the leader for; no client can.
const readIndexPath = "read-index"

// readIndex returns how far the state must have come to be read.
func (s *KVService) readIndex(ctx context.Context, level api.Consistency) (raft.Index, api.Response) {
	leader := s.raft.Status().LeaderID
	if leader == s.config.ID || leader == raft.None {
		index, err := s.ownReadIndex(ctx, level)
		if err != nil {
			return 0, s.readRefusal(ctx, err)
		}
		return index, nil
	}
	reply, err := s.raft.Call(ctx, leader, joinLine(readIndexPath, []byte(level)))
	if err != nil {
		return 0, s.readRefusal(ctx, err)
	}
	status, body, _ := splitLine(reply)
	index, err := strconv.ParseUint(string(body), 10, 64)
	if api.Status(status) != api.StatusOK || err != nil {
		return 0, s.refuse(api.StatusNotLeader, fmt.Sprintf("server %d does not lead (any more); try again", leader))
	}
	return raft.Index(index), nil
}

// ownReadIndex asks this server's own Raft. If the lease is over, a round of
// messages tells instead.
func (s *KVService) ownReadIndex(ctx context.Context, level api.Consistency) (raft.Index, error) {
	if level == api.ConsistencyLease {
		if index, ok := s.raft.LeaseIndex(); ok {
			return index, nil
		}
	}
	answers := make(chan raft.Answer, 1)
	if err := s.raft.AskReadIndex(answers); err != nil {
		return 0, err
	}
	a, err := wait(ctx, s, answers)
	if err != nil {
		return 0, err
	}
	return a.Index, a.Err
}

// answerReadIndex answers a follower.
func (s *KVService) answerReadIndex(ctx context.Context, level []byte) []byte {
	index, err := s.ownReadIndex(ctx, api.Consistency(level))
	if err != nil {
		return joinLine(string(api.StatusNotLeader), nil)
	}
	return joinLine(string(api.StatusOK), strconv.AppendUint(nil, uint64(index), 10))
}

// readRefusal says why a read was not answered. A read changes nothing, so that
// is never more than an inconvenience.
func (s *KVService) readRefusal(ctx context.Context, err error) api.Response {
	switch {
	case isNotLeader(err):
		return s.refuse(api.StatusNotLeader, "no leader has confirmed that this read would be up to date; try again")
	case errors.Is(err, raft.ErrBusy):
		return s.refuse(api.StatusBusy, "too many reads are waiting; try again")
	case errors.Is(err, server.ErrNotSent):
		return s.refuse(api.StatusNotLeader, "the leader cannot be reached from here; try again")
	case errors.Is(err, server.ErrStopped):
		return s.refuse(api.StatusNotLeader, "this server is stopping; ask another")
	case ctx.Err() != nil:
		return s.refuse(api.StatusTimeout, "no majority has confirmed in time that this read would be up to date")
	}
	return s.refuse(api.StatusNotLeader, "the leader's answer was lost; try again")
}

// staleRead answers from what this server has, and says so.
func (s *KVService) staleRead(look func() (api.Response, *api.Age)) api.Response {
	s.metrics.staleReads.Inc()
	heardAt, heard := s.raft.Heard()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.machine.AppliedIndex() >= heard && heardAt.After(s.freshAt) {
		s.freshAt = heardAt
	}
	answer, age := look()
	age.Stale, age.AppliedIndex = true, uint64(s.machine.AppliedIndex())
	age.AgeMillis = ageOf(s.freshAt)
	return answer
}

// ageOf returns how long ago a state was the latest; nil if it never was since the
// start.
func ageOf(freshAt time.Time) *uint64 {
	if freshAt.IsZero() {
		return nil
	}
	return new(uint64(time.Since(freshAt).Milliseconds()))
}

// reader waits until the state has come to an index.
type reader struct {
	index raft.Index
	ready chan struct{} // closed then
}

// awaitApplied waits until the entry at index has been applied.
func (s *KVService) awaitApplied(ctx context.Context, index raft.Index) (refusal api.Response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.appliedTo(ctx, index)
}

// appliedTo is awaitApplied with the lock held, but not while it waits.
func (s *KVService) appliedTo(ctx context.Context, index raft.Index) (refusal api.Response) {
	if s.machine.AppliedIndex() >= index {
		return nil
	}
	r := reader{index, make(chan struct{})}
	s.readers = append(s.readers, r)
	s.mu.Unlock()
	_, err := wait(ctx, s, r.ready)
	s.mu.Lock()
	if err == nil {
		return nil
	}
	s.readers = slices.DeleteFunc(s.readers, func(other reader) bool { return other == r })
	if errors.Is(err, server.ErrStopped) {
		return s.refuse(api.StatusNotLeader, "this server is stopping; ask another")
	}
	return s.refuse(api.StatusTimeout, "this server has not applied in time what the read must see")
}

// releaseReaders lets those go on who waited for what has just been applied.
func (s *KVService) releaseReaders() {
	now := s.machine.AppliedIndex()
	s.readers = slices.DeleteFunc(s.readers, func(r reader) bool {
		if r.index > now {
			return false
		}
		close(r.ready)
		return true
	})
}
