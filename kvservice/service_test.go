package kvservice

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/api"
	"raftkv/kvservice/machine"
	"raftkv/raft"
	"raftkv/raft/server"
)

// scriptedRaft stands in for a server: the test decides what becomes of each
// command. It leads in term 1.
type scriptedRaft struct {
	plainRaft
	mu     sync.Mutex
	status raft.Status
	log    []raft.LogEntry

	commits chan raft.CommitEntry
	next    raft.Index

	// submit, if not nil, decides what Submit returns instead of appending. After
	// server.ErrStopped nobody is told anything.
	submit func(command []byte) (raft.Index, raft.Term, error)
	call   func(payload []byte) ([]byte, error)
}

func (r *scriptedRaft) Submit(_ context.Context, command []byte) (raft.Index, raft.Term, error) {
	r.mu.Lock()
	submit := r.submit
	r.mu.Unlock()
	if submit != nil {
		return submit(command)
	}
	return r.append(command)
}

func (r *scriptedRaft) Propose(command []byte, told func(raft.Submitted)) error {
	index, term, err := r.Submit(context.Background(), command)
	if !errors.Is(err, server.ErrStopped) {
		told(raft.Submitted{FirstIndex: index, Term: term, Err: err})
	}
	return nil
}

func (r *scriptedRaft) append(command []byte) (raft.Index, raft.Term, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, raft.LogEntry{Term: r.status.Term, Command: command})
	return raft.Index(len(r.log)), r.status.Term, nil
}

func (r *scriptedRaft) Status() raft.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

func (r *scriptedRaft) Call(_ context.Context, _ raft.ServerID, payload []byte) ([]byte, error) {
	return r.call(payload)
}

// commit sends everything in the log that was not sent before to the service.
func (r *scriptedRaft) commit() {
	r.mu.Lock()
	log := r.log
	r.mu.Unlock()
	for ; int(r.next) < len(log); r.next++ {
		e := log[r.next]
		r.commits <- raft.CommitEntry{Index: r.next + 1, Term: e.Term, Kind: e.Kind, Command: e.Command}
	}
}

// serve starts a service over a scripted server that has become leader and has
// its settings in the log. It must run in a synctest bubble.
func serve(t *testing.T) (*KVService, *scriptedRaft) { return serveWith(t, Config{ID: 1}) }

func serveWith(t *testing.T, config Config) (*KVService, *scriptedRaft) {
	s, r := unledWith(t, config)
	s.lead(r, 1)
	return s, r
}

// unledWith is serveWith for a server that does not lead yet and has an empty log.
func unledWith(t *testing.T, config Config) (*KVService, *scriptedRaft) {
	r := &scriptedRaft{commits: make(chan raft.CommitEntry)}
	config.HTTPAddrOf = func(id raft.ServerID) string {
		return map[raft.ServerID]string{1: "one:80", 2: "two:80"}[id]
	}
	s := New(config)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.Run(r, r.commits); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		close(r.commits)
		<-ended
		s.mu.Lock()
		defer s.mu.Unlock()
		require.Zero(t, s.waiters.Len(), "waiters are left over")
		require.Empty(t, s.answers, "answers are left over")
	})
	synctest.Wait()
	return s, r
}

// lead makes the server the leader of a term and lets it commit what a new
// leader writes.
func (s *KVService) lead(r *scriptedRaft, term raft.Term) {
	r.mu.Lock()
	r.status = raft.Status{ID: 1, State: raft.Leader, Term: term, LeaderID: 1}
	r.log = append(r.log, raft.LogEntry{Term: term, Kind: raft.EntryEmpty})
	status := r.status
	r.mu.Unlock()
	s.Observe(status)
	for range 2 { // the empty entry, then the settings
		r.commit()
		synctest.Wait()
	}
}

// follow makes the server a follower of a term that another server leads.
func (s *KVService) follow(r *scriptedRaft, term raft.Term, leader raft.ServerID) {
	r.mu.Lock()
	r.status = raft.Status{ID: 1, State: raft.Follower, Term: term, LeaderID: leader}
	status := r.status
	r.mu.Unlock()
	s.Observe(status)
}

