package kvclient

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"raftkv/api"
	"raftkv/kvclient/numbering"
)

// Scan says which keys [KVClient.Scan] returns.
type Scan struct {
	Prefix string // keys that begin with this; "" for all
	After  string // and stand behind this one; "" begins with the first
	Limit  int    // at most so many; 0 means api.DefaultScanLimit, and api.MaxScanLimit is the most

	Consistency api.Consistency // "" means api.ConsistencyLinearizable; there is no api.ConsistencyLog
}

// ScanResult is the result of a scan.
type ScanResult struct {
	Items []api.Item // in the order of the keys' bytes; values are plain bytes
	Next  string     // there are more: scan again with this as After; "" if not

	// AppliedIndex is the place in the log of the state that all items are of. If
	// the next scan has another, the store may have changed in between.
	AppliedIndex uint64

	Stale    bool // this and the rest: see [GetResult]
	Age      time.Duration
	AgeKnown bool
}

// Scan returns keys in their order, and what they hold, as they are in one state
// of the store. What [KVClient.Get] says of its answers and errors holds here.
func (c *KVClient) Scan(ctx context.Context, scan Scan) (ScanResult, error) {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return ScanResult{}, err
	}
	defer done()
	body, err := api.Encode(&api.ScanRequest{Prefix: scan.Prefix, After: scan.After, Limit: scan.Limit, Consistency: scan.Consistency})
	if err != nil {
		return ScanResult{}, &StatusError{api.StatusBadRequest, api.OutcomeNotApplied, err.Error()}
	}
	var call numbering.Call
	answer, err := c.run(ctx, operation{
		method: http.MethodPost,
		path:   api.PathScan,
		body:   body,
		answer: func() api.Response { return new(api.ScanResponse) },
	}, &call)
	if err != nil {
		return ScanResult{}, fmt.Errorf("kvclient: scan: %w", err)
	}
	r := answer.(*api.ScanResponse)
	result := ScanResult{Items: r.Items, Next: r.Next, AppliedIndex: r.AppliedIndex, Stale: r.Stale}
	if r.AgeMillis != nil {
		result.Age, result.AgeKnown = time.Duration(*r.AgeMillis)*time.Millisecond, true
	}
	return result, nil
}
