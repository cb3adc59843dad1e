package kvclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fortytw2/leaktest"
	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"raftkv/api"
)

// serve starts an HTTP server and a client that knows only it; both end with
// the test, and no goroutine may be left then.
func serve(t *testing.T, handler http.HandlerFunc) (*KVClient, *httptest.Server) {
	t.Helper()
	t.Cleanup(leaktest.CheckTimeout(t, 5*time.Second))
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c := New([]string{server.URL})
	t.Cleanup(func() { c.Close() })
	return c, server
}

// cut ends the connection without a word.
func cut(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	conn.Close()
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestOperations(t *testing.T) {
	f := newFakeCluster()
	c, _ := serve(t, f.ServeHTTP)
	ctx := within(t, time.Minute)

	put, err := c.Put(ctx, "k", "a")
	require.NoError(t, err)
	require.Equal(t, WriteResult{Version: 1}, put)
	put, err = c.Put(ctx, "k", "b")
	require.NoError(t, err)
	require.Equal(t, WriteResult{KeyFound: true, PrevValue: "a", Version: 2}, put)
	appended, err := c.Append(ctx, "k", "c")
	require.NoError(t, err)
	require.Equal(t, WriteResult{KeyFound: true, PrevValue: "b", Version: 3}, appended)
	cas, err := c.CAS(ctx, "k", "x", "y")
	require.NoError(t, err)
	require.Equal(t, WriteResult{KeyFound: true, PrevValue: "bc", Version: 3}, cas)
	cas, err = c.CAS(ctx, "k", "bc", "y")
	require.NoError(t, err)
	require.Equal(t, WriteResult{KeyFound: true, PrevValue: "bc", Swapped: true, Version: 4}, cas)
	get, err := c.Get(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, GetResult{KeyFound: true, Value: "y", Version: 4}, get)
	deleted, err := c.Delete(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, WriteResult{KeyFound: true, PrevValue: "y"}, deleted)
	get, err = c.Get(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, GetResult{}, get)
	cluster, err := c.ClusterID(ctx)
	require.NoError(t, err)
	require.Equal(t, "00000000000000c1", cluster)
	require.Equal(t, 1, f.count(api.PathSession))
}

// Whatever a server sends that is no answer leaves the attempt unknown: the
// write is repeated under its identity, and takes effect once.
func TestAnswersThatMakeNoSense(t *testing.T) {
	say := func(code int, contentType, body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(code)
			io.WriteString(w, body)
		}
	}
	const json = "application/json"
	for name, answer := range map[string]func(http.ResponseWriter){
		"nothing, connection cut": cut,
		"empty":                   say(200, json, ""),
		"empty object":            say(200, json, "{}"),
		"null":                    say(200, json, "null"),
		"a page":                  say(200, "text/html", "<html>hello</html>"),
		"bad gateway":             say(502, "text/html", "<html>502</html>"),
		"internal error":          say(500, json, `{"error":"oops"}`),
		"too many requests":       say(429, "text/plain", "slow down"),
		"redirect":                say(307, json, ""),
		"unknown status":          say(200, json, `{"RespStatus":"Splendid","Outcome":"applied"}`),
		"unknown outcome":         say(200, json, `{"RespStatus":"OK","Outcome":"perhaps"}`),
		"no outcome":              say(200, json, `{"RespStatus":"OK","KeyFound":true}`),
		"OK, not applied":         say(200, json, `{"RespStatus":"OK","Outcome":"not_applied"}`),
		"refused, applied":        say(400, json, `{"RespStatus":"BadRequest","Outcome":"applied"}`),
		"refusal with code 200":   say(200, json, `{"RespStatus":"NotLeader","Outcome":"not_applied"}`),
		"OK with code 500":        say(500, json, `{"RespStatus":"OK","Outcome":"applied"}`),
		"two answers":             say(200, json, `{"RespStatus":"OK","Outcome":"applied"}{"RespStatus":"OK","Outcome":"applied"}`),
		"a field twice":           say(200, json, `{"RespStatus":"OK","Outcome":"applied","KeyFound":true,"KeyFound":false}`),
		"half an answer": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, `{"RespStatus":"OK","Outcome":"applied","KeyFo`)
		},
	} {
		for _, path := range []string{api.PathSession, api.PathAppend, api.PathGet} {
			t.Run(name+path, func(t *testing.T) {
				f := newFakeCluster()
				var once sync.Once
				c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
					body, err := io.ReadAll(r.Body)
					if err != nil {
						return
					}
					answered := f.serve(r.URL.Path, body)
					garbage := false
					if r.URL.Path == path {
						once.Do(func() { garbage = true })
					}
					if garbage {
						answer(w)
						return
					}
					writeAnswer(w, answered)
				})
				ctx := within(t, time.Minute)
				first, err := c.Append(ctx, "k", "a")
				require.NoError(t, err)
				require.Equal(t, path == api.PathAppend, first.Duplicate)
				require.Zero(t, first.PrevValue)
				got, err := c.Get(ctx, "k")
				require.NoError(t, err)
				require.Equal(t, "a", got.Value)
				require.Equal(t, map[string]int{api.PathSession: 1, api.PathAppend: 1, api.PathGet: 1, path: 2}, f.requests)
			})
		}
	}
}

