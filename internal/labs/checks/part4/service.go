package part4

import (
	"fmt"
	"strings"

	"raftkv/internal/cores"
	"raftkv/internal/labs/checks/web"
	"raftkv/internal/labs/run"
	raft "raftkv/part3-persistence"
	"raftkv/part4-kvservice/api"
	"raftkv/part4-kvservice/kvservice"
	"raftkv/rafttest"
)

func cluster(t *run.T) *rafttest.KV {
	return rafttest.NewKVSeed(t, t.Seed(), 3, run.Services(t, cores.NewPart4))
}

// log is the raft.Server of one service: a log in which we commit what we like.
type log struct {
	term     raft.Term
	last     raft.Index
	refuse   bool
	entries  []raft.CommitEntry
	atSubmit func(raft.CommitEntry) // is told of an entry before Submit returns
}

func (l *log) Submit(command []byte) (raft.Index, raft.Term, error) {
	if l.refuse {
		return 0, 0, &raft.NotLeaderError{Leader: 2, Term: l.term}
	}
	l.last++
	e := raft.CommitEntry{Index: l.last, Term: l.term, Kind: raft.EntryCommand, Command: command}
	l.entries = append(l.entries, e)
	if l.atSubmit != nil {
		l.atSubmit(e)
	}
	return e.Index, e.Term, nil
}

// service is one service without a cluster.
type service struct {
	t   *run.T
	log *log
	kvs kvservice.Virtual
}

func start(t *run.T) *service {
	l := &log{term: 1}
	return &service{t, l, kvservice.NewVirtual(1, l)}
}

// call asks for a command; the answer is what its function says.
func (s *service) call(cmd kvservice.Command) (answer func() (api.ResponseStatus, kvservice.Result, bool)) {
	s.t.Do(1, "a client asks: "+words(cmd), nil, func() { answer = s.kvs.Start(cmd) })
	return answer
}

func (s *service) apply(e raft.CommitEntry) {
	s.t.Do(1, fmt.Sprintf("entry %d of term %d is committed: %s", e.Index, e.Term, e.Command), nil, func() { s.kvs.Apply(e) })
}

// do has a command submitted and committed, and returns what is answered.
func (s *service) do(cmd kvservice.Command) kvservice.Result {
	answer := s.call(cmd)
	s.apply(s.log.entries[len(s.log.entries)-1])
	status, result, ok := answer()
	s.t.Want(ok && status == api.StatusOK, "Liveness: who waits for an entry gets its result", "%s is committed; the answer is there: %t, %s", words(cmd), ok, status)
	return result
}

// empty is the entry with which a leader of a term begins.
func (s *service) empty(term raft.Term) raft.CommitEntry {
	s.log.last++
	return raft.CommitEntry{Index: s.log.last, Term: term, Kind: raft.EntryEmpty}
}

func words(cmd kvservice.Command) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", cmd.Kind, cmd.Key, cmd.CompareValue, cmd.Value))
}

func put(key, value string) kvservice.Command {
	return kvservice.Command{Kind: kvservice.CommandPut, Key: key, Value: value}
}

// served is one service with clients that come over HTTP, as they really do.
type served struct {
	t   *run.T
	log *web.Log
	kvs *kvservice.KVService
	web *web.Server
}

func serve(t *run.T) *served {
	s := &served{t: t, log: web.NewLog()}
	s.kvs = kvservice.New(1, s.log, s.log.Committed)
	s.web = web.Serve(s.kvs.ServeHTTP)
	return s
}

func (s *served) shutdown() { s.t.Do(1, "it shuts down", nil, s.kvs.Shutdown) }

// put has a client put a value, something happen meanwhile, and returns what the
// client is told.
func (s *served) put(key, value string, meanwhile func()) (status api.ResponseStatus) {
	s.t.Do(1, fmt.Sprintf("a client puts %s=%s, over HTTP", key, value), nil, func() {
		call := s.web.Post("/put", api.PutRequest{Key: key, Value: value})
		meanwhile()
		var response api.PutResponse
		call.Answer(&response)
		status = response.RespStatus
	})
	return status
}

// hangUp has a client put a value and hang up when it stands in the log.
func (s *served) hangUp() {
	s.t.Do(1, "a client puts x=1, over HTTP, and hangs up", nil, func() {
		call := s.web.Post("/put", api.PutRequest{Key: "x", Value: "1"})
		<-s.log.Submitted
		call.HangUp()
	})
}
