package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"raftkv/bench/peers/internal/contender"
	"raftkv/bench/peers/internal/fleet"
)

// nodes is how many processes a cluster has.
const nodes = 3

// harness runs the measures and holds what they have found.
type harness struct {
	options  *options
	scratch  string // on the disk that is measured; removed at the end
	programs string // stays: what has not changed is not linked again
	raftkv   string
	results  results
}

func newHarness(o *options) (*harness, error) {
	if err := os.MkdirAll(o.data, 0o755); err != nil {
		return nil, err
	}
	var stat syscall.Statfs_t
	if err := syscall.Statfs(o.data, &stat); err != nil {
		return nil, err
	}
	const tmpfs = 0x01021994
	if stat.Type == tmpfs {
		return nil, fmt.Errorf("%s is in memory, where a sync costs nothing; name a folder on a disk with --data", o.data)
	}
	data, err := filepath.Abs(o.data)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	scratch, err := os.MkdirTemp(data, "run-")
	if err != nil {
		return nil, err
	}
	return &harness{options: o, scratch: scratch, programs: filepath.Join(filepath.Dir(self), "programs"), results: newResults(o)}, nil
}

func (h *harness) close() { os.RemoveAll(h.scratch) }

// build makes the programs: those of this module, and raftkv if none was given.
func (h *harness) build(ctx context.Context) (err error) {
	h.say("building")
	if err := goBuild(ctx, ".", "-o", h.programs+"/", "./cmd/..."); err != nil {
		return err
	}
	if h.raftkv, err = filepath.Abs(h.options.raftkv); h.options.raftkv != "" {
		return err
	}
	h.raftkv = filepath.Join(h.programs, "raftkv")
	return goBuild(ctx, filepath.Join("..", ".."), "-o", h.raftkv, "./cmd/raftkv")
}

func goBuild(ctx context.Context, dir string, arguments ...string) error {
	c := exec.CommandContext(ctx, "go", append([]string{"build"}, arguments...)...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%v in %s: %w\n%s", c.Args, dir, err, out)
	}
	return nil
}

// say tells the person at the terminal how far it is.
func (h *harness) say(format string, arguments ...any) {
	fmt.Printf(time.Now().Format("15:04:05 ")+format+"\n", arguments...)
}

// cluster is a contender that runs.
type cluster struct {
	*contender.Contender
	place contender.Place
	fleet *fleet.Fleet
	dir   string
}

// up starts a contender with nothing in it and waits until it has a leader.
func (h *harness) up(ctx context.Context, name string) (*cluster, error) {
	c, err := contender.Named(name)
	if err != nil {
		return nil, err
	}
	addresses, err := fleet.Addresses(2 * nodes)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(h.scratch, name+"-")
	if err != nil {
		return nil, err
	}
	up := &cluster{Contender: c, dir: dir, place: contender.Place{
		Programs: h.programs, Raftkv: h.raftkv, Peers: addresses[:nodes], Clients: addresses[nodes:],
	}}
	var commands [][]string
	for i := range nodes {
		of := filepath.Join(dir, fmt.Sprintf("node-%d", i))
		if err := os.Mkdir(of, 0o755); err != nil {
			return nil, err
		}
		up.place.Dirs = append(up.place.Dirs, of)
	}
	for i := range nodes {
		commands = append(commands, c.Command(up.place, i))
	}
	if up.fleet, err = fleet.Start(dir, commands); err != nil {
		return nil, err
	}
	if _, err := up.leader(ctx); err != nil {
		up.down()
		return nil, err
	}
	return up, nil
}

// down ends the processes and removes their data.
func (c *cluster) down() {
	c.fleet.KillAll()
	os.RemoveAll(c.dir)
}

// leader waits until a node says that it leads, for a minute at most.
func (c *cluster) leader(ctx context.Context) (int, error) {
	limit := time.Now().Add(time.Minute)
	for time.Now().Before(limit) {
		for i := range nodes {
			if c.Leads(c.place, i) {
				return i, nil
			}
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return 0, errors.New(c.Name + " has no leader; node 0 said: " + c.fleet.Output(0))
}

// pause waits; the error says that ctx ended first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func list(s string) []string { return strings.Split(s, ",") }
