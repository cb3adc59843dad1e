package kvservice

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	gometrics "runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/api"
)

// flood is an open-loop load of writes, each to a key of its own: a request goes
// out at its time, whatever has become of those before.
type flood struct {
	t       *testing.T
	client  *http.Client
	filler  string
	running sync.WaitGroup

	mu       sync.Mutex
	sent     int
	answers  map[string]int           // by RespStatus; "" if there was none
	outcomes map[api.Outcome][]string // keys
	wrong    []string                 // answers that should not be
}

func newFlood(t *testing.T, valueBytes int) *flood {
	f := &flood{
		t: t,
		// No connection is kept: each request stands for a client of its own.
		client:   &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 15 * time.Second},
		filler:   strings.Repeat("x", valueBytes),
		answers:  map[string]int{},
		outcomes: map[api.Outcome][]string{},
	}
	return f
}

// run sends a number of requests per second to the addresses in turn.
func (f *flood) run(perSecond int, seconds int, addresses ...string) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for f.sent < perSecond*seconds {
		<-tick.C
		for due := int(time.Since(began).Seconds() * float64(perSecond)); f.sent < min(due, perSecond*seconds); f.sent++ {
			n := f.sent
			f.running.Go(func() { f.put(fmt.Sprintf("flood%d", n), addresses[n%len(addresses)]) })
		}
	}
}

// answered returns how many requests were answered so.
func (f *flood) answered(status string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.answers[status]
}

