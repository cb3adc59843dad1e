package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"raftkv/bench/peers/internal/fleet"
	"raftkv/bench/peers/internal/load"
)

// shared asks for puts through one client of the system's own.
const shared = "shared"

// requestTimeout bounds a try of a request in rates.
const requestTimeout = 5 * time.Second

// errLate says that nothing failed, but nothing was ready either.
var errLate = errors.New("all of them took longer; give more --seconds")

// kind is requests of one kind from so many clients.
type kind struct {
	name    string // an Op, or shared
	clients int
}

func (k kind) op() load.Op {
	if k.name == shared {
		return load.Put
	}
	return load.Op(k.name)
}

// parseKinds reads a list such as put@1/64,get@64.
func parseKinds(requests string) ([]kind, error) {
	var kinds []kind
	for _, item := range list(requests) {
		name, counts, ok := strings.Cut(item, "@")
		if !ok || !slices.Contains([]string{"put", "get", "batch", shared}, name) {
			return nil, fmt.Errorf("%q is no request; give put, get, batch or shared, and clients: put@1/64", item)
		}
		clients, err := load.ParseCounts(counts)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", item, err)
		}
		for _, n := range clients {
			kinds = append(kinds, kind{name, n})
		}
	}
	return kinds, nil
}

// rates goes round the contenders, each with a fresh cluster, and again. What the
// machine does meanwhile falls on all of them alike.
func (h *harness) rates(ctx context.Context) error {
	kinds, err := parseKinds(h.options.requests)
	if err != nil {
		return err
	}
	for round := range h.options.rounds {
		for _, name := range list(h.options.contenders) {
			if err := h.round(ctx, round+1, name, kinds); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *harness) round(ctx context.Context, number int, name string, kinds []kind) error {
	c, err := h.up(ctx, name)
	if err != nil {
		return err
	}
	defer c.down()
	for _, k := range kinds {
		if k.name == shared && c.Shared == nil || !slices.Contains(c.Ops, k.op()) {
			continue
		}
		r, err := h.rate(ctx, c, k)
		if err != nil {
			return err
		}
		r.Round = number
		h.results.Rates = append(h.results.Rates, r)
		h.say("round %d  %s", number, r)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// rate is one run against a cluster.
func (h *harness) rate(ctx context.Context, c *cluster, k kind) (rate, error) {
	leader, err := c.leader(ctx)
	if err != nil {
		return rate{}, err
	}
	s, err := dial(c, k, leader)
	if err != nil {
		return rate{}, err
	}
	defer s.Close()
	var servers, client, machine [2]time.Duration
	at := func(i int) func() {
		return func() { servers[i], client[i], machine[i] = c.fleet.CPU(), fleet.OwnCPU(), fleet.MachineCPU() }
	}
	result := load.Run(ctx, s, load.Plan{
		Op: k.op(), Clients: k.clients, ValueBytes: h.options.valueBytes, Keys: h.options.keys,
		Warm: h.options.warm, Measure: h.options.seconds, Began: at(0), Ended: at(1),
	})
	if result.Done == 0 {
		return rate{}, fmt.Errorf("%s answered no %s of %d clients in %v: %w", c.Name, k.name, k.clients, h.options.seconds,
			cmp.Or(result.LastError, ctx.Err(), errLate))
	}
	thousands := float64(result.Done) / 1000
	r := rate{
		Contender: c.Name, Request: k.name, Clients: k.clients,
		PerSecond: result.Rate(),
		P50Millis: millis(result.Latencies.Quantile(0.5)), P99Millis: millis(result.Latencies.Quantile(0.99)),
		ServerCPU: (servers[1] - servers[0]).Seconds() / thousands,
		ClientCPU: (client[1] - client[0]).Seconds() / thousands,
		Others:    (machine[1] - machine[0] - (servers[1] - servers[0]) - (client[1] - client[0])).Seconds() / result.Elapsed.Seconds(),
		Errors:    result.Errors,
	}
	if result.LastError != nil {
		r.LastError = result.LastError.Error()
	}
	return r, nil
}

func dial(c *cluster, k kind, leader int) (load.Session, error) {
	if k.name == shared {
		return c.Shared(c.place, requestTimeout)
	}
	return c.Dial(c.place, k.clients, leader, requestTimeout)
}
