package prochaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"raftkv/internal/lincheck"
	"raftkv/kvclient"
)

// load is a number of clients that append unique tokens, read, and compare and
// set, each call with a deadline of its own, and write down what they saw.
type load struct {
	quit    chan struct{}
	running sync.WaitGroup
	clock   atomic.Int64 // orders calls and answers of all clients
	began   time.Time

	mu       sync.Mutex
	history  []lincheck.Operation
	repeated int
	lastDone time.Time
	gap      time.Duration
}

const (
	callPatience = 10 * time.Second
	keys         = 16
	lincheckStep = 20_000_000

	// Clients turn to other keys now and then. Values that only grow would make a
	// long run cost memory by the square of its length.
	keysLast = 5 * time.Second
)

func startLoad(endpoints []string, clients int, seed uint64) *load {
	l := &load{quit: make(chan struct{}), began: time.Now(), lastDone: time.Now()}
	for i := range clients {
		l.running.Go(func() { l.client(endpoints, i, rand.New(rand.NewPCG(seed, uint64(i)+2))) })
	}
	return l
}

func (l *load) stop() {
	close(l.quit)
	l.running.Wait()
}

// client does one call after another. Two goroutines share a client each, so
// that calls overlap under one ClientID.
func (l *load) client(endpoints []string, number int, random *rand.Rand) {
	client := kvclient.New(endpoints)
	defer client.Close()
	var pair sync.WaitGroup
	for half := range 2 {
		seed := random.Uint64()
		pair.Go(func() {
			random := rand.New(rand.NewPCG(seed, 0))
			for n := 0; ; n++ {
				select {
				case <-l.quit:
					return
				case <-time.After(time.Duration(random.IntN(20)) * time.Millisecond):
				}
				l.call(client, 2*number+half, n, random)
			}
		})
	}
	pair.Wait()
}

func (l *load) call(client *kvclient.KVClient, number, n int, random *rand.Rand) {
	op := lincheck.Operation{
		Client: number,
		Kind:   lincheck.Append,
		Key:    fmt.Sprintf("key%d-%d", time.Since(l.began)/keysLast, random.IntN(keys)),
		Value:  fmt.Sprintf("%d.%d;", number, n),
	}
	if random.IntN(3) == 0 {
		op.Kind, op.Value = lincheck.Get, ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), callPatience)
	defer cancel()
	op.Call = l.clock.Add(1)
	var err error
	var repeated bool
	switch op.Kind {
	case lincheck.Append:
		var r kvclient.WriteResult
		r, err = client.Append(ctx, op.Key, op.Value)
		op.KeyFound, op.Before, op.Answered, repeated = r.KeyFound, r.PrevValue, !r.ResultLost, r.Duplicate
	case lincheck.Get:
		var r kvclient.GetResult
		r, err = client.Get(ctx, op.Key)
		op.KeyFound, op.Before, op.Answered = r.KeyFound, r.Value, true
	}
	op.Return = l.clock.Add(1)
	var unknown *kvclient.UnknownError
	switch {
	case err == nil:
		op.Outcome = lincheck.Applied
	case errors.As(err, &unknown):
		op.Outcome = lincheck.Unknown
	default:
		op.Outcome = lincheck.NotApplied
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history = append(l.history, op)
	if repeated {
		l.repeated++
	}
	if err == nil {
		l.gap = max(l.gap, time.Since(l.lastDone))
		l.lastDone = time.Now()
	}
}

// check reads every key once more through the healed cluster and judges.
func (l *load) check(ctx context.Context, report *Report, endpoints []string) error {
	client := kvclient.New(endpoints)
	defer client.Close()
	store := map[string]string{}
	for _, op := range l.history {
		store[op.Key] = ""
	}
	for _, key := range slices.Sorted(maps.Keys(store)) {
		op := lincheck.Operation{Client: -1, Kind: lincheck.Get, Key: key, Outcome: lincheck.Applied, Answered: true}
		op.Call = l.clock.Add(1)
		ctx, cancel := context.WithTimeout(ctx, callPatience)
		r, err := client.Get(ctx, op.Key)
		cancel()
		if err != nil {
			return fmt.Errorf("the healed cluster does not serve: %w", err)
		}
		op.Return = l.clock.Add(1)
		op.KeyFound, op.Before = r.KeyFound, r.Value
		l.history = append(l.history, op)
		store[op.Key] = r.Value
	}
	report.LongestGap, report.Repeated = l.gap, l.repeated
	for _, op := range l.history {
		report.Operations++
		switch op.Outcome {
		case lincheck.Applied:
			report.Applied++
		case lincheck.NotApplied:
			report.NotApplied++
		case lincheck.Unknown:
			report.Unknown++
		}
	}
	if err := checkTokens(l.history, store); err != nil {
		return err
	}
	return lincheck.Check(l.history, lincheckStep)
}

// checkTokens looks for each token in the store: once if its append was
// applied, never if it was not, at most once if nobody knows.
func checkTokens(history []lincheck.Operation, store map[string]string) error {
	stands := map[string]int{}
	for key, value := range store {
		for token := range strings.SplitAfterSeq(value, ";") {
			stands[key+" "+token]++
		}
	}
	for _, op := range history {
		if op.Kind != lincheck.Append {
			continue
		}
		n := stands[op.Key+" "+op.Value]
		switch {
		case n > 1:
			return fmt.Errorf("%s: applied %d times", op, n)
		case n == 0 && op.Outcome == lincheck.Applied:
			return fmt.Errorf("%s: acknowledged, and lost", op)
		case n == 1 && op.Outcome == lincheck.NotApplied:
			return fmt.Errorf("%s: said not to be applied, and is there", op)
		}
	}
	return nil
}