func (f *flood) put(key, address string) {
	body := io.MultiReader(strings.NewReader(`{"Key":"`+key+`","Value":"`+key), strings.NewReader(f.filler), strings.NewReader(`"}`))
	req, err := http.NewRequest(http.MethodPost, "http://"+address+"/put", body)
	if err != nil {
		panic(err)
	}
	req.ContentLength = int64(len(key)*2 + len(f.filler) + len(`{"Key":"","Value":""}`))
	req.Header.Set("Content-Type", "application/json")
	var answer api.PutResponse
	resp, err := f.client.Do(req)
	if err != nil {
		f.t.Log(err)
	} else {
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		err = json.Unmarshal(data, &answer)
		refused := resp.StatusCode == http.StatusServiceUnavailable
		if refused != (answer.Outcome == api.OutcomeNotApplied) || refused != (resp.Header.Get("Retry-After") != "") {
			f.mu.Lock()
			f.wrong = append(f.wrong, fmt.Sprintf("%d: %s", resp.StatusCode, data))
			f.mu.Unlock()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[string(answer.RespStatus)]++
	f.outcomes[answer.Outcome] = append(f.outcomes[answer.Outcome], key)
}

// usage is the most that was in use at once.
type usage struct {
	heap, goroutines, files uint64
}

// watch looks until ctx ends.
func (u *usage) watch(ctx context.Context) {
	samples := []gometrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/sched/goroutines:goroutines"}}
	for tick := time.NewTicker(250 * time.Millisecond); ctx.Err() == nil; <-tick.C {
		runtime.GC() // so that what is live now is known
		gometrics.Read(samples)
		u.heap = max(u.heap, samples[0].Value.Uint64())
		u.goroutines = max(u.goroutines, samples[1].Value.Uint64())
		if files, err := os.ReadDir("/proc/self/fd"); err == nil {
			u.files = max(u.files, uint64(len(files)))
		}
	}
}

func (u usage) String() string {
	return fmt.Sprintf("at most %d MiB live, %d goroutines, %d files", u.heap>>20, u.goroutines, u.files)
}

// watched runs load and returns what was in use meanwhile.
func watched(load func()) usage {
	var u usage
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { u.watch(ctx) })
	load()
	cancel()
	watching.Wait()
	return u
}

// check reads every key: what was acknowledged is there, what was refused is not.
func (f *flood) check(get func(key string) string) {
	f.t.Helper()
	require.Empty(f.t, f.wrong)
	for _, key := range f.outcomes[api.OutcomeApplied] {
		require.Contains(f.t, get(key), `"Value":"`+key, "acknowledged, and lost")
	}
	for _, key := range f.outcomes[api.OutcomeNotApplied] {
		require.Contains(f.t, get(key), `"KeyFound":false`, "said not to be applied, and there")
	}
}

// The disk takes four values of 1 MiB a second, and clients send forty. They are
// told Busy; what the server has taken in it does; and when the load ends it
// serves as if nothing had been.
func TestSystemOverloadWithLargeValues(t *testing.T) {
	l := newLone(t, usualPatience)
	l.disk.nanosPerKiB.Store(int64(250 * time.Microsecond))
	f := newFlood(t, 1<<20-100)
	used := watched(func() { f.run(40, 3, l.nodes[1].HTTPAddr()) })
	l.disk.nanosPerKiB.Store(0)
	f.running.Wait()
	t.Log(used, f.answers)
	require.Greater(t, f.answers["Busy"], 60, "the load was not too much")
	require.NotZero(t, f.answers["OK"])
	require.Zero(t, f.answers[""], "a request was not answered")
	require.Less(t, used.heap, uint64(256<<20))
	l.servesAtOnce()
	f.check(func(key string) string {
		_, body := l.post(1, "/get", `{"Key":"`+key+`"}`)
		return body
	})
}

// The same with small values: the disk hangs, and there are more clients than
// places.
func TestSystemOverloadWithSmallValues(t *testing.T) {
	door := newDoor()
	const places, surplus = 200, 100
	door.requests = make(chan struct{}, places)
	l := newLone(t, usualPatience, door)
	hang := l.disk.hangOn("log-")
	f := newFlood(t, 100)
	used := watched(func() {
		f.run(places+surplus, 1, l.nodes[1].HTTPAddr())
		l.eventually("the surplus is refused", func() bool { return f.answered("Busy") >= surplus })
	})
	l.disk.hang.Store(nil)
	close(hang.over)
	f.running.Wait()
	t.Log(used, f.answers)
	require.Equal(t, surplus, f.answers["Busy"])
	require.Equal(t, places, f.answers["OK"])
	require.Less(t, used.heap, uint64(64<<20))
	l.servesAtOnce()
}

// Three servers, asked in turn: followers pass on what they get, and each has a
// door of its own. The leader stays, for an overload is no reason for an election.
func TestSystemOverloadOfACluster(t *testing.T) {
	disk := &slowDisk{}
	s := newSystemOn(t, disk, 2*time.Second, func() *door { return newDoorWith(2<<20, 2<<20) })
	leader := s.leader()
	s.eventually("it serves", func() bool {
		code, _ := s.post(leader, "/put", `{"Key":"x","Value":"1"}`)
		return code == 200
	})
	term := s.status(leader).Term
	var addresses []string
	for _, n := range s.nodes {
		addresses = append(addresses, n.HTTPAddr())
	}
	disk.nanosPerKiB.Store(int64(500 * time.Microsecond)) // 2 MiB/s, or 32 values
	f := newFlood(t, 64<<10)
	f.run(320, 2, addresses...)
	disk.nanosPerKiB.Store(0)
	f.running.Wait()
	t.Log(f.answers)
	require.Greater(t, f.answers["Busy"], 200, "the load was not too much")
	require.NotZero(t, f.answers["OK"])
	require.Zero(t, f.answers[""], "a request was not answered")
	require.Equal(t, term, s.status(leader).Term, "an overload has cost the leader its office")
	f.check(func(key string) string {
		_, body := s.post(leader, "/get", `{"Key":"`+key+`"}`)
		return body
	})
}

// servesAtOnce shows that nothing of an overload is left.
func (l *lone) servesAtOnce() {
	l.t.Helper()
	began := time.Now()
	code, body := l.post(1, "/put", `{"Key":"after","Value":"1"}`)
	require.Equal(l.t, 200, code, body)
	require.Less(l.t, time.Since(began), time.Second)
	s := l.nodes[1].service
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Zero(l.t, s.waiters.Len())
	require.Zero(l.t, s.door.bodies.used)
	require.Zero(l.t, s.door.answers.used)
}