// The first answer is a refusal with stray fields; the second lacks them. The
// result must not keep anything of the first.
func TestEachAttemptHasItsOwnAnswer(t *testing.T) {
	attempts := 0
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == api.PathSession {
			io.WriteString(w, `{"RespStatus":"OK","Outcome":"applied","ClientID":"s-1"}`)
			return
		}
		if attempts++; attempts == 1 {
			w.WriteHeader(503)
			io.WriteString(w, `{"RespStatus":"NotLeader","Outcome":"not_applied","KeyFound":true,"PrevValue":"stray","Version":9,"Duplicate":true}`)
			return
		}
		io.WriteString(w, `{"RespStatus":"OK","Outcome":"applied"}`)
	})
	result, err := c.Put(within(t, time.Minute), "k", "v")
	require.NoError(t, err)
	require.Equal(t, WriteResult{}, result)
	require.Equal(t, 2, attempts)
}

// An endpoint that is dead, one that hangs and one that talks nonsense stand in
// the list before, between and behind a good one.
func TestOneGoodEndpointIsEnough(t *testing.T) {
	f := newFakeCluster()
	good := httptest.NewServer(f)
	defer good.Close()
	nonsense := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") }))
	defer nonsense.Close()
	hanging, stop := hangingServer(t)
	defer stop()
	dead := deadAddress(t)

	all := []string{good.URL, nonsense.URL, hanging, dead}
	want := ""
	for i := range all {
		endpoints := append(append([]string{}, all[i:]...), all[:i]...)
		c := New(endpoints)
		_, err := c.Append(within(t, time.Minute), "k", "x")
		require.NoError(t, err, "order %v", endpoints)
		want += "x"
		require.NoError(t, c.Close())
	}
	require.Equal(t, want, f.value("k"))
}

// A follower serves, and says who leads: the next request goes there. If the leader
// can be reached by its followers only, that costs one attempt now and then, not one
// in each call.
func TestDetourIsSaved(t *testing.T) {
	f := newFakeCluster()
	leader := httptest.NewServer(f)
	defer leader.Close()
	for name, where := range map[string]string{"leader": leader.URL, "out of reach": "http://" + deadAddress(t)} {
		t.Run(name, func(t *testing.T) {
			served := 0
			follower := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				served++
				w.Header().Set(api.HeaderLeader, strings.TrimPrefix(where, "http://"))
				f.ServeHTTP(w, r)
			}))
			defer follower.Close()
			c := New([]string{follower.URL, where})
			defer c.Close()
			asked := 0
			c.try = func(ctx context.Context, endpoint string, op operation) attempt {
				if endpoint == where {
					asked++
				}
				return c.exchange(ctx, endpoint, op)
			}
			for range 10 {
				_, err := c.Get(within(t, time.Minute), "k")
				require.NoError(t, err)
			}
			if where == leader.URL {
				require.Equal(t, 9, asked)
				require.Equal(t, 1, served)
			} else {
				require.Equal(t, 1, asked)
				require.Equal(t, 10, served)
			}
		})
	}
}

