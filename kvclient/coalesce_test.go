package kvclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"raftkv/api"
)

// line against its promises: first come, first served; those who wait go when nobody is
// under way, or when they are more than those who are and there is a place; a trip has
// no more than its room, and is not too large.
func TestLineProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l line
		var want []*passenger // who waits
		var trips []int       // the writes of each
		underWay := func() (n int) {
			for _, writes := range trips {
				n += writes
			}
			return n
		}
		mayGo := func(n int) bool {
			return n > 0 && (len(trips) == 0 || len(trips) < maxTrips && n > underWay())
		}
		depart := func() {
			may := mayGo(len(want))
			if l.take() != may {
				t.Fatalf("%d wait beside trips with %v, and may go: %t", len(want), trips, may)
			}
			if !may {
				return
			}
			room := rapid.IntRange(1, 4).Draw(t, "room")
			aboard := l.board(room)
			if n := len(aboard); n == 0 || n > room {
				t.Fatalf("%d of %d go, with room for %d", n, len(want), room)
			}
			size := 0
			for i, p := range aboard {
				if p != want[i] {
					t.Fatal("somebody was not served in turn")
				}
				size += len(p.write.Key) + len(p.write.Value)
			}
			if len(aboard) > 1 && size > maxBatchBytes {
				t.Fatalf("%d writes of %d bytes go together", len(aboard), size)
			}
			want = want[len(aboard):]
			trips = append(trips, len(aboard))
		}
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				size := rapid.SampledFrom([]int{1, maxBatchBytes / 3, maxBatchBytes, 2 << 20}).Draw(t, "size")
				p := &passenger{write: Write{Op: OpPut, Key: "k", Value: strings.Repeat("v", size)}}
				goes := len(want) == 0 && mayGo(1)
				if l.join(p) != goes {
					t.Fatalf("one more comes, beside trips with %v, and goes: %t", trips, goes)
				}
				if goes {
					trips = append(trips, 1)
					return
				}
				want = append(want, p)
				depart()
			},
			"leave": func(t *rapid.T) {
				if l.leave(&passenger{}) {
					t.Fatal("a stranger was in the line")
				}
				if len(want) > 0 {
					i := rapid.IntRange(0, len(want)-1).Draw(t, "who")
					if !l.leave(want[i]) {
						t.Fatal("who waits was not in the line")
					}
					want = append(want[:i:i], want[i+1:]...)
				}
			},
			"land": func(t *rapid.T) {
				if len(trips) == 0 {
					return
				}
				i := rapid.IntRange(0, len(trips)-1).Draw(t, "which")
				writes := trips[i]
				if rapid.Bool().Draw(t, "waits for who comes back") {
					writes += l.expect()
				}
				l.giveBack(writes)
				trips = slices.Delete(trips, i, i+1)
				depart()
			},
			"": func(t *rapid.T) {
				if l.places != len(trips) || l.underWay != underWay() || len(l.waiting) != len(want) {
					t.Fatalf("%d places, %d under way, %d wait; want trips with %v, and %d", l.places, l.underWay, len(l.waiting), trips, len(want))
				}
				if len(want) > 0 && len(trips) == 0 {
					t.Fatal("somebody waits and nobody is under way")
				}
			},
		})
	})
}

// station is a cluster whose requests are held until the test lets them go.
type station struct {
	*fakeCluster
	mu   sync.Mutex
	held []chan func(operation) attempt
	ops  []operation
}

// try holds every request but registrations.
func (s *station) try(ctx context.Context, _ string, op operation) attempt {
	if op.path == api.PathSession || op.path == api.PathSessionClose || op.path == api.PathStatus {
		return s.fakeCluster.try(op)
	}
	answer := make(chan func(operation) attempt, 1)
	s.mu.Lock()
	s.held = append(s.held, answer)
	s.ops = append(s.ops, op)
	s.mu.Unlock()
	select {
	case do := <-answer:
		return do(op)
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held = slices.DeleteFunc(s.held, func(a chan func(operation) attempt) bool { return a == answer })
		return lost()
	}
}

