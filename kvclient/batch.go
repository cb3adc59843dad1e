package kvclient

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"raftkv/api"
	"raftkv/kvclient/numbering"
)

// maxBatchBytes bounds the keys and values of one batch, but for one write that
// is larger alone. Escaped in JSON they are still less than a server takes.
const maxBatchBytes = 1 << 20

// BatchResult is the end of one write of a batch: what [KVClient.Put] and the
// others return.
type BatchResult struct {
	WriteResult
	Err error
}

// Batch carries out many writes, in their order, with few messages and few
// entries of the log. It is no transaction: each write ends for itself, whatever
// becomes of the others, and other clients' writes may come in between. It
// returns as many results as there are writes.
func (c *KVClient) Batch(ctx context.Context, writes []Write) []BatchResult {
	results := make([]BatchResult, len(writes))
	ctx, done, err := c.begin(ctx)
	if err != nil {
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	defer done()
	for from := 0; from < len(writes); {
		from += c.batchOnce(ctx, writes[from:], results[from:])
	}
	return results
}

// batchOnce carries out the first of the writes, as many as fit into one batch,
// and returns how many these are.
func (c *KVClient) batchOnce(ctx context.Context, writes []Write, results []BatchResult) int {
	s, err := c.currentSession(ctx)
	var ids []Identity
	if err == nil {
		ids, err = s.openSome(ctx, fitting(writes))
	}
	if err != nil {
		for i, w := range writes {
			results[i].Err = fmt.Errorf("kvclient: %s not sent: %w", w.Op, err)
		}
		return len(writes)
	}
	c.sendBatch(ctx, ids, writes[:len(ids)], results)
	for i, id := range ids {
		s.noteEnd(results[i].Err)
		s.settle(id.RequestID)
		if sessionExpired(results[i].Err) {
			// As in write: nothing of it was carried out, so once more, as another.
			c.forget(s)
			results[i].WriteResult, _, results[i].Err = c.writeOnce(ctx, writes[i])
		}
	}
	return len(ids)
}

// fitting returns how many of the writes fit into one batch; at least 1.
func fitting(writes []Write) int {
	n, size := 0, 0
	for n < min(len(writes), api.MaxBatchOperations) {
		w := writes[n]
		size += len(w.Key) + len(w.Value) + len(w.CompareValue)
		if n > 0 && size > maxBatchBytes {
			break
		}
		n++
	}
	return n
}

// sendBatch sends the writes together. Those whose answer is not final are sent
// again alone, under the same identity; and all of them, if the batch as a whole
// was refused: one of them may make no sense, or be too large.
func (c *KVClient) sendBatch(ctx context.Context, ids []Identity, writes []Write, results []BatchResult) {
	var request struct{ Operations []map[string]jsontext.Value }
	operations := make([]operation, len(writes))
	var err error
	for i, w := range writes {
		op, wrong := w.operation(ids[i])
		if wrong != nil {
			err = wrong // send will tell whom it concerns
		}
		operations[i] = op
		request.Operations = append(request.Operations, map[string]jsontext.Value{api.BatchName(op.path): op.body})
	}
	var call numbering.Call
	answer := &api.BatchResponse{}
	var body []byte
	if err == nil {
		body, err = api.Encode(&request)
	}
	if err == nil {
		var r api.Response
		r, err = c.run(ctx, operation{
			method: http.MethodPost,
			path:   api.PathBatch,
			body:   body,
			answer: func() api.Response { return new(api.BatchResponse) },
		}, &call)
		if err == nil {
			answer = r.(*api.BatchResponse)
		}
	}
	for i, w := range writes {
		one := call.Operation()
		if i < len(answer.Results) {
			a := operationResult(operations[i], answer.Results[i])
			one.Add(a.outcome)
			if a.final() {
				results[i].WriteResult, results[i].Err = w.conclude(ids[i], a.answer, a.err, &one)
				continue
			}
		}
		results[i].WriteResult, results[i].Err = c.send(ctx, ids[i], w, &one)
	}
}

// operationResult reads the answer to one operation of a batch as if it had come alone.
func operationResult(op operation, data []byte) attempt {
	answer := op.answer()
	err := api.DecodeResponse(data, answer)
	if err == nil {
		err = contradiction(api.HTTPStatus(answer.Head().RespStatus), answer)
	}
	if err != nil {
		return attempt{outcome: api.OutcomeUnknown, err: err}
	}
	return judged(answer)
}
