package kvservice

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"raftkv/api"
	"raftkv/raft"
)

// postKeyed sends a request with an Idempotency-Key.
func postKeyed(s *KVService, path, key, body string, moreKeys ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(api.HeaderRequestID, "r7")
	req.Header.Set(api.HeaderIdempotencyKey, key)
	for _, more := range moreKeys {
		req.Header.Add(api.HeaderIdempotencyKey, more)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, req)
	return w
}

func TestIdempotencyKey(t *testing.T) {
	s, _ := newInstant(t, nil)
	body := `{"Key":"x","Value":"1"}`
	first := postKeyed(s, "/append", "order-7", body)
	require.Equal(t, 200, first.Code)
	require.Empty(t, first.Header().Values(api.HeaderIdempotentReplayed))

	// In quotes it is the same key.
	again := postKeyed(s, "/append", `"order-7"`, body)
	require.Equal(t, "true", again.Header().Get(api.HeaderIdempotentReplayed))
	require.Equal(t, strings.Replace(first.Body.String(), `"Version":1`, `"Version":1,"Duplicate":true`, 1), again.Body.String())

	// A refusal is replayed, too, though the condition would hold by now.
	conditional := `{"Key":"y","Value":"1","IfVersion":2}`
	require.Equal(t, 409, postKeyed(s, "/put", "order-8", conditional).Code)
	post(s, "/put", `{"Key":"y","Value":"1"}`)
	refused := postKeyed(s, "/put", "order-8", conditional)
	require.Equal(t, 409, refused.Code)
	require.Equal(t, "true", refused.Header().Get(api.HeaderIdempotentReplayed))

	// Another body under the key is nobody's repetition.
	other := postKeyed(s, "/append", "order-7", `{"Key":"x","Value":"2"}`)
	require.Equal(t, 422, other.Code)
	require.Contains(t, other.Body.String(), `"RespStatus":"RequestMismatch","Outcome":"not_applied"`)
	require.Empty(t, other.Header().Values(api.HeaderIdempotentReplayed))

	// A client of that name is somebody else, and a key is no read's business.
	_, alone := post(s, "/append", `{"Key":"x","Value":"1","ClientID":"order-7","RequestID":1}`)
	require.NotContains(t, alone, "Duplicate")
	require.Equal(t, 200, postKeyed(s, "/get", "order-7", `{"Key":"x"}`).Code)

}

// What can be read in two ways, or says less than it seems to, is refused on every
// path that writes, and nothing gets into the log.
func TestWrongIdempotencyKeys(t *testing.T) {
	bodies := map[string]string{
		"/put":    `{"Key":"x","Value":"1"}`,
		"/append": `{"Key":"x","Value":"1"}`,
		"/cas":    `{"Key":"x","CompareValue":"1","Value":"2"}`,
		"/delete": `{"Key":"x"}`,
		"/batch":  `{"Operations":[{"Get":{"Key":"x"}},{"Put":{"Key":"x","Value":"1"}}]}`,
	}
	s, r := newInstant(t, nil)
	for path, body := range bodies {
		for _, keys := range [][]string{
			{""}, {" "}, {`""`}, {`"a`}, {`a"`}, {`"a" b`}, {`"a\x"`}, {"a b"}, {"a,b"}, {"ключ"}, {"a\tb"},
			{"a", "b"}, {"a", "a"}, {strings.Repeat("k", api.MaxIdempotencyKeyBytes+1)},
		} {
			w := postKeyed(s, path, keys[0], body, keys[1:]...)
			require.Equal(t, 400, w.Code, "%s %q", path, keys)
			require.Contains(t, w.Body.String(), "Idempotency-Key")
		}
		identified := strings.Replace(body, `"Value":"1"`, `"Value":"1","ClientID":"c","RequestID":1`, 1)
		if !strings.Contains(body, `"Value":"1"`) {
			identified = strings.Replace(body, `"Key":"x"`, `"Key":"x","ClientID":"c","RequestID":1`, 1)
		}
		w := postKeyed(s, path, "order-9", identified)
		require.Equal(t, 400, w.Code, "%s %s", path, identified)
		require.Contains(t, w.Body.String(), "an Idempotency-Key or a ClientID, not both")
		if path == "/batch" {
			continue
		}
		inBatch := map[string]string{"/put": "Put", "/append": "Append", "/cas": "CAS", "/delete": "Delete"}[path]
		w = postKeyed(s, "/batch", "order-9", `{"Operations":[{"Get":{"Key":"x"}},{"`+inBatch+`":`+identified+`}]}`)
		require.Equal(t, 400, w.Code)
		require.Contains(t, w.Body.String(), "an Idempotency-Key or a ClientID, not both")
	}
	for _, path := range []string{"/session", "/session/close"} {
		w := postKeyed(s, path, "order-9", map[string]string{"/session": "{}", "/session/close": `{"ClientID":"c"}`}[path])
		require.Equal(t, 400, w.Code, path)
		require.Contains(t, w.Body.String(), "Idempotency-Key")
	}
	require.Zero(t, r.submits, "a refused request reached the log")

	for path, body := range bodies {
		for range 2 {
			w := postKeyed(s, path, "longest"+path+strings.Repeat("k", api.MaxIdempotencyKeyBytes-len("longest"+path)), body)
			require.Equal(t, 200, w.Code, w.Body.String())
		}
	}
}