// letGo answers the oldest request that is held.
func (s *station) letGo(do func(operation) attempt) {
	synctest.Wait()
	s.mu.Lock()
	answer := s.held[0]
	s.held = s.held[1:]
	s.mu.Unlock()
	answer <- do
	synctest.Wait()
}

func (s *station) serves(op operation) attempt { return s.fakeCluster.try(op) }

// holds reports whether a request is held.
func (s *station) holds() bool {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held) > 0
}

// paths are the paths of all requests so far.
func (s *station) paths() (paths []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, op := range s.ops {
		paths = append(paths, op.path)
	}
	return paths
}

// atStation runs a test with a client that has its session already.
func atStation(t *testing.T, test func(t *testing.T, s *station, c *KVClient)) {
	synctest.Test(t, func(t *testing.T) {
		s := &station{fakeCluster: newFakeCluster()}
		c := scripted(t, s.try)
		_, err := c.currentSession(t.Context())
		require.NoError(t, err)
		test(t, s, c)
	})
}

// calls starts n appends of "<from>;" and so on, each when the one before waits or
// has gone, and returns where their ends will be.
func calls(ctx context.Context, c *KVClient, from, n int) []*ending {
	ends := make([]*ending, n)
	for i := range ends {
		e := &ending{}
		ends[i] = e
		go func() {
			e.result, e.err = c.Append(ctx, "k", fmt.Sprintf("%d;", from+i))
			e.over = true
		}()
		synctest.Wait()
	}
	return ends
}

type ending struct {
	over   bool
	result WriteResult
	err    error
}

func TestCallsTravelTogether(t *testing.T) {
	atStation(t, func(t *testing.T, s *station, c *KVClient) {
		began := time.Now()
		ends := calls(t.Context(), c, 0, 100)
		require.Equal(t, []string{api.PathAppend, api.PathBatch}, s.paths(), "the first goes at once, and the next two, who are more")
		s.letGo(s.serves)
		require.Equal(t, []string{api.PathAppend, api.PathBatch, api.PathBatch}, s.paths())
		require.True(t, ends[0].over)
		s.letGo(s.serves)
		s.letGo(s.serves)
		want := ""
		for i, e := range ends {
			require.True(t, e.over)
			require.NoError(t, e.err)
			require.Equal(t, want, e.result.PrevValue, "each has its own answer, and nobody overtakes")
			want += fmt.Sprintf("%d;", i)
		}
		require.Len(t, s.paths(), 3)
		require.Equal(t, began, time.Now())
		require.Equal(t, uint64(100), c.session.numbers.AckedThrough())

		ends = calls(t.Context(), c, 100, 1)
		require.Equal(t, api.PathAppend, s.paths()[3], "a lone call goes alone, and at once")
		s.letGo(s.serves)
		require.NoError(t, ends[0].err)
	})
}

// Those who get their answers together and come back at once go together again: no
// trip leaves with a few of them.
func TestCallersComeBackTogether(t *testing.T) {
	const callers, rounds = 100, 50
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster()
		var requests atomic.Int64
		c := scripted(t, func(_ context.Context, _ string, op operation) attempt {
			requests.Add(1)
			<-time.After(time.Millisecond) // of virtual time
			return f.try(op)
		})
		var running sync.WaitGroup
		for range callers {
			running.Go(func() {
				for range rounds {
					_, err := c.Append(t.Context(), "k", "v")
					require.NoError(t, err)
				}
			})
		}
		running.Wait()
		require.Less(t, requests.Load(), int64(2*rounds))
	})
}

// Large values are no reason for large requests, and no reason to wait either: each
// trip takes what fits.
func TestBatchesAreBounded(t *testing.T) {
	atStation(t, func(t *testing.T, s *station, c *KVClient) {
		var running sync.WaitGroup
		for range 1 + 2 + 8 {
			running.Go(func() {
				_, err := c.Put(t.Context(), "k", strings.Repeat("v", maxBatchBytes/4))
				require.NoError(t, err)
			})
			synctest.Wait()
		}
		s.letGo(s.serves)
		s.letGo(s.serves)
		require.Len(t, s.paths(), 2+2, "two trips side by side")
		for range 3 {
			s.letGo(s.serves)
		}
		running.Wait()
		require.Len(t, s.paths(), 2+3)
		for _, op := range s.ops {
			require.Less(t, len(op.body), 2*maxBatchBytes)
		}
	})
}

