package kvclient

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"

	"raftkv/api"
)

var errNoAnswer = errors.New("no answer in time")

// maxAnswerBytes bounds how much of an answer is read: what a value and the
// escapes of JSON can come to, with room.
const maxAnswerBytes = 64 << 20

// readAhead is how much memory an answer gets on the word of its head alone.
const readAhead = 1 << 20

// operation is what every attempt of a call sends, byte for byte the same.
type operation struct {
	method string
	path   string
	body   []byte
	key    string // the header Idempotency-Key; "" for none

	// answer returns an empty response. Each attempt gets a new one: fields that
	// its answer lacks must not keep what an earlier answer said.
	answer func() api.Response

	// once forbids another attempt after one whose outcome is unknown: the
	// operation has no identity by which the cluster could recognise it.
	once bool
}

// attempt is what one attempt brought.
type attempt struct {
	answer  api.Response // nil if there was none that makes sense
	outcome api.Outcome  // of this attempt
	err     error        // nil if answer holds a result

	// configuration is 1 more than the index of the configuration that the server
	// has told of, see api.HeaderConfiguration; 0 if it has told of none.
	configuration uint64

	leaderHTTP string // whom the server has named as the leader, see api.HeaderLeader; "" for nobody
}

// final reports whether another attempt would bring nothing else.
func (a attempt) final() bool {
	if a.answer == nil {
		return false
	}
	switch a.answer.Head().RespStatus {
	case api.StatusNotLeader, api.StatusBusy, api.StatusFailedCommit, api.StatusTimeout, api.StatusWindowExceeded:
		return false
	}
	return true
}

// leader returns the endpoint that the answer names as the leader's, or "".
func (a attempt) leader() string {
	if a.answer == nil {
		return ""
	}
	return hintedEndpoint(cmp.Or(a.answer.Head().LeaderHTTP, a.leaderHTTP))
}

// exchange makes one attempt at op and waits for its answer until ctx ends.
//
// Once a connection is there, the request may reach a server, and no error
// proves that it did not: a broken connection, an answer cut short, a page of
// some proxy all leave it unknown. Before that nothing has left this machine.
func (c *KVClient) exchange(ctx context.Context, endpoint string, op operation) attempt {
	sent := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent = true }, // called by Do itself
	})
	failed := func(err error) attempt {
		var wrapped *url.Error
		if ctx.Err() != nil {
			err = errNoAnswer
		} else if errors.As(err, &wrapped) {
			err = wrapped.Err // without the address, which stands before it
		}
		outcome := api.OutcomeNotApplied
		if sent {
			outcome = api.OutcomeUnknown
		}
		return attempt{outcome: outcome, err: fmt.Errorf("%s: %w", endpoint, err)}
	}

	req, err := http.NewRequestWithContext(ctx, op.method, endpoint+op.path, bytes.NewReader(op.body))
	if err != nil {
		return failed(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if op.key != "" {
		req.Header.Set(api.HeaderIdempotencyKey, op.key)
	}
	req.GetBody = nil // net/http must not repeat a request behind our back
	resp, err := c.http.Do(req)
	if err != nil {
		return failed(err)
	}
	defer resp.Body.Close()
	// Read to the end even if the answer is of no use, so that the connection can
	// be used again.
	var data bytes.Buffer
	data.Grow(int(min(max(resp.ContentLength, 0), readAhead)) + bytes.MinRead) // with room in which to see the end
	if _, err := data.ReadFrom(io.LimitReader(resp.Body, maxAnswerBytes)); err != nil {
		return failed(err)
	}
	answer := op.answer()
	if err := api.DecodeResponse(data.Bytes(), answer); err != nil {
		return failed(fmt.Errorf("HTTP %d: %w", resp.StatusCode, err))
	}
	if err := contradiction(resp.StatusCode, answer); err != nil {
		return failed(err)
	}
	a := judged(answer)
	if index, err := strconv.ParseUint(resp.Header.Get(api.HeaderConfiguration), 10, 63); err == nil {
		a.configuration = index + 1
	}
	a.leaderHTTP = resp.Header.Get(api.HeaderLeader)
	return a
}

// judged returns the attempt that brought an answer.
func judged(answer api.Response) attempt {
	head := answer.Head()
	a := attempt{answer: answer, outcome: head.Outcome}
	if head.RespStatus != api.StatusOK && head.RespStatus != api.StatusDuplicateRequest {
		a.err = newStatusError(head)
	}
	return a
}

// contradiction returns an error for an answer that no server of ours gives.
func contradiction(code int, answer api.Response) error {
	head := answer.Head()
	if code != api.HTTPStatus(head.RespStatus) {
		return fmt.Errorf("HTTP %d does not go with status %s", code, head.RespStatus)
	}
	applied := head.Outcome == api.OutcomeApplied
	switch head.RespStatus {
	case api.StatusDuplicateRequest:
		return nil
	case api.StatusOK:
		if s, ok := answer.(*api.SessionResponse); ok && s.ClientID == "" {
			return errors.New("a session without ClientID")
		}
		if applied {
			return nil
		}
	default:
		if !applied {
			return nil
		}
	}
	return fmt.Errorf("outcome %s does not go with status %s", head.Outcome, head.RespStatus)
}
