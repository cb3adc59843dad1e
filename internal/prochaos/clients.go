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

// load is a number of clients that append unique tokens, compare and set, and
// read, each call with a deadline of its own, and write down what they saw.
type load struct {
	loadKind
	quit    chan struct{}
	running sync.WaitGroup
	clock   atomic.Int64 // orders calls and answers of all clients
	began   time.Time

	mu       sync.Mutex
	history  []lincheck.Operation
	seen     map[string]string // the value of each key in the last answer about it
	failed   error             // the first error of a call that had to succeed
	repeated int
	lastDone time.Time
	gap      time.Duration
	slowest  time.Duration
}

// loadKind says how many call how, and for what.
type loadKind struct {
	clients  int           // of package kvclient
	sharing  int           // goroutines that share a client, so that calls overlap under one ClientID
	patience time.Duration // the deadline of a call
	strict   bool          // a call that ends with an error is a failure of the run
	pause    time.Duration // the longest that a goroutine waits between two calls
	keys     int

	// Clients turn to other keys now and then. Values that only grow would make a
	// long run cost memory by the square of its length.
	keysLast time.Duration
}

const (
	callPatience = 10 * time.Second
	lincheckStep = 20_000_000
)

// manyClients is a load of clients that know nothing of each other.
func manyClients(clients int) loadKind {
	return loadKind{clients: clients, sharing: 2, patience: callPatience, pause: 20 * time.Millisecond, keys: 16, keysLast: 5 * time.Second}
}

// oneClient is a load of goroutines that share one client, as those of a service
// would. Each call outlasts any election, so none may fail.
func oneClient(goroutines int) loadKind {
	return loadKind{clients: 1, sharing: goroutines, patience: 30 * time.Second, strict: true, pause: 50 * time.Millisecond, keys: 64, keysLast: 2 * time.Second}
}

func startLoad(endpoints []string, kind loadKind, seed uint64) *load {
	l := &load{loadKind: kind, quit: make(chan struct{}), began: time.Now(), lastDone: time.Now(), seen: map[string]string{}}
	for i := range kind.clients {
		l.running.Go(func() { l.client(endpoints, i, rand.New(rand.NewPCG(seed, uint64(i)+2))) })
	}
	return l
}

func (l *load) stop() {
	close(l.quit)
	l.running.Wait()
}

// client runs the goroutines of one client; each does one call after another.
func (l *load) client(endpoints []string, number int, random *rand.Rand) {
	client := kvclient.New(endpoints)
	defer client.Close()
	var callers sync.WaitGroup
	for i := range l.sharing {
		seed := random.Uint64()
		callers.Go(func() {
			random := rand.New(rand.NewPCG(seed, 0))
			for n := 0; ; n++ {
				select {
				case <-l.quit:
					return
				case <-time.After(time.Duration(random.Int64N(int64(l.pause)))):
				}
				l.call(client, l.sharing*number+i, n, random)
			}
		})
	}
	callers.Wait()
}

func (l *load) call(client *kvclient.KVClient, number, n int, random *rand.Rand) {
	op := lincheck.Operation{
		Client: number,
		Kind:   []lincheck.Kind{lincheck.Append, lincheck.Append, lincheck.CAS, lincheck.Get}[random.IntN(4)],
		Key:    fmt.Sprintf("key%d-%d", time.Since(l.began)/l.keysLast, random.IntN(l.keys)),
	}
	token := fmt.Sprintf("%d.%d;", number, n)
	ctx, cancel := context.WithTimeout(context.Background(), l.patience)
	defer cancel()
	var err error
	var write kvclient.WriteResult
	began := time.Now()
	switch op.Kind {
	case lincheck.Append:
		op.Value = token
		op.Call = l.clock.Add(1)
		write, err = client.Append(ctx, op.Key, op.Value)
	case lincheck.CAS:
		op.Expect = l.lastSeen(op.Key)
		op.Value = op.Expect + token // adds the token, if nobody was faster
		op.Call = l.clock.Add(1)
		write, err = client.CAS(ctx, op.Key, op.Expect, op.Value)
	case lincheck.Get:
		op.Call = l.clock.Add(1)
		var r kvclient.GetResult
		r, err = client.Get(ctx, op.Key)
		write = kvclient.WriteResult{KeyFound: r.KeyFound, PrevValue: r.Value}
	}
	op.Return = l.clock.Add(1)
	isLost := errors.Is(err, kvclient.ErrDuplicate) // applied, and the result is not known
	if isLost {
		err, write.Duplicate = nil, true
	}
	op.KeyFound, op.Before, op.Swapped, op.Answered = write.KeyFound, write.PrevValue, write.Swapped, !isLost
	var unknown *kvclient.UnknownError
	switch {
	case err == nil:
		op.Outcome = lincheck.Applied
	case errors.As(err, &unknown):
		op.Outcome = lincheck.Unknown
	default:
		op.Outcome = lincheck.NotApplied
	}
	l.note(op, err, write.Duplicate, time.Since(began))
}

// lastSeen returns what a key held when somebody last looked.
func (l *load) lastSeen(key string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[key]
}

// note writes a call down.
func (l *load) note(op lincheck.Operation, err error, repeated bool, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history = append(l.history, op)
	if repeated {
		l.repeated++
	}
	l.slowest = max(l.slowest, took)
	if err != nil {
		if l.failed == nil {
			l.failed = fmt.Errorf("%s: after %v: %w", op, took.Round(time.Millisecond), err)
		}
		return
	}
	l.gap = max(l.gap, time.Since(l.lastDone))
	l.lastDone = time.Now()
	switch {
	case !op.Answered:
	case op.Kind == lincheck.Append:
		l.seen[op.Key] = op.Before + op.Value
	case op.Kind == lincheck.CAS && op.Swapped:
		l.seen[op.Key] = op.Value
	default:
		l.seen[op.Key] = op.Before
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
	report.LongestGap, report.Repeated, report.SlowestCall = l.gap, l.repeated, l.slowest
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
	if l.strict && l.failed != nil {
		return fmt.Errorf("a call has failed: %w", l.failed)
	}
	if err := checkTokens(l.history, store); err != nil {
		return err
	}
	return lincheck.Check(l.history, lincheckStep)
}

// checkTokens looks for each token in the store: once if its write was applied,
// never if it was not, at most once if nobody knows.
func checkTokens(history []lincheck.Operation, store map[string]string) error {
	stands := map[string]int{}
	for key, value := range store {
		for token := range strings.SplitAfterSeq(value, ";") {
			stands[key+" "+token]++
		}
	}
	for _, op := range history {
		least, most := 0, 0
		switch {
		case op.Kind == lincheck.Get:
			continue
		case op.Outcome == lincheck.Unknown, op.Outcome == lincheck.Applied && op.Kind == lincheck.CAS && !op.Answered:
			most = 1
		case op.Outcome == lincheck.Applied && (op.Kind == lincheck.Append || op.Swapped):
			least, most = 1, 1
		}
		switch n := stands[op.Key+" "+strings.TrimPrefix(op.Value, op.Expect)]; {
		case n > max(most, 1):
			return fmt.Errorf("%s: applied %d times", op, n)
		case n < least:
			return fmt.Errorf("%s: acknowledged, and lost", op)
		case n > most:
			return fmt.Errorf("%s: said not to be applied, and is there", op)
		}
	}
	return nil
}
