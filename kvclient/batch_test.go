package kvclient

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"raftkv/api"
)

func appends(n int) []Write {
	writes := make([]Write, n)
	for i := range writes {
		writes[i] = Write{Op: OpAppend, Key: "k", Value: fmt.Sprintf("%d,", i)}
	}
	return writes
}

func joined(n int) string {
	text := ""
	for i := range n {
		text += fmt.Sprintf("%d,", i)
	}
	return text
}

// A batch whose answer is lost is sent again as it is, and nothing happens
// twice. More writes than the window has room for are more batches.
func TestBatch(t *testing.T) {
	f := newFakeCluster()
	var batches atomic.Int32
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		answer := f.serve(r.URL.Path, body)
		if r.URL.Path == api.PathBatch && batches.Add(1) == 1 {
			cut(w)
			return
		}
		writeAnswer(w, answer)
	})
	results := c.Batch(within(t, 10*time.Second), appends(600))
	require.Len(t, results, 600)
	for i, r := range results {
		require.NoError(t, r.Err)
		require.Equal(t, joined(i), r.PrevValue)
		require.Equal(t, i < 256, r.Duplicate)
	}
	require.Equal(t, joined(600), f.value("k"))
	require.EqualValues(t, 4, batches.Load(), "256, again, 256, 88")
}

// Two batches that each need the whole window do not wait for each other for ever.
func TestBatchesShareTheWindow(t *testing.T) {
	f := newFakeCluster()
	c, _ := serve(t, f.ServeHTTP)
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for _, r := range c.Batch(within(t, 10*time.Second), appends(300)) {
				if r.Err != nil {
					t.Error(r.Err)
				}
			}
		})
	}
	running.Wait()
	require.Len(t, f.value("k"), 4*len(joined(300)))
}

// One write that makes no sense does not take the others along, and what was
// answered Busy in a batch is sent again alone.
func TestBatchWithOddOperations(t *testing.T) {
	f := newFakeCluster()
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path != api.PathBatch {
			writeAnswer(w, f.serve(r.URL.Path, body))
			return
		}
		answer := &api.BatchResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied}
		for _, refusal := range []*api.ErrorResponse{
			{RespStatus: api.StatusBusy, Outcome: api.OutcomeUnknown},
			{RespStatus: api.StatusConditionFailed, Outcome: api.OutcomeNotApplied},
		} {
			data, _ := api.Encode(refusal)
			answer.Results = append(answer.Results, data)
		}
		writeAnswer(w, answer)
	})
	writes := []Write{{Op: OpAppend, Key: "k", Value: "a"}, {Op: OpPut, Key: "l", Value: "b"}}
	results := c.Batch(within(t, 10*time.Second), writes)
	require.NoError(t, results[0].Err)
	require.Equal(t, "a", f.value("k"))
	var refused *StatusError
	var unknown *UnknownError
	require.ErrorAs(t, results[1].Err, &refused)
	require.NotErrorAs(t, results[1].Err, &unknown)
	require.Equal(t, api.StatusConditionFailed, refused.Status)

	writes[1] = Write{Op: OpCAS, Key: "k", IfVersion: new(uint64(1))}
	results = c.Batch(within(t, 10*time.Second), writes)
	require.NoError(t, results[0].Err)
	require.ErrorContains(t, results[1].Err, "no such condition")
	require.Equal(t, "aa", f.value("k"))

	writes[1] = Write{Op: OpPut, Key: ""}
	results = c.Batch(within(t, 10*time.Second), writes)
	require.NoError(t, results[0].Err)
	require.ErrorAs(t, results[1].Err, &refused)
	require.Equal(t, api.StatusBadRequest, refused.Status)
	require.Equal(t, "aaa", f.value("k"))
}

// That the batch was carried out says nothing of an operation that was not: if the
// answer to that one never comes, nobody knows.
func TestBatchOperationThatStaysUnknown(t *testing.T) {
	f := newFakeCluster()
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case api.PathBatch:
			data, _ := api.Encode(&api.ErrorResponse{RespStatus: api.StatusBusy, Outcome: api.OutcomeUnknown})
			writeAnswer(w, &api.BatchResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, Results: []jsontext.Value{data}})
		case api.PathAppend:
			writeAnswer(w, api.Refuse(api.StatusTimeout, ""))
		default:
			writeAnswer(w, f.serve(r.URL.Path, body))
		}
	})
	var unknown *UnknownError
	require.ErrorAs(t, c.Batch(within(t, 200*time.Millisecond), appends(1))[0].Err, &unknown)
}