// Every path that writes takes a key, bare or in quotes; a repetition is told to be
// one and changes nothing, and another body under the key is a 422.
func TestEveryWriteTakesAKey(t *testing.T) {
	for _, c := range []struct{ path, body, other string }{
		{"/put", `{"Key":"x","Value":"1"}`, `{"Key":"x","Value":"2"}`},
		{"/append", `{"Key":"x","Value":"1"}`, `{"Key":"y","Value":"1"}`},
		{"/cas", `{"Key":"x","CompareValue":"0","Value":"1"}`, `{"Key":"x","CompareValue":"1","Value":"1"}`},
		{"/delete", `{"Key":"x"}`, `{"Key":"x","IfVersion":7}`},
		{"/batch", `{"Operations":[{"Append":{"Key":"x","Value":"1"}},{"Put":{"Key":"x","Value":"2","IfVersion":9}},{"Get":{"Key":"x"}}]}`,
			`{"Operations":[{"Append":{"Key":"x","Value":"1"}},{"Put":{"Key":"x","Value":"2","IfVersion":9}}]}`},
	} {
		s, _ := newInstant(t, nil)
		post(s, "/put", `{"Key":"x","Value":"0"}`)
		first := postKeyed(s, c.path, "order-7", c.body)
		require.Equal(t, 200, first.Code, first.Body.String())
		require.Empty(t, first.Header().Values(api.HeaderIdempotentReplayed))
		post(s, "/put", `{"Key":"x","Value":"later"}`)

		for _, key := range []string{"order-7", `"order-7"`} {
			again := postKeyed(s, c.path, key, c.body)
			require.Equal(t, 200, again.Code, c.path)
			require.Equal(t, "true", again.Header().Get(api.HeaderIdempotentReplayed), c.path)
			require.Equal(t, first.Body.String(), strings.ReplaceAll(again.Body.String(), `,"Duplicate":true`, ""), c.path)
		}
		other := postKeyed(s, c.path, "order-7", c.other)
		require.Equal(t, 422, other.Code, c.path)
		require.Contains(t, other.Body.String(), `"RespStatus":"RequestMismatch","Outcome":"not_applied"`)
		require.Empty(t, other.Header().Values(api.HeaderIdempotentReplayed))
		_, value := post(s, "/get", `{"Key":"x"}`)
		require.Contains(t, value, `"Value":"later"`, c.path)
	}
}

// A whole batch waits, and is forwarded, as one request, too.
func TestForwardedBatchWithAKey(t *testing.T) {
	leader, _ := newInstant(t, nil)
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		s.follow(r, 2, 2)
		r.call = func(payload []byte) ([]byte, error) {
			return leader.HandleForwarded(t.Context(), raft.ServerID(1), payload), nil
		}
		body := `{"Operations":[{"Append":{"Key":"x","Value":"1"}},{"Append":{"Key":"x","Value":"2"}}]}`
		require.Empty(t, postKeyed(s, "/batch", "order-7", body).Header().Get(api.HeaderIdempotentReplayed))
		again := postKeyed(s, "/batch", "order-7", body)
		require.Equal(t, "true", again.Header().Get(api.HeaderIdempotentReplayed))
		require.Equal(t, 2, strings.Count(again.Body.String(), `"Duplicate":true`))
	})
}

// A key goes with a forwarded request, in a form that a server without keys
// refuses, and the leader's word that it is a repetition comes back.
func TestForwardedKey(t *testing.T) {
	leader, _ := newInstant(t, nil)
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		s.follow(r, 2, 2)
		r.call = func(payload []byte) ([]byte, error) {
			require.True(t, strings.HasPrefix(string(payload), "keyed /append r7 61206b6579\n"), string(payload))
			return leader.HandleForwarded(t.Context(), raft.ServerID(1), payload), nil
		}
		body := `{"Key":"x","Value":"1"}`
		first := postKeyed(s, "/append", `"a key"`, body)
		require.Equal(t, 200, first.Code)
		require.Empty(t, first.Header().Get(api.HeaderIdempotentReplayed))
		again := postKeyed(s, "/append", `"a key"`, body)
		require.Equal(t, 200, again.Code)
		require.Equal(t, "true", again.Header().Get(api.HeaderIdempotentReplayed))
		require.Contains(t, again.Body.String(), `"Duplicate":true`)
	})
}
