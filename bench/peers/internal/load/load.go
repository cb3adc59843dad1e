// Package load runs clients, each of which sends its next request when the last
// one was answered, and sums up what they saw.
package load

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Op is a kind of request.
type Op string

// The kinds.
const (
	Put   Op = "put"   // sets a key
	Get   Op = "get"   // a linearizable read
	Find  Op = "find"  // a Get that fails if the key is absent
	Batch Op = "batch" // BatchSize puts in one request: the key and those after it
)

// BatchSize is how many puts a Batch has. They are counted one by one.
const BatchSize = 100

// Request is one request of a client.
type Request struct {
	Op     Op
	Key    int
	Value  string
	Number uint64 // counts the requests of this client from 1; a repetition has the same
}

// Session carries requests out. Do is called by all clients at once, but by each of
// them, 0, 1, 2 and so on, one request at a time. A session serves one Run: its
// numbers begin at 1.
type Session interface {
	Do(client int, r Request) error
	Close()
}

// Key returns key number i: 16 bytes, in the order of the numbers.
func Key(i int) string { return string(AppendKey(nil, i)) }

// AppendKey adds key number i to b.
func AppendKey(b []byte, i int) []byte {
	b = append(b, "key-000000000000"...)
	for at := len(b) - 1; i > 0; at-- {
		b[at] = byte('0' + i%10)
		i /= 10
	}
	return b
}

// Plan says what to run.
type Plan struct {
	Op         Op
	Clients    int
	ValueBytes int
	Keys       int // how many keys; each request takes one of them by chance

	Warm, Measure time.Duration // what is done while warming up is not counted; Measure 0 runs until the context ends

	// Each, if it is not 0, is how many requests to send instead, one for each key in
	// turn; for Batch one for each BatchSize keys.
	Each int

	// Began and Ended, if they are not nil, are called where the measure begins and
	// ends.
	Began, Ended func()

	// Keep is whether to keep the times of each request.
	Keep bool
}

// Times are when a request was sent first and when it was answered.
type Times struct{ Sent, Answered time.Time }

// Result is what the clients saw.
type Result struct {
	Done      uint64 // requests; of a Batch, puts
	Elapsed   time.Duration
	Latencies Histogram // with all repetitions
	Errors    uint64    // tries that failed and were repeated
	LastError error
	Times     []Times
}

// Rate returns how many requests were done in a second.
func (r *Result) Rate() float64 { return float64(r.Done) / r.Elapsed.Seconds() }

// pause is how long a client waits before it repeats a request that failed.
const pause = 2 * time.Millisecond

// The phases of a run.
const (
	warming int32 = iota
	measuring
	over
)

// Run makes the load. It ends early with ctx.
func Run(ctx context.Context, s Session, p Plan) *Result {
	r := &run{plan: p, session: s, text: text(p.ValueBytes + values)}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i := range p.Clients {
		r.clients.Go(func() { r.client(ctx, i) })
	}
	wait(ctx, p.Warm)
	if p.Began != nil {
		p.Began()
	}
	began := time.Now()
	r.phase.Store(measuring)
	switch {
	case p.Each > 0:
		r.clients.Wait()
	case p.Measure > 0:
		wait(ctx, p.Measure)
	default:
		<-ctx.Done()
	}
	r.phase.Store(over)
	elapsed := time.Since(began)
	if p.Ended != nil {
		p.Ended()
	}
	cancel()
	r.clients.Wait()
	r.total.Elapsed = elapsed
	if p.Op == Batch {
		r.total.Done *= BatchSize
	}
	return &r.total
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// values is how many values there are. Each is a part of one text that does not
// repeat itself, so nobody gains much by compressing them, and they cost nothing.
const values = 1 << 16

func text(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	var b strings.Builder
	for range n {
		b.WriteByte(letters[rand.IntN(len(letters))])
	}
	return b.String()
}

type run struct {
	plan    Plan
	session Session
	text    string // of which the values are parts
	phase   atomic.Int32
	next    atomic.Int64 // with Plan.Each, the number of the next request
	clients sync.WaitGroup

	mu    sync.Mutex
	total Result
}

func (r *run) client(ctx context.Context, number int) {
	var own Result
	for n := uint64(1); ctx.Err() == nil; n++ {
		from := rand.IntN(values)
		request := Request{Op: r.plan.Op, Value: r.text[from : from+r.plan.ValueBytes], Number: n}
		if r.plan.Each > 0 {
			i := int(r.next.Add(1) - 1)
			if i >= r.plan.Each {
				break
			}
			request.Key = i
			if request.Op == Batch {
				request.Key *= BatchSize
			}
		} else {
			request.Key = rand.IntN(r.plan.Keys)
		}
		sent := time.Now()
		if !r.repeat(ctx, number, request, &own) {
			break
		}
		answered := time.Now()
		if r.plan.Keep {
			own.Times = append(own.Times, Times{sent, answered})
		}
		// What was answered in the time that is measured counts, whenever it was sent:
		// as many are cut off at its end as were under way at its beginning.
		if r.plan.Each > 0 || r.phase.Load() == measuring {
			own.Done++
			own.Latencies.Add(answered.Sub(sent))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total.Done += own.Done
	r.total.Errors += own.Errors
	r.total.Latencies.Merge(&own.Latencies)
	r.total.Times = append(r.total.Times, own.Times...)
	if own.LastError != nil {
		r.total.LastError = own.LastError
	}
}

// repeat sends a request until it is answered. It returns false if ctx ended first.
func (r *run) repeat(ctx context.Context, client int, request Request, own *Result) bool {
	for {
		err := r.session.Do(client, request)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		own.Errors++
		own.LastError = err
		wait(ctx, pause)
	}
}

// ParseCounts reads a list such as 1/64/256.
func ParseCounts(list string) ([]int, error) {
	var counts []int
	for item := range strings.SplitSeq(list, "/") {
		n, err := strconv.Atoi(item)
		if err != nil {
			return nil, err
		}
		counts = append(counts, n)
	}
	return counts, nil
}