// hangingServer accepts connections and never answers.
func hangingServer(t *testing.T) (address string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				io.Copy(io.Discard, conn) // until the client gives up
				conn.Close()
			})
		}
	})
	return l.Addr().String(), func() {
		l.Close()
		wg.Wait()
	}
}

// deadAddress returns an address where nobody listens.
func deadAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// Nothing was ever sent, so the write was not applied.
func TestUnreachableIsNotApplied(t *testing.T) {
	defer leaktest.Check(t)()
	c := New([]string{deadAddress(t), deadAddress(t)})
	defer c.Close()
	_, err := c.Send(within(t, 200*time.Millisecond), Identity{ClientID: "s-1", RequestID: 1}, Write{Op: OpPut, Key: "k", Value: "v"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var unknown *UnknownError
	require.False(t, errors.As(err, &unknown), "%v", err)
}

// A request went to a server that never answered: unknown, although all the
// other endpoints are dead.
func TestHangingIsUnknown(t *testing.T) {
	defer leaktest.Check(t)()
	hanging, stop := hangingServer(t)
	defer stop()
	c := New([]string{deadAddress(t), hanging})
	defer c.Close()
	_, err := c.Send(within(t, 200*time.Millisecond), Identity{ClientID: "s-1", RequestID: 7}, Write{Op: OpPut, Key: "k", Value: "v"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var unknown *UnknownError
	require.ErrorAs(t, err, &unknown)
	require.Equal(t, uint64(7), unknown.RequestID)
}

// The server cuts connections at random moments, before and after it has
// carried out the request: 64 goroutines on one client see no error, and every
// append is there once.
func TestSharedClientOverBreakingConnections(t *testing.T) {
	f := newFakeCluster()
	var mu sync.Mutex
	chance := rand.New(rand.NewPCG(1, 2))
	draw := func() int {
		mu.Lock()
		defer mu.Unlock()
		return chance.IntN(10)
	}
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		switch draw() {
		case 0:
			cut(w)
			return
		case 1:
			f.serve(r.URL.Path, body)
			cut(w)
			return
		case 2:
			w.Header().Set("Connection", "close")
		}
		writeAnswer(w, f.serve(r.URL.Path, body))
	})
	const writers, each = 64, 10
	ctx := within(t, time.Minute)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for j := range each {
				if _, err := c.Append(ctx, fmt.Sprintf("k%d", i%4), fmt.Sprintf("<%d.%d>", i, j)); err != nil {
					t.Errorf("append %d.%d: %v", i, j, err)
				}
			}
		})
	}
	wg.Wait()
	all := f.value("k0") + f.value("k1") + f.value("k2") + f.value("k3")
	for i := range writers {
		for j := range each {
			require.Equal(t, 1, strings.Count(all, fmt.Sprintf("<%d.%d>", i, j)), "append %d.%d", i, j)
		}
	}
	require.Len(t, f.used, 1, "one session is used")
}

