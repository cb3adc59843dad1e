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
// returns as many results as there are writes. A write with an IdempotencyKey is
// refused: it does not travel with others.
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
		ids, err = s.openSome(ctx, fitting(len(writes), func(i int) Write { return writes[i] }))
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

// fitting returns how many of n writes fit into one batch, from the first on; at
// least 1 if n is. What a server would refuse goes alone, because it refuses the
// whole batch.
func fitting(n int, write func(i int) Write) int {
	size := 0
	for i := range min(n, api.MaxBatchOperations) {
		w := write(i)
		size += len(w.Key) + len(w.Value) + len(w.CompareValue)
		if i > 0 && (size > maxBatchBytes || w.isOdd()) {
			return i
		}
		if w.isOdd() {
			return 1
		}
	}
	return min(n, api.MaxBatchOperations)
}

// isOdd reports that w cannot be one of a batch: it makes no sense, or is larger
// than what a server takes by default, or has an identity that is no session's.
func (w Write) isOdd() bool {
	most := api.Limits{}.WithDefaults()
	return w.check() != nil || w.IdempotencyKey != "" || w.Key == "" || len(w.Key) > most.KeyBytes || max(len(w.Value), len(w.CompareValue)) > most.ValueBytes
}

// batchOperation returns one operation of many writes.
func batchOperation(writes []operation) operation {
	room := 32
	for _, w := range writes {
		room += len(w.body) + 16
	}
	body := append(make([]byte, 0, room), `{"Operations":[`...)
	for i, w := range writes {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, `{"`...)
		body = append(body, api.BatchName(w.path)...)
		body = append(body, `":`...)
		body = append(body, w.body...)
		body = append(body, '}')
	}
	return operation{
		method: http.MethodPost,
		path:   api.PathBatch,
		body:   append(body, `]}`...),
		answer: func() api.Response { return new(api.BatchResponse) },
	}
}

// sendBatch sends the writes together. Those whose answer is not final are sent
// again alone, under the same identity; and all of them, if the batch as a whole
// was refused.
func (c *KVClient) sendBatch(ctx context.Context, ids []Identity, writes []Write, results []BatchResult) {
	var call numbering.Call
	if len(writes) == 1 {
		results[0].WriteResult, results[0].Err = c.send(ctx, ids[0], writes[0], &call)
		return
	}
	operations := make([]operation, len(writes))
	for i, w := range writes {
		operations[i], _ = w.operation(ids[i]) // there is no error, or it would travel alone
	}
	var parts []jsontext.Value
	if answer, err := c.run(ctx, batchOperation(operations), &call); err == nil {
		parts = answer.(*api.BatchResponse).Results
	}
	for i, w := range writes {
		one := call.Operation()
		if i < len(parts) {
			a := operationResult(operations[i], parts[i])
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
