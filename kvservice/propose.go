package kvservice

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"raftkv/api"
	"raftkv/kvservice/machine"
	"raftkv/kvservice/waiters"
	"raftkv/raft"
	"raftkv/raft/server"
)

// propose puts a command into the log, waits until it has been applied, and
// returns the answer for the client.
func (s *KVService) propose(ctx context.Context, command machine.Command) api.Response {
	return s.proposeFor(ctx, command, func(a answer) api.Response {
		if command.Kind == machine.KindMark {
			return &api.HashResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, Index: uint64(a.at.Index)}
		}
		return command.Response(a.applied.Result)
	})
}

// proposeFor is propose for an answer that respond makes of what became of the command.
func (s *KVService) proposeFor(ctx context.Context, command machine.Command, respond func(answer) api.Response) api.Response {
	if command.RequestID == 0 {
		command.Nonce = newNonce()
	}
	s.mu.Lock()
	for !s.isReady() {
		s.mu.Unlock()
		if refusal := s.awaitReady(ctx); refusal != nil {
			return refusal
		}
		s.mu.Lock()
	}
	// Register first and submit afterwards: the entry may have been applied
	// before anybody has said that it was appended.
	answers := make(chan answer, 1)
	command.Stamp = s.clock.Stamp(s.monotonicMillis())
	token := s.waiters.Add(command.Identity())
	s.answers[token] = answers
	s.mu.Unlock()

	began := time.Now()
	err := s.raft.Propose(command.Encode(), func(where raft.Submitted) { s.submitted(token, where) })
	if err != nil {
		s.submitted(token, raft.Submitted{Err: err})
	}
	a, err := wait(ctx, s, answers)
	switch {
	case errors.Is(err, server.ErrStopped):
		s.forget(token)
		return s.unknown(api.StatusFailedCommit, "this server is stopping")
	case err != nil:
		s.forget(token)
		return s.unknown(api.StatusTimeout, "the request was not committed in time")
	case a.refused != nil:
		return s.refused(a.refused)
	case !a.lost:
		s.metrics.commitLatency.Observe(float64(time.Since(began)) / float64(time.Millisecond))
	}
	return s.response(ctx, respond, a)
}

// isReady reports whether this server can stamp commands as a leader. The lock is held.
func (s *KVService) isReady() bool { return s.leadership != nil && isClosed(s.leadership.ready) }

// awaitReady waits until this server can stamp commands as a leader. Nothing
// has been submitted for the request yet, so every refusal is not_applied.
func (s *KVService) awaitReady(ctx context.Context) (refusal api.Response) {
	s.mu.Lock()
	l := s.leadership
	s.mu.Unlock()
	if l == nil {
		return s.refuse(api.StatusNotLeader, "this server does not lead; nothing was done, ask the leader")
	}
	select {
	case <-l.ready:
		return nil
	case <-l.over:
		return s.refuse(api.StatusNotLeader, "this server has just ceased to lead; nothing was done, try again")
	case <-s.stopped:
		return s.refuse(api.StatusNotLeader, "this server is stopping; nothing was done, ask another")
	case <-ctx.Done():
		return s.refuse(api.StatusBusy, "the leader is still applying what earlier leaders left; nothing was done, try again")
	}
}

// submitted notes in which term a waiter's command was appended, or answers the
// waiter. The server's loop calls it.
func (s *KVService) submitted(token waiters.Token, where raft.Submitted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if where.Err == nil {
		// If that leadership has ended meanwhile, the announcement has gone by.
		if s.waiters.Submitted(token, where.Term) {
			s.reply(token, answer{lost: true})
		}
		return
	}
	// This attempt has put nothing into a log. An earlier one may have, and then
	// its answer may have come meanwhile.
	if _, waits := s.answers[token]; waits {
		s.waiters.Remove(token)
		s.reply(token, answer{refused: where.Err})
	}
}

// forget removes a waiter that was not answered: its client has gone, or is told
// "unknown". Of one that was answered nothing is left.
func (s *KVService) forget(token waiters.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters.Remove(token)
	delete(s.answers, token)
}

func (s *KVService) response(ctx context.Context, respond func(answer) api.Response, a answer) api.Response {
	s.recordAnswered(ctx, a)
	if a.lost {
		return s.unknown(api.StatusFailedCommit, "this server has ceased to lead before the request was committed")
	}
	return respond(a)
}

// unknown is the honest answer to a request that went into a log and did not
// come back. It must not say "failed", and not "please retry" either.
func (s *KVService) unknown(status api.Status, why string) api.Response {
	return s.refuse(status, why+"; it may have been applied or may still be: repeat it only with the same ClientID and RequestID")
}

// refused is the answer to what the leader has not done, or may have.
func (s *KVService) refused(err error) api.Response {
	switch {
	case isNotLeader(err):
		return s.refuse(api.StatusNotLeader, "this server has just ceased to lead; nothing was done, try again")
	case errors.Is(err, raft.ErrTransferring):
		return s.refuse(api.StatusBusy, "leadership is being handed over; nothing was done, try again")
	case errors.Is(err, raft.ErrBusy):
		return s.refuse(api.StatusBusy, "too much is unfinished; nothing was done, try again")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return s.refuse(api.StatusTimeout, "it was not finished in time; it may have been done or may still be")
	}
	return s.refuse(api.StatusFailedCommit, fmt.Sprintf("%v; it may have been done or may still be", err))
}

// refuse returns an answer without a result, with a hint where the leader is.
func (s *KVService) refuse(status api.Status, why string) api.Response {
	r := api.Refuse(status, why)
	leader := s.raft.Status().LeaderID
	r.Leader, r.LeaderHTTP = uint64(leader), s.config.HTTPAddrOf(leader)
	return r
}

func isNotLeader(err error) bool {
	var notLeader *raft.NotLeaderError
	return errors.As(err, &notLeader)
}

// newNonce names a command that nobody will ever send again.
func newNonce() (n machine.Nonce) {
	rand.Read(n[:]) // never fails
	return n
}
