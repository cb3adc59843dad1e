package kvservice

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"raftkv/api"
)

// Who knows another server to lead says where it is, in every answer.
func TestAnswersNameTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		leader := func() []string {
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, api.PathStatus, nil))
			require.Equal(t, 200, w.Code)
			return w.Header().Values(api.HeaderLeader)
		}
		require.Empty(t, leader(), "it leads itself")
		s.follow(r, 2, 2)
		require.Equal(t, []string{s.config.HTTPAddrOf(2)}, leader())
		require.NotEmpty(t, leader()[0])
	})
}