// Who gives up while it waits has sent nothing and has had no number.
func TestGivingUpInTheLine(t *testing.T) {
	atStation(t, func(t *testing.T, s *station, c *KVClient) {
		first := calls(t.Context(), c, 0, 3)
		ctx, cancel := context.WithCancel(t.Context())
		gone := calls(ctx, c, 3, 1)
		stays := calls(t.Context(), c, 4, 1)
		cancel()
		synctest.Wait()
		require.ErrorIs(t, gone[0].err, context.Canceled)
		require.ErrorContains(t, gone[0].err, "not sent")
		requireNotUnknown(t, gone[0].err)
		for range 3 {
			s.letGo(s.serves)
		}
		require.NoError(t, first[0].err)
		require.NoError(t, stays[0].err)
		require.Equal(t, "0;1;2;4;", s.value("k"))
		require.Equal(t, uint64(4), c.session.numbers.AckedThrough())
	})
}

func requireNotUnknown(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	var unknown *UnknownError
	require.NotErrorAs(t, err, &unknown)
}

// Who gives up while its batch is under way is told that nobody knows, with the
// identity to find out; the others get their answers.
func TestGivingUpUnderWay(t *testing.T) {
	atStation(t, func(t *testing.T, s *station, c *KVClient) {
		calls(t.Context(), c, 0, 1)
		ctx, cancel := context.WithCancel(t.Context())
		stays := calls(t.Context(), c, 1, 1)
		gone := calls(ctx, c, 2, 1) // and the batch goes
		cancel()
		synctest.Wait()
		var unknown *UnknownError
		require.ErrorAs(t, gone[0].err, &unknown)
		require.ErrorIs(t, gone[0].err, context.Canceled)
		s.letGo(s.serves)
		s.letGo(s.serves)
		require.NoError(t, stays[0].err)
		require.Equal(t, "0;1;2;", s.value("k"))
		require.Zero(t, c.session.numbers.Open())

		resumed := &ending{}
		go func() {
			resumed.result, resumed.err = c.Resume(t.Context(), Identity{ClientID: unknown.ClientID, RequestID: unknown.RequestID}, Write{Op: OpAppend, Key: "k", Value: "2;"})
		}()
		s.letGo(s.serves)
		require.NoError(t, resumed.err)
		require.True(t, resumed.result.Duplicate)
		require.Equal(t, "0;1;", resumed.result.PrevValue)
	})
}

// Every attempt was refused, so who gives up between two of them was not applied;
// and the next attempt goes without it.
func TestGivingUpBetweenAttempts(t *testing.T) {
	for _, before := range []attempt{refuse(api.StatusBusy), lost()} {
		t.Run(string(before.outcome), func(t *testing.T) {
			atStation(t, func(t *testing.T, s *station, c *KVClient) {
				calls(t.Context(), c, 0, 3)
				ctx, cancel := context.WithCancel(t.Context())
				stays := calls(t.Context(), c, 3, 2)
				gone := calls(ctx, c, 5, 1)
				s.letGo(s.serves)
				s.letGo(s.serves)
				for range 3 { // every endpoint says no, then the trip pauses
					s.letGo(func(operation) attempt { return before })
				}
				cancel()
				synctest.Wait()
				var unknown *UnknownError
				require.Equal(t, before.outcome == api.OutcomeUnknown, errors.As(gone[0].err, &unknown), "%v", gone[0].err)
				require.ErrorContains(t, gone[0].err, before.err.Error(), "the error tells what the servers said")
				<-time.After(time.Second) // of virtual time
				s.letGo(s.serves)
				require.NoError(t, stays[0].err)
				require.NoError(t, stays[1].err)
				require.Equal(t, "0;1;2;3;4;", s.value("k"))
				require.Zero(t, c.session.numbers.Open())
			})
		})
	}
}

