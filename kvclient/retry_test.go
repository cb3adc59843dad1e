package kvclient

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"raftkv/api"
)

// scripted returns a client with three endpoints, a, b and c, whose attempts
// are made by try instead of HTTP. It belongs into a synctest bubble.
func scripted(t *testing.T, try func(ctx context.Context, endpoint string, op operation) attempt) *KVClient {
	c := New([]string{"a", "b", "c"})
	c.try = try
	t.Cleanup(func() { c.Close() })
	return c
}

func refuse(s api.Status) attempt {
	r := api.Refuse(s, "")
	return attempt{answer: r, outcome: r.Outcome, err: newStatusError(*r)}
}

// lost is an attempt whose answer did not come.
func lost() attempt {
	return attempt{outcome: api.OutcomeUnknown, err: errors.New("connection reset")}
}

func answered(r api.Response) attempt {
	head := r.Head()
	a := attempt{answer: r, outcome: head.Outcome}
	if head.RespStatus != api.StatusOK && head.RespStatus != api.StatusDuplicateRequest {
		a.err = newStatusError(head)
	}
	return a
}

func (f *fakeCluster) try(op operation) attempt { return answered(f.serve(op.path, op.body)) }

func TestPausesGrowToACap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		c := scripted(t, func(context.Context, string, operation) attempt {
			at = append(at, time.Now())
			return refuse(api.StatusNotLeader)
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.Get(ctx, "k")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var refused *StatusError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, api.StatusNotLeader, refused.Status, "the error tells what the servers said")

		pause := firstPause
		for i := 0; i+3 < len(at); i += 3 {
			require.Equal(t, at[i], at[i+1], "within a round nobody waits")
			require.Equal(t, at[i], at[i+2])
			waited := at[i+3].Sub(at[i])
			require.GreaterOrEqual(t, waited, pause/2)
			require.Less(t, waited, pause)
			pause = min(2*pause, maxPause)
		}
		first := 0
		for _, when := range at {
			if when.Sub(at[0]) < time.Second {
				first++
			}
		}
		require.LessOrEqual(t, first, 30, "requests in the first second")
		require.LessOrEqual(t, len(at), 3*(60*2+10), "requests in the minute")
	})
}

// There is no leader for three seconds, and by then the calls pause for a second. When
// the first of them finds the new one, the others do not sleep on.
func TestOneCallThatGetsThroughWakesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster()
		began := time.Now()
		c := scripted(t, func(_ context.Context, _ string, op operation) attempt {
			if time.Since(began) < 3*time.Second {
				return refuse(api.StatusNotLeader)
			}
			return f.try(op)
		})
		var mu sync.Mutex
		var first, last time.Time
		var calls sync.WaitGroup
		for range 64 {
			calls.Go(func() {
				_, err := c.Get(t.Context(), "k")
				assert.NoError(t, err)
				mu.Lock()
				defer mu.Unlock()
				last = time.Now()
				if first.IsZero() {
					first = last
				}
			})
			<-time.After(time.Millisecond)
		}
		calls.Wait()
		require.LessOrEqual(t, last.Sub(first), maxPause/8)
	})
}

// Others get through all the time, and one call does not. It asks more often than
// alone, but not at each of their successes; and no more often if a server is busy.
func TestOthersSuccessIsNoReasonToHurry(t *testing.T) {
	for status, rounds := range map[api.Status]int{api.StatusNotLeader: 60*16 + 60, api.StatusBusy: 60*2 + 10} {
		t.Run(string(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeCluster()
				asked := 0
				var mu sync.Mutex
				c := scripted(t, func(_ context.Context, endpoint string, op operation) attempt {
					mu.Lock()
					defer mu.Unlock()
					if strings.Contains(string(op.body), "unlucky") {
						asked++
						if endpoint == normalEndpoint("b") {
							return refuse(status)
						}
						return refuse(api.StatusNotLeader)
					}
					return f.try(op)
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				others := time.NewTicker(time.Millisecond)
				defer others.Stop()
				go func() {
					for {
						select {
						case <-others.C:
							c.Get(ctx, "k")
						case <-ctx.Done():
							return
						}
					}
				}()
				_, err := c.Get(ctx, "unlucky")
				require.ErrorIs(t, err, context.DeadlineExceeded)
				mu.Lock()
				defer mu.Unlock()
				require.LessOrEqual(t, asked, 3*rounds)
				require.Greater(t, asked, 3*60, "it has stopped asking")
			})
		})
	}
}

func TestPatienceGrowsWithEachTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waited []time.Duration
		c := scripted(t, func(ctx context.Context, _ string, _ operation) attempt {
			start := time.Now()
			<-ctx.Done()
			waited = append(waited, time.Since(start))
			return lost()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		_, err := c.Get(ctx, "k")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		want := firstPatience
		for _, d := range waited[:len(waited)-1] { // the context cut the last one
			require.Equal(t, want, d)
			want = min(2*want, maxPatience)
		}
		require.Equal(t, maxPatience, want)
	})
}

// A commit that takes five times as long as the first attempt waits: the
// attempts wait longer and longer until one sees the answer.
func TestSlowCommitsAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster()
		copies := 0
		c := scripted(t, func(ctx context.Context, _ string, op operation) attempt {
			if op.path != api.PathAppend {
				return f.try(op)
			}
			copies++
			a := f.try(op) // it commits, whoever waits
			select {
			case <-time.After(5 * firstPatience):
				return a
			case <-ctx.Done():
				return lost()
			}
		})
		result, err := c.Append(t.Context(), "k", "x")
		require.NoError(t, err)
		require.True(t, result.Duplicate)
		require.Equal(t, "x", f.data["k"])
		require.LessOrEqual(t, copies, 4)
	})
}

func TestHintsInACircleEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := map[string]string{"http://a:1": "b:1", "http://b:1": "c:1", "http://c:1": "a:1"}
		rounds, requests := map[time.Time]int{}, 0
		c := New([]string{"a:1"})
		defer c.Close()
		c.try = func(_ context.Context, endpoint string, _ operation) attempt {
			rounds[time.Now()]++
			requests++
			a := refuse(api.StatusNotLeader)
			a.answer.(*api.ErrorResponse).LeaderHTTP = next[endpoint]
			return a
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := c.Put(ctx, "k", "v")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, requests, 100)
		for _, n := range rounds {
			require.LessOrEqual(t, n, 1+maxHints)
		}
	})
}

// Every server claims that yet another one leads.
func TestEndlessHintsEnd(t *testing.T) {
	var r route
	r.startRound("", []string{"http://a:1"}, nil)
	asked := 0
	for asked < 100 {
		_, ok := r.next()
		if !ok {
			break
		}
		asked++
		r.hint(fmt.Sprintf("http://x%d:1", asked))
	}
	require.Equal(t, 1+maxHints, asked)
}

func TestLeaderHintIsFollowedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster()
		var asked []string
		c := scripted(t, func(_ context.Context, endpoint string, op operation) attempt {
			asked = append(asked, endpoint)
			if endpoint != "http://c:1" {
				a := refuse(api.StatusNotLeader)
				a.answer.(*api.ErrorResponse).LeaderHTTP = "c:1"
				return a
			}
			return f.try(op)
		})
		c.members.endpoints = []string{"http://a:1", "http://b:1", "http://c:1"}
		_, err := c.Put(t.Context(), "k", "v")
		require.NoError(t, err)
		_, err = c.Put(t.Context(), "k", "w")
		require.NoError(t, err)
		require.Equal(t, []string{"http://a:1", "http://c:1", "http://c:1", "http://c:1"}, asked, "registration, then two writes")
	})
}

func TestHintedEndpoint(t *testing.T) {
	for address, want := range map[string]string{
		"":               "",
		"10.0.0.1:8080":  "http://10.0.0.1:8080",
		"[::1]:8080":     "http://[::1]:8080",
		":8080":          "",
		"0.0.0.0:8080":   "",
		"[::]:8080":      "",
		"nonsense":       "",
		"node-1:8080":    "http://node-1:8080",
		"127.0.0.1:8080": "http://127.0.0.1:8080",
	} {
		require.Equal(t, want, hintedEndpoint(address), "%q", address)
	}
}

func TestFirstWritersShareOneRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster()
		c := scripted(t, func(_ context.Context, _ string, op operation) attempt {
			<-time.After(10 * time.Millisecond) // of virtual time: the others arrive meanwhile
			return f.try(op)
		})
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				_, err := c.Append(t.Context(), "k", fmt.Sprint(i))
				require.NoError(t, err)
			})
		}
		wg.Wait()
		require.Equal(t, 1, f.requests[api.PathSession])
		require.Len(t, f.data["k"], 3)
	})
}

func TestRegistrationWhoseAnswerWasLostIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster()
		c := scripted(t, func(_ context.Context, _ string, op operation) attempt {
			a := f.try(op)
			if op.path == api.PathSession && f.requests[api.PathSession] <= 2 {
				return lost()
			}
			return a
		})
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				_, err := c.Append(t.Context(), "k", fmt.Sprint(i))
				require.NoError(t, err)
			})
		}
		wg.Wait()
		require.Equal(t, 3, f.requests[api.PathSession])
		require.Equal(t, map[api.ClientID]bool{"s-3": true}, f.used)
	})
}

// The writer who registers runs out of time: it was not applied, and the next
// one in line registers.
func TestAnotherWriterRegisters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster()
		c := scripted(t, func(ctx context.Context, _ string, op operation) attempt {
			if op.path == api.PathSession && f.count(api.PathSession) == 0 {
				f.try(op)
				<-ctx.Done()
				return lost()
			}
			return f.try(op)
		})
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := c.Append(short, "k", "a")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			var unknown *UnknownError
			require.False(t, errors.As(err, &unknown), "the write itself was never sent")
		})
		synctest.Wait()
		wg.Go(func() {
			_, err := c.Append(t.Context(), "k", "b")
			require.NoError(t, err)
		})
		wg.Wait()
		require.Equal(t, "b", f.data["k"])
		require.Equal(t, map[api.ClientID]bool{"s-2": true}, f.used)
	})
}

func TestExpiredSessionIsReplacedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster()
		c := scripted(t, func(_ context.Context, _ string, op operation) attempt { return f.try(op) })
		_, err := c.Append(t.Context(), "k", "a")
		require.NoError(t, err)
		clear(f.sessions) // the cluster was started anew
		_, err = c.Append(t.Context(), "k", "b")
		require.NoError(t, err)
		require.Equal(t, "ab", f.data["k"])
		require.Equal(t, 2, f.requests[api.PathSession])
	})
}

func TestClusterThatKnowsNoSessionIsNotAskedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster()
		c := scripted(t, func(_ context.Context, _ string, op operation) attempt {
			a := f.try(op)
			clear(f.sessions)
			return a
		})
		_, err := c.Append(t.Context(), "k", "a")
		var refused *StatusError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, api.StatusSessionExpired, refused.Status)
		require.Equal(t, 2, f.requests[api.PathSession])
		require.Equal(t, 2, f.requests[api.PathAppend])
		require.Empty(t, f.data)
	})
}

// The first attempt may have taken effect, so a new identity could make it two.
func TestExpiryAfterAnUnknownAttemptIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster()
		appends := 0
		c := scripted(t, func(_ context.Context, _ string, op operation) attempt {
			a := f.try(op)
			if op.path == api.PathAppend {
				if appends++; appends == 1 {
					clear(f.sessions)
					return lost()
				}
			}
			return a
		})
		_, err := c.Append(t.Context(), "k", "a")
		var unknown *UnknownError
		require.ErrorAs(t, err, &unknown)
		require.Equal(t, uint64(1), unknown.RequestID)
		require.Equal(t, api.ClientID("s-1"), unknown.ClientID)
		require.Equal(t, "a", f.data["k"])
		require.Equal(t, 1, f.requests[api.PathSession])
	})
}

