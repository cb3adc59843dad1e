// Package kvclient asks a cluster of services: it finds the leader, and asks
// again when it hears nothing.
package kvclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"raftkv/part4-kvservice/api"
)

// A call that its context has ended returns one of these errors.
var (
	// ErrUnknown reports that the command may or may not be carried out, now or
	// later: some attempt ended without a clear answer.
	ErrUnknown = errors.New("the command may or may not be carried out")
	// ErrNotDone reports that the command was not and will not be carried out:
	// every attempt was refused.
	ErrNotDone = errors.New("no server took the command")
)

// How long a client waits. Both grow with each attempt of a call: a cluster that
// is busy, or is electing a leader, is not helped by more requests.
const (
	attemptTimeout = 500 * time.Millisecond // for the answer of one server; up to 8 s
	firstPause     = 10 * time.Millisecond  // before the next server is asked; up to 160 ms
	doublings      = 4
)

// KVClient is a client of the cluster. Any number of goroutines may use it.
type KVClient struct {
	// HTTPClient sends the requests. Set another one before the first call.
	HTTPClient *http.Client

	addrs         []string
	assumedLeader atomic.Int64 // an index into addrs
}

// New returns a client of the services at the given addresses, host:port.
func New(serviceAddrs []string) *KVClient {
	return &KVClient{
		HTTPClient: http.DefaultClient,
		addrs:      serviceAddrs,
	}
}

// Put gives key a value. It returns the value that the key had before and whether
// it had one. Like all calls it goes on until it succeeds or ctx ends.
func (c *KVClient) Put(ctx context.Context, key, value string) (prevValue string, keyFound bool, err error) {
	var resp api.PutResponse
	err = c.send(ctx, "put", api.PutRequest{Key: key, Value: value}, &resp)
	return resp.PrevValue, resp.KeyFound, err
}

// Append puts value behind what key has, which may be nothing. It returns the
// value that the key had before and whether it had one.
func (c *KVClient) Append(ctx context.Context, key, value string) (prevValue string, keyFound bool, err error) {
	var resp api.AppendResponse
	err = c.send(ctx, "append", api.AppendRequest{Key: key, Value: value}, &resp)
	return resp.PrevValue, resp.KeyFound, err
}

// CAS gives key a value if it has compare now. It returns the value that the key
// had before and whether it had one: they were swapped if that is compare.
func (c *KVClient) CAS(ctx context.Context, key, compare, value string) (prevValue string, keyFound bool, err error) {
	var resp api.CASResponse
	err = c.send(ctx, "cas", api.CASRequest{Key: key, CompareValue: compare, Value: value}, &resp)
	return resp.PrevValue, resp.KeyFound, err
}

// Get returns the value of key and whether it has one.
func (c *KVClient) Get(ctx context.Context, key string) (value string, keyFound bool, err error) {
	var resp api.GetResponse
	err = c.send(ctx, "get", api.GetRequest{Key: key}, &resp)
	return resp.Value, resp.KeyFound, err
}

// send sends one request again and again, to one server after the other, until
// it is carried out or ctx ends. Either the request was lost, or the answer was:
// from here the two look the same, so it is sent again in both cases.
func (c *KVClient) send(ctx context.Context, route string, req, resp any) error {
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	failure := ErrNotDone // so far
	for attempt := 0; ctx.Err() == nil; attempt++ {
		leader := c.assumedLeader.Load()
		growth := min(attempt, doublings)
		head, err := c.sendJSONRequest(ctx, attemptTimeout<<growth, c.addrs[leader], route, body, resp)
		var bad badRequestError
		switch {
		case errors.As(err, &bad):
			return bad
		case err == nil && head.RespStatus == api.StatusOK:
			return nil
		case err == nil && head.RespStatus == api.StatusNotLeader:
			// This attempt has done nothing.
		default:
			failure = ErrUnknown
		}
		// If another call has found a leader meanwhile, keep to that one.
		c.assumedLeader.CompareAndSwap(leader, (leader+1)%int64(len(c.addrs)))
		// At random, so that many clients do not come back at the same moment.
		pause := firstPause << growth
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("%s: %w: %w", route, failure, ctx.Err())
}

// badRequestError is a service's reason to refuse a request for what it says.
// Asking again would not help.
type badRequestError string

func (e badRequestError) Error() string { return string(e) }

// sendJSONRequest sends a request to one service. It fills resp only from an
// answer of StatusOK, so nothing of an earlier attempt can shine through.
func (c *KVClient) sendJSONRequest(ctx context.Context, timeout time.Duration, addr, route string, body []byte, resp any) (api.Head, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/"+route+"/", bytes.NewReader(body))
	if err != nil {
		return api.Head{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := c.HTTPClient.Do(req)
	if err != nil {
		return api.Head{}, err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		return api.Head{}, err
	}
	if answer.StatusCode == http.StatusBadRequest {
		return api.Head{}, badRequestError(data)
	}
	var head api.Head
	err = json.Unmarshal(data, &head)
	if err == nil && head.RespStatus == api.StatusOK {
		err = json.Unmarshal(data, resp)
	}
	return head, err
}
