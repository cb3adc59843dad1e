package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raftkv/internal/labs"
	"raftkv/internal/labs/run"
)

// errNotAll reports that some check is not ok. Which was printed.
var errNotAll = errors.New("not all checks are ok")

func newCheck() *cobra.Command {
	c := &cobra.Command{
		Use:   "check [DIR]",
		Short: "Judge a student's part of the tutorial",
		Long: `Runs the checks of a part on the code in DIR (the current folder, if it is left
out), in stages: what needs something that is not right yet waits for it. The same
code has the same verdict on every machine.

With --only and --seed and --trace it shows one run, step by step: the line that a
failed check prints.`,
		Args: cobra.MaximumNArgs(1),
	}
	part := c.Flags().String("part", "", "which part it is; if left out, the one whose folder is there")
	only := c.Flags().String("only", "", "run this check and those that it needs")
	seed := c.Flags().Uint64("seed", 0, "with --only: this seed, and not those of the check")
	trace := c.Flags().Bool("trace", false, "with --only: show every step of that run")
	format := c.Flags().StringP("write", "w", "text", "text or json")
	fd := c.Flags().Int("verdict-fd", 0, "write the verdict as JSON to this open file descriptor, too")
	watch := c.Flags().Bool("watch", false, "check again whenever a file is saved")
	c.RunE = func(c *cobra.Command, args []string) error {
		dir := "."
		if len(args) > 0 {
			dir = args[0]
		}
		lab, err := labOf(dir, *part)
		if err != nil {
			return err
		}
		if *format != "text" && *format != "json" {
			return fmt.Errorf("-w wants text or json, not %q", *format)
		}
		out := c.OutOrStdout()
		if *trace {
			if *only == "" {
				return errors.New("--trace wants --only CHECK, and --seed if it is not 1")
			}
			return lab.WithRunner(dir, func(binary string) error {
				show := exec.Command(binary, "-only", *only, "-show", fmt.Sprint(max(*seed, 1)))
				show.Stdout, show.Stderr = out, c.ErrOrStderr()
				return show.Run()
			})
		}
		o := run.Options{Only: *only}
		if *seed != 0 {
			o.Seeds = []uint64{*seed}
		}
		for {
			before := saved(dir)
			v, err := lab.Judge(dir, o)
			var compile *labs.CompileError
			var refused *labs.RefusedError
			switch {
			case errors.As(err, &compile), errors.As(err, &refused):
				fmt.Fprintf(out, "%s  nothing was run:\n", lab.Part)
				for line := range strings.Lines(err.Error()) {
					fmt.Fprintf(out, "  %s\n", strings.TrimRight(line, "\n"))
				}
				err = errNotAll
			case err != nil:
				return err
			default:
				if err := printVerdict(out, v, *format, *fd); err != nil {
					return err
				}
				if v.Points < v.Max {
					err = errNotAll
				}
			}
			if !*watch {
				return err
			}
			for saved(dir) == before {
				time.Sleep(200 * time.Millisecond)
			}
			fmt.Fprintln(out)
		}
	}
	return c
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

// printVerdict writes what a student reads, or JSON.
func printVerdict(w io.Writer, v labs.Verdict, format string, fd int) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if fd != 0 {
		f := os.NewFile(uintptr(fd), "verdict")
		if f == nil {
			return fmt.Errorf("no file descriptor %d", fd)
		}
		if _, err := f.Write(append(data, '\n')); err != nil {
			return err
		}
	}
	if format == "json" {
		_, err := fmt.Fprintf(w, "%s\n", data)
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
			fmt.Fprintf(w, "        %s\n        first bad event  %s\n        replay  %s\n        hint    %s\n", r.Property, r.Event, r.Replay, r.Hint)
		}
	}
	return nil
}
