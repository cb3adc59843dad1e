package kvservice

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/api"
	"raftkv/raft"
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

// docs/operations.md names the bounds that the code has.
func TestBoundsAreWrittenDown(t *testing.T) {
	page, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	_, bounds, _ := strings.Cut(string(page), "## Bounds")
	bounds, stopping, found := strings.Cut(bounds, "## Stopping a server")
	require.True(t, found)
	p := usualPatience
	for _, want := range []string{
		fmt.Sprintf("%d, or what the system's limit on open files leaves when %d are kept", maxClientConns, filesForItself),
		fmt.Sprintf("%d more: there `/livez`", spareConns),
		fmt.Sprintf("%d KiB, %d s", maxHeaderBytes>>10, p.header/time.Second),
		fmt.Sprintf("%d MiB, %d s", api.Limits{}.WithDefaults().BodyBytes>>20, p.body/time.Second),
		fmt.Sprintf("%d of clients, and %d for `/admin/…`", maxRequests, maxAdmin),
		fmt.Sprintf("%d MiB. The first %d KiB of each do not count", bodyRoom>>20, smallBytes>>10),
		fmt.Sprintf("| %d s | `Timeout` |", New(Config{}).config.RequestTimeout/time.Second),
		fmt.Sprintf("%d MiB, those below %d KiB not counted", answerRoom>>20, smallBytes>>10),
		fmt.Sprintf("| %d s; a download of the store, %[1]d s for each piece", p.answer/time.Second),
		fmt.Sprintf("| between two requests | %d min |", p.idle/time.Minute),
		fmt.Sprintf("| downloads of the store (`GET /admin/snapshot`) | %d |", maxDownloads),
		fmt.Sprintf("| entries that are given to the store and not yet applied | %d |", raft.MaxUnapplied),
	} {
		require.Contains(t, bounds, want)
	}
	for _, want := range []string{
		fmt.Sprintf("for %d s at most", p.handOver/time.Second),
		fmt.Sprintf("for %d s; tells", p.drain/time.Second),
		fmt.Sprintf("%d s later", p.lastWord/time.Second),
	} {
		require.Contains(t, stopping, want)
	}
	require.Equal(t, 6*time.Second, p.handOver+p.drain+p.lastWord)
	require.Contains(t, stopping, "within\nsix seconds")
}