// An attempt that timed out followed by refusals until the end: the write is
// unknown, and nothing else may be said.
func TestTimeoutFollowedByRefusalIsUnknown(t *testing.T) {
	for _, refusal := range []api.Status{api.StatusNotLeader, api.StatusBusy, api.StatusBadRequest, api.StatusRequestMismatch, api.StatusStaleRequest} {
		t.Run(string(refusal), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeCluster()
				attempts := 0
				c := scripted(t, func(ctx context.Context, _ string, op operation) attempt {
					if op.path == api.PathSession {
						return f.try(op)
					}
					if attempts++; attempts == 1 {
						<-ctx.Done()
						return lost()
					}
					return refuse(refusal)
				})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_, err := c.Put(ctx, "k", "v")
				var unknown *UnknownError
				require.ErrorAs(t, err, &unknown)
				require.Equal(t, uint64(1), unknown.RequestID)
			})
		})
	}
}

// Refusals to the end: the write was not applied, and the error says so by not
// being an UnknownError.
func TestOnlyRefusalsIsNotApplied(t *testing.T) {
	for _, refusal := range []api.Status{api.StatusNotLeader, api.StatusBusy, api.StatusBadRequest, api.StatusTooLarge} {
		t.Run(string(refusal), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeCluster()
				c := scripted(t, func(_ context.Context, _ string, op operation) attempt {
					if op.path == api.PathSession {
						return f.try(op)
					}
					return refuse(refusal)
				})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_, err := c.Put(ctx, "k", "v")
				var unknown *UnknownError
				require.False(t, errors.As(err, &unknown))
				var refused *StatusError
				require.ErrorAs(t, err, &refused)
				require.Equal(t, refusal, refused.Status)
				require.Equal(t, api.OutcomeNotApplied, refused.Outcome)
			})
		})
	}
}

// 300 calls go and none is answered: no more than the window's 256 have a number.
// When one ends, the next may begin.
func TestWindowHoldsBackWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster()
		var release atomic.Bool
		c := scripted(t, func(_ context.Context, _ string, op operation) attempt {
			if op.path != api.PathSession && !release.Load() {
				return refuse(api.StatusBusy)
			}
			return f.try(op)
		})
		var wg sync.WaitGroup
		for range 300 {
			wg.Go(func() {
				_, err := c.Append(t.Context(), "k", "x")
				require.NoError(t, err)
			})
		}
		<-time.After(time.Minute) // of virtual time
		c.session.mu.Lock()
		open := c.session.numbers.Open()
		c.session.mu.Unlock()
		require.Equal(t, 256, open)
		release.Store(true)
		wg.Wait()
		require.Len(t, f.data["k"], 300)
		require.Equal(t, uint64(300), c.session.numbers.AckedThrough())
		require.Zero(t, c.session.numbers.Open())
	})
}

// A write is given up; its copy arrives after a later write and must find that
// its number is settled.
func TestCopyOfAnAbandonedWriteComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster()
		var held *operation
		c := scripted(t, func(ctx context.Context, _ string, op operation) attempt {
			if op.path == api.PathAppend && held == nil {
				held = &op
				<-ctx.Done()
				return lost()
			}
			return f.try(op)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := c.Append(ctx, "k", "old")
		var unknown *UnknownError
		require.ErrorAs(t, err, &unknown)
		_, err = c.Append(t.Context(), "k", "new")
		require.NoError(t, err)
		late := f.try(*held)
		require.Equal(t, api.StatusStaleRequest, late.answer.Head().RespStatus)
		require.Equal(t, "new", f.data["k"])
	})
}

func TestUnprotectedWriteEndsAtTheFirstDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster()
		attempts := 0
		c := scripted(t, func(_ context.Context, _ string, op operation) attempt {
			switch attempts++; attempts {
			case 1:
				return refuse(api.StatusNotLeader) // certainly not applied: goes on
			case 2:
				f.try(op)
				return lost()
			}
			return f.try(op)
		})
		_, err := c.Send(t.Context(), Identity{}, Write{Op: OpAppend, Key: "k", Value: "x"})
		var unknown *UnknownError
		require.ErrorAs(t, err, &unknown)
		require.Empty(t, unknown.ClientID)
		require.Equal(t, 2, attempts)
		require.Equal(t, "x", f.data["k"])
	})
}