// post sends a request and returns the HTTP code and the answer.
func post(s *KVService, path, body string) (int, string) {
	req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(api.HeaderRequestID, "r7")
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, req)
	return w.Code, strings.TrimSpace(w.Body.String())
}

// posted is a request under way.
type posted struct {
	code int
	body string
	done chan struct{}
}

func goPost(s *KVService, path, body string) *posted {
	p := &posted{done: make(chan struct{})}
	go func() {
		p.code, p.body = post(s, path, body)
		close(p.done)
	}()
	synctest.Wait()
	return p
}

func (p *posted) isDone() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

const putX1 = `{"Key":"x","Value":"1","ClientID":"a","RequestID":1}`

func TestAnswerComesWithTheCommitNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		p := goPost(s, "/put", putX1)
		require.False(t, p.isDone())
		r.commit()
		<-p.done
		require.Equal(t, 200, p.code)
		require.JSONEq(t, `{"RespStatus":"OK","Outcome":"applied","KeyFound":false,"PrevValue":"","Version":1}`, p.body)
	})
}

// A fast commit: the entry is applied before Submit has even returned.
func TestCommitBetweenSubmitAndItsReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		r.submit = func(command []byte) (raft.Index, raft.Term, error) {
			index, term, err := r.append(command)
			r.commit()
			synctest.Wait()
			return index, term, err
		}
		code, body := post(s, "/put", putX1)
		require.Equal(t, 200, code, body)
	})
}

// Leadership is lost while requests wait: nobody knows what becomes of them.
// Not "failed": the next leader may commit them.
func TestLostLeadershipIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		p := goPost(s, "/put", putX1)
		s.follow(r, 2, 2)
		<-p.done
		require.Equal(t, 504, p.code)
		require.Contains(t, p.body, `"RespStatus":"FailedCommit","Outcome":"unknown"`)
		require.Contains(t, p.body, `"LeaderHTTP":"two:80"`)
	})
}

// The same, when this server leads again before anybody looks.
func TestLostAndRegainedLeadershipIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		p := goPost(s, "/put", putX1)
		s.Observe(raft.Status{ID: 1, State: raft.Leader, Term: 3, LeaderID: 1})
		<-p.done
		require.Contains(t, p.body, `"Outcome":"unknown"`)
		_ = r
	})
}

// Leadership is lost after the entry went into the log and before Submit has
// told the term: the announcement has gone by when the term is known.
func TestLostLeadershipBeforeSubmitReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		r.submit = func(command []byte) (raft.Index, raft.Term, error) {
			index, term, err := r.append(command)
			s.follow(r, 2, 2)
			return index, term, err
		}
		code, body := post(s, "/put", putX1)
		require.Equal(t, 504, code)
		require.Contains(t, body, `"Outcome":"unknown"`)
	})
}

// The index that Submit returned holds another client's entry by now. The posts
// compare a server id there, and say OK to whoever waits for the index.
func TestAnotherEntryAtTheSameIndexAnswersNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		p := goPost(s, "/put", putX1)
		other := machine.Command{Kind: machine.KindPut, ClientID: "b", RequestID: 1, Key: "x", Value: "2"}
		r.log[len(r.log)-1].Command = other.Encode()
		r.commit()
		synctest.Wait()
		require.False(t, p.isDone(), "answered by somebody else's entry: %s", p.body)
		s.follow(r, 2, 2)
		<-p.done
		require.Contains(t, p.body, `"Outcome":"unknown"`)
	})
}

// A copy that came through an earlier leader answers those who wait here.
func TestAnsweredByAnEarlierCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		early := goPost(s, "/put", putX1)
		late := goPost(s, "/put", putX1)
		require.Len(t, r.log, 4, "both copies are in the log")
		r.commits <- raft.CommitEntry{Index: 3, Term: 1, Command: r.log[2].Command}
		<-early.done
		<-late.done
		require.Equal(t, early.body, late.body)
		r.next = 3
		r.commit()
		_, again := post2(s, r, "/put", putX1)
		require.Equal(t, strings.Replace(early.body, `"Version":1`, `"Version":1,"Duplicate":true`, 1), again)
	})
}

