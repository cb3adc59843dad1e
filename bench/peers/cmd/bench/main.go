// Command bench measures raftkv beside what people would pick instead: every
// system as three processes on this machine, with its data on one disk and sync on.
// README.md says what is compared and how fair it is.
//
//	main.go      the command line
//	harness.go   programs, clusters and what is left of them
//	rates.go     requests per second, latency, CPU, all systems in turn
//	failover.go  how long nobody can write when the leader is killed
//	recovery.go  memory, and all nodes killed at once
//	syncs.go     whether a sync stands behind every answer
//	disk.go      what one sync costs here
//	results.go   what was measured, as JSON
//	tables.go    and as text
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const usage = `usage: bench MEASURE [flags]

  all        disk, rates, failover, syncs and recovery
  quick      disk and rates, with fewer contenders, in about six minutes
  rates      requests per second, latency, CPU of servers and client
  failover   the longest time without a put when the leader is killed
  syncs      whether a sync stands behind every answer, by strace
  recovery   memory, and kill -9 of all nodes until the first read
  disk       what one sync costs

flags:
`

// options are the flags.
type options struct {
	contenders string
	requests   string
	rounds     int
	warm       time.Duration
	seconds    time.Duration
	valueBytes int
	keys       int

	failover string
	kills    int
	after    time.Duration

	syncs string

	recovery string
	million  int
	fill     string

	raftkv string
	data   string
	out    string
}

func main() {
	var o options
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	flags.StringVar(&o.contenders, "contenders", "", "whom to measure in rates, comma between; empty for the usual ones")
	flags.StringVar(&o.requests, "requests", "put@1/64/256,get@64,batch@16,shared@256", "kinds of requests in rates, each with its numbers of clients; shared is puts through one client of the system's own")
	flags.IntVar(&o.rounds, "rounds", 3, "how often rates goes round all contenders; medians are printed")
	flags.DurationVar(&o.warm, "warm", time.Second, "how long a run of rates goes before it counts")
	flags.DurationVar(&o.seconds, "seconds", 3*time.Second, "how long it counts")
	flags.IntVar(&o.valueBytes, "value-bytes", 100, "size of the values")
	flags.IntVar(&o.keys, "keys", 100_000, "how many keys, of 16 bytes")
	flags.StringVar(&o.failover, "failover", "etcd-tuned,hashi-wal-tuned,raftkv-tuned", "whose leaders to kill")
	flags.IntVar(&o.kills, "kills", 5, "how often each")
	flags.DurationVar(&o.after, "after", 3*time.Second, "how long to watch after a kill")
	flags.StringVar(&o.syncs, "syncs", "etcd,hashi-bolt,hashi-wal,dragon,raftkv,bound,bound-fast,bound-nosync", "whose syncs to watch; bound-nosync does none, and the check must say so")
	flags.StringVar(&o.recovery, "recovery", "etcd,hashi-wal,raftkv", "whom to fill, measure and kill")
	flags.IntVar(&o.million, "fill-keys", 1_000_000, "how many keys recovery fills in")
	flags.StringVar(&o.fill, "fill", "put", "how: put, one request for each key, or batch, which is quicker but makes a hundredth of the log entries")
	flags.StringVar(&o.raftkv, "raftkv", "", "the raftkv to measure; empty builds the one in this repository")
	flags.StringVar(&o.data, "data", "../../out/peers", "a folder on the disk that is to be measured; what is put there is removed")
	flags.StringVar(&o.out, "out", "../../out/peers", "the folder for results.json and results.txt")
	flags.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flags.PrintDefaults()
	}
	if len(os.Args) < 2 || strings.HasPrefix(os.Args[1], "-") {
		flags.Usage()
		os.Exit(2)
	}
	flags.Parse(os.Args[2:])
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1], o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run does one of the measures, or several.
func run(ctx context.Context, measure string, o options) error {
	usual := "etcd,hashi-wal,hashi-wal-tuned,dragon,raftkv,bound,bound-fast"
	var steps []func(context.Context) error
	h, err := newHarness(&o)
	if err != nil {
		return err
	}
	defer h.close()
	switch measure {
	case "all":
		steps = append(steps, h.disk, h.rates, h.failover, h.syncs, h.recovery)
	case "quick":
		usual = "etcd,hashi-wal,raftkv,bound,bound-fast"
		steps = append(steps, h.disk, h.rates)
	case "rates":
		steps = append(steps, h.rates)
	case "failover":
		steps = append(steps, h.failover)
	case "syncs":
		steps = append(steps, h.syncs)
	case "recovery":
		steps = append(steps, h.recovery)
	case "disk":
		steps = append(steps, h.disk)
	default:
		return fmt.Errorf("there is no measure %q; run bench without arguments for a list", measure)
	}
	if o.contenders == "" {
		o.contenders = usual
	}
	if err := h.build(ctx); err != nil {
		return err
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
		// After each step, so that a later one that fails takes nothing with it.
		if err := h.write(); err != nil {
			return err
		}
	}
	fmt.Print("\n", h.results.text())
	return nil
}
