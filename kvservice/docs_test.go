package kvservice

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/api"
)

// The examples of docs/http.md, played in their order, get the answers that
// stand there.
func TestExamplesOfTheHTTPPage(t *testing.T) {
	page, err := os.ReadFile("../docs/http.md")
	require.NoError(t, err)
	examples := regexp.MustCompile(`\$ curl (?:-H '([\w-]+): (.*)' )?--json '(.*)' localhost:8080(/\S+)\n +(.*)\n`).FindAllStringSubmatch(string(page), -1)
	require.Greater(t, len(examples), 15)

	s, _ := newInstant(t, nil)
	drawn := strings.NewReplacer() // a server draws a ClientID; the page shows one
	for _, example := range examples {
		body, path, want := drawn.Replace(example[3]), example[4], drawn.Replace(example[5])
		req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		if example[1] != "" {
			req.Header.Set(example[1], example[2])
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, req)
		got := strings.TrimSpace(w.Body.String())
		if path == api.PathSession {
			var there, here api.SessionResponse
			require.NoError(t, api.DecodeResponse([]byte(want), &there))
			require.NoError(t, api.DecodeResponse([]byte(got), &here))
			drawn = strings.NewReplacer(string(there.ClientID), string(here.ClientID))
			want = drawn.Replace(want)
		}
		require.Equal(t, want, got, "%s %s", path, body)
	}
}