// post2 posts and commits.
func post2(s *KVService, r *scriptedRaft, path, body string) (int, string) {
	p := goPost(s, path, body)
	r.commit()
	<-p.done
	return p.code, p.body
}

func TestRefusedSubmitIsNotApplied(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"busy":       {raft.ErrBusy, `"RespStatus":"Busy","Outcome":"not_applied"`},
		"not leader": {&raft.NotLeaderError{Leader: 2, Term: 2}, `"RespStatus":"NotLeader","Outcome":"not_applied"`},
		// Definitely, and soon over: a client tries again (pitfall TR-05).
		"handing over": {raft.ErrTransferring, `"RespStatus":"Busy","Outcome":"not_applied"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r := serve(t)
				r.submit = func([]byte) (raft.Index, raft.Term, error) { return 0, 0, c.err }
				code, body := post(s, "/put", putX1)
				require.Equal(t, 503, code)
				require.Contains(t, body, c.want)
			})
		})
	}
}

// The server ends, and has not said whether the command went into the log.
func TestSubmitThatMayHaveHappenedIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		r.submit = func([]byte) (raft.Index, raft.Term, error) { return 0, 0, server.ErrStopped }
		code, body := post(s, "/put", putX1)
		require.Equal(t, 504, code)
		require.Contains(t, body, `"RespStatus":"Timeout","Outcome":"unknown"`)
	})
}

// Quorum is lost after the append: the client is answered all the same.
func TestServerDeadlineAnswersUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := serve(t)
		start := time.Now()
		code, body := post(s, "/put", putX1)
		require.Equal(t, 504, code)
		require.Contains(t, body, `"RespStatus":"Timeout","Outcome":"unknown"`)
		require.Equal(t, 10*time.Second, time.Since(start))
	})
}

// Ten thousand clients go away at different moments; nothing of them stays.
// (serve's clean-up looks.)
func TestCancelledRequestsLeaveNoWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		var clients sync.WaitGroup
		for i := range 10_000 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%100)*time.Millisecond)
			clients.Go(func() {
				defer cancel()
				req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/put", strings.NewReader(`{"Key":"x","Value":"1"}`))
				req.Header.Set("Content-Type", "application/json")
				s.Handler().ServeHTTP(httptest.NewRecorder(), req)
			})
		}
		for range 120 {
			<-time.After(time.Millisecond)
			r.commit()
		}
		clients.Wait()
	})
}

// A new leader answers nobody before it has applied what earlier leaders left.
func TestNewLeaderWaitsForItsOwnEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		s.follow(r, 2, 2)
		s.Observe(raft.Status{ID: 1, State: raft.Leader, Term: 3, LeaderID: 1})
		r.mu.Lock()
		r.status = raft.Status{ID: 1, State: raft.Leader, Term: 3, LeaderID: 1}
		r.mu.Unlock()
		p := goPost(s, "/put", putX1)
		require.Len(t, r.log, 2, "submitted before its leadership was ready")
		r.log = append(r.log, raft.LogEntry{Term: 3, Kind: raft.EntryEmpty})
		r.commit()
		synctest.Wait()
		require.Len(t, r.log, 4)
		r.commit()
		<-p.done
		require.Equal(t, 200, p.code)

		// Not ready in time is a refusal of something that was never submitted.
		s.Observe(raft.Status{ID: 1, State: raft.Leader, Term: 4, LeaderID: 1})
		code, body := post(s, "/put", putX1)
		require.Equal(t, 503, code)
		require.Contains(t, body, `"RespStatus":"Busy","Outcome":"not_applied"`)
	})
}

func TestEntryOfANewerVersionStopsTheUpdater(t *testing.T) {
	s := New(Config{ID: 1})
	commits := make(chan raft.CommitEntry, 1)
	commits <- raft.CommitEntry{Index: 1, Term: 1, Command: []byte{250, 1, 2, 3}}
	err := s.Run(&scriptedRaft{}, commits)
	require.ErrorIs(t, err, machine.ErrNewerVersion)
	require.ErrorContains(t, err, "entry 1")
}

func TestStoppingAnswersWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &scriptedRaft{commits: make(chan raft.CommitEntry)}
		s := New(Config{ID: 1})
		go s.Run(r, r.commits)
		synctest.Wait()
		s.lead(r, 1)
		p := goPost(s, "/put", putX1)
		close(r.commits)
		<-p.done
		require.Equal(t, 504, p.code)
		require.Contains(t, p.body, `"Outcome":"unknown"`)
	})
}

func TestForwarding(t *testing.T) {
	for name, c := range map[string]struct {
		reply []byte
		err   error
		code  int
		want  string
	}{
		"the leader's answer is passed on": {[]byte("OK\n" + `{"RespStatus":"OK","Outcome":"applied"}`), nil, 200, `"OK","Outcome":"applied"`},
		"never handed over":                {nil, server.ErrNotSent, 503, `"NotLeader","Outcome":"not_applied"`},
		"answer lost":                      {nil, io.ErrUnexpectedEOF, 504, `"FailedCommit","Outcome":"unknown"`},
		"answer is not one":                {[]byte("???"), nil, 504, `"FailedCommit","Outcome":"unknown"`},
		"answer of a status not known":     {[]byte("Fine\n{}"), nil, 504, `"FailedCommit","Outcome":"unknown"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r := serve(t)
				s.follow(r, 2, 2)
				r.call = func(payload []byte) ([]byte, error) {
					require.Equal(t, "/put r7\n"+putX1, string(payload))
					return c.reply, c.err
				}
				code, body := post(s, "/put", putX1)
				require.Equal(t, c.code, code)
				require.Contains(t, body, c.want)
			})
		})
	}
}