// Calls are cancelled at random moments against a server that loses answers.
// What the caller is told must fit what happened, also later.
func TestCancelAtRandomTimes(t *testing.T) {
	f := newFakeCluster()
	var lose atomic.Uint32
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == api.PathAppend && lose.Add(1)%3 == 0 {
			if body, err := io.ReadAll(r.Body); err == nil {
				f.serve(r.URL.Path, body)
			}
			cut(w)
			return
		}
		f.ServeHTTP(w, r)
	})
	const writers, each = 16, 40
	told := make([][]string, writers)
	var wg sync.WaitGroup
	for i := range writers {
		chance := rand.New(rand.NewPCG(uint64(i), 7))
		wg.Go(func() {
			for j := range each {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(chance.IntN(3000))*time.Microsecond)
				_, err := c.Append(ctx, fmt.Sprintf("k%d", i), fmt.Sprintf("<%d>", j))
				cancel()
				var unknown *UnknownError
				switch {
				case err == nil:
					told[i] = append(told[i], "applied")
				case errors.As(err, &unknown):
					told[i] = append(told[i], "unknown")
				default:
					told[i] = append(told[i], "not applied")
				}
			}
		})
	}
	wg.Wait()
	_, err := c.Put(within(t, time.Minute), "end", "")
	require.NoError(t, err, "the client is as good as before")
	seen := map[string]int{}
	for i := range writers {
		value := f.value(fmt.Sprintf("k%d", i))
		for j, outcome := range told[i] {
			seen[outcome]++
			n := strings.Count(value, fmt.Sprintf("<%d>", j))
			switch outcome {
			case "applied":
				require.Equal(t, 1, n, "writer %d, append %d was called applied", i, j)
			case "not applied":
				require.Zero(t, n, "writer %d, append %d was called not applied", i, j)
			default:
				require.LessOrEqual(t, n, 1)
			}
		}
	}
	t.Log(seen)
	require.NotZero(t, seen["applied"])
	require.NotZero(t, seen["unknown"])
	require.Zero(t, c.session.numbers.Open())
}

// Thousands of attempts that fail in every way leave no connection behind.
func TestConnectionsDoNotPileUp(t *testing.T) {
	var open, most atomic.Int64
	f := newFakeCluster()
	var n atomic.Uint32
	t.Cleanup(leaktest.CheckTimeout(t, 5*time.Second))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) % 4 {
		case 0:
			cut(w)
		case 1:
			w.WriteHeader(500)
			io.WriteString(w, strings.Repeat("x", 10000))
		case 2:
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done() // hangs until the client gives up
		default:
			f.ServeHTTP(w, r)
		}
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			most.Store(max(most.Load(), open.Add(1)))
		case http.StateClosed, http.StateHijacked:
			open.Add(-1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	c := New([]string{server.URL})
	t.Cleanup(func() { c.Close() })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
				c.Get(ctx, "k")
				cancel()
			}
		})
	}
	wg.Wait()
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { return open.Load() == 0 }, 5*time.Second, time.Millisecond)
	require.Less(t, most.Load(), int64(100), "8 callers at a time")
}

