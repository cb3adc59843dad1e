// Package load drives a cluster with many clients and measures what they see.
// It is the engine of raftkv bench.
package load

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"raftkv/api"
	"raftkv/kvclient"
)

// Config says what load to make.
type Config struct {
	Endpoints []string

	Clients  int           // calls at once; zero means 64
	Shared   bool          // all share one KVClient; else each has its own
	Duration time.Duration // zero means 10 s, or no end if Calls is given
	Calls    int           // end after so many calls; zero means when the time is over

	// Rate is how many calls begin in a second, whether or not earlier ones have
	// ended (open loop): then a call's latency counts from when it was due. Zero
	// means that each client begins its next call when the last one has ended.
	Rate float64

	Writes       float64         // the share of puts, from 0 to 1; the rest are gets
	Batch        int             // so many puts in each call that writes; zero means 1. The report counts them one by one
	ValueBytes   int             // zero means 100
	Keys         int             // zero means 10000
	Distribution Distribution    // of the keys; "" means Uniform
	Consistency  api.Consistency // of the gets
	CallTimeout  time.Duration   // zero means 10 s
	Seed         uint64

	// Check makes every call an append of a unique token, and afterwards looks for
	// each of them in the store: once if it was acknowledged, never twice.
	Check bool
}

// Distribution says which keys are used how often.
type Distribution string

// The distributions.
const (
	Uniform    Distribution = "uniform"
	Zipf       Distribution = "zipf"       // a few keys get most of the calls
	Sequential Distribution = "sequential" // each key in turn, all of them once before any twice
)

// withDefaults fills in what zero stands for. The error says what cannot be.
func (c Config) withDefaults() (Config, error) {
	switch c.Distribution {
	case "":
		c.Distribution = Uniform
	case Uniform, Zipf, Sequential:
	default:
		return c, fmt.Errorf("%q is no distribution; use uniform, zipf or sequential", c.Distribution)
	}
	c.Clients = cmp.Or(c.Clients, 64)
	if c.Calls == 0 {
		c.Duration = cmp.Or(c.Duration, 10*time.Second)
	}
	c.Batch = cmp.Or(c.Batch, 1)
	c.ValueBytes = cmp.Or(c.ValueBytes, 100)
	c.Keys = cmp.Or(c.Keys, 10_000)
	c.CallTimeout = cmp.Or(c.CallTimeout, 10*time.Second)
	switch {
	case c.Clients < 0 || c.Duration < 0 || c.Calls < 0 || c.ValueBytes < 0 || c.Keys < 0 || c.Batch < 0 || c.Rate < 0 || c.CallTimeout < 0:
		return c, errors.New("a negative number makes no sense here")
	case c.Writes < 0 || c.Writes > 1:
		return c, fmt.Errorf("the share of writes is %v; it must be from 0 to 1", c.Writes)
	}
	return c, nil
}

// Run makes the load and returns what was seen. It ends early with ctx. The
// error says why the config cannot be, or what Check has found.
func Run(ctx context.Context, config Config) (Report, error) {
	config, err := config.withDefaults()
	if err != nil {
		return Report{}, err
	}
	r := &run{
		config: config,
		value:  strings.Repeat("v", config.ValueBytes),
		name:   rand.Text()[:8],
		report: newReport(),
	}
	loadCtx, cancel := ctx, context.CancelFunc(func() {})
	if config.Duration > 0 {
		loadCtx, cancel = context.WithTimeout(ctx, config.Duration)
	}
	defer cancel()
	shared := kvclient.New(config.Endpoints)
	defer shared.Close()

	r.began = time.Now()
	var workers sync.WaitGroup
	for i := range config.Clients {
		client := shared
		if !config.Shared {
			client = kvclient.New(config.Endpoints)
			defer client.Close()
		}
		workers.Go(func() { r.work(loadCtx, client, i) })
	}
	workers.Wait()
	r.report.Elapsed = time.Since(r.began)
	if config.Check {
		return r.report.finish(), r.check(ctx, shared)
	}
	return r.report.finish(), nil
}

