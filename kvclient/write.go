package kvclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"raftkv/api"
	"raftkv/kvclient/numbering"
)

// Op names a kind of write.
type Op string

// The kinds of write.
const (
	OpPut    Op = "put"
	OpAppend Op = "append"
	OpCAS    Op = "cas"
	OpDelete Op = "delete"
)

// Write is one write, for callers who keep identities themselves, such as a
// program that must finish its writes after a restart.
//
// In JSON, values that are no text stand in base64, and Encoding says so.
type Write struct {
	Op           Op
	Key          string // valid UTF-8
	Value        string // any bytes; "" for OpDelete
	CompareValue string // OpCAS only

	// A condition; see the options [IfVersion] and [ExpectAbsent].
	IfVersion    *uint64 `json:",omitzero"` // nil is none; not of OpCAS
	ExpectAbsent bool    `json:",omitzero"` // OpCAS only, without CompareValue

	// IdempotencyKey identifies the write in the place of an [Identity]; see
	// [WithIdempotencyKey]. "" is none.
	IdempotencyKey string `json:",omitzero"`
}

// writeJSON is how a Write stands in JSON.
type writeJSON struct {
	plainWrite `json:",inline"`
	Encoding   api.Encoding `json:",omitzero"`
}

type plainWrite Write

// MarshalJSONTo writes w as one object.
func (w Write) MarshalJSONTo(enc *jsontext.Encoder) error {
	e := w.encoding()
	w.Value, _ = api.EncodeValue(w.Value, e)
	w.CompareValue, _ = api.EncodeValue(w.CompareValue, e)
	return json.MarshalEncode(enc, writeJSON{plainWrite(w), e})
}

// UnmarshalJSONFrom reads what MarshalJSONTo has written.
func (w *Write) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	var r writeJSON
	err := json.UnmarshalDecode(dec, &r)
	if err == nil {
		r.Value, err = r.Encoding.Decode(r.Value)
	}
	if err == nil {
		r.CompareValue, err = r.Encoding.Decode(r.CompareValue)
	}
	*w = Write(r.plainWrite)
	return err
}

// encoding returns how the values of w must travel.
func (w Write) encoding() api.Encoding {
	if utf8.ValidString(w.Value) && utf8.ValidString(w.CompareValue) {
		return api.EncodingText
	}
	return api.EncodingBase64
}

// WriteOption makes a write conditional.
type WriteOption func(*Write)

// IfVersion lets a put, an append or a delete happen only if the key has this
// version (see [WriteResult]), or is absent if it is 0. Else the error is a
// *[StatusError] with api.StatusConditionFailed, and nothing was done.
func IfVersion(version uint64) WriteOption {
	return func(w *Write) { w.IfVersion = &version }
}

// ExpectAbsent makes a compare-and-set whose compare value is "" set the key if
// it is absent.
func ExpectAbsent() WriteOption {
	return func(w *Write) { w.ExpectAbsent = true }
}

// WithIdempotencyKey gives a write an identity of the caller's own: text that no
// other write has, of 1 to api.MaxIdempotencyKeyBytes printable ASCII characters,
// such as an order's number. It then belongs to no session. Whoever repeats the
// call with the same key, in this program or another, gets the result of the first
// with Duplicate set, for as long as the cluster remembers the key (a day, unless
// the operator has said otherwise); another write with the key is refused with
// api.StatusRequestMismatch. So after an [UnknownError] the same call finds out.
//
// Such a write does not travel in a batch.
func WithIdempotencyKey(key string) WriteOption {
	return func(w *Write) { w.IdempotencyKey = key }
}

func (w Write) with(options []WriteOption) Write {
	if len(options) == 0 {
		return w
	}
	changed := w // takes memory, because options get its address; most writes have none
	for _, option := range options {
		option(&changed)
	}
	return changed
}

// Identity tells one write from all others. Every attempt at the write carries
// the same one, and no other write ever does. The zero Identity is none.
type Identity struct {
	ClientID  api.ClientID // from Register
	RequestID uint64       // counts the client's writes from 1

	// AckedThrough: every write up to this number has ended for its caller, who
	// has the answer or has given it up. Less than RequestID; RequestID-1 for a
	// caller who makes one write at a time.
	AckedThrough uint64
}