// Any bytes as an answer: no panic, and no success that the bytes do not state.
func FuzzAnswer(f *testing.F) {
	f.Add(200, []byte(`{"RespStatus":"OK","Outcome":"applied","KeyFound":true,"PrevValue":"a","Version":3}`))
	f.Add(503, []byte(`{"RespStatus":"NotLeader","Outcome":"not_applied","LeaderHTTP":"127.0.0.1:8081"}`))
	f.Add(504, []byte(`{"RespStatus":"Timeout","Outcome":"unknown","Error":"x"}`))
	f.Add(200, []byte(`{}`))
	f.Add(200, []byte(`{"RespStatus":"DuplicateRequest","Outcome":"applied"}`))
	f.Add(502, []byte(`<html>`))
	f.Fuzz(func(t *testing.T, code int, body []byte) {
		c := New([]string{"a"})
		defer c.Close()
		c.http.Transport = roundTrip(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(string(body)))}, nil
		})
		a := c.exchange(t.Context(), "http://a", operation{method: "POST", path: "/put", answer: func() api.Response { return new(api.PutResponse) }})
		if a.answer == nil && a.err == nil {
			t.Fatal("neither an answer nor an error")
		}
		if a.outcome == api.OutcomeApplied && (code != 200 || !strings.Contains(string(body), "applied")) {
			t.Fatalf("HTTP %d %q was taken for a success", code, body)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// route against its promise: nobody is asked twice in a round, everyone of the
// list is asked once, hints add a bounded number, and who may have left is asked
// exactly if nobody else has answered.
func TestRouteProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		address := rapid.SampledFrom([]string{"", "http://a:1", "http://b:1", "http://c:1", "http://x:1", "http://y:1", "http://z:1", "http://w:1"})
		endpoints := rapid.SliceOfDistinct(address.Filter(func(s string) bool { return s != "" }), rapid.ID[string]).Draw(t, "endpoints")
		spare := rapid.SliceOfNDistinct(address.Filter(func(s string) bool { return s != "" && !slices.Contains(endpoints, s) }), 0, 1, rapid.ID[string]).Draw(t, "spare")
		var r route
		for range rapid.IntRange(1, 3).Draw(t, "rounds") {
			first := address.Draw(t, "first")
			r.startRound(first, endpoints, spare)
			asked := map[string]bool{}
			hinted := map[string]bool{}
			answered := false
			for {
				endpoint, ok := r.next()
				if !ok {
					break
				}
				if asked[endpoint] {
					t.Fatalf("%s was asked twice in a round", endpoint)
				}
				if len(asked) == 0 && first != "" && endpoint != first {
					t.Fatalf("%s was asked before %s", endpoint, first)
				}
				if slices.Contains(spare, endpoint) && endpoint != first && !hinted[endpoint] && answered {
					t.Fatalf("%s was asked though others have answered", endpoint)
				}
				asked[endpoint] = true
				r.answered = rapid.Bool().Draw(t, "answers") || r.answered
				answered = r.answered
				if answered {
					hint := address.Draw(t, "hint")
					hinted[hint] = true
					r.hint(hint)
				}
			}
			for _, e := range spare {
				if !answered && !asked[e] {
					t.Fatalf("%s was not asked though nobody has answered", e)
				}
			}
			for _, e := range endpoints {
				if !asked[e] {
					t.Fatalf("%s was not asked", e)
				}
			}
			if len(asked) > len(endpoints)+len(spare)+1+maxHints {
				t.Fatalf("%d requests in a round", len(asked))
			}
		}
	})
}

// What a program keeps of a write across a restart is the write.
func TestWriteInJSON(t *testing.T) {
	for _, w := range []Write{
		{Op: OpPut, Key: "k", Value: "v"},
		{Op: OpCAS, Key: "k", Value: "\xff", CompareValue: "text"},
		{Op: OpCAS, Key: "k", Value: "v", ExpectAbsent: true},
		{Op: OpDelete, Key: "k", IfVersion: new(uint64(0))},
		{Op: OpPut, Key: "k", IdempotencyKey: "order-7"},
	} {
		data, err := json.Marshal(w)
		require.NoError(t, err)
		var got Write
		require.NoError(t, json.Unmarshal(data, &got, json.RejectUnknownMembers(true)))
		require.Equal(t, w, got)
	}
	require.Error(t, json.Unmarshal([]byte(`{"Op":"put","Key":"k","Value":"!","Encoding":"base64"}`), new(Write)))
}

// Conditions and bytes reach the server, and a condition that the operation
// cannot have is refused here.
func TestConditionsAndBytes(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == api.PathSession {
			writeAnswer(w, &api.SessionResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, ClientID: "s"})
			return
		}
		got = append(got, string(body))
		writeAnswer(w, api.Refuse(api.StatusConditionFailed, "no"))
	}))
	defer server.Close()
	c := New([]string{server.URL})
	defer c.Close()
	_, err := c.Put(t.Context(), "k", "\x00\xff", IfVersion(7))
	var refused *StatusError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, api.StatusConditionFailed, refused.Status)
	_, err = c.CAS(t.Context(), "k", "", "v", ExpectAbsent())
	require.Error(t, err)
	require.Equal(t, []string{
		`{"Key":"k","Value":"AP8=","ClientID":"s","RequestID":1,"AckedThrough":0,"IfVersion":7,"Encoding":"base64"}`,
		`{"Key":"k","CompareValue":"","Value":"v","ExpectAbsent":true,"ClientID":"s","RequestID":2,"AckedThrough":1}`,
	}, got)
	_, err = c.Put(t.Context(), "k", "v", ExpectAbsent())
	require.ErrorContains(t, err, "no such condition")
	require.Len(t, got, 2)
}

