package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"raftkv/internal/sim"
)

// enoughSeeds is how many seeds must, together, have met every event of
// sim.Coverage that their profile can meet. Fewer may miss a rare one by chance.
const enoughSeeds = 500

func newChaos() *cobra.Command {
	c := &cobra.Command{
		Use:   "chaos",
		Short: "Run many seeds; fail if one breaks a promise",
		Long: `Run many clusters in virtual time, each drawn from a number of its own, with
crashes, partitions, slow and failing disks, lost and doubled messages and
impatient clients, while snapshots are taken and sent, members come and go and
leaders hand over. Prints the first failure of each kind with the command that
repeats it, and exits 1 if there is one, or if many seeds together never met
something that they should have met.

With --processes it runs three servers as real processes on loopback, with real
files and clients, kills, stops, cuts off and tears them, and checks what the
clients were told.`,
		Args: cobra.NoArgs,
	}
	seeds := c.Flags().Int("seeds", 1000, "how many seeds to run")
	from := c.Flags().Uint64("from", 1, "the first seed")
	jobs := c.Flags().Int("jobs", runtime.GOMAXPROCS(0), "how many to run at the same time")
	profile := profileFlag(c)
	var processes processFlags
	processes.add(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if processes.on {
			return processes.run(c, *from)
		}
		p, err := profile()
		if err != nil {
			return err
		}
		if *seeds < 1 || *jobs < 1 {
			return fmt.Errorf("--seeds and --jobs must be at least 1")
		}
		debug.SetGCPercent(400) // a run leaves much garbage and keeps little
		b := batch{profile: p, first: *from, seeds: *seeds, start: time.Now(), failures: map[string]sim.Report{}}
		b.run(*jobs, c.ErrOrStderr())
		return b.print(c.OutOrStdout())
	}
	return c
}

// batch is one run of chaos.
type batch struct {
	profile sim.Profile
	first   uint64
	seeds   int
	start   time.Time

	mu         sync.Mutex
	started    int
	done       int
	failed     int
	steps      int64
	operations int64
	simulated  time.Duration
	coverage   sim.Coverage
	failures   map[string]sim.Report // by kind, the one with the lowest seed
	printed    time.Time             // when the last progress was
}

func (b *batch) run(jobs int, progress io.Writer) {
	b.printed = b.start
	var running sync.WaitGroup
	for range jobs {
		running.Go(func() {
			for {
				seed, ok := b.next()
				if !ok {
					return
				}
				b.add(sim.RunSeed(sim.Config{Profile: b.profile}, seed), progress)
			}
		})
	}
	running.Wait()
}

func (b *batch) next() (seed uint64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.started == b.seeds {
		return 0, false
	}
	b.started++
	return b.first + uint64(b.started-1), true
}

func (b *batch) add(r sim.Report, progress io.Writer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done++
	b.steps += r.Steps
	b.operations += int64(r.Operations)
	b.simulated += r.Duration
	b.coverage.Add(&r.Coverage)
	if f := r.Failure; f != nil {
		b.failed++
		first, known := b.failures[f.Kind]
		if !known {
			fmt.Fprintf(progress, "seed %d: %s; repeat: %s\n", r.Seed, f.Kind, r.RepeatLine())
		}
		if !known || r.Seed < first.Seed {
			b.failures[f.Kind] = r
		}
	}
	if now := time.Now(); now.Sub(b.printed) >= 2*time.Second {
		b.printed = now
		fmt.Fprintln(progress, b.speed())
	}
}

func (b *batch) speed() string {
	seconds := time.Since(b.start).Seconds()
	return fmt.Sprintf("%d of %d seeds, %d failed, %.0f seeds/s, %.0f events/s, %.0f simulated seconds/s",
		b.done, b.seeds, b.failed, float64(b.done)/seconds, float64(b.steps)/seconds, b.simulated.Seconds()/seconds)
}

// print reports what was found, and returns errFound if that is not good.
func (b *batch) print(w io.Writer) error {
	fmt.Fprint(w, b.coverage.String())
	fmt.Fprintf(w, "%d seeds of profile %s in %.1fs: %d events, %d operations, %.0f simulated seconds (%s)\n",
		b.done, b.profile.Name, time.Since(b.start).Seconds(), b.steps, b.operations, b.simulated.Seconds(), b.speed())
	var kinds []string
	for kind := range b.failures {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	for _, kind := range kinds {
		r := b.failures[kind]
		fmt.Fprintf(w, "FAILED %s: seed %d after %v: %s\n\trepeat: %s\n", kind, r.Seed, r.Failure.At, r.Failure.Text, r.RepeatLine())
	}
	missing := b.coverage.Missing(b.profile)
	if b.seeds >= enoughSeeds {
		for _, e := range missing {
			fmt.Fprintf(w, "FAILED coverage: never met: %s\n", e)
		}
	}
	if b.failed > 0 || b.seeds >= enoughSeeds && len(missing) > 0 {
		return errFound
	}
	fmt.Fprintln(w, "ok")
	return nil
}
