package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"raftkv/bench/internal/rawhttp"
)

// point is one measurement.
type point struct {
	op         string // put, get or batch
	clients    int    // in a closed loop
	valueBytes int
	servers    int
	keys       int // in the store before it begins, and used at random
	duration   time.Duration
}

// batchSize is how many puts a batch has.
const batchSize = 100

// warmUp is left out: connections are made and the heap grows to its size.
const warmUp = time.Second

// measured is what a point has cost.
type measured struct {
	point
	operations  int // puts of a batch are counted one by one
	took        time.Duration
	latencies   []time.Duration // of requests, sorted
	leader, all float64         // processor seconds
	allClients  float64
}

const header = `op     clients  bytes  servers     keys      ops/s    p50 ms    p99 ms    CPU ms per 1000 ops: leader  a follower  all`

func (m measured) String() string {
	per1000 := func(seconds float64) float64 { return 1e6 * seconds / float64(m.operations) }
	follower := 0.0
	if m.servers > 1 {
		follower = (m.all - m.leader) / float64(m.servers-1)
	}
	millis := func(percent int) float64 {
		return m.latencies[(len(m.latencies)-1)*percent/100].Seconds() * 1000
	}
	return fmt.Sprintf("%-6s %7d %6d %8d %8d %10.0f %9.2f %9.2f %36.1f %11.1f %4.1f", m.op, m.clients, m.valueBytes, m.servers, m.keys,
		float64(m.operations)/m.took.Seconds(), millis(50), millis(99), per1000(m.leader), per1000(follower), per1000(m.all))
}

// measure starts a cluster, fills it, and loads it.
func measure(program, dir, profiles string, p point) (measured, error) {
	m := measured{point: p}
	c, err := startCluster(program, dir, p.servers)
	if err != nil {
		return m, err
	}
	defer c.close()
	leader, err := c.leader()
	if err != nil {
		return m, err
	}
	if err := fill(leader.http, p); err != nil {
		return m, err
	}

	clients := make([]*client, p.clients)
	for i := range clients {
		if clients[i], err = newClient(leader.http, p); err != nil {
			return m, err
		}
		defer clients[i].conn.Close()
	}
	if err := all(clients, func(c *client) error { return c.load(time.Now().Add(warmUp)) }); err != nil {
		return m, err
	}
	for _, c := range clients {
		c.operations, c.latencies = 0, nil
	}
	leaderBefore, allBefore := leader.cpu(), c.cpu()
	began := time.Now()
	if err := all(clients, func(c *client) error { return c.load(began.Add(p.duration)) }); err != nil {
		return m, err
	}
	m.took = time.Since(began)
	m.leader, m.all = leader.cpu()-leaderBefore, c.cpu()-allBefore
	for _, c := range clients {
		m.operations += c.operations
		m.latencies = append(m.latencies, c.latencies...)
	}
	slices.Sort(m.latencies)
	if profiles != "" {
		if err := c.profile(profiles, clients, leader); err != nil {
			return m, err
		}
	}
	if now, err := c.leader(); err != nil || now != leader {
		return m, fmt.Errorf("the leader has changed meanwhile: %v", err)
	}
	return m, nil
}

// profile goes on with the load and writes profiles of the leader and a follower.
// That is no part of what is measured: being profiled costs, too.
func (c *cluster) profile(prefix string, clients []*client, leader *server) error {
	const seconds = 8
	loaded := make(chan error, 1)
	go func() {
		loaded <- all(clients, func(c *client) error { return c.load(time.Now().Add((seconds + 1) * time.Second)) })
	}()
	var errs [2]error
	var profiling sync.WaitGroup
	for i, s := range []*server{leader, c.servers[leader.id%len(c.servers)]} {
		name := prefix + []string{"-leader", "-follower"}[i]
		profiling.Go(func() {
			errs[i] = errors.Join(s.profile(name+".pprof", fmt.Sprint("profile?seconds=", seconds)), s.profile(name+"-allocs.pprof", "allocs"))
		})
	}
	profiling.Wait()
	return errors.Join(<-loaded, errs[0], errs[1])
}

