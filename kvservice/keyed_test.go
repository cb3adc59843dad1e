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
func postKeyed(s *KVService, path, key, body string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(api.HeaderRequestID, "r7")
	req.Header.Set(api.HeaderIdempotencyKey, key)
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, req)
	return w
}

func TestIdempotencyKey(t *testing.T) {
	s, r := newInstant(t, nil)
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

	submits := r.submits
	for _, c := range []struct{ path, key, body string }{
		{"/put", "order-9", putX1},
		{"/put", "a b", body},
		{"/put", "", body},
		{"/session", "order-9", "{}"},
		{"/batch", "order-9", `{"Operations":[{"Put":{"Key":"x","Value":"1"}}]}`},
	} {
		w := postKeyed(s, c.path, c.key, c.body)
		require.Equal(t, 400, w.Code, "%s %q", c.path, c.key)
		require.Contains(t, w.Body.String(), "Idempotency-Key")
	}
	require.Equal(t, submits, r.submits, "a refused request reached the log")
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
