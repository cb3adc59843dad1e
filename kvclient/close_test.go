package kvclient

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/api"
)

// A client that is done gives its session back, once.
func TestCloseClosesTheSession(t *testing.T) {
	f := newFakeCluster()
	c, _ := serve(t, f.ServeHTTP)
	_, err := c.Put(within(t, 5*time.Second), "k", "v")
	require.NoError(t, err)
	require.Len(t, f.sessions, 1)
	require.NoError(t, c.Close())
	require.Empty(t, f.sessions)
	require.NoError(t, c.Close())
	require.Equal(t, 1, f.count(api.PathSessionClose))

	// One that has never written has none.
	idle, _ := serve(t, f.ServeHTTP)
	_, err = idle.Get(within(t, 5*time.Second), "k")
	require.NoError(t, err)
	require.NoError(t, idle.Close())
	require.Equal(t, 1, f.count(api.PathSessionClose))
}

// Whoever resumes a write needs its session.
func TestCloseLeavesASessionWithAnUnknownWrite(t *testing.T) {
	for name, write := range map[string]func(context.Context, *KVClient) error{
		"alone": func(ctx context.Context, c *KVClient) error {
			_, err := c.Append(ctx, "k", "v")
			return err
		},
		"in a batch": func(ctx context.Context, c *KVClient) error { return c.Batch(ctx, appends(1))[0].Err },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeCluster()
			c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				switch r.URL.Path {
				case api.PathAppend, api.PathBatch:
					writeAnswer(w, api.Refuse(api.StatusTimeout, ""))
				default:
					writeAnswer(w, f.serve(r.URL.Path, body))
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			var unknown *UnknownError
			require.ErrorAs(t, write(ctx, c), &unknown)
			require.NoError(t, c.Close())
			require.Zero(t, f.count(api.PathSessionClose))
			require.Len(t, f.sessions, 1)
		})
	}
}

// A cluster that does not answer does not hold up a program that wants to end.
func TestCloseDoesNotWaitForACluster(t *testing.T) {
	f := newFakeCluster()
	c, server := serve(t, f.ServeHTTP)
	_, err := c.Put(within(t, 5*time.Second), "k", "v")
	require.NoError(t, err)
	server.Close()
	began := time.Now()
	require.NoError(t, c.Close())
	require.Less(t, time.Since(began), 3*time.Second)
}

// A session of Register is given back by whoever got it; twice is no error.
func TestCloseSession(t *testing.T) {
	f := newFakeCluster()
	c, _ := serve(t, f.ServeHTTP)
	ctx := within(t, 5*time.Second)
	id, err := c.Register(ctx)
	require.NoError(t, err)
	w := Write{Op: OpAppend, Key: "k", Value: "v"}
	_, err = c.Send(ctx, Identity{ClientID: id, RequestID: 1}, w)
	require.NoError(t, err)
	require.NoError(t, c.CloseSession(ctx, id))
	require.NoError(t, c.CloseSession(ctx, id))
	require.Empty(t, f.sessions)
	_, err = c.Send(ctx, Identity{ClientID: id, RequestID: 2, AckedThrough: 1}, w)
	var refused *StatusError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, api.StatusSessionExpired, refused.Status)

	require.NoError(t, c.Close())
	require.ErrorIs(t, c.CloseSession(ctx, id), ErrClosed)
}