func (c *cluster) cpu() (seconds float64) {
	for _, s := range c.servers {
		seconds += s.cpu()
	}
	return seconds
}

// all lets every client do something, at once, and returns the first error.
func all(clients []*client, do func(*client) error) error {
	errs := make(chan error, len(clients))
	for _, c := range clients {
		go func() { errs <- do(c) }()
	}
	var first error
	for range clients {
		if err := <-errs; first == nil {
			first = err
		}
	}
	return first
}

// fill puts every key once, in batches that a server takes.
func fill(addr string, p point) error {
	const fillers, bodyBytes = 16, 1 << 20
	size := min(batchSize, max(1, bodyBytes/p.valueBytes))
	p.op = "batch"
	errs := make(chan error, fillers)
	var filling sync.WaitGroup
	for i := range fillers {
		filling.Go(func() {
			c, err := newClient(addr, p)
			for at := i * size; err == nil && at < p.keys; at += fillers * size {
				err = c.putBatch(size, func(n int) int { return min(at+n, p.keys-1) })
			}
			errs <- err
		})
	}
	filling.Wait()
	for range fillers {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// client is a session that has one request under way.
type client struct {
	point
	conn  *rawhttp.Conn
	id    string
	last  int // the number of its last write
	value string
	body  []byte

	operations int
	latencies  []time.Duration
}

func newClient(addr string, p point) (*client, error) {
	conn := rawhttp.New(addr, answerTimeout)
	answer, err := post(conn, "/session", []byte(`{}`))
	if err != nil {
		return nil, err
	}
	var session struct{ ClientID string }
	if err := json.Unmarshal(answer, &session); err != nil {
		return nil, err
	}
	return &client{point: p, conn: conn, id: session.ClientID, value: strings.Repeat("v", p.valueBytes)}, nil
}

// answerTimeout is longer than a server takes to say "unknown".
const answerTimeout = 15 * time.Second

// post returns the body of the answer, which holds until the next call. Any status
// but 200 is an error.
func post(conn *rawhttp.Conn, path string, body []byte) ([]byte, error) {
	status, answer, err := conn.Post(path, body)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the server answered %s", answer)
	}
	return answer, err
}

// load makes calls until a time.
func (c *client) load(until time.Time) error {
	for {
		began := time.Now()
		if !began.Before(until) {
			return nil
		}
		if err := c.call(); err != nil {
			return err
		}
		c.latencies = append(c.latencies, time.Since(began))
	}
}

func (c *client) call() error {
	switch c.op {
	case "put":
		c.body = c.appendPut(c.body[:0], rand.IntN(c.keys))
		c.operations++
		_, err := post(c.conn, "/put", c.body)
		return err
	case "get":
		c.body = fmt.Appendf(c.body[:0], `{"Key":"key-%012d"}`, rand.IntN(c.keys))
		c.operations++
		_, err := post(c.conn, "/get", c.body)
		return err
	case "batch":
		c.operations += batchSize
		return c.putBatch(batchSize, func(int) int { return rand.IntN(c.keys) })
	}
	return fmt.Errorf("there is no operation %q; there are put, get and batch", c.op)
}

// putBatch puts so many keys in one request.
func (c *client) putBatch(size int, key func(n int) int) error {
	c.body = append(c.body[:0], `{"Operations":[`...)
	for n := range size {
		if n > 0 {
			c.body = append(c.body, ',')
		}
		c.body = append(c.body, `{"Put":`...)
		c.body = c.appendPut(c.body, key(n))
		c.body = append(c.body, '}')
	}
	c.body = append(c.body, `]}`...)
	_, err := post(c.conn, "/batch", c.body)
	return err
}

func (c *client) appendPut(b []byte, key int) []byte {
	c.last++
	return fmt.Appendf(b, `{"Key":"key-%012d","Value":"%s","ClientID":"%s","RequestID":%d}`, key, c.value, c.id, c.last)
}
