package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"raftkv/api"
	"raftkv/internal/load"
)

func benchCommand() *cobra.Command {
	var f clientFlags
	var c load.Config
	var reads, html string
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Load a cluster and measure what clients see",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			c.Endpoints, c.CallTimeout, c.Consistency = f.list(), f.timeout, api.Consistency(reads)
			if !cmd.Flags().Changed("duration") && c.Calls > 0 {
				c.Duration = 0
			}
			report, err := load.Run(cmd.Context(), c)
			if err != nil && report.Calls == nil {
				return refused("%v", err)
			}
			if printErr := f.printBench(cmd, report); printErr != nil {
				return printErr
			}
			if html != "" {
				if err := writeBenchPage(html, report); err != nil {
					return refused("the page was not written: %v", err)
				}
			}
			if err != nil {
				return unknown("the store does not hold what it said: %v", err)
			}
			if report.Calls[load.Applied] == 0 {
				return unavailable("no call was answered at %s: %s", f.endpoints, firstError(report))
			}
			return nil
		},
	}
	f.addTo(cmd)
	flags := cmd.Flags()
	flags.IntVar(&c.Clients, "clients", 64, "calls at once")
	flags.BoolVar(&c.Shared, "shared-client", false, "all calls through one client, whose calls travel together")
	flags.DurationVar(&c.Duration, "duration", 10*time.Second, "how long calls are begun")
	flags.IntVar(&c.Calls, "calls", 0, "end after so many calls; 0 means when the time is over")
	flags.Float64Var(&c.Rate, "rate", 0, "calls begun in a second, whether or not earlier ones have ended; 0 means as fast as they end")
	flags.Float64Var(&c.Writes, "writes", 1, "the share of puts, from 0 to 1; the rest are gets")
	flags.IntVar(&c.Batch, "batch", 1, "so many puts in each call that writes; they are counted one by one")
	flags.StringVar(&reads, "reads", "linearizable", "level of the gets: linearizable, lease, log or stale")
	flags.IntVar(&c.ValueBytes, "value-bytes", 100, "size of the values")
	flags.IntVar(&c.Keys, "keys", 10_000, "how many keys")
	flags.StringVar((*string)(&c.Distribution), "distribution", "uniform", "of the keys: uniform, zipf or sequential")
	flags.Uint64Var(&c.Seed, "seed", 1, "of the choice of keys")
	flags.BoolVar(&c.Check, "check", false, "append unique tokens instead, and look for each of them afterwards")
	flags.StringVar(&html, "html", "", "also write the report as a page to this file")
	return cmd
}

func firstError(r load.Report) string {
	for _, o := range load.Outcomes {
		if e := r.Errors[o]; e != "" {
			return oneLine(e)
		}
	}
	return "the time was over before any call ended"
}

func writeBenchPage(name string, report load.Report) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(report.WriteHTML(file, "raftkv bench"), file.Close())
}

// benchResult is a report with the names and units that programs read.
type benchResult struct {
	CallsPerSecond   float64
	Applied          int
	NotApplied       int
	Unknown          int
	Seconds          float64
	P50Micros        int64
	P99Micros        int64
	P999Micros       int64
	LongestMicros    int64
	LongestGapMicros int64
	AppliedPerSecond []int
}

func (f *clientFlags) printBench(cmd *cobra.Command, r load.Report) error {
	out := cmd.OutOrStdout()
	if f.format == formatSimple {
		_, err := fmt.Fprint(out, r)
		return err
	}
	result := benchResult{
		CallsPerSecond:   r.Throughput(),
		Applied:          r.Calls[load.Applied],
		NotApplied:       r.Calls[load.NotApplied],
		Unknown:          r.Calls[load.Unknown],
		Seconds:          r.Elapsed.Seconds(),
		P50Micros:        load.Percentile(r.Latencies, 50).Microseconds(),
		P99Micros:        load.Percentile(r.Latencies, 99).Microseconds(),
		P999Micros:       load.Percentile(r.Latencies, 99.9).Microseconds(),
		LongestMicros:    load.Percentile(r.Latencies, 100).Microseconds(),
		LongestGapMicros: r.LongestGap.Microseconds(),
	}
	for _, s := range r.Timeline {
		result.AppliedPerSecond = append(result.AppliedPerSecond, s.Applied)
	}
	if f.format == formatJSON {
		return printJSON(out, result)
	}
	rows := [][]any{{"SECOND", "APPLIED", "FAILED", "P50", "P99", "LONGEST"}}
	for i, s := range r.Timeline {
		rows = append(rows, []any{i, s.Applied, s.Failed, load.Round(s.P50), load.Round(s.P99), load.Round(s.Max)})
	}
	return printTable(out, rows...)
}
