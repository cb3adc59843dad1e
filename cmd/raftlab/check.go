package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raftkv/internal/labs"
	"raftkv/internal/labs/page"
	"raftkv/internal/labs/run"
)

// errNotAll reports that some check is not ok. Which was printed.
var errNotAll = errors.New("not all checks are ok")

// checkFlags are the flags of raftlab check.
type checkFlags struct {
	part, only, format, html string
	seed                     uint64
	trace, watch             bool
	fd                       int

	verdicts *os.File // what fd is; nil if there is none
}

func newCheck() *cobra.Command {
	var f checkFlags
	c := &cobra.Command{
		Use:   "check [DIR]",
		Short: "Judge a student's part of the tutorial",
		Long: `Runs the checks of a part on the code in DIR (the current folder, if it is left
out), in stages: what needs something that is not right yet waits for it. The same
code has the same verdict on every machine.

With --only and --seed and --trace it shows one run, step by step: the line that a
failed check prints. With --html it writes the verdict, and each run that has
failed, step by step, as a page for a browser.`,
		Args: cobra.MaximumNArgs(1),
	}
	c.Flags().StringVar(&f.part, "part", "", "which part it is; if left out, the one whose folder is there")
	c.Flags().StringVar(&f.only, "only", "", "run this check and those that it needs")
	c.Flags().Uint64Var(&f.seed, "seed", 0, "with --only: this seed, and not those of the check")
	c.Flags().BoolVar(&f.trace, "trace", false, "with --only: show every step of that run")
	c.Flags().StringVar(&f.html, "html", "", "write the verdict and the failing runs to this file, as a page")
	c.Flags().StringVarP(&f.format, "write", "w", "text", "text or json")
	c.Flags().IntVar(&f.fd, "verdict-fd", 0, "write the verdict as JSON to this open file descriptor, too")
	c.Flags().BoolVar(&f.watch, "watch", false, "check again whenever a file is saved")
	c.RunE = func(c *cobra.Command, args []string) error {
		dir := "."
		if len(args) > 0 {
			dir = args[0]
		}
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt)
		defer stop()
		return f.run(ctx, dir, c.OutOrStdout())
	}
	return c
}

func (f checkFlags) run(ctx context.Context, dir string, out io.Writer) error {
	lab, err := labOf(dir, f.part)
	if err != nil {
		return err
	}
	if f.format != "text" && f.format != "json" {
		return fmt.Errorf("-w wants text or json, not %q", f.format)
	}
	if f.trace && f.only == "" {
		return errors.New("--trace wants --only CHECK, and --seed if it is not 1")
	}
	if f.trace {
		return lab.WithRunner(dir, func(binary string) error { return lab.Show(binary, f.only, max(f.seed, 1), out) })
	}
	if f.fd != 0 {
		if f.verdicts = os.NewFile(uintptr(f.fd), "verdict"); f.verdicts == nil {
			return fmt.Errorf("no file descriptor %d", f.fd)
		}
	}
	for {
		before := saved(dir)
		err := f.once(lab, dir, out)
		if !f.watch || err != nil && err != errNotAll {
			return err
		}
		for saved(dir) == before {
			select {
			case <-ctx.Done():
				return err
			case <-time.After(200 * time.Millisecond):
			}
		}
		fmt.Fprintln(out)
	}
}