// Who gives up when the answer is there, but not yet read, gets it. To say "not
// applied" then would be a lie.
func TestGivingUpWhileTheAnswerIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster()
		c := scripted(t, func(_ context.Context, _ string, op operation) attempt { return f.try(op) })
		s, err := c.currentSession(t.Context())
		require.NoError(t, err)
		ps := []*passenger{{write: Write{Op: OpAppend, Key: "k", Value: "a"}}, {write: Write{Op: OpAppend, Key: "k", Value: "b"}}}
		s.line.places = maxTrips
		s.join(ps[0])
		s.join(ps[1])
		trip := s.board(t.Context(), func() {})
		a := f.try(together(trip.depart()))
		trip.arrive(a)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		waited := false
		go func() {
			require.NoError(t, c.wait(ctx, s, ps[1]))
			waited = true
		}()
		synctest.Wait()
		require.False(t, waited)
		trip.land(a.answer, a.err)
		synctest.Wait()
		require.True(t, waited)
		result, err := ps[1].write.conclude(ps[1].id, ps[1].result.answer, ps[1].result.err, &ps[1].call)
		require.NoError(t, err)
		require.Equal(t, "a", result.PrevValue)
		require.Zero(t, s.numbers.Open())
	})
}

// Who gives up when it has its number, before anything was sent, was not applied;
// and with the last one the trip is off.
func TestGivingUpBeforeDeparture(t *testing.T) {
	atStation(t, func(t *testing.T, station *station, c *KVClient) {
		s := c.session
		p := &passenger{write: Write{Op: OpPut, Key: "k"}}
		s.line.places = maxTrips
		s.join(p)
		ctx, cancel := context.WithCancel(t.Context())
		trip := s.board(ctx, cancel)
		require.NoError(t, c.wait(ctxThatIsOver(t), s, p))
		_, err := p.write.conclude(p.id, p.result.answer, p.result.err, &p.call)
		require.ErrorIs(t, err, context.Canceled)
		requireNotUnknown(t, err)
		c.travel(ctx, trip)
		require.Empty(t, station.paths())
		require.Zero(t, s.numbers.Open())
	})
}

func ctxThatIsOver(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// All who were aboard have given up: the trip ends, nothing more is sent.
func TestTripWithoutPassengersEnds(t *testing.T) {
	atStation(t, func(t *testing.T, s *station, c *KVClient) {
		calls(t.Context(), c, 0, 3)
		ctx, cancel := context.WithCancel(t.Context())
		gone := calls(ctx, c, 3, 2)
		s.letGo(s.serves)
		s.letGo(s.serves)
		require.Len(t, s.paths(), 3)
		cancel()
		<-time.After(time.Minute) // of virtual time
		require.False(t, s.holds())
		require.True(t, gone[0].over && gone[1].over)
		require.Len(t, s.paths(), 3)
		require.Zero(t, c.session.line.places)
	})
}

// A server hangs. Those whose requests are there wait for it; the others go on as
// soon as that is plain.
func TestHangingTripKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster()
		hanging := 0
		var mu sync.Mutex
		c := scripted(t, func(ctx context.Context, _ string, op operation) attempt {
			mu.Lock()
			hangs := op.path != api.PathSession && hanging < maxTrips
			if hangs {
				hanging++
			}
			mu.Unlock()
			if hangs {
				<-ctx.Done()
				return lost()
			}
			return f.try(op)
		})
		began := time.Now()
		ends := calls(t.Context(), c, 0, 50)
		<-time.After(firstPatience)
		synctest.Wait()
		for i, e := range ends {
			require.True(t, e.over, "call %d", i)
			require.NoError(t, e.err)
		}
		require.Equal(t, firstPatience, time.Since(began))
	})
}