// A forwarded request is answered here or not at all: two servers that each
// take the other for the leader must not pass it back and forth.
func TestForwardedRequestIsNotForwardedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		s.follow(r, 2, 2)
		r.call = func([]byte) ([]byte, error) {
			t.Error("forwarded again")
			return nil, nil
		}
		reply := s.HandleForwarded(t.Context(), 3, []byte("/put r7\n"+putX1))
		require.True(t, strings.HasPrefix(string(reply), "NotLeader\n{"), string(reply))
	})
}

func TestRedirectInsteadOfForwarding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		s.follow(r, 2, 2)
		req := httptest.NewRequest(http.MethodPost, "/put/?redirect", strings.NewReader(putX1))
		req.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, req)
		require.Equal(t, 307, w.Code)
		require.Equal(t, "http://two:80/put", w.Header().Get("Location"))
		require.JSONEq(t, `{"RespStatus":"NotLeader","Outcome":"not_applied","Leader":2,"LeaderHTTP":"two:80","Error":"server 2 leads; ask it at http://two:80/put"}`, w.Body.String())
	})
}

// What makes no sense is refused at the door, as JSON, and never reaches the log.
func TestBadInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		before := len(r.log)
		long := strings.Repeat("k", 1025)
		for _, c := range []struct {
			name, method, path, contentType, body string
			code                                  int
			status                                api.Status
		}{
			{"missing value", "POST", "/put", "", `{"Key":"x"}`, 400, api.StatusBadRequest},
			{"empty key", "POST", "/put", "", `{"Key":"","Value":"1"}`, 400, api.StatusBadRequest},
			{"unknown field", "POST", "/put", "", `{"Key":"x","Value":"1","TTL":3}`, 400, api.StatusBadRequest},
			{"doubled field", "POST", "/put", "", `{"Key":"x","Key":"y","Value":"1"}`, 400, api.StatusBadRequest},
			{"wrong case", "POST", "/put", "", `{"key":"x","Value":"1"}`, 400, api.StatusBadRequest},
			{"wrong type", "POST", "/put", "", `{"Key":7,"Value":"1"}`, 400, api.StatusBadRequest},
			{"null", "POST", "/put", "", `{"Key":"x","Value":null}`, 400, api.StatusBadRequest},
			{"second value", "POST", "/put", "", `{"Key":"x","Value":"1"} {}`, 400, api.StatusBadRequest},
			{"no object", "POST", "/put", "", `[]`, 400, api.StatusBadRequest},
			{"empty body", "POST", "/put", "", ``, 400, api.StatusBadRequest},
			{"cut off", "POST", "/put", "", `{"Key":"x"`, 400, api.StatusBadRequest},
			{"invalid UTF-8", "POST", "/put", "", "{\"Key\":\"\xff\",\"Value\":\"1\"}", 400, api.StatusBadRequest},
			{"lone surrogate", "POST", "/put", "", `{"Key":"\ud800","Value":"1"}`, 400, api.StatusBadRequest},
			{"ClientID alone", "POST", "/put", "", `{"Key":"x","Value":"1","ClientID":"a"}`, 400, api.StatusBadRequest},
			{"RequestID alone", "POST", "/put", "", `{"Key":"x","Value":"1","RequestID":1}`, 400, api.StatusBadRequest},
			{"RequestID 0", "POST", "/put", "", `{"Key":"x","Value":"1","ClientID":"a","RequestID":0}`, 400, api.StatusBadRequest},
			{"RequestID below 0", "POST", "/put", "", `{"Key":"x","Value":"1","ClientID":"a","RequestID":-1}`, 400, api.StatusBadRequest},
			{"RequestID beyond 64 bits", "POST", "/put", "", `{"Key":"x","Value":"1","ClientID":"a","RequestID":18446744073709551616}`, 400, api.StatusBadRequest},
			{"AckedThrough not below RequestID", "POST", "/put", "", `{"Key":"x","Value":"1","ClientID":"a","RequestID":2,"AckedThrough":2}`, 400, api.StatusBadRequest},
			{"long ClientID", "POST", "/put", "", `{"Key":"x","Value":"1","ClientID":"` + strings.Repeat("c", 65) + `","RequestID":1}`, 400, api.StatusBadRequest},
			{"fractional ClientID", "POST", "/put", "", `{"Key":"x","Value":"1","ClientID":1.5,"RequestID":1}`, 400, api.StatusBadRequest},
			{"long key", "POST", "/get", "", `{"Key":"` + long + `"}`, 413, api.StatusTooLarge},
			{"long value", "POST", "/put", "", `{"Key":"x","Value":"` + strings.Repeat("v", 1<<20+1) + `"}`, 413, api.StatusTooLarge},
			{"long body", "POST", "/put", "", `{"Key":"x","Value":"` + strings.Repeat("v", 9<<20) + `"}`, 413, api.StatusTooLarge},
			{"form", "POST", "/put", "application/x-www-form-urlencoded", `Key=x`, 415, api.StatusUnsupportedMedia},
			{"no type", "POST", "/put", "-", `{"Key":"x","Value":"1"}`, 415, api.StatusUnsupportedMedia},
			{"GET", "GET", "/get", "", ``, 405, api.StatusBadMethod},
			{"POST of status", "POST", "/status", "", `{}`, 405, api.StatusBadMethod},
			{"below a route", "POST", "/get/x", "", `{"Key":"x"}`, 404, api.StatusNotFound},
			{"two slashes", "POST", "/get//", "", `{"Key":"x"}`, 404, api.StatusNotFound},
			{"root", "GET", "/", "", ``, 404, api.StatusNotFound},
			{"no such route", "POST", "/incr", "", `{"Key":"x"}`, 404, api.StatusNotFound},
			{"session with fields", "POST", "/session", "", `{"ClientID":"a"}`, 400, api.StatusBadRequest},
		} {
			req := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
			switch c.contentType {
			case "":
				req.Header.Set("Content-Type", "application/json; charset=utf-8")
			case "-":
			default:
				req.Header.Set("Content-Type", c.contentType)
			}
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, req)
			require.Equal(t, c.code, w.Code, "%s: %s", c.name, w.Body)
			require.Equal(t, "application/json", w.Header().Get("Content-Type"), c.name)
			var answer api.ErrorResponse
			require.NoError(t, api.DecodeResponse(w.Body.Bytes(), &answer), c.name)
			require.Equal(t, c.status, answer.RespStatus, c.name)
			require.Equal(t, api.OutcomeNotApplied, answer.Outcome, c.name)
			require.NotEmpty(t, answer.Error, c.name)
			require.NotContains(t, answer.Error, "\n", c.name)
		}
		require.Len(t, r.log, before, "something reached the log")
	})
}

