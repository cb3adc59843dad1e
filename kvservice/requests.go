package kvservice

import (
	"context"
	"crypto/rand"
	"errors"

	"raftkv/api"
	"raftkv/kvservice/machine"
	"raftkv/raft"
)

// operation makes a command of a request's JSON. The error is an
// *api.RequestError.
type operation func(body []byte, limits api.Limits) (machine.Command, error)

var operations = map[string]operation{
	api.PathSession: func(body []byte, l api.Limits) (machine.Command, error) {
		_, err := read(&api.SessionRequest{}, body, l)
		return machine.Command{Kind: machine.KindOpenSession, ClientID: machine.NewIssuedID(rand.Text())}, err
	},
	api.PathGet: func(body []byte, l api.Limits) (machine.Command, error) {
		r, err := read(&api.GetRequest{}, body, l)
		return machine.Command{Kind: machine.KindGet, Key: r.Key}, err
	},
	api.PathPut: func(body []byte, l api.Limits) (machine.Command, error) {
		r, err := read(&api.PutRequest{}, body, l)
		return write(machine.Command{Kind: machine.KindPut, Key: r.Key, Value: r.Value}, r.ClientID, r.RequestID, r.AckedThrough), err
	},
	api.PathAppend: func(body []byte, l api.Limits) (machine.Command, error) {
		r, err := read(&api.AppendRequest{}, body, l)
		return write(machine.Command{Kind: machine.KindAppend, Key: r.Key, Value: r.Value}, r.ClientID, r.RequestID, r.AckedThrough), err
	},
	api.PathCAS: func(body []byte, l api.Limits) (machine.Command, error) {
		r, err := read(&api.CASRequest{}, body, l)
		command := machine.Command{Kind: machine.KindCAS, Key: r.Key, CompareValue: r.CompareValue, Value: r.Value}
		return write(command, r.ClientID, r.RequestID, r.AckedThrough), err
	},
	api.PathDelete: func(body []byte, l api.Limits) (machine.Command, error) {
		r, err := read(&api.DeleteRequest{}, body, l)
		return write(machine.Command{Kind: machine.KindDelete, Key: r.Key}, r.ClientID, r.RequestID, r.AckedThrough), err
	},
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
	makeCommand, known := operations[path]
	if !known {
		return encode(api.Refuse(api.StatusNotFound, "there is no "+path+" here"))
	}
	if path == api.PathGet {
		// A read needs no leader, only its word.
		r, err := read(&api.GetRequest{}, body, s.limits)
		if err == nil && r.Consistency != api.ConsistencyLog {
			return encode(s.get(ctx, r))
		}
		if err == nil && mayForward {
			s.countRead(r.Consistency) // where the client has asked
		}
	}
	command, err := makeCommand(body, s.limits)
	if err != nil {
		var bad *api.RequestError
		if errors.As(err, &bad) {
			return encode(bad.Response())
		}
		return encode(api.Refuse(api.StatusBadRequest, err.Error()))
	}
	if leader := s.raft.Status().LeaderID; mayForward && leader != raft.None && leader != s.config.ID {
		return s.forward(ctx, leader, path, body)
	}
	return encode(s.propose(ctx, command))
}
