package main

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"raftkv/bench/peers/internal/load"
)

// fillClients are enough to fill quickly, and no more: with 25,600 puts at once a
// system would show how it bears overload.
var fillClients = map[load.Op]int{load.Put: 256, load.Batch: 16}

const (
	// settle is how long a system that was filled may tidy up before its memory is
	// read a second time.
	settle = 5 * time.Second

	// crashes is how often all nodes are killed.
	crashes = 3
)

// recovery fills a system, reads its memory, kills all of its nodes at once and
// waits for a linearizable read that has the last key.
func (h *harness) recovery(ctx context.Context) error {
	for _, name := range list(h.options.recovery) {
		c, err := h.up(ctx, name)
		if err != nil {
			return err
		}
		r, err := h.fillAndKill(ctx, c)
		c.down()
		if err != nil {
			return err
		}
		h.results.Recoveries = append(h.results.Recoveries, r)
		h.say("%s", r)
	}
	return nil
}

func (h *harness) fillAndKill(ctx context.Context, c *cluster) (recovery, error) {
	r := recovery{Contender: c.Name, Keys: h.options.million, Fill: h.options.fill}
	leader, err := c.leader(ctx)
	if err != nil {
		return r, err
	}
	op := load.Op(h.options.fill)
	clients, ok := fillClients[op]
	if !ok {
		return r, fmt.Errorf("--fill is put or batch, not %q", op)
	}
	s, err := c.Dial(c.place, clients, leader, requestTimeout)
	if err != nil {
		return r, err
	}
	plan := load.Plan{Op: op, Clients: clients, ValueBytes: h.options.valueBytes, Each: h.options.million}
	if plan.Op == load.Batch {
		plan.Each /= load.BatchSize
	}
	filled := load.Run(ctx, s, plan)
	s.Close()
	r.FillPerSecond, r.Errors = filled.Rate(), filled.Errors
	if filled.LastError != nil {
		r.LastError = filled.LastError.Error()
	}
	r.RSSMiB = c.fleet.RSS()
	if err := pause(ctx, settle); err != nil {
		return r, err
	}
	r.SettledRSSMiB, r.HeapMiB = c.fleet.RSS(), c.heap()
	r.DiskMiB = size(c.place.Dirs[leader]) >> 20
	for range crashes {
		c.fleet.KillAll()
		began := time.Now()
		if err := c.fleet.StartAll(); err != nil {
			return r, err
		}
		if err := h.firstRead(ctx, c); err != nil {
			return r, err
		}
		r.ReadMillis = append(r.ReadMillis, millis(time.Since(began)))
		if err := pause(ctx, before); err != nil {
			return r, err
		}
	}
	r.RestartedRSSMiB = c.fleet.RSS()
	return r, nil
}

// firstRead waits until a node answers with the last key. All nodes are asked at the
// same time, so that none that keeps a client waiting costs the others anything. An
// answer without the key does not count: whoever gives it has not recovered.
func (h *harness) firstRead(ctx context.Context, c *cluster) error {
	limit, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	found := make(chan error, nodes)
	for first := range nodes {
		s, err := c.Dial(c.place, 1, first, time.Second)
		if err != nil {
			return err
		}
		go func() {
			defer s.Close()
			for {
				err := s.Do(0, load.Request{Op: load.Find, Key: h.options.million - 1})
				if err == nil || limit.Err() != nil {
					found <- err
					return
				}
				pause(limit, 5*time.Millisecond)
			}
		}()
	}
	if err := <-found; err != nil {
		return fmt.Errorf("%s did not come back: %w", c.Name, err)
	}
	return nil
}

// heap asks each node for the bytes in its heap, in MiB; 0 for one that does not say.
func (c *cluster) heap() []int {
	var all []int
	for _, addr := range c.place.Clients {
		all = append(all, heapOf(addr))
	}
	return all
}

func heapOf(addr string) int {
	answer, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "go_memstats_heap_inuse_bytes "); ok {
			bytes, _ := strconv.ParseFloat(value, 64)
			return int(bytes) >> 20
		}
	}
	return 0
}

// size returns how many bytes the files in dir have.
func size(dir string) (sum int64) {
	filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil // a file that was removed meanwhile has none
		}
		if info, err := entry.Info(); err == nil {
			sum += info.Size()
		}
		return nil
	})
	return sum
}
