package kvservice

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"raftkv/api"
	"raftkv/raft"
	"raftkv/raft/server"
)

// A forwarded request is its path, a space, the id of the request, a line feed,
// and the body as the client wrote it; with an Idempotency-Key see keyed.go. The
// reply is the status, a line feed, and the body for the client.

func joinLine(line string, body []byte) []byte {
	return append(append([]byte(line), '\n'), body...)
}

func splitLine(b []byte) (line string, body []byte, ok bool) {
	before, after, found := bytes.Cut(b, []byte{'\n'})
	return string(before), after, found
}

// forward passes a request on to the leader, once. It must tell apart a request
// that was never handed over, which has done nothing, from one whose answer was
// lost, which may have done everything.
func (s *KVService) forward(ctx context.Context, leader raft.ServerID, path string, body []byte) answerBytes {
	s.metrics.forwarded.WithLabelValues(forwardedOut).Inc()
	request := requestOf(ctx)
	reply, err := s.raft.Call(ctx, leader, joinLine(joinKey(path+" "+request.id, request.key), body))
	if errors.Is(err, server.ErrNotSent) {
		return encode(s.refuse(api.StatusNotLeader, fmt.Sprintf("server %d leads, but server %d cannot reach it; nothing was done, try again", leader, s.config.ID)))
	}
	if err == nil {
		line, body, ok := splitLine(reply)
		status, isReplayed := strings.CutSuffix(line, replayed)
		if ok && !request.visit.tryHoldAnswer(len(body)) {
			return encode(s.unknown(api.StatusFailedCommit, "too many large answers wait to be sent"))
		}
		if ok && api.Status(status).Known() {
			return answerBytes{api.Status(status), body, isReplayed}
		}
	}
	if ctx.Err() != nil {
		return encode(s.unknown(api.StatusTimeout, "the leader's answer did not come in time"))
	}
	return encode(s.unknown(api.StatusFailedCommit, "the leader's answer was lost"))
}

// HandleForwarded answers a request that another server forwarded. It is never
// forwarded again: two servers that each take the other for the leader would
// pass it back and forth. The transport calls it.
func (s *KVService) HandleForwarded(ctx context.Context, from raft.ServerID, payload []byte) []byte {
	select {
	case <-s.attached:
	case <-ctx.Done():
		return nil // the transport is closing
	}
	visit := &visit{door: s.door}
	defer visit.end()
	if !visit.holdBody(len(payload)) {
		a := encode(s.refuse(api.StatusBusy, "the requests under way at the leader are too large together; nothing was done, try again after a pause"))
		return joinLine(string(a.Status), a.Body)
	}
	line, body, ok := splitLine(payload)
	if !ok {
		a := encode(api.Refuse(api.StatusBadRequest, fmt.Sprintf("server %d forwarded something that server %d cannot read; do they run the same version?", from, s.config.ID)))
		return joinLine(string(a.Status), a.Body)
	}
	line, key := splitKey(line)
	path, requestID, _ := strings.Cut(line, " ")
	request := &requestContext{Context: ctx, deadline: time.Now().Add(s.config.RequestTimeout), id: requestID, key: key, visit: visit}
	defer request.end()
	if path == readIndexPath {
		return s.answerReadIndex(request, body)
	}
	s.metrics.forwarded.WithLabelValues(forwardedIn).Inc()
	a := s.answer(request, path, body, false)
	if a.Replayed {
		return joinLine(string(a.Status)+replayed, a.Body)
	}
	return joinLine(string(a.Status), a.Body)
}
