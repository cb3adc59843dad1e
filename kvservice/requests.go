package kvservice

import (
	"context"
	"crypto/rand"

	"github.com/go-json-experiment/json/jsontext"

	"raftkv/api"
	"raftkv/kvservice/machine"
	"raftkv/raft"
)

// operations makes an empty request for each path that clients of the store use.
var operations = map[string]func() api.Request{
	api.PathSession:      func() api.Request { return new(api.SessionRequest) },
	api.PathGet:          func() api.Request { return new(api.GetRequest) },
	api.PathPut:          func() api.Request { return new(api.PutRequest) },
	api.PathAppend:       func() api.Request { return new(api.AppendRequest) },
	api.PathCAS:          func() api.Request { return new(api.CASRequest) },
	api.PathDelete:       func() api.Request { return new(api.DeleteRequest) },
	api.PathScan:         func() api.Request { return new(api.ScanRequest) },
	api.PathSessionClose: func() api.Request { return new(api.SessionCloseRequest) },
	api.PathBatch:        func() api.Request { return new(api.BatchRequest) },
}

// commandOf makes a command of a request that was validated, and says how the
// values of the answer shall stand.
func commandOf(r api.Request) (machine.Command, api.Encoding) {
	switch r := r.(type) {
	case *api.GetRequest:
		return machine.Command{Kind: machine.KindGet, Key: r.Key}, r.Encoding
	case *api.PutRequest:
		c := machine.Command{Kind: machine.KindPut, Key: r.Key, Value: plain(r.Value, r.Encoding), IfVersion: r.IfVersion}
		return write(c, r.ClientID, r.RequestID, r.AckedThrough), r.Encoding
	case *api.AppendRequest:
		c := machine.Command{Kind: machine.KindAppend, Key: r.Key, Value: plain(r.Value, r.Encoding), IfVersion: r.IfVersion}
		return write(c, r.ClientID, r.RequestID, r.AckedThrough), r.Encoding
	case *api.CASRequest:
		c := machine.Command{
			Kind: machine.KindCAS, Key: r.Key, ExpectAbsent: r.ExpectAbsent,
			CompareValue: plain(r.CompareValue, r.Encoding), Value: plain(r.Value, r.Encoding),
		}
		return write(c, r.ClientID, r.RequestID, r.AckedThrough), r.Encoding
	case *api.DeleteRequest:
		c := machine.Command{Kind: machine.KindDelete, Key: r.Key, IfVersion: r.IfVersion}
		return write(c, r.ClientID, r.RequestID, r.AckedThrough), r.Encoding
	case *api.SessionCloseRequest:
		return machine.Command{Kind: machine.KindCloseSession, ClientID: r.ClientID}, api.EncodingText
	case *api.BatchRequest:
		return machine.Command{Kind: machine.KindBatch}, api.EncodingText // see operationsOf
	}
	return machine.Command{Kind: machine.KindOpenSession, ClientID: machine.NewIssuedID(rand.Text())}, api.EncodingText
}

// plain returns the bytes of a value that was validated.
func plain(text string, e api.Encoding) string {
	value, _ := e.Decode(text)
	return value
}

func read[R api.Request](r R, body []byte, limits api.Limits) (R, error) {
	if err := api.Decode(body, r); err != nil {
		return r, err
	}
	return r, r.Validate(limits)
}

func write(c machine.Command, id api.ClientID, number uint64, acked *uint64) machine.Command {
	c.ClientID, c.RequestID, c.AckedThrough = id, number, api.Acked(number, acked)
	return c
}