// A write with an Idempotency-Key has no session and goes alone; every attempt says
// the key, in a form that the server reads as it was given.
func TestIdempotencyKey(t *testing.T) {
	const key = `order "7", \ a`
	var mu sync.Mutex
	var got []string
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		parsed, err := api.ParseIdempotencyKey(r.Header.Values(api.HeaderIdempotencyKey))
		got = append(got, fmt.Sprintf("%s %s %s %v", r.URL.Path, body, parsed, err))
		switch len(got) {
		case 1:
			cut(w)
		case 2:
			writeAnswer(w, api.Refuse(api.StatusBusy, ""))
		default:
			writeAnswer(w, &api.PutResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, Version: 3, Duplicate: true})
		}
	})
	result, err := c.Append(within(t, time.Minute), "k", "v", WithIdempotencyKey(key), IfVersion(2))
	require.NoError(t, err)
	require.Equal(t, WriteResult{Version: 3, Duplicate: true}, result)
	want := `/append {"Key":"k","Value":"v","IfVersion":2} ` + key + ` <nil>`
	require.Equal(t, []string{want, want, want}, got)

	// After the first doubt the error says by what to find out.
	ctx, cancel := context.WithCancel(t.Context())
	c.http.Transport = roundTrip(func(*http.Request) (*http.Response, error) {
		cancel()
		return &http.Response{StatusCode: 504, Body: io.NopCloser(strings.NewReader(`{"RespStatus":"Timeout","Outcome":"unknown"}`))}, nil
	})
	_, err = c.Append(ctx, "k", "v", WithIdempotencyKey(key))
	var unknown *UnknownError
	require.ErrorAs(t, err, &unknown)
	require.Equal(t, key, unknown.IdempotencyKey)
	require.ErrorContains(t, err, "may or may not")

	for _, wrong := range []string{strings.Repeat("x", api.MaxIdempotencyKeyBytes+1), "ä", "a\nb"} {
		_, err = c.Put(t.Context(), "k", "v", WithIdempotencyKey(wrong))
		requireNotUnknown(t, err)
		require.ErrorContains(t, err, "Idempotency-Key")
	}
	_, err = c.Send(t.Context(), Identity{ClientID: "s-1", RequestID: 1}, Write{Op: OpPut, Key: "k", IdempotencyKey: key})
	require.ErrorContains(t, err, "not both")
}

func TestScan(t *testing.T) {
	var got string
	c, server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.URL.Path + string(body)
		answer := &api.ScanResponse{
			RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, Next: "b",
			Items: []api.Item{{Key: "a", Value: "\xff", Version: 1}, {Key: "b", Value: "text", Version: 2}},
			Age:   api.Age{AppliedIndex: 7, Stale: true, AgeMillis: new(uint64(3))},
		}
		api.EncodeValues(answer, api.EncodingText)
		writeAnswer(w, answer)
	})
	result, err := c.Scan(t.Context(), Scan{Prefix: "p", After: "q", Limit: 2, Consistency: api.ConsistencyStale})
	require.NoError(t, err)
	require.Equal(t, `/scan{"Prefix":"p","After":"q","Limit":2,"Consistency":"stale"}`, got)
	require.Equal(t, ScanResult{
		Items: []api.Item{{Key: "a", Value: "\xff", Version: 1}, {Key: "b", Value: "text", Version: 2}}, Next: "b",
		AppliedIndex: 7, Server: server.URL, Stale: true, Age: 3 * time.Millisecond, AgeKnown: true,
	}, result)
}
