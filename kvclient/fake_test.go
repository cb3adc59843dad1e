package kvclient

import (
	"fmt"
	"io"
	"net/http"
	"sync"

	"raftkv/api"
)

// fakeCluster answers as a cluster would that never fails: a session table
// without room limits over a map. What goes wrong goes wrong around it.
type fakeCluster struct {
	mu       sync.Mutex
	sessions map[api.ClientID]*fakeSession
	data     map[string]string
	versions map[string]uint64
	writes   uint64
	issued   int
	requests map[string]int // per path, as they arrived
	used     map[api.ClientID]bool
}

type fakeSession struct {
	acked    uint64
	recorded map[uint64]fakeResult
}

type fakeResult struct {
	request  string // the request without AckedThrough
	response api.CASResponse
}

func newFakeCluster() *fakeCluster {
	return &fakeCluster{
		sessions: map[api.ClientID]*fakeSession{},
		data:     map[string]string{},
		versions: map[string]uint64{},
		requests: map[string]int{},
		used:     map[api.ClientID]bool{},
	}
}

// serve carries out one request and returns its answer.
func (f *fakeCluster) serve(path string, body []byte) api.Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.serveLocked(path, body)
}

func (f *fakeCluster) serveLocked(path string, body []byte) api.Response {
	f.requests[path]++
	switch path {
	case api.PathBatch:
		return f.batch(body)
	case api.PathStatus:
		return &api.StatusResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, Cluster: "00000000000000c1", ID: 1}
	case api.PathSession:
		f.issued++
		id := api.ClientID(fmt.Sprintf("s-%d", f.issued))
		f.sessions[id] = &fakeSession{recorded: map[uint64]fakeResult{}}
		return &api.SessionResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, ClientID: id}
	case api.PathSessionClose:
		var r api.SessionCloseRequest
		if err := api.Decode(body, &r); err != nil {
			return api.Refuse(api.StatusBadRequest, err.Error())
		}
		delete(f.sessions, r.ClientID)
		return &api.SessionResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, ClientID: r.ClientID}
	case api.PathGet:
		var r api.GetRequest
		if err := api.Decode(body, &r); err != nil {
			return api.Refuse(api.StatusBadRequest, err.Error())
		}
		value, found := f.data[r.Key]
		return &api.GetResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, KeyFound: found, Value: value, Version: f.versions[r.Key]}
	case api.PathPut:
		var r api.PutRequest
		return f.write(&r, body, func() (api.ClientID, uint64, *uint64, string) { return r.ClientID, r.RequestID, r.AckedThrough, r.Key },
			func(string, bool) (string, bool) { return r.Value, true })
	case api.PathAppend:
		var r api.AppendRequest
		return f.write(&r, body, func() (api.ClientID, uint64, *uint64, string) { return r.ClientID, r.RequestID, r.AckedThrough, r.Key },
			func(old string, _ bool) (string, bool) { return old + r.Value, true })
	case api.PathCAS:
		var r api.CASRequest
		return f.write(&r, body, func() (api.ClientID, uint64, *uint64, string) { return r.ClientID, r.RequestID, r.AckedThrough, r.Key },
			func(old string, found bool) (string, bool) { return r.Value, found && old == r.CompareValue })
	case api.PathDelete:
		var r api.DeleteRequest
		return f.write(&r, body, func() (api.ClientID, uint64, *uint64, string) { return r.ClientID, r.RequestID, r.AckedThrough, r.Key },
			nil)
	}
	return api.Refuse(api.StatusNotFound, "no such path")
}

// batch carries out a batch, operation by operation.
func (f *fakeCluster) batch(body []byte) api.Response {
	var r api.BatchRequest
	err := api.Decode(body, &r)
	if err == nil {
		err = r.Validate(api.Limits{})
	}
	if err != nil {
		return api.Refuse(api.StatusBadRequest, err.Error())
	}
	answer := &api.BatchResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied}
	for _, o := range r.Operations {
		path := map[string]string{"*api.PutRequest": api.PathPut, "*api.AppendRequest": api.PathAppend, "*api.CASRequest": api.PathCAS, "*api.DeleteRequest": api.PathDelete}[fmt.Sprintf("%T", o.Request)]
		data, _ := api.Encode(o.Request)
		result, _ := api.Encode(f.serveLocked(path, data))
		answer.Results = append(answer.Results, result)
	}
	return answer
}

// write applies a write by the rules of the session table. A nil change deletes.
func (f *fakeCluster) write(r api.Request, body []byte, identity func() (api.ClientID, uint64, *uint64, string), change func(old string, found bool) (string, bool)) api.Response {
	if err := api.Decode(body, r); err != nil {
		return api.Refuse(api.StatusBadRequest, err.Error())
	}
	if err := r.Validate(api.Limits{}); err != nil {
		return err.(*api.RequestError).Response()
	}
	client, number, acked, key := identity()
	var s *fakeSession
	if client != "" {
		s = f.sessions[client]
		if s == nil {
			return &api.ErrorResponse{RespStatus: api.StatusSessionExpired, Outcome: api.OutcomeNotApplied}
		}
		f.used[client] = true
		s.acked = max(s.acked, api.Acked(number, acked))
		if number <= s.acked {
			return api.Refuse(api.StatusStaleRequest, "")
		}
		if before, found := s.recorded[number]; found {
			if before.request != fmt.Sprintf("%T %s", r, key) {
				return api.Refuse(api.StatusRequestMismatch, "")
			}
			again := before.response
			again.Duplicate = true
			return shaped(r, again)
		}
	}
	old, found := f.data[key]
	response := api.CASResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, KeyFound: found, PrevValue: old}
	if change == nil {
		f.writes++
		delete(f.data, key)
		delete(f.versions, key)
	} else if value, do := change(old, found); do {
		f.writes++
		f.data[key], f.versions[key] = value, f.writes
		response.Swapped = true
	}
	response.Version = f.versions[key]
	if s != nil {
		s.recorded[number] = fakeResult{fmt.Sprintf("%T %s", r, key), response}
	}
	return shaped(r, response)
}

// shaped gives the response the fields of the kind of write it answers.
func shaped(r api.Request, c api.CASResponse) api.Response {
	if _, ok := r.(*api.CASRequest); ok {
		return &c
	}
	return &api.PutResponse{RespStatus: c.RespStatus, Outcome: c.Outcome, KeyFound: c.KeyFound, PrevValue: c.PrevValue, Version: c.Version, Duplicate: c.Duplicate}
}

// ServeHTTP makes the fake a server.
func (f *fakeCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	writeAnswer(w, f.serve(r.URL.Path, body))
}

func writeAnswer(w http.ResponseWriter, answer api.Response) {
	data, err := api.Encode(answer)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(api.HTTPStatus(answer.Head().RespStatus))
	w.Write(data)
}

func (f *fakeCluster) count(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests[path]
}

func (f *fakeCluster) value(key string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.data[key]
}
