package kvclient

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/api"
)

// town is a cluster whose servers come and go: the addresses that answer, and
// the members with the configuration that they stand in.
type town struct {
	*fakeCluster
	mu            sync.Mutex
	alive         []string
	members       []string // addresses, as in Member.HTTP
	configuration uint64
	asked         []string // in order
	statuses      int
}

func (w *town) try(_ context.Context, endpoint string, op operation) attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, endpoint)
	if !slices.Contains(w.alive, endpoint) {
		return attempt{outcome: api.OutcomeNotApplied, err: errNoAnswer}
	}
	if op.path == api.PathStatus {
		w.statuses++
		r := &api.StatusResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, Cluster: "c1", ID: 1}
		r.Configuration.Index = w.configuration
		for i, m := range w.members {
			r.Members = append(r.Members, api.Member{ID: uint64(i + 1), HTTP: m})
		}
		a := answered(r)
		a.configuration = w.configuration + 1
		return a
	}
	a := w.fakeCluster.try(op)
	a.configuration = w.configuration + 1
	return a
}

func (w *town) change(configuration uint64, alive, members []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.configuration, w.alive, w.members = configuration, alive, members
}

func urls(addresses ...string) []string {
	var list []string
	for _, a := range addresses {
		list = append(list, normalEndpoint(a))
	}
	return list
}

// given returns a client of w that was given the addresses a, b and c.
func (w *town) given(t *testing.T) *KVClient {
	c := scripted(t, w.try)
	c.seeds = urls("a:1", "b:1", "c:1")
	c.members.endpoints = c.seeds
	return c
}

// Every server is replaced by another, one or all at a time. The client was told
// of the first three only, and is used once between two steps.
func TestClientOutlivesEveryServerItWasGiven(t *testing.T) {
	for name, steps := range map[string][][]string{
		"one at a time": {{"b:1", "c:1", "d:1"}, {"c:1", "d:1", "e:1"}, {"d:1", "e:1", "f:1"}},
		"all at once":   {{"a:1", "b:1", "c:1", "d:1", "e:1", "f:1"}, {"d:1", "e:1", "f:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &town{fakeCluster: newFakeCluster()}
				first := []string{"a:1", "b:1", "c:1"}
				w.change(0, urls(first...), first)
				c := w.given(t)
				use := func() {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					_, err := c.Append(ctx, "k", "x")
					require.NoError(t, err)
					synctest.Wait()
				}
				use()
				before := first
				for i, now := range steps {
					// First both live, then those that have left are gone.
					w.change(uint64(10*(i+1)), append(urls(before...), urls(now...)...), now)
					use()
					w.change(uint64(10*(i+1)), urls(now...), now)
					use()
					before = now
				}
				c.mu.Lock()
				defer c.mu.Unlock()
				require.Equal(t, urls("d:1", "e:1", "f:1"), c.members.endpoints)
				require.Equal(t, urls(first...), c.members.spare)
			})
		})
	}
}

// While nothing changes nobody asks.
func TestMembersAreAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{fakeCluster: newFakeCluster()}
		w.change(7, urls("a:1", "b:1", "c:1"), []string{"a:1", "b:1", "c:1"})
		c := w.given(t)
		for range 20 {
			_, err := c.Get(t.Context(), "k")
			require.NoError(t, err)
			synctest.Wait()
		}
		require.Equal(t, 1, w.statuses)
	})
}

// The servers know themselves under addresses that mean nothing here, as behind
// a port mapping: the client goes on with those it was given, and does not look
// again at every call.
func TestAddressesThatCannotBeReachedAreNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{fakeCluster: newFakeCluster()}
		w.change(7, urls("a:1", "b:1", "c:1"), []string{"172.17.0.2:8080", "172.17.0.3:8080", ""})
		c := w.given(t)
		start := time.Now()
		for time.Since(start) < 10*time.Minute {
			_, err := c.Get(t.Context(), "k")
			require.NoError(t, err)
			require.True(t, sleep(t.Context(), 100*time.Millisecond))
		}
		require.Equal(t, urls("a:1", "b:1", "c:1"), c.members.endpoints)
		require.Less(t, w.statuses, 20, "one look after 1, 2, 4, … 60 s")
	})
}

// Another cluster has moved into an address of ours.
func TestServersOfAnotherClusterAreNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{fakeCluster: newFakeCluster()}
		w.change(7, urls("a:1", "b:1", "c:1", "d:1"), []string{"a:1", "d:1"})
		c := w.given(t)
		c.try = func(ctx context.Context, endpoint string, op operation) attempt {
			a := w.try(ctx, endpoint, op)
			if s, ok := a.answer.(*api.StatusResponse); ok && endpoint == "http://d:1" {
				s.Cluster = "c2"
			}
			return a
		}
		_, err := c.Get(t.Context(), "k")
		require.NoError(t, err)
		synctest.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		require.Equal(t, urls("a:1"), c.members.endpoints)
		require.Equal(t, urls("b:1", "c:1"), c.members.spare, "still asked when a does not answer")
	})
}

// A follower does not know the address of another one; the leader knows all.
func TestTheLeaderKnowsWhomAFollowerLeavesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{fakeCluster: newFakeCluster()}
		w.change(7, urls("a:1", "b:1", "c:1", "d:1"), []string{"a:1", "c:1", "d:1"})
		c := w.given(t)
		c.try = func(ctx context.Context, endpoint string, op operation) attempt {
			a := w.try(ctx, endpoint, op)
			if s, ok := a.answer.(*api.StatusResponse); ok {
				s.LeaderHTTP = "c:1"
				if endpoint == "http://a:1" {
					s.Members[2].HTTP = ""
				}
			}
			return a
		}
		_, err := c.Get(t.Context(), "k")
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, urls("a:1", "c:1", "d:1"), c.Endpoints())
	})
}

// The client could not see that c is a member still, and then a, which it knows
// of, is removed: a says that it does not lead, and knows nobody who does.
func TestWhoWasLeftOutIsAskedIfNobodyElseCanServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{fakeCluster: newFakeCluster()}
		w.change(7, urls("a:1", "b:1", "c:1", "d:1"), []string{"a:1", "b:1", "d:1"})
		c := w.given(t)
		_, err := c.Get(t.Context(), "k")
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, urls("a:1", "b:1", "d:1"), c.Endpoints())

		w.change(8, urls("a:1", "d:1"), []string{"a:1", ""})
		_, err = c.Get(t.Context(), "k")
		require.NoError(t, err)
		require.True(t, sleep(t.Context(), membersPatience))
		require.Equal(t, urls("a:1"), c.Endpoints())

		c.try = func(ctx context.Context, endpoint string, op operation) attempt {
			if endpoint == "http://a:1" {
				return refuse(api.StatusNotLeader)
			}
			return w.try(ctx, endpoint, op)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err = c.Get(ctx, "k")
		require.NoError(t, err)
	})
}
