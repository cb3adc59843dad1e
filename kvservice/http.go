package kvservice

import (
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"raftkv/api"
	"raftkv/raft"
)

// Handler serves the HTTP interface of docs/http.md.
func (s *KVService) Handler() http.Handler { return http.HandlerFunc(s.serveHTTP) }

// serveHTTP matches paths itself: every route exists with and without a slash
// at its end, nothing below a route is one, and every answer is JSON. A pattern
// of net/http would answer a wrong method in text and turn a POST into a GET
// by a redirect.
func (s *KVService) serveHTTP(out http.ResponseWriter, req *http.Request) {
	path := strings.TrimSuffix(req.URL.Path, "/")
	spare := onSpareConn(req.Context())
	if spare {
		out.Header().Set("Connection", "close")
	}
	if s.serveWatcher(out, req, path) {
		return
	}
	began, label := time.Now(), knownPath(path)
	w := &doorway{ResponseWriter: out, status: api.StatusOK}
	w.request.id = s.requestIDs.of(req.Header.Get(api.HeaderRequestID))
	w.Header().Set(api.HeaderRequestID, w.request.id)
	s.metrics.inFlight.Inc()
	defer func() {
		took := time.Since(began)
		s.metrics.inFlight.Dec()
		s.metrics.answered(label, w.status, took)
		s.recordRequest(req.Context(), w.request.id, label, w.status, took)
	}()
	if spare {
		writeAnswer(w, api.Refuse(api.StatusBusy, "too many connections are open here; nothing was done, try again after a pause, or ask another server"))
		return
	}
	s.route(w, req, path)
}

// doorway is where a request is answered. It remembers how, and keeps in one piece
// of memory what the server has for the request.
type doorway struct {
	http.ResponseWriter
	status  api.Status
	request requestContext
	visit   visit
}

// Unwrap is what http.ResponseController asks for.
func (d *doorway) Unwrap() http.ResponseWriter { return d.ResponseWriter }

// end gives back what the request has held.
func (d *doorway) end() {
	d.request.end()
	d.visit.end()
}

func (s *KVService) route(w *doorway, req *http.Request, path string) {
	if !isClosed(s.attached) {
		select {
		case <-s.attached:
		case <-req.Context().Done():
			return
		}
	}
	now := s.raft.Status()
	w.Header().Set(api.HeaderConfiguration, strconv.FormatUint(uint64(now.ConfigurationIndex), 10))
	if now.LeaderID != raft.None && now.LeaderID != s.config.ID {
		w.Header().Set(api.HeaderLeader, s.config.HTTPAddrOf(now.LeaderID))
	}
	if path == api.PathStatus {
		s.serveStatus(w, req)
		return
	}
	w.visit.door = s.door
	w.request.Context, w.request.visit = req.Context(), &w.visit
	defer w.end()
	if req.Method != http.MethodPost && s.serveAdminGet(w, req.WithContext(&w.request), path, &w.visit) {
		return
	}
	if _, known := operations[path]; !known && !isAdmin(path) {
		writeAnswer(w, api.Refuse(api.StatusNotFound, fmt.Sprintf("there is no %s here; see docs/http.md for the endpoints", req.URL.Path)))
		return
	}
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", allowedMethods(path))
		writeAnswer(w, api.Refuse(api.StatusBadMethod, fmt.Sprintf("%s takes POST with a JSON body, not %s", path, req.Method)))
		return
	}
	// A form on a foreign page can send text/plain without asking anybody, but
	// not application/json.
	if !isJSON(req.Header.Get("Content-Type")) {
		writeAnswer(w, api.Refuse(api.StatusUnsupportedMedia,
			`Content-Type must be application/json; with curl: curl --json '{"Key":"x"}' http://HOST/get`))
		return
	}
	where := s.door.requests
	if isAdmin(path) {
		where = s.door.admin
	}
	body, refusal := s.admit(w, req, &w.visit, where)
	if refusal != nil {
		writeAnswer(w, refusal)
		return
	}
	if path == api.PathAdminSnapshot {
		s.serveTakeSnapshot(w, req.WithContext(&w.request), body)
		return
	}
	if req.URL.RawQuery != "" && req.URL.Query().Has("redirect") && s.redirect(w, path) {
		return
	}
	key, err := api.ParseIdempotencyKey(req.Header.Values(api.HeaderIdempotencyKey))
	if err != nil {
		writeAnswer(w, refusalOf(err))
		return
	}
	w.request.key, w.request.deadline = key, time.Now().Add(s.config.RequestTimeout)
	a := s.answer(&w.request, path, body, true)
	if len(a.Body) > smallBytes {
		// It has its own time from now on. One that is smaller fits into the system's
		// buffers.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.answerTime)) // a test's recorder has none
	}
	writeBytes(w, api.HTTPStatus(a.Status), a)
}

