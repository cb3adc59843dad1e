package kvclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"raftkv/api"
	"raftkv/kvclient/numbering"
)

// maxConnections bounds the connections to one server. It equals the window,
// so a full window of calls does not wait for one another.
const maxConnections = numbering.Window

// KVClient talks to one cluster. All methods may be called by any number of
// goroutines; each blocks until its call has ended, at the latest when its
// context does. Give every call a context with a deadline: without one a call
// waits for ever for a cluster that does not come back.
type KVClient struct {
	seeds []string // the endpoints given to New
	http  *http.Client

	// try makes one attempt; it is exchange, but for tests of everything around it.
	try func(ctx context.Context, endpoint string, op operation) attempt

	registering chan struct{} // holds a token while a goroutine registers

	life context.Context // ends when Close is called, with ErrClosed
	end  context.CancelCauseFunc

	mu      sync.Mutex
	closed  bool
	calls   sync.WaitGroup // the calls in progress; Add under mu while not closed
	session *session       // nil before the first write
	leader  string         // the endpoint that served last or was named as leader; "" if none
	silent  silent
	through chan struct{} // closed when a call gets through; nil if nobody waits for that
	members membership    // whom to ask
}

// New returns a client that asks the servers at serviceAddrs, which are
// addresses (host:port) or URLs of their HTTP ports. One that works is enough,
// because any server passes requests on to the leader; with all of them the
// client outlives any server. When servers come or go while the client is in
// use, it learns of it; [KVClient.Endpoints] tells whom it asks then. New opens no
// connection.
func New(serviceAddrs []string) *KVClient {
	transport := &http.Transport{
		DialContext:         (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext,
		MaxConnsPerHost:     maxConnections,
		MaxIdleConnsPerHost: maxConnections,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
	}
	c := &KVClient{
		http: &http.Client{
			Transport: transport,
			// A redirected write would be sent by net/http, unseen by the rules here.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		registering: make(chan struct{}, 1),
	}
	for _, address := range serviceAddrs {
		c.seeds = append(c.seeds, normalEndpoint(address))
	}
	c.members.endpoints = c.seeds
	c.try = c.exchange
	c.life, c.end = context.WithCancelCause(context.Background())
	return c
}

// Close ends the calls in progress as if their contexts had ended, with
// [ErrClosed], waits for them, closes the session, so that other clients have its
// room, and the connections. Later calls return ErrClosed. It may be called more
// than once and always returns nil. It takes half a second at most to close the
// session; one that it could not close expires. A session with a write that has
// ended with an [UnknownError] stays open: the write can be resumed.
func (c *KVClient) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end(ErrClosed)
	c.calls.Wait()
	c.closeSession()
	c.http.CloseIdleConnections()
	return nil
}

// begin starts a call: its context ends with the caller's and with the client.
func (c *KVClient) begin(ctx context.Context) (_ context.Context, done func(), err error) {
	if err := c.enter(); err != nil {
		return nil, nil, err
	}
	ctx, unlink := c.link(ctx)
	return ctx, func() {
		unlink()
		c.calls.Done()
	}, nil
}

// enter is begin for a call that minds by itself when the client is closed. At its
// end calls.Done is due.
func (c *KVClient) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.calls.Add(1)
	return nil
}

// link returns a context that ends with ctx and with the client.
func (c *KVClient) link(ctx context.Context) (_ context.Context, unlink func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.life, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// WriteResult is the result of a write that was applied.
type WriteResult struct {
	KeyFound  bool   // whether the key was there before
	PrevValue string // what it held then; "" if it was absent
	Swapped   bool   // CAS: whether the key held the expected value and was set; else false

	// Version is the key's version after the write: how many writes the store had
	// executed with its last one. 0 if the key is absent now.
	Version uint64

	// Duplicate tells that an earlier attempt was the one that took effect. The
	// other fields are that attempt's. See also [ErrDuplicate].
	Duplicate bool
}

// GetResult is the result of a read.
type GetResult struct {
	KeyFound bool   // whether the key is there
	Value    string // what it holds; "" if it is absent
	Version  uint64 // see WriteResult; 0 if it is absent

	// The rest is set after a read with api.ConsistencyStale only: where in the log
	// the answer stands, and how old it is, if the server knows that.
	Stale        bool
	AppliedIndex uint64
	Age          time.Duration
	AgeKnown     bool
}

// ReadOption changes one call of [KVClient.Get].
type ReadOption func(*api.GetRequest)

// WithConsistency asks for another level than the default,
// api.ConsistencyLinearizable.
func WithConsistency(level api.Consistency) ReadOption {
	return func(r *api.GetRequest) { r.Consistency = level }
}

// Put sets key to value. Values may be any bytes; a key is valid UTF-8.
func (c *KVClient) Put(ctx context.Context, key, value string, options ...WriteOption) (WriteResult, error) {
	return c.write(ctx, Write{Op: OpPut, Key: key, Value: value}.with(options))
}

// Append adds value to the end of what key holds. An absent key counts as empty.
func (c *KVClient) Append(ctx context.Context, key, value string, options ...WriteOption) (WriteResult, error) {
	return c.write(ctx, Write{Op: OpAppend, Key: key, Value: value}.with(options))
}

// CAS sets key to value if it holds compare; Swapped tells whether it did. An
// absent key holds nothing, which differs from the empty value.
func (c *KVClient) CAS(ctx context.Context, key, compare, value string, options ...WriteOption) (WriteResult, error) {
	return c.write(ctx, Write{Op: OpCAS, Key: key, CompareValue: compare, Value: value}.with(options))
}

// Delete removes key. That it is absent already is no error.
func (c *KVClient) Delete(ctx context.Context, key string, options ...WriteOption) (WriteResult, error) {
	return c.write(ctx, Write{Op: OpDelete, Key: key}.with(options))
}

// Get returns what key holds. Unless an option says api.ConsistencyStale, the
// answer is linearizable: it includes every write that was acknowledged before
// the call. Reads change nothing, so they are repeated until ctx ends, and no
// error of Get is an [UnknownError].
func (c *KVClient) Get(ctx context.Context, key string, options ...ReadOption) (GetResult, error) {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return GetResult{}, err
	}
	defer done()
	request := api.GetRequest{Key: key}
	for _, option := range options {
		option(&request)
	}
	body, err := api.Encode(&request)
	if err != nil {
		return GetResult{}, &StatusError{api.StatusBadRequest, api.OutcomeNotApplied, err.Error()}
	}
	var call numbering.Call
	answer, err := c.run(ctx, operation{
		method: http.MethodPost,
		path:   api.PathGet,
		body:   body,
		answer: func() api.Response { return new(api.GetResponse) },
	}, &call)
	if err != nil {
		return GetResult{}, fmt.Errorf("kvclient: get: %w", err)
	}
	r := answer.(*api.GetResponse)
	result := GetResult{KeyFound: r.KeyFound, Value: r.Value, Version: r.Version, Stale: r.Stale, AppliedIndex: r.AppliedIndex}
	if r.AgeMillis != nil {
		result.Age, result.AgeKnown = time.Duration(*r.AgeMillis)*time.Millisecond, true
	}
	return result, nil
}