// One write that a server refuses takes no other along, whether the client can see
// that it is odd or only the server can; and every write keeps its identity.
func TestOneBadWriteHarmsNoOther(t *testing.T) {
	for name, odd := range map[string]Write{
		"no key":        {Op: OpPut},
		"too large":     {Op: OpPut, Key: "odd", Value: strings.Repeat("v", 2<<20)},
		"to the server": {Op: OpPut, Key: "refused by this server", Value: "v"},
	} {
		t.Run(name, func(t *testing.T) {
			atStation(t, func(t *testing.T, s *station, c *KVClient) {
				serves := func(op operation) attempt {
					if strings.Contains(string(op.body), "refused by this server") {
						return refuse(api.StatusTooLarge)
					}
					return s.serves(op)
				}
				ends := calls(t.Context(), c, 0, 5)
				bad := &ending{}
				go func() { bad.result, bad.err = c.Put(t.Context(), odd.Key, odd.Value) }()
				synctest.Wait()
				ends = append(ends, calls(t.Context(), c, 5, 3)...)
				for s.holds() {
					s.letGo(serves)
				}
				var refused *StatusError
				require.ErrorAs(t, bad.err, &refused)
				requireNotUnknown(t, bad.err)
				for _, e := range ends {
					require.NoError(t, e.err)
				}
				require.Len(t, s.value("k"), len("0;")*8)
				require.Equal(t, uint64(9), c.session.numbers.AckedThrough())
			})
		})
	}
}

// The server has carried out some of a batch and sends the others away: they come
// back alone, as the same writes.
func TestPartOfABatchGoesOnAlone(t *testing.T) {
	atStation(t, func(t *testing.T, s *station, c *KVClient) {
		ends := calls(t.Context(), c, 0, 7)
		s.letGo(s.serves)
		s.letGo(s.serves)
		s.letGo(func(op operation) attempt {
			a := s.serves(op)
			results := a.answer.(*api.BatchResponse).Results
			results[1], _ = api.Encode(&api.ErrorResponse{RespStatus: api.StatusBusy, Outcome: api.OutcomeUnknown})
			results[2] = []byte(`{"RespStatus":"Nonsense"}`)
			a.answer.(*api.BatchResponse).Results = results[:3] // and lacks one
			return a
		})
		for s.holds() {
			s.letGo(s.serves)
		}
		for i, e := range ends {
			require.NoError(t, e.err)
			require.Equal(t, i > 3, e.result.Duplicate, "call %d", i)
		}
		require.Equal(t, "0;1;2;3;4;5;6;", s.value("k"))
		require.Zero(t, c.session.numbers.Open())
	})
}

// The first answer is lost and for a minute the server has no time: the write asks
// again as itself, however often it is sent away.
func TestBusyAfterALostAnswer(t *testing.T) {
	for n, name := range map[int]string{1: "alone", 5: "together"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeCluster()
				began := time.Now()
				var mu sync.Mutex
				known := map[string]bool{}
				c := scripted(t, func(_ context.Context, _ string, op operation) attempt {
					if op.path == api.PathSession {
						return f.try(op)
					}
					mu.Lock()
					defer mu.Unlock()
					if !known[string(op.body)] {
						known[string(op.body)] = true
						f.try(op)
						return lost()
					}
					if time.Since(began) < time.Minute {
						return refuse(api.StatusBusy)
					}
					return f.try(op)
				})
				_, err := c.currentSession(t.Context())
				require.NoError(t, err)
				ends := calls(t.Context(), c, 0, n)
				<-time.After(2 * time.Minute) // of virtual time
				synctest.Wait()
				for i, e := range ends {
					require.True(t, e.over)
					require.NoError(t, e.err)
					require.True(t, e.result.Duplicate, "call %d", i)
				}
				require.Equal(t, joined(n), strings.ReplaceAll(f.value("k"), ";", ","))
			})
		})
	}
}

