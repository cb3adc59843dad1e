// Curves measures how the cost of a write grows with clients, value size, cluster
// size and history: docs/performance.md shows the tables that it prints.
//
//	go build -o bin/raftkv ./cmd/raftkv
//	go run ./bench/curves                 all curves, some ten minutes
//	go run ./bench/curves -only clients   one of them
//	go run ./bench/curves -only point -op get -clients 64 -duration 20s -profile get
//
// Every point is a fresh cluster of processes on loopback, loaded in a closed loop
// by a cheap HTTP client that asks the leader. The rate means something on a quiet
// machine only. The processor time per thousand operations is good on a busy one
// too; it is for Linux.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"time"
)

func main() {
	var p point
	program := flag.String("raftkv", "bin/raftkv", "the program to measure")
	dir := flag.String("data", "", "where the data directories go, on the disk to be measured; empty means the system's temporary directory")
	only := flag.String("only", "", "one curve: operations, clients, values, servers or history; or point, as the flags below say")
	flag.StringVar(&p.op, "op", "put", "of a point: put, get or batch (of 100 puts)")
	flag.IntVar(&p.clients, "clients", 64, "of a point")
	flag.IntVar(&p.valueBytes, "value-bytes", 100, "of a point")
	flag.IntVar(&p.servers, "servers", 3, "of a point")
	flag.IntVar(&p.keys, "keys", 10_000, "of a point: how many there are before the measuring begins")
	flag.DurationVar(&p.duration, "duration", 8*time.Second, "how long each point is measured")
	profiles := flag.String("profile", "", "after each point, write profiles to files that begin with this")
	flag.Parse()

	if _, err := exec.LookPath(*program); err != nil {
		fail(fmt.Errorf("%w; build it with: go build -o bin/raftkv ./cmd/raftkv", err))
	}
	curves := curvesOf(p)
	if *only == "point" {
		curves = []curve{{"point", []point{p}}}
	}
	for _, c := range curves {
		if *only != "" && *only != c.name {
			continue
		}
		fmt.Printf("\n%s\n\n", header)
		for _, p := range c.points {
			m, err := measure(*program, *dir, *profiles, p)
			if err != nil {
				fail(fmt.Errorf("%v: %w", p, err))
			}
			fmt.Println(m)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "curves:", err)
	os.Exit(1)
}

// storeBytes bounds the values in the store where values are large: three servers
// have them in memory here.
const storeBytes = 100 << 20

// curve is a row of points that differ in one thing.
type curve struct {
	name   string
	points []point
}

// curvesOf returns all curves. What a curve does not vary is as in p.
func curvesOf(p point) []curve {
	vary := func(name string, change func(*point, int), values ...int) curve {
		c := curve{name: name}
		for _, v := range values {
			changed := p
			change(&changed, v)
			c.points = append(c.points, changed)
		}
		return c
	}
	operations := curve{name: "operations"}
	for _, o := range []struct {
		op      string
		clients int
	}{{"put", 1}, {"put", 64}, {"put", 256}, {"get", 64}, {"batch", 16}} {
		changed := p
		changed.op, changed.clients = o.op, o.clients
		operations.points = append(operations.points, changed)
	}
	return []curve{
		operations,
		vary("clients", func(p *point, v int) { p.clients = v }, 1, 4, 16, 64, 256, 1024),
		vary("values", func(p *point, v int) { p.valueBytes, p.keys = v, min(p.keys, storeBytes/v) }, 10, 100, 1_000, 10_000, 100_000),
		vary("servers", func(p *point, v int) { p.servers = v }, 1, 3, 5, 7),
		vary("history", func(p *point, v int) { p.keys = v }, 1_000, 10_000, 100_000, 1_000_000),
	}
}
