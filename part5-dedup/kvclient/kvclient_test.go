package kvclient

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/part5-dedup/api"
)

// services answer requests without a network: one function for each address.
type services map[string]func(req *http.Request) (string, error)

func (s services) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := s[req.URL.Host](req)
	if err != nil {
		return nil, err
	}
	code := http.StatusOK
	if strings.HasPrefix(body, "bad request") {
		code = http.StatusBadRequest
	}
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
}

func newClient(s services, addrs ...string) *KVClient {
	c := New(addrs)
	c.HTTPClient = &http.Client{Transport: s}
	return c
}

func says(answer string) func(*http.Request) (string, error) {
	return func(*http.Request) (string, error) { return answer, nil }
}

func hangs(req *http.Request) (string, error) {
	<-req.Context().Done()
	return "", req.Context().Err()
}

func fails(*http.Request) (string, error) { return "", errors.New("connection refused") }

const (
	ok        = `{"RespStatus":"OK","KeyFound":true,"PrevValue":"1"}`
	notLeader = `{"RespStatus":"NotLeader"}`
)

// Whatever the other addresses do, the call finds the leader, and the next call
// remembers it.
func TestClientFindsTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		c := newClient(services{
			"dead":     fails,
			"hanging":  hangs,
			"lying":    says(`{"RespStatus":"Wonderful"}`),
			"page":     says("<html>"),
			"follower": says(notLeader),
			"leader":   func(*http.Request) (string, error) { asked++; return ok, nil },
		}, "dead", "hanging", "lying", "page", "follower", "leader")
		prev, found, err := c.Put(t.Context(), "x", "2")
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, "1", prev)

		start := time.Now()
		_, _, err = c.Put(t.Context(), "x", "3")
		require.NoError(t, err)
		require.Equal(t, 2, asked)
		require.Equal(t, start, time.Now()) // nobody else was asked
	})
}

// While there is no leader the client keeps asking, but not without a pause. In
// the end it can say that nothing was done.
func TestNoLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		follower := func(*http.Request) (string, error) { asked++; return notLeader, nil }
		c := newClient(services{"1": follower, "2": follower}, "1", "2")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, _, err := c.Put(ctx, "x", "1")
		require.ErrorIs(t, err, ErrNotDone)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, asked, 100)
		require.Greater(t, asked, 20)
	})
}

// One attempt without a clear answer, and nobody can say "not done" any more.
func TestOneUnclearAnswerIsEnough(t *testing.T) {
	for what, unclear := range (services{
		"no answer":     fails,
		"failed commit": says(`{"RespStatus":"FailedCommit"}`),
		"half":          says(`{"RespStatus":"OK"`),
	}) {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				c := newClient(services{"1": func(req *http.Request) (string, error) {
					if asked++; asked == 2 {
						return unclear(req)
					}
					return notLeader, nil
				}}, "1")
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, _, err := c.Append(ctx, "x", "1")
				require.ErrorIs(t, err, ErrUnknown)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
		})
	}
}

// All attempts of a call have one identity, and the next call has the next number.
// A duplicate is the end of a call: it was carried out.
func TestIdentityStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []api.Identity
		c := newClient(services{"1": func(req *http.Request) (string, error) {
			seen = append(seen, identity(t, req))
			if len(seen) == 3 {
				return `{"RespStatus":"DuplicateRequest"}`, nil
			}
			return fails(req)
		}}, "1")
		_, _, err := c.Append(t.Context(), "x", "1")
		require.ErrorIs(t, err, ErrDuplicate)
		require.Positive(t, seen[0].ClientID)
		require.Equal(t, []api.Identity{{ClientID: c.clientID, RequestID: 1}, seen[0], seen[0]}, seen)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err = c.Append(ctx, "x", "2")
		require.ErrorIs(t, err, ErrUnknown)
		require.Equal(t, api.Identity{ClientID: c.clientID, RequestID: 2}, seen[3])
	})
}

func identity(t *testing.T, req *http.Request) (id api.Identity) {
	require.NoError(t, json.NewDecoder(req.Body).Decode(&id))
	return id
}

// Forty goroutines share a client. Their requests arrive in the order of their
// numbers, never two at a time, so none is taken for a duplicate.
func TestSharedClientLosesNothing(t *testing.T) {
	var last atomic.Int64
	c := newClient(services{"1": func(req *http.Request) (string, error) {
		id := identity(t, req)
		<-time.After(rand.N(200 * time.Microsecond)) // so that others could overtake
		require.True(t, last.CompareAndSwap(id.RequestID-1, id.RequestID))
		return ok, nil
	}}, "1")
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			_, _, err := c.Put(t.Context(), "x", "1")
			require.NoError(t, err)
		})
	}
	wg.Wait()
	require.EqualValues(t, 40, last.Load())
}

// The first client of one program is not the first client of another.
func TestClientIDsDoNotCollide(t *testing.T) {
	ids := map[int64]bool{}
	for range 1000 {
		ids[New(nil).clientID] = true
	}
	require.Len(t, ids, 1000)
	require.NotContains(t, ids, int64(0))
	require.NotContains(t, ids, int64(1))
}

// A request that says nonsense does so everywhere.
func TestBadRequestIsNotRepeated(t *testing.T) {
	c := newClient(services{"1": says("bad request, nothing was done: why")}, "1")
	_, _, err := c.CAS(t.Context(), "x", "1", "2")
	require.EqualError(t, err, "bad request, nothing was done: why")
}

// An answer that is not the last one leaves no trace in the result.
func TestNothingShinesThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(services{
			"1": says(`{"RespStatus":"FailedCommit","KeyFound":true,"Value":"old"}`),
			"2": says(`{"RespStatus":"OK"}`),
		}, "1", "2")
		value, found, err := c.Get(t.Context(), "x")
		require.NoError(t, err)
		require.False(t, found)
		require.Empty(t, value)
	})
}

// A call of a context that has ended sends nothing.
func TestEndedContext(t *testing.T) {
	c := newClient(services{}, "1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := c.Put(ctx, "x", "1")
	require.ErrorIs(t, err, ErrNotDone)
}