// answer does what a request asks for, here if this server leads, else through
// the leader; a request that was forwarded already stays here. What makes no
// sense is refused at the first door.
func (s *KVService) answer(ctx context.Context, path string, body []byte, mayForward bool) answerBytes {
	if isAdmin(path) || path == listMembersPath {
		return s.administer(ctx, path, body, mayForward)
	}
	newRequest, known := operations[path]
	if !known {
		return encode(api.Refuse(api.StatusNotFound, "there is no "+path+" here"))
	}
	request, err := read(newRequest(), body, s.limits)
	if err != nil {
		return encode(refusalOf(err))
	}
	switch r := request.(type) { // a read needs no leader, only its word
	case *api.ScanRequest:
		return s.encodeAs(ctx, s.scan(ctx, r), r.Encoding)
	case *api.GetRequest:
		if r.Consistency != api.ConsistencyLog {
			return s.encodeAs(ctx, s.get(ctx, r), r.Encoding)
		}
		if mayForward {
			s.countRead(r.Consistency) // where the client has asked
		}
	}
	command, encoding := commandOf(request)
	key := requestOf(ctx).key
	if key != "" {
		if command, err = keyed(command, request, key); err != nil {
			return encode(refusalOf(err))
		}
	}
	if leader := s.raft.Status().LeaderID; mayForward && leader != raft.None && leader != s.config.ID {
		return s.forward(ctx, leader, path, body)
	}
	var encodings []api.Encoding
	if batch, ok := request.(*api.BatchRequest); ok {
		command.Operations, encodings = operationsOf(batch)
	}
	isReplayed := false
	response := s.proposeFor(ctx, command, func(a answer) api.Response {
		isReplayed = key != "" && a.applied.Result.Duplicate
		if len(a.applied.Operations) > 0 {
			return s.batchResponse(ctx, command, a.applied, encodings)
		}
		return command.Response(a.applied.Result)
	})
	reply := s.encodeAs(ctx, response, encoding)
	reply.Replayed = isReplayed
	return reply
}

// operationsOf makes the commands of a batch that was validated, and says how the
// values of each result shall stand.
func operationsOf(r *api.BatchRequest) ([]machine.Command, []api.Encoding) {
	commands := make([]machine.Command, len(r.Operations))
	encodings := make([]api.Encoding, len(r.Operations))
	for i, o := range r.Operations {
		commands[i], encodings[i] = commandOf(o.Request)
	}
	acknowledgeBelow(commands, r.Operations)
	return commands, encodings
}

// batchResponse is the answer to a batch that was carried out. Each result is
// encoded as it would be alone.
func (s *KVService) batchResponse(ctx context.Context, command machine.Command, applied machine.Applied, encodings []api.Encoding) api.Response {
	response := &api.BatchResponse{RespStatus: applied.Result.Status, Outcome: applied.Result.Outcome, Error: applied.Result.Error}
	response.Results = make([]jsontext.Value, len(applied.Operations))
	for i := range applied.Operations {
		result := command.Operations[i].Response(applied.Operations[i].Result)
		response.Results[i] = s.encodeAs(ctx, result, encodings[i]).Body
	}
	return response
}

// acknowledgeBelow sets the low-water mark of writes that do not name it. Alone,
// that is one below the write's own number. In a batch it is one below the lowest
// number that the client has there: otherwise the second write of a client would
// make the first one stale, and a repetition could not bring its result.
func acknowledgeBelow(commands []machine.Command, operations []api.BatchOperation) {
	var lowest map[api.ClientID]uint64 // nil until somebody needs it
	for i, o := range operations {
		c := &commands[i]
		if c.RequestID == 0 || namesAcked(o.Request) {
			continue
		}
		if lowest == nil {
			lowest = lowestNumbers(commands)
		}
		c.AckedThrough = lowest[c.ClientID] - 1
	}
}

// lowestNumbers returns the lowest number that each client has in a batch.
func lowestNumbers(commands []machine.Command) map[api.ClientID]uint64 {
	lowest := map[api.ClientID]uint64{}
	for i := range commands {
		c := &commands[i]
		if n, seen := lowest[c.ClientID]; !seen || c.RequestID < n {
			lowest[c.ClientID] = c.RequestID
		}
	}
	return lowest
}

func namesAcked(r api.Request) bool {
	switch r := r.(type) {
	case *api.PutRequest:
		return r.AckedThrough != nil
	case *api.AppendRequest:
		return r.AckedThrough != nil
	case *api.CASRequest:
		return r.AckedThrough != nil
	case *api.DeleteRequest:
		return r.AckedThrough != nil
	}
	return false
}

// encodeAs encodes an answer whose values are plain bytes, as soon as there is
// room for it (door.go).
func (s *KVService) encodeAs(ctx context.Context, r api.Response, e api.Encoding) answerBytes {
	if !requestOf(ctx).visit.holdAnswer(ctx, valueBytes(r)) {
		return encode(s.answerHasNoRoom(r))
	}
	api.EncodeValues(r, e)
	return encode(r)
}
