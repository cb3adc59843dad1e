package rawhttp

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPost(t *testing.T) {
	connections := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connections[r.RemoteAddr] = true
		if r.URL.Path == "/long" {
			w.(http.Flusher).Flush() // from here on in chunks, without a length
		}
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		w.WriteHeader(http.StatusTeapot)
		w.Write(body)
	}))
	defer server.Close()
	c := New(server.Listener.Addr().String(), time.Minute)
	defer c.Close()
	for _, body := range []string{"", "{}", strings.Repeat("x", 1900)} {
		status, answer, err := c.Post("/echo", []byte(body))
		require.NoError(t, err)
		require.Equal(t, http.StatusTeapot, status)
		require.Equal(t, body, string(answer))
	}
	require.Len(t, connections, 1, "the connection is kept")
	_, _, err := c.Post("/long", nil)
	require.ErrorIs(t, err, errNoLength)
	_, answer, err := c.Post("/echo", []byte("again"))
	require.NoError(t, err)
	require.Equal(t, "again", string(answer))
	require.Len(t, connections, 2, "after an error there is a new one")
}