func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster()
		c := scripted(t, func(_ context.Context, _ string, op operation) attempt { return f.try(op) })
		client, err := c.Register(t.Context())
		require.NoError(t, err)
		id := Identity{ClientID: client, RequestID: 1}
		w := Write{Op: OpAppend, Key: "k", Value: "x"}

		first, err := c.Resume(t.Context(), id, w)
		require.NoError(t, err, "never sent: carried out now")
		require.False(t, first.Duplicate)
		again, err := c.Resume(t.Context(), id, w)
		require.NoError(t, err)
		require.True(t, again.Duplicate)
		again.Duplicate = false
		require.Equal(t, first, again, "the original result")
		require.Equal(t, "x", f.data["k"])

		clear(f.sessions)
		_, err = c.Resume(t.Context(), id, w)
		var unknown *UnknownError
		require.ErrorAs(t, err, &unknown, "an expired session says nothing about the first attempt")
	})
}

// The recorded answer is gone, or never was told. That the write was carried out is
// known all the same; or that it was refused then, which no later copy changes.
func TestLostResult(t *testing.T) {
	for recorded, check := range map[api.Outcome]func(t *testing.T, err error){
		api.OutcomeApplied: func(t *testing.T, err error) {
			require.ErrorIs(t, err, ErrDuplicate)
			requireNotUnknown(t, err)
			var status *StatusError
			require.ErrorAs(t, err, &status)
			require.Equal(t, api.OutcomeApplied, status.Outcome)
			require.ErrorContains(t, err, "applied: DuplicateRequest")
		},
		api.OutcomeNotApplied: func(t *testing.T, err error) {
			require.NotErrorIs(t, err, ErrDuplicate)
			requireNotUnknown(t, err)
			require.ErrorContains(t, err, "not applied")
		},
		api.OutcomeUnknown: func(t *testing.T, err error) {
			require.NotErrorIs(t, err, ErrDuplicate)
			var unknown *UnknownError
			require.ErrorAs(t, err, &unknown)
		},
	} {
		t.Run(string(recorded), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeCluster()
				first := true
				c := scripted(t, func(_ context.Context, _ string, op operation) attempt {
					if op.path == api.PathSession {
						return f.try(op)
					}
					if first = !first; !first {
						return lost()
					}
					return answered(&api.CASResponse{RespStatus: api.StatusDuplicateRequest, Outcome: recorded})
				})
				_, err := c.Put(t.Context(), "k", "v")
				check(t, err)
				_, err = c.CAS(t.Context(), "k", "v", "w")
				check(t, err)
			})
		})
	}
}

func TestCloseEndsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster()
		c := scripted(t, func(ctx context.Context, _ string, op operation) attempt {
			if op.path == api.PathSession {
				return f.try(op)
			}
			<-ctx.Done()
			return lost()
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := c.Put(context.Background(), "k", "v")
			var unknown *UnknownError
			require.ErrorAs(t, err, &unknown)
			require.ErrorIs(t, err, ErrClosed)
		})
		synctest.Wait()
		require.NoError(t, c.Close())
		require.NoError(t, c.Close())
		wg.Wait()
		_, err := c.Put(t.Context(), "k", "v")
		require.ErrorIs(t, err, ErrClosed)
		_, err = c.Get(t.Context(), "k")
		require.ErrorIs(t, err, ErrClosed)
	})
}

func TestNoEndpoints(t *testing.T) {
	c := New(nil)
	defer c.Close()
	_, err := c.Put(t.Context(), "k", "v")
	require.ErrorIs(t, err, ErrNoEndpoints)
}

// What JSON cannot carry is refused here; replaced, two keys would become one.
func TestInvalidUTF8IsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster()
		c := scripted(t, func(_ context.Context, _ string, op operation) attempt { return f.try(op) })
		_, err := c.Put(t.Context(), "\xff", "a")
		var refused *StatusError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, api.StatusBadRequest, refused.Status)
		_, err = c.Get(t.Context(), "\xfe")
		require.ErrorAs(t, err, &refused)
		require.Empty(t, f.data)
		_, err = c.Put(t.Context(), "k", "v")
		require.NoError(t, err)
		require.Equal(t, uint64(1), c.session.numbers.AckedThrough(), "what was refused here had no number")
	})
}