// Register returns a new ClientID, for [KVClient.Send]. The other writes
// register by themselves. Whoever does not need it any more gives it back with
// [KVClient.CloseSession]; else its session ends when it was not used for a day,
// unless the operator has said otherwise.
func (c *KVClient) Register(ctx context.Context) (api.ClientID, error) {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	return c.register(ctx)
}

// CloseSession tells the cluster that nobody will use a ClientID from Register any
// more, so that others have its room. None of its writes may be in progress, and
// none can be resumed afterwards: their numbers are forgotten. It is repeated until
// ctx ends, which is harmless. To close a session that has ended already is no error.
func (c *KVClient) CloseSession(ctx context.Context, id api.ClientID) error {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := c.endSession(ctx, id); err != nil {
		return fmt.Errorf("kvclient: session not closed: %w", err)
	}
	return nil
}

// Send carries out a write under an identity that the caller keeps and has
// never sent before. Its errors are those of [KVClient.Put], but for a session
// that has expired: that is a *[StatusError], and the caller may register anew
// and send the write once more under its new identity.
//
// With the zero Identity, and without an IdempotencyKey, the write is unprotected.
// It is sent again only while it certainly was not applied, and ends with an
// [UnknownError] at the first doubt.
func (c *KVClient) Send(ctx context.Context, id Identity, w Write) (WriteResult, error) {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return WriteResult{}, err
	}
	defer done()
	var call numbering.Call
	return c.send(ctx, id, w, &call)
}

// Resume is [KVClient.Send] for a write that may have been sent before, whose
// end is not known. If it took effect, its result is returned; if not, it is
// carried out now. A refusal says nothing about the attempts made before, so it
// leaves the write unknown.
func (c *KVClient) Resume(ctx context.Context, id Identity, w Write) (WriteResult, error) {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return WriteResult{}, err
	}
	defer done()
	var call numbering.Call
	call.Add(api.OutcomeUnknown)
	return c.send(ctx, id, w, &call)
}

// send makes attempts at w until it has ended. call holds what is known of
// attempts made before.
func (c *KVClient) send(ctx context.Context, id Identity, w Write, call *numbering.Call) (WriteResult, error) {
	op, err := w.operation(id)
	var answer api.Response
	if err == nil {
		answer, err = c.run(ctx, op, call)
	}
	return w.conclude(id, answer, err, call)
}

// conclude says how a write has ended whose last attempt brought answer, or err.
func (w Write) conclude(id Identity, answer api.Response, err error, call *numbering.Call) (WriteResult, error) {
	if err == nil {
		return w.result(id, answer)
	}
	if call.Outcome() == api.OutcomeUnknown {
		return WriteResult{}, w.unknown(id, err)
	}
	return WriteResult{}, fmt.Errorf("kvclient: %s not applied: %w", w.Op, err)
}

func (w Write) unknown(id Identity, err error) error {
	return &UnknownError{ClientID: id.ClientID, RequestID: id.RequestID, IdempotencyKey: w.IdempotencyKey, Err: err}
}

// check refuses what cannot be sent: a key that is no text, or an Op or a
// condition that does not exist, or an Idempotency-Key that cannot be one.
func (w Write) check() error {
	text := ""
	switch w.Op {
	case OpPut, OpAppend, OpDelete:
		if w.ExpectAbsent {
			text = fmt.Sprintf("a %s has no such condition", w.Op)
		}
	case OpCAS:
		if w.IfVersion != nil {
			text = fmt.Sprintf("a %s has no such condition", w.Op)
		}
	default:
		text = fmt.Sprintf("there is no write %q", w.Op)
	}
	if !utf8.ValidString(w.Key) {
		text = fmt.Sprintf("the key %q is not valid UTF-8, which JSON cannot carry", w.Key)
	}
	if text == "" && w.IdempotencyKey != "" {
		_, err := api.ParseIdempotencyKey([]string{w.keyHeader()})
		if refused, ok := errors.AsType[*api.RequestError](err); ok {
			text = refused.Text
		}
	}
	if text == "" {
		return nil
	}
	return &StatusError{api.StatusBadRequest, api.OutcomeNotApplied, text}
}

