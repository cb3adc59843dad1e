package kvclient

import (
	"errors"
	"fmt"

	"raftkv/api"
)

// ErrClosed reports a call on a client that was closed before or during the
// call. During the call it is the cause in an [UnknownError] if the write had
// been sent.
var ErrClosed = errors.New("kvclient: the client is closed")

// ErrNoEndpoints reports a client that was made without any address to ask.
var ErrNoEndpoints = errors.New("kvclient: no endpoints given")

// ErrDuplicate reports a write that was carried out, once, by an earlier attempt,
// and whose result the cluster does not tell: it was dropped for room, or the
// cluster only reports duplicates (raftkv serve --duplicates report). errors.Is
// finds it in a *[StatusError] with Outcome api.OutcomeApplied. A put, an append or
// a delete is done with that; whether a CAS has swapped is not known, so read the key.
var ErrDuplicate = errors.New("kvclient: carried out by an earlier attempt, whose result is not known any more")

// UnknownError reports a write of which nobody can say whether it was applied:
// a request was sent and no answer with its result came back in time.
//
// Do not repeat the write as a new one, or it may happen twice. To learn how it
// ended, call [KVClient.Resume] with Identity while no later write of this
// ClientID was sent; after one the write can no longer take effect late, and
// reading the key tells what is there. errors.As finds it; errors.Is finds
// context.DeadlineExceeded and context.Canceled if the context ended the call.
type UnknownError struct {
	// ClientID and RequestID are the write's identity; "" and 0 for a write that
	// was sent without one, and for what [KVClient.ChangeMembers] and
	// [KVClient.TransferLeadership] ask for.
	ClientID  api.ClientID
	RequestID uint64

	// IdempotencyKey identifies the write if it was given one: then the same call
	// with the same key tells how it ended. Else "".
	IdempotencyKey string

	Err error // what happened last
}

func (e *UnknownError) Error() string {
	if e.IdempotencyKey != "" {
		return fmt.Sprintf("kvclient: the write with Idempotency-Key %q may or may not have been applied: %v", e.IdempotencyKey, e.Err)
	}
	if e.ClientID == "" {
		return fmt.Sprintf("kvclient: a request without identity may or may not have been carried out: %v", e.Err)
	}
	return fmt.Sprintf("kvclient: request %d of client %s may or may not have been applied: %v", e.RequestID, e.ClientID, e.Err)
}

func (e *UnknownError) Unwrap() error { return e.Err }

// StatusError is a refusal by the cluster: an answer other than the result.
type StatusError struct {
	Status api.Status

	// Outcome is what that one answer says of its own attempt. Whether the whole
	// call is unknown is told by an [UnknownError] around this one, so look for
	// that first.
	Outcome api.Outcome

	Message string // the server's explanation, for people
}

func (e *StatusError) Error() string {
	if e.Message == "" {
		return string(e.Status)
	}
	return fmt.Sprintf("%s: %s", e.Status, e.Message)
}

// Is makes errors.Is find [ErrDuplicate].
func (e *StatusError) Is(target error) bool {
	return target == ErrDuplicate && e.Status == api.StatusDuplicateRequest && e.Outcome == api.OutcomeApplied
}

func newStatusError(head api.ErrorResponse) *StatusError {
	return &StatusError{Status: head.RespStatus, Outcome: head.Outcome, Message: head.Error}
}

// GaveUpError reports a call that ended because its context did, or the client
// was closed. errors.Is finds both parts.
type GaveUpError struct {
	Cause error // context.DeadlineExceeded, context.Canceled, a cause that the caller gave, or ErrClosed
	Last  error // what the last attempt brought; nil if none was made
}

func (e *GaveUpError) Error() string {
	if e.Last == nil {
		return e.Cause.Error()
	}
	return fmt.Sprintf("%v; the last attempt: %v", e.Cause, e.Last)
}

func (e *GaveUpError) Unwrap() []error {
	if e.Last == nil {
		return []error{e.Cause}
	}
	return []error{e.Cause, e.Last}
}
