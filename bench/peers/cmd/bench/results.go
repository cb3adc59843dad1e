package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// results are all that was measured, in the order in which it was.
type results struct {
	Began      time.Time
	Go         string
	Cores      int
	ValueBytes int
	Rounds     int
	Client     string // which one stands behind the rates
	Disk       []disk
	Rates      []rate
	Failovers  []failover
	Syncs      []syncs
	Recoveries []recovery
}

// client is said with every table: on a small machine it is part of the figure.
const client = "HTTP: bench/internal/rawhttp, one connection each, one request at a time; etcd: clientv3, 16 clients a connection; " +
	"shared: kvclient and clientv3, one for all"

func newResults(o *options) results {
	return results{
		Began: time.Now().Round(time.Second), Go: runtime.Version(), Cores: runtime.NumCPU(),
		ValueBytes: o.valueBytes, Rounds: o.rounds, Client: client,
	}
}

// rate is one run of one kind of requests.
type rate struct {
	Round     int
	Contender string
	Request   string // an Op, or shared
	Clients   int
	PerSecond float64 // puts or gets; a batch is 100
	P50Millis float64
	P99Millis float64
	ServerCPU float64 // seconds for a thousand, all three nodes together
	ClientCPU float64 // seconds for a thousand
	Others    float64 // cores that were taken by what is not part of this
	Errors    uint64
	LastError string `json:",omitempty"`
}

func (r rate) String() string {
	s := fmt.Sprintf("%-16s %-6s %3d  %8.0f/s  p50 %7.2f ms  p99 %7.2f ms  CPU s/1000: servers %.3f client %.3f  others %.2f cores",
		r.Contender, r.Request, r.Clients, r.PerSecond, r.P50Millis, r.P99Millis, r.ServerCPU, r.ClientCPU, r.Others)
	if r.Errors > 0 {
		s += fmt.Sprintf("  %d tries failed, the last: %s", r.Errors, r.LastError)
	}
	return s
}

// failover is what clients saw of leaders that were killed.
type failover struct {
	Contender string
	Client    string    // each its own, or shared
	GapMillis []float64 // the longest time without a put, of each kill
	Errors    uint64    // tries that failed; of a shared client, calls
	LastError string    `json:",omitempty"`
}

func (f failover) String() string {
	return fmt.Sprintf("%-16s %-12s gaps %.0f ms, median %.0f; %d errors %s", f.Contender, f.Client, f.GapMillis, median(f.GapMillis), f.Errors, f.LastError)
}

// syncs is what strace saw.
type syncs struct {
	Contender string
	Puts      int   // that were answered
	Durable   int   // of them, with a whole sync on a majority between the question and the answer
	Syncs     []int // of the journal, by node
}

func (s syncs) String() string {
	return fmt.Sprintf("%-16s %d of %d puts had a sync on a majority behind them; syncs by node %v", s.Contender, s.Durable, s.Puts, s.Syncs)
}

// recovery is what a system needs for many keys. The lists have one figure a node.
type recovery struct {
	Contender       string
	Keys            int
	Fill            string // put or batch
	FillPerSecond   float64
	Errors          uint64 // tries that failed while it was filled
	LastError       string `json:",omitempty"`
	RSSMiB          []int  // right after it was filled
	SettledRSSMiB   []int  // five seconds later
	HeapMiB         []int  // then, in use
	RestartedRSSMiB []int  // after the last restart
	DiskMiB         int64  // of the leader
	ReadMillis      []float64
}

func (r recovery) String() string {
	return fmt.Sprintf("%-16s %d keys by %s at %.0f/s, %d errors %s; MiB: RSS %v, settled %v, heap %v, restarted %v, disk %d; killed, to the first read: %.0f ms",
		r.Contender, r.Keys, r.Fill, r.FillPerSecond, r.Errors, r.LastError, r.RSSMiB, r.SettledRSSMiB, r.HeapMiB, r.RestartedRSSMiB, r.DiskMiB, r.ReadMillis)
}

// disk is what one thread got of it.
type disk struct {
	Filled         bool // the file was written before, else it grew
	SyncsPerSecond float64
	P50Millis      float64
	P99Millis      float64
}

func (d disk) String() string {
	file := "a file that grows"
	if d.Filled {
		file = "a file filled before"
	}
	return fmt.Sprintf("4 KiB and a sync, %s: %.0f/s, p50 %.2f ms, p99 %.2f ms", file, d.SyncsPerSecond, d.P50Millis, d.P99Millis)
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// write leaves the results where the options say.
func (h *harness) write() error {
	if err := os.MkdirAll(h.options.out, 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(h.results, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(h.options.out, "results.json"), append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(h.options.out, "results.txt"), []byte(h.results.text()), 0o644)
}
