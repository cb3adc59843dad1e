package main

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/spf13/cobra"

	"raftkv/internal/sim"
	"raftkv/internal/trace"
	"raftkv/internal/viewer"
)

func newReplay() *cobra.Command {
	c := &cobra.Command{
		Use:   "replay",
		Short: "Run one seed and show every step",
		Long: `Run one seed, or the decisions that shrink has left of one, and show every step:
a column for each server with its role (F follower, P pre-candidate, C candidate,
L leader, x down), its term, the end of its log and its commit index; between the
steps what clients and faults do. The same seed shows the same, byte for byte.

With --html it makes a page that shows the run in any browser, without anything
else; with -w json the trace file that the page reads (docs/replay.md). With
--trace it shows such a file and runs nothing. The exit status is 1 if the run
fails.`,
		Args: cobra.NoArgs,
	}
	var r replay
	c.Flags().Uint64Var(&r.seed, "seed", 1, "the seed")
	c.Flags().StringVar(&r.decisions, "decisions", "", "run the decisions in this file instead, as shrink has written it")
	c.Flags().StringVar(&r.trace, "trace", "", "show this trace file instead")
	c.Flags().StringVar(&r.html, "html", "", "write a page that shows the run to this file")
	c.Flags().IntVar(&r.tail, "tail", 0, "print only so many of the last lines; 0 prints all")
	c.Flags().StringVarP(&r.format, "write-out", "w", "text", "text, or json for a trace file")
	profile := profileFlag(c)
	c.MarkFlagsMutuallyExclusive("seed", "decisions", "trace")
	c.MarkFlagsMutuallyExclusive("profile", "decisions", "trace")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		if r.profile, err = profile(); err != nil {
			return err
		}
		out := bufio.NewWriter(c.OutOrStdout())
		defer out.Flush()
		return r.show(out)
	}
	return c
}

// replay are the flags of one call.
type replay struct {
	seed             uint64
	profile          sim.Profile
	decisions, trace string
	html             string
	tail             int
	format           string
}

func (r *replay) show(out io.Writer) error {
	lines, err := r.lines()
	if err != nil {
		return err
	}
	if r.html != "" {
		return r.page(out, lines)
	}
	var form func(trace.Line) []string
	switch r.format {
	case "text":
		form = viewer.NewColumns().Line
	case "json":
		form = jsonLine
	default:
		return fmt.Errorf("there is no format %q; there are text and json", r.format)
	}
	printed := func(s string) { fmt.Fprintln(out, s) }
	if r.tail > 0 {
		last := sim.NewTail(r.tail)
		defer func() {
			for line := range last.Lines() {
				fmt.Fprintln(out, line)
			}
		}()
		printed = last.Add
	}
	for line, err2 := range lines {
		if err2 != nil {
			return err2
		}
		for _, s := range form(line) {
			printed(s)
		}
		err = failed(line)
	}
	return err
}

// lines returns the lines of the trace: of a run that is made while they are
// read, or of a file.
func (r *replay) lines() (iter.Seq2[trace.Line, error], error) {
	if r.trace != "" {
		f, err := os.Open(r.trace)
		if err != nil {
			return nil, err
		}
		return func(yield func(trace.Line, error) bool) {
			defer f.Close()
			trace.Read(f)(yield)
		}, nil
	}
	config, seed := sim.Config{Profile: r.profile}, r.seed
	if r.decisions != "" {
		d, err := readDecisions(r.decisions)
		if err != nil {
			return nil, err
		}
		config.Only, seed = d, d.Seed
		config.Profile, _ = sim.ProfileNamed(d.Profile) // ReadDecisions has looked
	}
	return func(yield func(trace.Line, error) bool) {
		more := true
		config.Trace = func(line trace.Line) { more = more && yield(line, nil) }
		sim.RunSeed(config, seed)
	}, nil
}

func readDecisions(name string) (*sim.Decisions, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d, err := sim.ReadDecisions(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return d, nil
}

// page writes the page and says how it ended.
func (r *replay) page(out io.Writer, lines iter.Seq2[trace.Line, error]) error {
	var verdict, unreadable error
	sound := func(yield func(trace.Line) bool) {
		for line, err := range lines {
			if err != nil {
				unreadable = err
				return
			}
			verdict = failed(line)
			if v, ok := line.(trace.Verdict); ok && v.Failure != "" {
				fmt.Fprintf(out, "FAILED %s: %s\n", v.Failure, v.Text)
			}
			if !yield(line) {
				return
			}
		}
	}
	err := writeFile(r.html, func(w io.Writer) error { return viewer.WritePage(w, sound) })
	if err == nil {
		err = unreadable
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "wrote %s\n", r.html)
	return verdict
}

// failed returns errFound for the verdict of a run that failed.
func failed(line trace.Line) error {
	if v, ok := line.(trace.Verdict); ok && v.Failure != "" {
		return errFound
	}
	return nil
}

func jsonLine(line trace.Line) []string {
	b, err := trace.Marshal(line)
	if err != nil {
		panic(err) // a line that cannot be written down is a mistake of ours
	}
	return []string{string(b)}
}