// isJSON reports whether a Content-Type is that of JSON, whatever its parameters.
func isJSON(contentType string) bool {
	const want = "application/json"
	if contentType == want {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && media == want
}

// redirect sends the client to the leader if that is another server whose
// address is known.
func (s *KVService) redirect(w http.ResponseWriter, path string) bool {
	leader := s.raft.Status().LeaderID
	if leader == raft.None || leader == s.config.ID {
		return false
	}
	address := s.config.HTTPAddrOf(leader)
	if address == "" {
		return false
	}
	location := "http://" + address + path
	w.Header().Set("Location", location)
	a := encode(s.refuse(api.StatusNotLeader, fmt.Sprintf("server %d leads; ask it at %s", leader, location)))
	writeBytes(w, http.StatusTemporaryRedirect, a)
	return true
}

func (s *KVService) serveStatus(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		writeAnswer(w, api.Refuse(api.StatusBadMethod, fmt.Sprintf("%s takes GET, not %s", api.PathStatus, req.Method)))
		return
	}
	writeAnswer(w, s.status())
}

// status is this server's view of the cluster.
func (s *KVService) status() *api.StatusResponse {
	now := s.raft.Status()
	configuration, index := s.raft.Configuration()
	s.mu.Lock()
	applied, sessions, keys, duplicates := s.machine.AppliedIndex(), s.machine.Sessions(), s.machine.Keys(), s.duplicates()
	s.mu.Unlock()
	log, snapshots := s.raft.DiskBytes()
	return &api.StatusResponse{
		RespStatus: api.StatusOK,
		Outcome:    api.OutcomeApplied,
		Cluster:    fmt.Sprintf("%016x", uint64(s.config.Cluster)),
		ID:         uint64(s.config.ID),
		Role:       now.State.String(),
		Term:       uint64(now.Term),
		Leader:     uint64(now.LeaderID),
		LeaderHTTP: s.config.HTTPAddrOf(now.LeaderID),
		Commit:     uint64(now.CommitIndex),
		Applied:    uint64(applied),

		SnapshotIndex: uint64(now.SnapshotIndex),
		FirstIndex:    uint64(now.FirstIndex),
		LastIndex:     uint64(now.LastIndex),

		Sessions:      sessions,
		Keys:          keys,
		Duplicates:    duplicates,
		LogBytes:      log,
		SnapshotBytes: snapshots,
		TransferTo:    uint64(now.TransferTo),
		ClusterName:   s.config.ClusterName,
		Configuration: ConfigurationOf(configuration, index),
		Members:       s.members(configuration),
	}
}

// writeAnswer sends an answer with the HTTP status that its RespStatus has.
func writeAnswer(w http.ResponseWriter, r api.Response) {
	writeBytes(w, api.HTTPStatus(r.Head().RespStatus), encode(r))
}

// answerBytes is an answer as it goes over the wire, to a client or to the
// follower that forwarded the request.
type answerBytes struct {
	Status api.Status
	Body   []byte // one JSON object

	Replayed bool // to a write with an Idempotency-Key: an earlier copy was carried out
}

func encode(r api.Response) answerBytes {
	body, err := api.Encode(r)
	if err != nil {
		// The door lets only text in, so this value came into the log another way.
		head := r.Head()
		r = &api.ErrorResponse{RespStatus: api.StatusBadRequest, Outcome: head.Outcome, Error: "the key holds bytes that are no text, which JSON cannot carry"}
		body, _ = api.Encode(r) // plain text: this one encodes
	}
	return answerBytes{Status: r.Head().RespStatus, Body: body}
}

// shortBody is so small that net/http holds it until the handler ends, and then
// knows its length. A longer body it would cut into chunks if it is not told.
const shortBody = 1 << 10

// typeJSON is the Content-Type of all answers. Nobody changes it.
var typeJSON = []string{"application/json"}

func writeBytes(w http.ResponseWriter, code int, a answerBytes) {
	if d, ok := w.(*doorway); ok {
		d.status = a.Status
	}
	header := w.Header()
	header["Content-Type"] = typeJSON
	if a.Replayed {
		header.Set(api.HeaderIdempotentReplayed, "true")
	}
	if code == http.StatusServiceUnavailable {
		header.Set("Retry-After", "1")
	}
	body := append(a.Body, '\n')
	if len(body) > shortBody {
		header.Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(code)
	w.Write(body)
}