// A value of any bytes comes to a client that has asked for text.
func TestValueThatIsNoText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		r.append(machine.Command{Kind: machine.KindPut, Key: "x", Value: "\xff"}.Encode())
		r.commit()
		r.readIndex = r.next
		code, body := post2(s, r, "/get", `{"Key":"x"}`)
		require.Equal(t, 200, code)
		require.Contains(t, body, `"Value":"/w==","Version":1,"Encoding":"base64"`)
	})
}

func TestSlashAtTheEndIsTheSameRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		for _, c := range []struct{ path, body string }{
			{"/session", `{}`}, {"/put", `{"Key":"x","Value":"1"}`}, {"/append", `{"Key":"x","Value":"1"}`},
			{"/cas", `{"Key":"x","CompareValue":"1","Value":"2"}`}, {"/get", `{"Key":"x"}`}, {"/delete", `{"Key":"x"}`},
		} {
			for _, slash := range []string{"", "/"} {
				code, body := post2(s, r, c.path+slash, c.body)
				require.Equal(t, 200, code, "%s%s: %s", c.path, slash, body)
			}
		}
	})
}

// FuzzHTTP feeds a service whatever a client may send. Every answer is one JSON
// object with a status that is known, and what is refused does not reach the log.
func FuzzHTTP(f *testing.F) {
	for _, seed := range []struct{ path, body string }{
		{"/put", putX1}, {"/get", `{"Key":"x"}`}, {"/cas/", `{"Key":"x","CompareValue":"","Value":"\u0000"}`},
		{"/session", `{}`}, {"/delete", `{"Key":"x","ClientID":7,"RequestID":2,"AckedThrough":0}`}, {"/append", "{\"Key\":\"\xff\"}"},
	} {
		f.Add("POST", seed.path, "application/json", "", seed.body)
	}
	for _, seed := range []struct{ path, body string }{
		{"/put", `{"Key":"x","Value":"AP8=","Encoding":"base64","IfVersion":0}`},
		{"/cas", `{"Key":"x","ExpectAbsent":true,"Value":"1"}`},
		{"/delete", `{"Key":"x","IfVersion":3}`},
		{"/get", `{"Key":"x","Encoding":"base64"}`},
		{"/batch", `{"Operations":[{"Put":{"Key":"x","Value":"1","ClientID":"a","RequestID":1}},{"Get":{"Key":"x"}},{"CAS":{"Key":"x","ExpectAbsent":true,"Value":""}}]}`},
		{"/session/close", `{"ClientID":"a"}`},
		{"/scan", `{"Prefix":"","After":"x","Limit":1000,"Consistency":"stale"}`},
	} {
		f.Add("POST", seed.path, "application/json", "", seed.body)
	}
	f.Add("POST", "/append", "application/json", `"order-7"`, `{"Key":"x","Value":"1"}`)
	f.Add("POST", "/put", "application/json", `"order\`, putX1)
	f.Add("POST", "/batch", "application/json", "order-7", `{"Operations":[{"Append":{"Key":"x","Value":"1"}},{"Delete":{"Key":"x","IfVersion":9}},{"Get":{"Key":"x"}}]}`)
	f.Add("GET", "/status", "", "", "")
	f.Fuzz(func(t *testing.T, method, path, contentType, key, body string) {
		switch strings.TrimSuffix(path, "/") {
		case pathMetrics, pathLive, pathReady:
			return // these answer in plain text
		}
		s, r := newInstant(t, nil)
		req, err := http.NewRequest(method, "http://x", strings.NewReader(body))
		if err != nil {
			return
		}
		req.URL.Path = path
		req.Header.Set("Content-Type", contentType)
		if key != "" {
			req.Header.Set(api.HeaderIdempotencyKey, key)
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, req)
		var answer api.ErrorResponse
		require.NoError(t, api.DecodeResponse(w.Body.Bytes(), &answer), w.Body.String())
		require.Equal(t, api.HTTPStatus(answer.RespStatus), w.Code)
		if w.Code >= 400 && w.Code < 409 || w.Code == 413 || w.Code == 415 {
			require.Zero(t, r.submits, "a refused request reached the log")
		}
		if key == "" || r.submits == 0 || path == api.PathGet || path == api.PathGet+"/" {
			return
		}
		// Under a key everything that has reached the log happens once.
		before, _ := s.machine.View().Scan("", "", 1000, 1<<20)
		again := httptest.NewRecorder()
		req.Body = io.NopCloser(strings.NewReader(body))
		s.Handler().ServeHTTP(again, req)
		require.Equal(t, w.Code, again.Code)
		require.Equal(t, "true", again.Header().Get(api.HeaderIdempotentReplayed), again.Body.String())
		after, _ := s.machine.View().Scan("", "", 1000, 1<<20)
		require.Equal(t, before, after)
	})
}

// instantRaft leads and commits whatever is submitted at once.
type instantRaft struct {
	plainRaft
	s       *KVService
	submits int
}

// newInstant returns a service that leads and has its settings.
func newInstant(t testing.TB, logger *slog.Logger) (*KVService, *instantRaft) {
	return newInstantWith(t, Config{ID: 1, Logger: logger})
}

func newInstantWith(t testing.TB, config Config) (*KVService, *instantRaft) {
	s := New(config)
	r := &instantRaft{s: s}
	s.attach(r)
	s.Observe(r.Status())
	settings := machine.Command{Kind: machine.KindSettings, Settings: s.completed(machine.Settings{})}
	require.NoError(t, s.apply(raft.CommitEntry{Index: 1, Term: 1, Command: settings.Encode()}))
	require.NoError(t, s.apply(raft.CommitEntry{Index: 2, Term: 1, Kind: raft.EntryEmpty}))
	return s, r
}

func (r *instantRaft) Submit(_ context.Context, command []byte) (raft.Index, raft.Term, error) {
	r.submits++
	index := raft.Index(r.submits + 2)
	return index, 1, r.s.apply(raft.CommitEntry{Index: index, Term: 1, Command: command})
}

func (r *instantRaft) Propose(command []byte, told func(raft.Submitted)) error {
	index, term, err := r.Submit(context.Background(), command)
	told(raft.Submitted{FirstIndex: index, Term: term, Err: err})
	return nil
}

func (r *instantRaft) Status() raft.Status {
	return raft.Status{ID: 1, State: raft.Leader, Term: 1, LeaderID: 1}
}

func (r *instantRaft) Call(context.Context, raft.ServerID, []byte) ([]byte, error) {
	return nil, io.EOF
}

// plainRaft is the part of Raft that most tests here do not ask for.
type plainRaft struct {
	readIndex raft.Index
	readError error
	lease     bool
	heardAt   time.Time
	busy      time.Duration
	connected raft.ServerID                          // the one server that there is a connection to
	taken     func(snapshot raft.Snapshot, size int) // if not nil, told of each snapshot
}

func (r *plainRaft) Configuration() (raft.Configuration, raft.Index) {
	return raft.NewConfiguration(1, 2, 3), 0
}
func (r *plainRaft) Progress() map[raft.ServerID]raft.Index { return nil }
func (r *plainRaft) AskReadIndex(answers chan<- raft.Answer) error {
	answers <- raft.Answer{Index: r.readIndex, Err: r.readError}
	return nil
}
func (r *plainRaft) LeaseIndex() (raft.Index, bool)                          { return r.readIndex, r.lease }
func (r *plainRaft) Heard() (time.Time, raft.Index)                          { return r.heardAt, r.readIndex }
func (r *plainRaft) TransferLeadership(context.Context, raft.ServerID) error { return nil }

func (r *plainRaft) Busy() time.Duration             { return r.busy }
func (r *plainRaft) Connected(id raft.ServerID) bool { return id == r.connected }
func (r *plainRaft) DiskBytes() (uint64, uint64)     { return 100, 10 }

func (r *plainRaft) TakeSnapshot(snapshot raft.Snapshot, write func(io.Writer) error) error {
	var size counter
	err := write(&size)
	if r.taken != nil {
		r.taken(snapshot, int(size))
	}
	return err
}

func (r *plainRaft) ChangeConfiguration(context.Context, raft.Index, raft.Configuration) (raft.Index, error) {
	return 0, raft.ErrChanging
}
