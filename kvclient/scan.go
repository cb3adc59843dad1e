package kvclient

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"time"

	"raftkv/api"
)

// Scan says which keys [KVClient.Scan] returns.
type Scan struct {
	Prefix string // keys that begin with this; "" for all
	After  string // and stand behind this one; "" begins with the first
	Limit  int    // at most so many; 0 means api.DefaultScanLimit, and api.MaxScanLimit is the most

	// At is the place in the log of the state to read, and Server the address of the
	// server that keeps it: AppliedIndex and Server of the page before. 0 and ""
	// mean the newest state, of any server.
	At     uint64
	Server string

	Consistency api.Consistency // "" means api.ConsistencyLinearizable; there is no api.ConsistencyLog
}

// ScanResult is a page of a scan.
type ScanResult struct {
	Items []api.Item // in the order of the keys' bytes; values are plain bytes
	Next  string     // the last key, if there are more; "" if not

	// AppliedIndex is the place in the log of the state that all items are of, and
	// Server the address of the server that has answered.
	AppliedIndex uint64
	Server       string

	Stale    bool // this and the rest: see [GetResult]
	Age      time.Duration
	AgeKnown bool
}

// Rest returns the scan that goes on behind the page r of s, in the same state.
func (s Scan) Rest(r ScanResult) Scan {
	s.After, s.At, s.Server = r.Next, r.AppliedIndex, r.Server
	return s
}

// ScanAll returns all keys of a scan, page by page, as they are in one state of
// the store: that of the first page, for which what [KVClient.Scan] says of
// answers holds. Limit is the length of a page. After an error nothing follows.
// A *[StatusError] with api.StatusScanExpired says that the rest of that state is
// lost, because its server was started anew, or too many scans are under way:
// begin again.
func (c *KVClient) ScanAll(ctx context.Context, scan Scan) iter.Seq2[api.Item, error] {
	return func(yield func(api.Item, error) bool) {
		for {
			page, err := c.Scan(ctx, scan)
			if err != nil {
				yield(api.Item{}, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			scan = scan.Rest(page)
		}
	}
}

// Scan returns a page of keys in their order, and what they hold, as they are in
// one state of the store. What [KVClient.Get] says of its answers and errors holds
// here. If there are more, [Scan.Rest] says how to go on in the same state, which
// its server keeps for a minute; a *[StatusError] with api.StatusScanExpired says
// that it does not any more.
func (c *KVClient) Scan(ctx context.Context, scan Scan) (ScanResult, error) {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return ScanResult{}, err
	}
	defer done()
	body, err := api.Encode(&api.ScanRequest{Prefix: scan.Prefix, After: scan.After, Limit: scan.Limit, At: scan.At, Consistency: scan.Consistency})
	if err != nil {
		return ScanResult{}, &StatusError{api.StatusBadRequest, api.OutcomeNotApplied, err.Error()}
	}
	op := operation{
		method: http.MethodPost,
		path:   api.PathScan,
		body:   body,
		answer: func() api.Response { return new(api.ScanResponse) },
	}
	server := scan.Server
	answer, err := c.askFor(ctx, server, op)
	if answer == nil && err == nil {
		answer, err = c.repeat(ctx, false, func(ctx context.Context, endpoint string) attempt {
			server = endpoint
			return c.try(ctx, endpoint, op)
		})
	}
	if err != nil {
		return ScanResult{}, fmt.Errorf("kvclient: scan: %w", err)
	}
	r := answer.(*api.ScanResponse)
	result := ScanResult{Items: r.Items, Next: r.Next, AppliedIndex: r.AppliedIndex, Server: server, Stale: r.Stale}
	if r.AgeMillis != nil {
		result.Age, result.AgeKnown = time.Duration(*r.AgeMillis)*time.Millisecond, true
	}
	return result, nil
}

// askFor asks one server, if there is one, until it gives an answer that another
// attempt would only repeat. It returns neither answer nor error if the server
// does not answer at all. Then what it kept is lost, unless another server happens
// to be in the same state.
func (c *KVClient) askFor(ctx context.Context, server string, op operation) (api.Response, error) {
	if server == "" {
		return nil, nil
	}
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		attemptCtx, cancel := context.WithTimeout(ctx, maxPatience)
		a := c.try(attemptCtx, normalEndpoint(server), op)
		cancel()
		switch {
		case a.final() && a.err != nil:
			return nil, a.err
		case a.final():
			return a.answer, nil
		case a.answer == nil && ctx.Err() == nil:
			return nil, nil
		}
		if !sleep(ctx, jitter(pause)) {
			return nil, &GaveUpError{context.Cause(ctx), a.err}
		}
	}
}
