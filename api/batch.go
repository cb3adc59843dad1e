package api

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MaxBatchOperations is how many operations a BatchRequest may have.
const MaxBatchOperations = 1024

// BatchRequest asks for several operations in their order. It is no transaction:
// each has an identity of its own, or none, and a result of its own, and those
// behind a refused one go on. But one entry of the log carries them all. With an
// Idempotency-Key the batch is one request, and its operations have no identities.
type BatchRequest struct {
	Operations []BatchOperation
}

// BatchOperation is one operation of a batch. In JSON it is an object with one
// field, named after the operation, which holds what the path of that name takes:
//
//	{"Put":{"Key":"x","Value":"foo"}}
type BatchOperation struct {
	// Request is a *GetRequest, *PutRequest, *AppendRequest, *CASRequest or
	// *DeleteRequest.
	Request Request
}

// BatchResponse brings the results of a batch that was carried out.
type BatchResponse struct {
	RespStatus Status
	Outcome    Outcome

	// Results are in the order of the operations, each the answer that the
	// operation would have got alone: what Encode has made of it, and DecodeResponse
	// reads.
	Results []jsontext.Value

	Leader     uint64 `json:",omitzero"`
	LeaderHTTP string `json:",omitzero"`
	Error      string `json:",omitzero"`
}

// Head returns the fields that all answers share.
func (r *BatchResponse) Head() ErrorResponse {
	return ErrorResponse{r.RespStatus, r.Outcome, r.Leader, r.LeaderHTTP, r.Error}
}

// BatchName returns the name of the operation with this path in a batch; "" if
// there is none.
func BatchName(path string) string {
	switch path {
	case PathGet:
		return "Get"
	case PathPut:
		return "Put"
	case PathAppend:
		return "Append"
	case PathCAS:
		return "CAS"
	case PathDelete:
		return "Delete"
	}
	return ""
}

// UnmarshalJSONFrom reads an operation as strictly as [Decode] would alone.
func (o *BatchOperation) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	data, err := dec.ReadValue()
	if err != nil {
		return err
	}
	var named map[string]jsontext.Value
	if err := json.Unmarshal(data, &named); err != nil || len(named) != 1 {
		return badRequest("an operation is an object with one field: Get, Put, Append, CAS or Delete")
	}
	for name, body := range named {
		if o.Request = operationNamed(name); o.Request == nil {
			return badRequest("there is no operation %q; there are Get, Put, Append, CAS and Delete", name)
		}
		err = Decode(body, o.Request)
	}
	return err
}

// operationNamed returns an empty request for an operation; nil if there is none
// of this name.
func operationNamed(name string) Request {
	switch name {
	case "Get":
		return new(GetRequest)
	case "Put":
		return new(PutRequest)
	case "Append":
		return new(AppendRequest)
	case "CAS":
		return new(CASRequest)
	case "Delete":
		return new(DeleteRequest)
	}
	return nil
}

// MarshalJSONTo writes an operation.
func (o BatchOperation) MarshalJSONTo(enc *jsontext.Encoder) error {
	name := ""
	switch o.Request.(type) {
	case *GetRequest:
		name = "Get"
	case *PutRequest:
		name = "Put"
	case *AppendRequest:
		name = "Append"
	case *CASRequest:
		name = "CAS"
	case *DeleteRequest:
		name = "Delete"
	}
	return json.MarshalEncode(enc, map[string]Request{name: o.Request})
}

// Validate checks the number of operations, and each of them.
func (r *BatchRequest) Validate(l Limits) error {
	if n := len(r.Operations); n == 0 || n > MaxBatchOperations {
		return badRequest("a batch has from 1 to %d operations, not %d", MaxBatchOperations, n)
	}
	for i, o := range r.Operations {
		err := o.Request.Validate(l)
		if get, ok := o.Request.(*GetRequest); ok && err == nil && get.Consistency != "" && get.Consistency != ConsistencyLog {
			err = badRequest("a Get of a batch has its place in the log; leave Consistency out")
		}
		if refused, ok := errors.AsType[*RequestError](err); ok {
			return &RequestError{refused.Status, fmt.Sprintf("operation %d: %s", i, refused.Text)}
		}
	}
	return nil
}
