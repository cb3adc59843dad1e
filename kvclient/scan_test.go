package kvclient

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/api"
)

// All pages of a scan come from the server that gave the first one, in the state
// that it has then, also if it is busy for a moment. If it is gone, others are
// asked, and what they say counts.
func TestScanAllStaysWithItsServer(t *testing.T) {
	pages := []*api.ScanResponse{
		{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, Items: []api.Item{{Key: "a"}, {Key: "b"}}, Next: "b", Age: api.Age{AppliedIndex: 7}},
		{RespStatus: api.StatusBusy, Outcome: api.OutcomeNotApplied},
		{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, Items: []api.Item{{Key: "c"}}, Next: "c", Age: api.Age{AppliedIndex: 7}},
		{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, Items: []api.Item{{Key: "d"}}, Age: api.Age{AppliedIndex: 7}},
	}
	for _, gone := range []bool{false, true} {
		var mu sync.Mutex
		var requests []string
		n := 0
		c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			defer mu.Unlock()
			requests = append(requests, string(body))
			if gone && n == 3 {
				cut(w)
				return
			}
			n++
			writeAnswer(w, pages[n-1])
		})
		othersAsked := 0
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == api.PathScan {
				mu.Lock()
				othersAsked++
				mu.Unlock()
			}
			writeAnswer(w, api.Refuse(api.StatusScanExpired, "not here"))
		}))
		t.Cleanup(other.Close)
		c.seeds = append(c.seeds, other.URL)
		c.members.endpoints = append(c.members.endpoints, other.URL)

		var keys []string
		var err error
		for item, failure := range c.ScanAll(within(t, 10*time.Second), Scan{Limit: 2}) {
			if err = failure; err == nil {
				keys = append(keys, item.Key)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []string{
			`{"Prefix":"","Limit":2}`,
			`{"Prefix":"","After":"b","At":7,"Limit":2}`,
			`{"Prefix":"","After":"b","At":7,"Limit":2}`,
			`{"Prefix":"","After":"c","At":7,"Limit":2}`,
		}, requests[:4])
		if !gone {
			require.NoError(t, err)
			require.Equal(t, []string{"a", "b", "c", "d"}, keys)
			require.Zero(t, othersAsked)
			continue
		}
		var expired *StatusError
		require.ErrorAs(t, err, &expired)
		require.Equal(t, api.StatusScanExpired, expired.Status)
		require.Equal(t, []string{"a", "b", "c"}, keys)
		require.Positive(t, othersAsked)
	}
}
