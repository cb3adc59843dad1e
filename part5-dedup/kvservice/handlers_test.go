package kvservice

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	raft "raftkv/part3-persistence"
	"raftkv/part5-dedup/api"
)

// fakeRaft takes every command, in term 1, and commits what it is told to.
type fakeRaft struct {
	kvs     *KVService
	entries []raft.CommitEntry
	err     error // refuses commands if set
}

func newFakeRaft() *fakeRaft {
	f := &fakeRaft{}
	f.kvs = New(1, f, nil)
	return f
}

func (f *fakeRaft) Submit(command []byte) (raft.Index, raft.Term, error) {
	if f.err != nil {
		return 0, 0, f.err
	}
	e := raft.CommitEntry{Index: raft.Index(len(f.entries) + 1), Term: 1, Command: command}
	f.entries = append(f.entries, e)
	return e.Index, e.Term, nil
}

// waiting counts the requests that wait for their entries.
func (f *fakeRaft) waiting() int {
	f.kvs.mu.Lock()
	defer f.kvs.mu.Unlock()
	return len(f.kvs.commitSubs)
}

// post has the service handle a request, and returns when it waits for the log
// or has answered. It must run in a synctest bubble.
func (f *fakeRaft) post(ctx context.Context, path, body string) *httptest.ResponseRecorder {
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	go f.kvs.handler().ServeHTTP(w, req)
	synctest.Wait()
	return w
}

func requireAnswer(t *testing.T, w *httptest.ResponseRecorder, want api.PutResponse) {
	t.Helper()
	var got api.PutResponse
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got), "%s", w.Body)
	require.Equal(t, want, got)
}

const putX = `{"Key":"x","Value":"1","ClientID":7,"RequestID":1}`

func TestAnswerComesWithTheEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRaft()
		f.kvs.ds.Put("x", "0")
		w := f.post(t.Context(), "/put/", putX)
		require.Zero(t, w.Body.Len()) // not before
		f.kvs.apply(f.entries[0])
		synctest.Wait()
		requireAnswer(t, w, api.PutResponse{Head: api.Head{RespStatus: api.StatusOK}, KeyFound: true, PrevValue: "0"})
	})
}

// An entry of a newer term stands where the request's entry should be.
func TestOverwrittenEntryIsNeitherYesNorNo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRaft()
		w := f.post(t.Context(), "/put/", putX)
		f.kvs.apply(raft.CommitEntry{Index: 1, Term: 2, Command: Command{Kind: CommandPut, Key: "y"}.encode()})
		synctest.Wait()
		requireAnswer(t, w, api.PutResponse{Head: api.Head{
			RespStatus: api.StatusFailedCommit,
			Error:      "the command may or may not be carried out",
		}})
	})
}

// What was carried out before is neither carried out nor called a failure.
func TestDuplicateIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRaft()
		for range 2 {
			w := f.post(t.Context(), "/append/", putX)
			f.kvs.apply(f.entries[len(f.entries)-1])
			synctest.Wait()
			if len(f.entries) == 2 {
				requireAnswer(t, w, api.PutResponse{Head: api.Head{
					RespStatus: api.StatusDuplicateRequest,
					Error:      "this request, or a later one of the same client, was carried out before",
				}})
			}
		}
		require.Equal(t, map[string]string{"x": "1"}, f.kvs.ds.data)
	})
}

// A leader that is cut off hears of nothing. Its client is told so in the end.
func TestRequestDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRaft()
		w := f.post(t.Context(), "/put/", putX)
		require.Equal(t, 1, f.waiting())
		<-time.After(requestTimeout + 1)
		synctest.Wait()
		requireAnswer(t, w, api.PutResponse{Head: api.Head{
			RespStatus: api.StatusFailedCommit,
			Error:      "the command may or may not be carried out",
		}})
		require.Zero(t, f.waiting())
	})
}

// The client goes. Nobody waits for its entry any more, which is carried out all
// the same.
func TestClientGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRaft()
		ctx, cancel := context.WithCancel(t.Context())
		f.post(ctx, "/put/", putX)
		cancel()
		synctest.Wait()
		require.Zero(t, f.waiting())
		f.kvs.apply(f.entries[0])
		value, _ := f.kvs.ds.Get("x")
		require.Equal(t, "1", value)
	})
}

func TestFollowerHasDoneNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRaft()
		f.err = &raft.NotLeaderError{Leader: 2, Term: 3}
		w := f.post(t.Context(), "/put/", putX)
		requireAnswer(t, w, api.PutResponse{Head: api.Head{
			RespStatus: api.StatusNotLeader,
			Error:      "raft: not the leader in term 3; ask server 2",
		}})
		require.Zero(t, f.waiting())
	})
}

// Submit and subscription are one step under one lock. Otherwise the entry could
// be applied before anybody waits for it.
func TestNothingIsAppliedBeforeItsSubscription(t *testing.T) {
	locked := &lockedRaft{t: t}
	locked.kvs = New(1, locked, nil)
	_, err := locked.kvs.createCommitSubscription(Command{Kind: CommandGet, Key: "x"})
	require.NoError(t, err)
	require.Len(t, locked.kvs.commitSubs, 1)
}

type lockedRaft struct {
	t   *testing.T
	kvs *KVService
}

func (l *lockedRaft) Submit([]byte) (raft.Index, raft.Term, error) {
	require.False(l.t, l.kvs.mu.TryLock(), "apply could run now")
	return 1, 1, nil
}

// What a service cannot read it refuses, and nothing comes into the log.
func TestBadRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRaft()
		for body, why := range map[string]string{
			`{"Key":"x","Value":"1"`:                 "unexpected EOF",
			`{"Key":"x","Value":1}`:                  "cannot unmarshal number",
			`{"Key":"x","Valu":"1"}`:                 `unknown field "Valu"`,
			`{"Key":"x","Value":"1"}{}`:              "something follows",
			`{"Key":"x","Value":"1"}`:                "ClientID and RequestID", // or all such clients would be one
			`{"Key":"x","Value":"1","ClientID":7}`:   "ClientID and RequestID",
			`{"Key":"x","Value":"1","RequestID":7}`:  "ClientID and RequestID",
			strings.Repeat(" ", maxBodyBytes) + putX: "too large",
		} {
			w := f.post(t.Context(), "/put/", body)
			require.Equal(t, http.StatusBadRequest, w.Code, why)
			require.Contains(t, w.Body.String(), "nothing was done")
			require.Contains(t, w.Body.String(), why)
		}
		require.Equal(t, http.StatusNotFound, f.post(t.Context(), "/put/x", putX).Code)
		req := httptest.NewRequest(http.MethodPost, "/put", strings.NewReader(putX)) // as a form on a foreign page could
		w := httptest.NewRecorder()
		f.kvs.handler().ServeHTTP(w, req)
		require.Equal(t, http.StatusBadRequest, w.Code)
		require.Empty(t, f.entries)
	})
}
