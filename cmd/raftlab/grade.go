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
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"raftkv/internal/labs/grade"
)

// confinedHelper is what grade.Confined is called through. A process that runs a
// student's code begins as raftlab and takes on its limits before it becomes that.
var confinedHelper = []string{"confined"}

func newConfined() *cobra.Command {
	return &cobra.Command{
		Use:                confinedHelper[0],
		Hidden:             true,
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return grade.Confined(args) },
	}
}

// gradeFlags are the flags of raftlab grade.
type gradeFlags struct {
	part, csv, json, html string
	seeds, only, format   string
	jobs                  int
	again                 bool
}

func newGrade() *cobra.Command {
	var f gradeFlags
	c := &cobra.Command{
		Use:   "grade SUBMISSIONS --part PART",
		Short: "Mark a folder of submissions, one folder or zip a student",
		Long: `Marks a folder of submissions, one folder or zip a student. Of each only the
files that the part asks for are taken; they are inspected, compiled, and judged
in a process without network and within limits. The same submissions give the
same marks, byte for byte.

With --json FILE an interrupted run goes on where it was, and a later run judges
only what has changed; --again judges everything. docs/grading.md has the rest.`,
		Args: cobra.ExactArgs(1),
	}
	c.Flags().StringVar(&f.part, "part", "", "part1 to part5")
	c.Flags().StringVar(&f.csv, "csv", "", "write a table to this file")
	c.Flags().StringVar(&f.json, "json", "", "write all to this file; with --format gradescope, a file a student to this folder")
	c.Flags().StringVar(&f.html, "html", "", "write pages to this folder: the class, and one a student")
	c.Flags().StringVar(&f.seeds, "seeds", "", "use the seeds in this file instead of the published ones")
	c.Flags().StringVar(&f.only, "only", "", "mark this student only")
	c.Flags().StringVar(&f.format, "format", "raftlab", "of --json: raftlab or gradescope")
	c.Flags().IntVar(&f.jobs, "jobs", runtime.NumCPU(), "how many students at the same time")
	c.Flags().BoolVar(&f.again, "again", false, "judge also what has not changed since last time")
	c.MarkFlagRequired("part")
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return f.run(ctx, args[0], c.OutOrStdout(), c.ErrOrStderr())
	}
	return c
}

func (f gradeFlags) run(ctx context.Context, dir string, out, progress io.Writer) error {
	if f.format != "raftlab" && f.format != "gradescope" {
		return fmt.Errorf("there is no format %q; there are raftlab and gradescope", f.format)
	}
	submissions, others, err := grade.Find(dir)
	if err != nil {
		return err
	}
	for _, name := range others {
		fmt.Fprintf(progress, "%s is neither a folder nor a zip, and is left out\n", name)
	}
	if f.only != "" {
		submissions = slices.DeleteFunc(submissions, func(s grade.Submission) bool { return s.Login != f.only })
	}
	if len(submissions) == 0 {
		return errors.New("there is nothing to mark")
	}
	o := grade.Options{Part: f.part, Jobs: f.jobs, Limits: grade.DefaultLimits(), Helper: confinedHelper}
	if f.seeds != "" {
		if o.Seeds, err = readSeeds(f.seeds); err != nil {
			return err
		}
	}
	kept, err := openKept(f)
	if err != nil {
		return err
	}
	defer kept.close()
	if !f.again {
		o.Known = kept.marks
	}
	done, fresh := 0, 0
	o.Report = func(m grade.Mark, isFresh bool) error {
		done++
		state := ""
		if isFresh {
			fresh++
		} else {
			state = "  (as before)"
		}
		fmt.Fprintf(progress, "%d/%d  %s%s\n", done, len(submissions), m.Summary(), state)
		return kept.add(m)
	}
	fmt.Fprintln(progress, grade.Confinement())
	began := time.Now()
	class, err := grade.Run(ctx, o, submissions)
	if err != nil {
		return err
	}
	fmt.Fprintf(progress, "%d students in %v, %d of them judged now\n", done, time.Since(began).Round(time.Second), fresh)
	if err := f.write(class, kept); err != nil {
		return err
	}
	for _, m := range class.Marks {
		fmt.Fprintln(out, m.Summary())
	}
	return kept.finish()
}

func readSeeds(path string) ([]uint64, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	seeds, err := grade.ReadSeeds(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return seeds, nil
}

func (f gradeFlags) write(class grade.Class, kept *kept) error {
	if f.csv != "" {
		if err := replaceFile(f.csv, class.WriteCSV); err != nil {
			return err
		}
	}
	if f.html != "" {
		if err := class.WriteHTML(f.html); err != nil {
			return err
		}
	}
	switch {
	case f.json == "":
		return nil
	case f.format == "gradescope":
		if err := os.MkdirAll(f.json, 0o755); err != nil {
			return err
		}
		for _, m := range class.Marks {
			if err := replaceFile(filepath.Join(f.json, m.Login+".json"), m.WriteGradescope); err != nil {
				return err
			}
		}
		return nil
	}
	if f.only != "" { // the others keep what they have
		class.Marks = kept.with(class.Marks)
	}
	return replaceFile(f.json, class.WriteJSON)
}

// replaceFile writes a file of which nobody ever sees a half.
func replaceFile(path string, write func(io.Writer) error) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // fails if all went well
	err = errors.Join(write(file), file.Chmod(0o644), file.Close())
	if err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// kept is what is known of earlier runs: the marks in the JSON file, and those of
// a run that did not come to its end, a line each in a file beside it.
type kept struct {
	marks    []grade.Mark
	path     string   // of the file beside it
	progress *os.File // nil if nothing is kept
}

func openKept(f gradeFlags) (*kept, error) {
	k := &kept{}
	if f.json == "" || f.format == "gradescope" {
		return k, nil
	}
	if file, err := os.Open(f.json); err == nil {
		defer file.Close()
		class, err := grade.ReadJSON(file)
		if err != nil {
			return nil, fmt.Errorf("%s has not been written by raftlab grade: %w", f.json, err)
		}
		if class.Part != f.part {
			return nil, fmt.Errorf("%s has the marks of %s", f.json, class.Part)
		}
		k.marks = class.Marks
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	k.path = f.json + ".progress"
	text, err := os.ReadFile(k.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		var m grade.Mark
		if json.Unmarshal([]byte(line), &m) == nil { // the last line may be torn
			k.marks = k.with([]grade.Mark{m})
		}
	}
	k.progress, err = os.OpenFile(k.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	return k, err
}

// with returns the marks with some replaced or added, in the order of logins.
func (k *kept) with(marks []grade.Mark) []grade.Mark {
	all := slices.Clone(k.marks)
	for _, m := range marks {
		all = slices.DeleteFunc(all, func(old grade.Mark) bool { return old.Login == m.Login })
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b grade.Mark) int { return strings.Compare(a.Login, b.Login) })
	return all
}

func (k *kept) add(m grade.Mark) error {
	if k.progress == nil {
		return nil
	}
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = k.progress.Write(append(line, '\n'))
	return err
}

func (k *kept) close() {
	if k.progress != nil {
		k.progress.Close()
	}
}

// finish forgets the progress of a run that has come to its end.
func (k *kept) finish() error {
	if k.progress == nil {
		return nil
	}
	return os.Remove(k.path)
}