// once checks what stands in dir now. It returns errNotAll if the student has
// something to do.
func (f checkFlags) once(lab labs.Lab, dir string, out io.Writer) error {
	o := run.Options{Only: f.only}
	if f.seed != 0 {
		o.Seeds = []uint64{f.seed}
	}
	p := page.Page{Part: lab.Part}
	err := lab.WithRunner(dir, func(binary string) error {
		v, err := lab.Run(binary, o)
		if err != nil {
			return err
		}
		if f.html != "" {
			p.Verdict = &v
			if p.Stories, err = f.stories(lab, binary, v); err != nil {
				return err
			}
		}
		if err := f.print(out, v); err != nil {
			return err
		}
		if v.Points < v.Max {
			return errNotAll
		}
		return nil
	})
	var compile *labs.CompileError
	var refused *labs.RefusedError
	if errors.As(err, &compile) || errors.As(err, &refused) {
		fmt.Fprintf(out, "%s  nothing was run:\n", lab.Part)
		p.Notes = strings.Split(err.Error(), "\n")
		for _, line := range p.Notes {
			fmt.Fprintf(out, "  %s\n", line)
		}
		err = errNotAll
	}
	if f.html == "" || err != nil && err != errNotAll {
		return err
	}
	if wrong := replaceFile(f.html, p.Write); wrong != nil {
		return wrong
	}
	return err
}

// stories tells the runs that have failed, and that of --only however it ended.
func (f checkFlags) stories(lab labs.Lab, binary string, v labs.Verdict) (stories []page.Story, err error) {
	for _, r := range v.Checks {
		if r.Status != labs.Fail && (r.ID != f.only || r.Status == labs.Wait) {
			continue
		}
		var printed strings.Builder
		if err := lab.Show(binary, r.ID, max(r.Seed, f.seed, 1), &printed); err != nil {
			return nil, err
		}
		stories = append(stories, page.NewStory(r.ID, printed.String()))
	}
	return stories, nil
}

// labOf returns the lab that a folder holds: the named one, or the one whose
// folder stands in it, or whose folder it is.
func labOf(dir, part string) (labs.Lab, error) {
	if part != "" {
		return labs.Load(part)
	}
	full, err := filepath.Abs(dir)
	if err != nil {
		return labs.Lab{}, err
	}
	var found []labs.Lab
	for _, name := range labs.Parts() {
		lab, err := labs.Load(name)
		if err != nil {
			return lab, err
		}
		if filepath.Base(full) == lab.Dir {
			return lab, nil
		}
		if _, err := os.Stat(filepath.Join(full, lab.Dir)); err == nil {
			found = append(found, lab)
		}
	}
	if len(found) == 2 && found[0].Part == "part3" {
		found = found[1:] // parts 4 and 5 stand on part 3
	}
	if len(found) != 1 {
		return labs.Lab{}, fmt.Errorf("which part is in %s? Say --part part1", dir)
	}
	return found[0], nil
}

// saved returns when the newest Go file was written, and how many there are.
func saved(dir string) string {
	var newest time.Time
	n := 0
	filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, ".go") {
			if info, err := e.Info(); err == nil {
				n++
				if info.ModTime().After(newest) {
					newest = info.ModTime()
				}
			}
		}
		return nil
	})
	return fmt.Sprint(newest.UnixNano(), " ", n)
}

// print writes what a student reads, or JSON.
func (f checkFlags) print(w io.Writer, v labs.Verdict) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	data = append(data, '\n')
	if f.verdicts != nil {
		if _, err := f.verdicts.Write(data); err != nil {
			return err
		}
	}
	if f.format == "json" {
		_, err := w.Write(data)
		return err
	}
	fmt.Fprintf(w, "%-80s %3d / %d\n", v.Part, v.Points, v.Max)
	for _, r := range v.Checks {
		switch r.Status {
		case labs.OK:
			fmt.Fprintf(w, "  ok    %-14s %-62s %5d\n", r.ID, r.Title, r.Points)
		case labs.Wait:
			fmt.Fprintf(w, "  wait  %-14s %-62s %s\n", r.ID, r.Title, r.Property)
		case labs.Fail:
			fmt.Fprintf(w, "  FAIL  %-14s %-62s  0/%d\n", r.ID, r.Title, r.Max)
			fmt.Fprintf(w, "        %s\n        first bad event  %s\n        replay  %s    (or --html FILE)\n        hint    %s\n", r.Property, r.Event, r.Replay, r.Hint)
		}
	}
	return nil
}