// ClusterID returns the id of the cluster that the endpoints belong to, which
// is the word of the first server that answers.
func (c *KVClient) ClusterID(ctx context.Context) (string, error) {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	var call numbering.Call
	answer, err := c.run(ctx, statusOperation(), &call)
	if err != nil {
		return "", fmt.Errorf("kvclient: cluster id: %w", err)
	}
	return answer.(*api.StatusResponse).Cluster, nil
}

// Status asks one server, at an address as in [New], for its view of the
// cluster. It makes one attempt.
func (c *KVClient) Status(ctx context.Context, serviceAddr string) (*api.StatusResponse, error) {
	answer, err := c.askOne(ctx, serviceAddr, statusOperation(), "status")
	if err != nil {
		return nil, err
	}
	return answer.(*api.StatusResponse), nil
}

// askOne makes one attempt at one server, whoever leads.
func (c *KVClient) askOne(ctx context.Context, serviceAddr string, op operation, what string) (api.Response, error) {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	a := c.try(ctx, normalEndpoint(serviceAddr), op)
	if a.err != nil {
		return nil, fmt.Errorf("kvclient: %s: %w", what, a.err)
	}
	return a.answer, nil
}

func statusOperation() operation {
	return operation{
		method: http.MethodGet,
		path:   api.PathStatus,
		answer: func() api.Response { return new(api.StatusResponse) },
	}
}

// write carries out a write on the client's own session, or by its Idempotency-Key.
func (c *KVClient) write(ctx context.Context, w Write) (WriteResult, error) {
	if w.IdempotencyKey != "" {
		return c.Send(ctx, Identity{}, w)
	}
	if err := c.enter(); err != nil {
		return WriteResult{}, err
	}
	defer c.calls.Done()
	result, s, err := c.writeOnce(ctx, w)
	if sessionExpired(err) {
		// Nothing of this write was carried out, so it may be sent under a new
		// identity; but only once, or a cluster that knows no session would be
		// asked for sessions without end.
		c.forget(s)
		result, _, err = c.writeOnce(ctx, w)
	}
	return result, err
}

// sessionExpired reports whether err says that every attempt of a write was
// refused, the last one because its session is unknown.
func sessionExpired(err error) bool {
	if err == nil {
		return false
	}
	var unknown *UnknownError
	var refused *StatusError
	return !errors.As(err, &unknown) && errors.As(err, &refused) && refused.Status == api.StatusSessionExpired
}

// whomToAsk returns what a round of a route needs to know.
func (c *KVClient) whomToAsk() (first string, endpoints, spare []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader, c.members.endpoints, c.members.spare
}

// learn notes what an attempt says about where to ask.
func (c *KVClient) learn(endpoint string, a attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noticeConfiguration(endpoint, a.configuration)
	c.silent.note(endpoint, a.answer != nil)
	if a.err == nil && c.through != nil {
		close(c.through)
		c.through = nil
	}
	switch leader := a.leader(); {
	case slices.Contains(c.members.endpoints, leader) && !c.silent.is(leader):
		// Others are followed when a server cannot serve, see route, but not
		// preferred: from here they may be out of reach, and the servers of the
		// list pass requests on.
		c.leader = leader
	case a.err == nil:
		c.leader = endpoint
	case c.leader == endpoint:
		c.leader = ""
	}
}

// nextThrough returns a channel that is closed when the next attempt succeeds.
func (c *KVClient) nextThrough() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.through == nil {
		c.through = make(chan struct{})
	}
	return c.through
}

// silence is how long an endpoint that has not answered is not preferred on
// another's word. A leader that only its servers can reach would otherwise be asked
// first by every call, in vain.
const silence = 5 * time.Second

// silent has the endpoints whose last attempt brought no answer, and when that was.
type silent map[string]time.Time

func (s *silent) note(endpoint string, answers bool) {
	switch {
	case answers:
		delete(*s, endpoint)
	case *s == nil:
		*s = silent{endpoint: time.Now()}
	default:
		(*s)[endpoint] = time.Now()
	}
}

func (s silent) is(endpoint string) bool {
	since, found := s[endpoint]
	return found && time.Since(since) < silence
}
