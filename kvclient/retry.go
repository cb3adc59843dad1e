package kvclient

import (
	"context"
	"math/rand/v2"
	"time"

	"raftkv/api"
	"raftkv/kvclient/numbering"
)

const (
	// The first attempt of a call waits firstPatience for its answer. After each
	// attempt that ran out of time the next one waits twice as long: commits may
	// be slow because of load, and attempts that all give up too early only add
	// to it.
	firstPatience = time.Second
	maxPatience   = 30 * time.Second

	// The pause between two rounds, before its jitter, doubles up to maxPause. An
	// election takes about a second, in which a call makes about seven rounds. An
	// eighth is enough if another call of the client gets through meanwhile. It has
	// found the new leader, as a rule, and whoever failed last would find it last. It may
	// be a stale read that needs no leader; therefore not sooner.
	firstPause = 20 * time.Millisecond
	maxPause   = time.Second
)

// run makes attempts at op until one brings the result or a refusal that another
// attempt would only repeat, or ctx ends. It adds each attempt's outcome to
// call. The answer is nil exactly if there is an error.
func (c *KVClient) run(ctx context.Context, op operation, call *numbering.Call) (api.Response, error) {
	return c.repeat(ctx, op.once, func(ctx context.Context, endpoint string) attempt {
		a := c.try(ctx, endpoint, op)
		call.Add(a.outcome)
		return a
	})
}

// repeat is run for attempts that try makes. With once the first that is unknown
// is the last.
func (c *KVClient) repeat(ctx context.Context, once bool, try func(ctx context.Context, endpoint string) attempt) (api.Response, error) {
	if len(c.seeds) == 0 {
		return nil, ErrNoEndpoints
	}
	var r route
	r.startRound(c.whomToAsk())
	patience, pause := firstPatience, firstPause
	var last error
	var through <-chan struct{} // closed when a call gets through after the first failure of this round
	for {
		if ctx.Err() != nil {
			return nil, &GaveUpError{context.Cause(ctx), last}
		}
		endpoint, ok := r.next()
		if !ok {
			if r.busy {
				through = nil // the others are what the server is busy with
			}
			if d := jitter(pause); !sleep(ctx, d/8) || !sleepUntil(ctx, through, d-d/8) {
				return nil, &GaveUpError{context.Cause(ctx), last}
			}
			pause = min(2*pause, maxPause)
			through = nil
			r.startRound(c.whomToAsk())
			continue
		}
		attemptCtx, cancel := context.WithTimeout(ctx, patience)
		a := try(attemptCtx, endpoint)
		if attemptCtx.Err() != nil {
			patience = min(2*patience, maxPatience)
		}
		cancel()
		c.learn(endpoint, a)
		if a.final() || once && a.outcome == api.OutcomeUnknown {
			if a.err != nil {
				return nil, a.err
			}
			return a.answer, nil
		}
		last = a.err
		if through == nil {
			through = c.nextThrough()
		}
		if a.answer != nil {
			r.answered = true
			r.busy = r.busy || a.answer.Head().RespStatus == api.StatusBusy
		}
		r.hint(a.leader())
	}
}

// jitter draws from [d/2, d), so that clients who failed together do not come
// back together.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2)
}

// sleep waits for d and reports whether ctx let it.
func sleep(ctx context.Context, d time.Duration) bool { return sleepUntil(ctx, nil, d) }

// sleepUntil is sleep that ends when wake is closed; nil never is.
func sleepUntil(ctx context.Context, wake <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-wake:
		return true
	case <-ctx.Done():
		return false
	}
}