// The session is gone. All who are refused for it register once, and come again.
func TestExpiredSessionOfABatch(t *testing.T) {
	atStation(t, func(t *testing.T, s *station, c *KVClient) {
		ends := calls(t.Context(), c, 0, 20)
		s.fakeCluster.mu.Lock()
		clear(s.sessions)
		s.fakeCluster.mu.Unlock()
		for s.holds() {
			s.letGo(s.serves)
		}
		for _, e := range ends {
			require.NoError(t, e.err)
		}
		require.Equal(t, 2, s.count(api.PathSession))
		for i := range ends {
			require.Equal(t, 1, strings.Count(";"+s.value("k"), fmt.Sprintf(";%d;", i)))
		}
	})
}

func TestCloseEndsATrip(t *testing.T) {
	atStation(t, func(t *testing.T, s *station, c *KVClient) {
		ends := calls(t.Context(), c, 0, 6)
		s.letGo(s.serves) // 3 to 5 go
		ends = append(ends, calls(t.Context(), c, 6, 1)...)
		require.NoError(t, c.Close())
		synctest.Wait()
		require.NoError(t, ends[0].err)
		var unknown *UnknownError
		for _, e := range ends[1:6] {
			require.ErrorAs(t, e.err, &unknown)
			require.ErrorIs(t, e.err, ErrClosed)
		}
		require.ErrorIs(t, ends[6].err, ErrClosed)
		requireNotUnknown(t, ends[6].err)
	})
}

// Forty goroutines share a client. Requests are lost on the way there and on the
// way back, held up, refused in every way, whole or in part; copies come long after
// their call has ended; sessions stay; callers lose patience at any moment. What
// each was told fits what happened, to the end: applied is once, not applied is
// never, unknown is at most once. A refusal speaks of the copy that it answers, as
// docs/sessions.md says: a write that was doubled and then refused is as good as unknown.
func TestCoalescedCallsAreNotLiedTo(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			n := &badNetwork{fakeCluster: newFakeCluster(), chance: rand.New(rand.NewPCG(seed, 8)), tokens: map[string]bool{}, copying: 4}
			if n.refusing = seed%3 == 0; n.refusing {
				n.copying = 40 // because there are ten times as many attempts
			}
			c := New([]string{"a", "b", "c"})
			c.try = n.try
			var mu sync.Mutex
			told := map[string]string{}
			before := map[string]string{}
			var running sync.WaitGroup
			for i := range 40 {
				chance := rand.New(rand.NewPCG(seed, uint64(100+i)))
				running.Go(func() {
					for j := range 10 {
						token := fmt.Sprintf("<%d.%d>", i, j)
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(chance.IntN(4000))*time.Millisecond)
						r, err := c.Append(ctx, "k", token)
						cancel()
						mu.Lock()
						var unknown *UnknownError
						switch {
						case err == nil:
							told[token], before[token] = "applied", r.PrevValue
						case errors.As(err, &unknown):
							told[token] = "unknown"
						default:
							told[token] = "not applied"
						}
						mu.Unlock()
						if chance.IntN(2) == 0 {
							<-time.After(time.Duration(chance.IntN(50)) * time.Millisecond)
						}
					}
				})
			}
			running.Wait()
			synctest.Wait()
			require.Zero(t, c.session.numbers.Open())
			require.Zero(t, c.session.line.places)
			require.NoError(t, c.Close())
			n.deliverAll()
			value := n.value("k")
			for token, outcome := range told {
				if outcome == "not applied" {
					switch doubled, sent := n.tokens[token]; {
					case doubled:
						outcome = "doubled, and refused"
					case sent:
						outcome = "refused"
					}
				}
				seen[outcome]++
				times := strings.Count(value, token)
				switch outcome {
				case "applied":
					require.Equal(t, 1, times, "seed %d: %s was called applied", seed, token)
					require.True(t, strings.HasPrefix(value, before[token]+token), "seed %d: %s got another's answer", seed, token)
				case "not applied", "refused":
					require.Zero(t, times, "seed %d: %s was called not applied", seed, token)
				default:
					require.LessOrEqual(t, times, 1, "seed %d: %s", seed, token)
				}
			}
			for path, times := range n.requests {
				seen[path] += times
			}
		})
	}
	t.Log(seen)
	for _, what := range []string{"applied", "not applied", "refused", "doubled, and refused", "unknown", api.PathBatch} {
		require.NotZero(t, seen[what], what)
	}
	require.Less(t, seen[api.PathBatch], seen[api.PathAppend]/4, "batches are small")
}