// run is one load while it is made.
type run struct {
	config Config
	value  string
	name   string // tells the tokens of this run from those of earlier ones
	began  time.Time
	next   atomic.Int64 // the number of the next call

	mu     sync.Mutex
	report Report
	tokens []token
}

// work is one client's calls. A call that is under way when the time is over is
// waited for: it was begun, so it counts.
func (r *run) work(ctx context.Context, client *kvclient.KVClient, number int) {
	random := mathrand.New(mathrand.NewPCG(r.config.Seed, uint64(number)))
	zipf := mathrand.NewZipf(random, 1.1, 1, uint64(r.config.Keys-1))
	var samples []sample
	var tokens []token
	for ctx.Err() == nil {
		n := r.next.Add(1) - 1
		if r.config.Calls > 0 && n >= int64(r.config.Calls) {
			break
		}
		due := time.Now()
		if r.config.Rate > 0 {
			due = r.began.Add(time.Duration(float64(n) / r.config.Rate * float64(time.Second)))
			select {
			case <-time.After(time.Until(due)):
			case <-ctx.Done():
				continue
			}
		}
		callCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.config.CallTimeout)
		var errs []error
		switch {
		case r.config.Check:
			appends := make([]kvclient.Write, r.config.Batch)
			for i := range appends {
				t := token{run: r.name, client: number, n: len(tokens)}
				appends[i] = kvclient.Write{Op: kvclient.OpAppend, Key: t.key(), Value: t.text()}
				tokens = append(tokens, t)
			}
			errs = write(callCtx, client, appends)
			for i, err := range errs {
				tokens[len(tokens)-len(errs)+i].outcome = outcomeOf(err)
			}
		case random.Float64() < r.config.Writes:
			puts := make([]kvclient.Write, r.config.Batch)
			for i := range puts {
				puts[i] = kvclient.Write{Op: kvclient.OpPut, Key: r.key(n*int64(r.config.Batch)+int64(i), random, zipf), Value: r.value}
			}
			errs = write(callCtx, client, puts)
		default:
			_, err := client.Get(callCtx, r.key(n, random, zipf), kvclient.WithConsistency(r.config.Consistency))
			errs = []error{err}
		}
		cancel()
		now := time.Now()
		for _, err := range errs {
			samples = append(samples, sample{ended: now.Sub(r.began), took: now.Sub(due), outcome: outcomeOf(err)})
			if outcomeOf(err) != Applied {
				r.note(err)
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.samples = append(r.report.samples, samples...)
	r.tokens = append(r.tokens, tokens...)
}

// write carries out one write, or several as a batch, and returns how each ended.
func write(ctx context.Context, client *kvclient.KVClient, writes []kvclient.Write) []error {
	if len(writes) > 1 {
		var errs []error
		for _, result := range client.Batch(ctx, writes) {
			errs = append(errs, result.Err)
		}
		return errs
	}
	var err error
	if w := writes[0]; w.Op == kvclient.OpAppend {
		_, err = client.Append(ctx, w.Key, w.Value)
	} else {
		_, err = client.Put(ctx, w.Key, w.Value)
	}
	return []error{err}
}

func (r *run) key(n int64, random *mathrand.Rand, zipf *mathrand.Zipf) string {
	k := uint64(n)
	switch r.config.Distribution {
	case Uniform:
		k = random.Uint64()
	case Zipf:
		k = zipf.Uint64()
	}
	return fmt.Sprintf("bench%09d", k%uint64(r.config.Keys))
}

// note keeps the first error of each outcome: a sample of what went wrong.
func (r *run) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := outcomeOf(err); r.report.Errors[o] == "" {
		r.report.Errors[o] = err.Error()
	}
}

func outcomeOf(err error) Outcome {
	var unknown *kvclient.UnknownError
	switch {
	case err == nil, errors.Is(err, kvclient.ErrDuplicate):
		return Applied
	case errors.As(err, &unknown):
		return Unknown
	}
	return NotApplied
}
