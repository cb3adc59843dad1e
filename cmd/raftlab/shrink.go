package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raftkv/internal/shrink"
	"raftkv/internal/sim"
)

func newShrink() *cobra.Command {
	c := &cobra.Command{
		Use:   "shrink",
		Short: "Find the few faults and calls with which a seed still fails",
		Long: `Run a seed that fails again and again, each time with fewer faults and fewer
calls of clients, and keep what still fails with the same property. Prints what
is left and writes it to a file for: raftlab replay --decisions FILE. If the
failure is a property of Raft alone, it is also told as a story in the language of
testdata/scenarios, as short as it still fails, for: raftlab scenario run FILE.`,
		Args: cobra.NoArgs,
	}
	seed := c.Flags().Uint64("seed", 1, "the seed; it must fail")
	runs := c.Flags().Int("runs", 2000, "give up looking for less after so many runs")
	out := c.Flags().StringP("out", "o", "", "where to write what is left (default seed-N.json; the story goes to seed-N.txt)")
	profile := profileFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		p, err := profile()
		if err != nil {
			return err
		}
		if *runs < 1 {
			return fmt.Errorf("--runs must be at least 1")
		}
		if *out == "" {
			*out = fmt.Sprintf("seed-%d.json", *seed)
		}
		return shrinkSeed(c.OutOrStdout(), c.ErrOrStderr(), sim.Config{Profile: p}, *seed, *runs, *out)
	}
	return c
}

func shrinkSeed(w, progress io.Writer, config sim.Config, seed uint64, runs int, out string) error {
	began, printed := time.Now(), time.Now()
	r, err := shrink.Shrink(config, seed, shrink.Options{Runs: runs, Progress: func(runs int, r *sim.Report) {
		if now := time.Now(); now.Sub(printed) >= 2*time.Second {
			printed = now
			faults, calls := sim.Count(r.Decisions)
			fmt.Fprintf(progress, "%d runs: %d faults, %d calls\n", runs, faults, calls)
		}
	}})
	if err != nil {
		return err
	}
	faultsBefore, callsBefore := sim.Count(r.From.Decisions)
	faults, calls := sim.Count(r.Small.List)
	fmt.Fprintf(w, "%s: %s\n", r.Small.Fails, r.To.Failure.Text)
	fmt.Fprintf(w, "faults %d → %d, calls %d → %d, events %d → %d, in %d runs and %.1f s\n",
		faultsBefore, faults, callsBefore, calls, r.From.Steps, r.To.Steps, r.Runs, time.Since(began).Seconds())
	for _, d := range r.Small.List {
		fmt.Fprintf(w, "  %s\n", d)
	}
	if err := writeFile(out, r.Small.Write); err != nil {
		return err
	}
	fmt.Fprintf(w, "replay: go run ./cmd/raftlab replay --decisions %s\n", out)
	return tell(w, config, &r.Small, strings.TrimSuffix(out, filepath.Ext(out))+".txt")
}

// tell writes the story, if there is one.
func tell(w io.Writer, config sim.Config, d *sim.Decisions, out string) error {
	text, err := shrink.Story(config, d)
	if err != nil {
		fmt.Fprintf(w, "no story: %v\n", err)
		return nil
	}
	err = writeFile(out, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
	if err == nil {
		fmt.Fprintf(w, "story: go run ./cmd/raftlab scenario run %s\n%s", out, text)
	}
	return err
}

// writeFile makes a file of what write writes. A file that is not whole is an error.
func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return fmt.Errorf("%s: %w", name, err)
	}
	return f.Close()
}