// badNetwork keeps copies of requests and delivers them when it likes.
type badNetwork struct {
	*fakeCluster
	mu       sync.Mutex
	chance   *rand.Rand
	copies   []operation
	tokens   map[string]bool // which were sent; true for those that are in a copy
	copying  int             // one in so many is copied
	refusing bool            // most attempts are refused
}

var tokens = regexp.MustCompile(`<\d+\.\d+>`)

func (n *badNetwork) draw(most int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.chance.IntN(most)
}

func (n *badNetwork) try(ctx context.Context, _ string, op operation) attempt {
	if op.path == api.PathSession || op.path == api.PathSessionClose {
		return n.fakeCluster.try(op)
	}
	wait := func(most time.Duration) bool {
		return sleep(ctx, time.Duration(n.draw(int(most/time.Millisecond)))*time.Millisecond)
	}
	n.mu.Lock()
	doubled := n.chance.IntN(n.copying) == 0
	if doubled {
		n.copies = append(n.copies, op)
	}
	for _, token := range tokens.FindAllString(string(op.body), -1) {
		n.tokens[token] = n.tokens[token] || doubled
	}
	if len(n.copies) > 0 && n.chance.IntN(4) == 0 {
		i := n.chance.IntN(len(n.copies))
		n.fakeCluster.try(n.copies[i])
	}
	n.mu.Unlock()
	if !wait(20 * time.Millisecond) {
		return lost() // it may be under way still
	}
	if n.refusing && n.draw(8) > 0 {
		return refuse(api.StatusBusy)
	}
	switch n.draw(12) {
	case 0:
		return lost()
	case 1:
		n.fakeCluster.try(op)
		return lost()
	case 2:
		n.fakeCluster.try(op)
		if !wait(3 * time.Second) {
			return lost()
		}
		return refuse(api.StatusTimeout)
	case 3:
		return refuse(api.StatusNotLeader)
	case 4:
		return refuse(api.StatusBusy)
	case 5:
		if op.path == api.PathBatch {
			return refuse(api.StatusTooLarge)
		}
	case 6:
		a := n.fakeCluster.try(op)
		if batch, ok := a.answer.(*api.BatchResponse); ok {
			batch.Results[n.draw(len(batch.Results))], _ = api.Encode(&api.ErrorResponse{RespStatus: api.StatusBusy, Outcome: api.OutcomeUnknown})
		}
		return a
	}
	return n.fakeCluster.try(op)
}

// deliverAll delivers every copy that is left.
func (n *badNetwork) deliverAll() {
	for _, op := range n.copies {
		n.fakeCluster.try(op)
	}
}

// BenchmarkSharedPut is what a put costs the program that makes it, with 256 callers
// on a client and without the network.
func BenchmarkSharedPut(b *testing.B) {
	result, _ := api.Encode(&api.PutResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, KeyFound: true, PrevValue: strings.Repeat("p", 100), Version: 123456})
	c := New([]string{"a"})
	c.try = func(_ context.Context, _ string, op operation) attempt {
		answer, data := op.answer(), result
		switch answer.(type) {
		case *api.SessionResponse:
			data = []byte(`{"RespStatus":"OK","Outcome":"applied","ClientID":"ABCDEFGHIJKLMNOPQRSTUVWXYZ"}`)
		case *api.BatchResponse:
			results := make([]jsontext.Value, bytes.Count(op.body, []byte(`"Key":`)))
			for i := range results {
				results[i] = result
			}
			data, _ = api.Encode(&api.BatchResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, Results: results})
		}
		require.NoError(b, api.DecodeResponse(data, answer))
		return judged(answer)
	}
	defer c.Close()
	value := strings.Repeat("v", 100)
	b.SetParallelism(256 / runtime.GOMAXPROCS(0))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
			_, err := c.Put(ctx, "key-000000012345", value)
			cancel()
			require.NoError(b, err)
		}
	})
}
