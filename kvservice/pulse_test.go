package kvservice

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/raft/server"
)

func TestWaitEndsWithWhateverComesFirst(t *testing.T) {
	request := func(parent context.Context, timeout time.Duration) *requestContext {
		return &requestContext{Context: parent, deadline: time.Now().Add(timeout)}
	}
	for name, c := range map[string]struct {
		timeout time.Duration
		happens func(s *KVService, answers chan<- int, gone context.CancelFunc) // a moment later
		err     error
		latest  time.Duration
	}{
		"the answer":              {time.Minute, func(_ *KVService, answers chan<- int, _ context.CancelFunc) { answers <- 7 }, nil, 0},
		"the client goes":         {time.Minute, func(_ *KVService, _ chan<- int, gone context.CancelFunc) { gone() }, context.Canceled, 2 * beat},
		"the time is up":          {time.Minute, nil, context.DeadlineExceeded, time.Minute},
		"so little time":          {beat / 2, nil, context.DeadlineExceeded, beat / 2},
		"the server stops":        {time.Minute, func(s *KVService, _ chan<- int, _ context.CancelFunc) { close(s.stopped); s.pulse.hurry() }, server.ErrStopped, 0},
		"the node stops its work": {time.Minute, func(s *KVService, _ chan<- int, gone context.CancelFunc) { gone(); s.pulse.hurry() }, context.Canceled, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(Config{})
				parent, gone := context.WithCancel(t.Context())
				ctx := request(parent, c.timeout)
				defer ctx.end()
				answers := make(chan int, 1)
				if c.happens != nil {
					go c.happens(s, answers, gone)
				}
				began := time.Now()
				got, err := wait(ctx, s, answers)
				require.ErrorIs(t, err, c.err)
				require.LessOrEqual(t, time.Since(began), c.latest)
				if err == nil {
					require.Equal(t, 7, got)
					require.Nil(t, ctx.timed, "a context was made for a request that was answered at once")
				}
				gone()
			})
		})
	}
}

// All who wait share one timer, and after the last word nobody waits for a beat.
func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pulse
		first := p.wait()
		require.Equal(t, first, p.wait())
		began := time.Now()
		<-first
		require.Equal(t, beat, time.Since(began))
		second := p.wait()
		require.NotEqual(t, first, second)
		p.hurry()
		p.hurry()
		<-second
		<-p.wait()
		require.Equal(t, beat, time.Since(began), "no further beat was waited for")
		<-time.After(2 * beat) // the alarm of the second beat finds nothing to do
		<-p.wait()
	})
}

// Contexts that are derived from a request's end with it, and find what it carries.
func TestContextOfARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, gone := context.WithCancel(t.Context())
		defer gone()
		ctx := &requestContext{Context: parent, deadline: time.Now().Add(time.Second), id: "r7"}
		defer ctx.end()
		derived, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		deadline, _ := derived.Deadline()
		require.Equal(t, ctx.deadline, deadline)
		require.Equal(t, "r7", requestOf(derived).id)
		<-derived.Done()
		require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
		require.ErrorIs(t, derived.Err(), context.DeadlineExceeded)

		timeless := &requestContext{Context: parent}
		_, has := timeless.Deadline()
		require.False(t, has)
		require.NoError(t, timeless.Err())
		gone()
		<-timeless.Done()
		timeless.end()
	})
}

// A client that goes while the log does not move leaves nothing behind for longer
// than two beats.
func TestGoneClientIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := serve(t)
		ctx, gone := context.WithCancel(t.Context())
		served := make(chan struct{})
		go func() {
			defer close(served)
			req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/put", strings.NewReader(putX1))
			req.Header.Set("Content-Type", "application/json")
			s.Handler().ServeHTTP(httptest.NewRecorder(), req)
		}()
		synctest.Wait()
		began := time.Now()
		gone()
		<-served
		require.LessOrEqual(t, time.Since(began), 2*beat)
		require.Empty(t, s.answers)
	})
}