// keyHeader returns how the Idempotency-Key stands in its header: in quotes, so that
// any character may be in it.
func (w Write) keyHeader() string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(w.IdempotencyKey) + `"`
}

// operation returns what to send for w, or the error of check.
func (w Write) operation(id Identity) (operation, error) {
	if err := w.check(); err != nil {
		return operation{}, err
	}
	op := operation{method: http.MethodPost, once: id.ClientID == "" && w.IdempotencyKey == ""}
	if w.IdempotencyKey != "" {
		if id.ClientID != "" {
			return operation{}, &StatusError{api.StatusBadRequest, api.OutcomeNotApplied, "a write has an identity or an Idempotency-Key, not both"}
		}
		op.key = w.keyHeader()
	}
	var acked *uint64
	if id.ClientID != "" {
		acked = &id.AckedThrough
	}
	e := w.encoding()
	value, _ := api.EncodeValue(w.Value, e)
	compare, _ := api.EncodeValue(w.CompareValue, e)
	var request any
	switch w.Op {
	case OpPut:
		op.path = api.PathPut
		op.answer = func() api.Response { return new(api.PutResponse) }
		request = &api.PutRequest{Key: w.Key, Value: value, ClientID: id.ClientID, RequestID: id.RequestID, AckedThrough: acked, IfVersion: w.IfVersion, Encoding: e}
	case OpAppend:
		op.path = api.PathAppend
		op.answer = func() api.Response { return new(api.AppendResponse) }
		request = &api.AppendRequest{Key: w.Key, Value: value, ClientID: id.ClientID, RequestID: id.RequestID, AckedThrough: acked, IfVersion: w.IfVersion, Encoding: e}
	case OpCAS:
		op.path = api.PathCAS
		op.answer = func() api.Response { return new(api.CASResponse) }
		request = &api.CASRequest{Key: w.Key, CompareValue: compare, Value: value, ExpectAbsent: w.ExpectAbsent, ClientID: id.ClientID, RequestID: id.RequestID, AckedThrough: acked, Encoding: e}
	case OpDelete:
		op.path = api.PathDelete
		op.answer = func() api.Response { return new(api.DeleteResponse) }
		request = &api.DeleteRequest{Key: w.Key, ClientID: id.ClientID, RequestID: id.RequestID, AckedThrough: acked, IfVersion: w.IfVersion}
	}
	body, err := api.Encode(request)
	if err != nil {
		return operation{}, &StatusError{api.StatusBadRequest, api.OutcomeNotApplied, err.Error()}
	}
	op.body = body
	return op, nil
}

// result reads the answer of a write that was carried out, now or earlier.
func (w Write) result(id Identity, answer api.Response) (WriteResult, error) {
	if head := answer.Head(); head.RespStatus == api.StatusDuplicateRequest {
		err := newStatusError(head)
		switch head.Outcome {
		case api.OutcomeApplied:
			return WriteResult{}, fmt.Errorf("kvclient: %s applied: %w", w.Op, err)
		case api.OutcomeNotApplied: // that is what was recorded, so it holds for every attempt
			return WriteResult{}, fmt.Errorf("kvclient: %s not applied: %w", w.Op, err)
		}
		return WriteResult{}, w.unknown(id, err)
	}
	switch r := answer.(type) {
	case *api.PutResponse:
		return putResult(r), nil
	case *api.AppendResponse:
		return putResult((*api.PutResponse)(r)), nil
	case *api.DeleteResponse:
		return putResult((*api.PutResponse)(r)), nil
	case *api.CASResponse:
		return WriteResult{KeyFound: r.KeyFound, PrevValue: r.PrevValue, Swapped: r.Swapped, Version: r.Version, Duplicate: r.Duplicate}, nil
	}
	panic(fmt.Sprintf("kvclient: %T answers no write", answer))
}

func putResult(r *api.PutResponse) WriteResult {
	return WriteResult{KeyFound: r.KeyFound, PrevValue: r.PrevValue, Version: r.Version, Duplicate: r.Duplicate}
}
