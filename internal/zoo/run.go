package zoo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// How long a probe may take. A bug may make a test wait for ever; without one it
// is only slow, if the machine is busy.
const (
	probeTime   = 30 * time.Second
	healthyTime = 2 * time.Minute
)

// Result is what became of one bug.
type Result struct {
	Bug     Bug
	Caught  bool          // every probe failed and showed what is broken; for a harmless bug: none failed
	Seeds   uint64        // how many seeds the simulator needed; 0 for other probes
	Shown   string        // the line of the first probe's output that names what is broken
	Problem string        // why it is not caught, with the output; "" if it is
	Time    time.Duration // to build and to run
}

// Options says how to run the bugs.
type Options struct {
	Root string // of the repository
	Jobs int    // how many bugs at the same time; at least 1

	// Report, if not nil, is called with each result as it comes, one at a time.
	Report func(Result)
}

// Run catches the bugs, and returns a result for each in the order of bugs. It
// needs the go command. The error reports a machine or a repository on which
// nothing can be proved: the go command fails, ctx ended, or a probe fails on
// the sources as they are. Temporary files are gone when it returns.
func Run(ctx context.Context, o Options, bugs []Bug) ([]Result, error) {
	dir, err := os.MkdirTemp("", "raftkv-zoo-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	r := run{o: o, dir: dir}
	jobs := make(chan func() error)
	var running sync.WaitGroup
	for range max(1, o.Jobs) {
		running.Go(func() {
			for job := range jobs {
				if err := job(); err != nil {
					cancel(err)
				}
			}
		})
	}
	results := make([]Result, len(bugs))
	send := func(job func() error) {
		select {
		case jobs <- job:
		case <-ctx.Done():
		}
	}
	for _, probes := range byTarget(bugs) {
		send(func() error { return r.healthy(ctx, probes) })
	}
	for i, b := range bugs {
		send(func() error {
			var err error
			results[i], err = r.catch(ctx, b)
			return err
		})
	}
	close(jobs)
	running.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return results, nil
}

// byTarget returns the probes of the bugs, each once, those of one package
// together, so that each package is built once without a bug in it.
func byTarget(bugs []Bug) [][]Probe {
	var groups [][]Probe
	seen := map[Probe]bool{}
	for _, b := range bugs {
		for _, p := range b.Probes {
			if seen[p] {
				continue
			}
			seen[p] = true
			i := slices.IndexFunc(groups, func(g []Probe) bool { return g[0].target() == p.target() })
			if i < 0 {
				groups = append(groups, nil)
				i = len(groups) - 1
			}
			groups[i] = append(groups[i], p)
		}
	}
	return groups
}

// run is one call of Run.
type run struct {
	o      Options
	dir    string
	report sync.Mutex
}

// healthy demands that probes of one package pass on the sources as they are.
func (r *run) healthy(ctx context.Context, probes []Probe) error {
	dir, err := os.MkdirTemp(r.dir, "healthy-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := r.build(ctx, dir, "", probes); err != nil {
		return err
	}
	for _, p := range probes {
		out, err := r.probe(ctx, dir, p, healthyTime, nil)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("%s fails without any bug:\n%s", p, tail(out))
		}
		if p.Package != "" && !strings.Contains(out, "--- PASS: "+p.Test+" (") {
			return fmt.Errorf("%s: there is no such test", p)
		}
	}
	return nil
}

// catch runs the probes of a bug on the sources with the bug in them.
func (r *run) catch(ctx context.Context, b Bug) (Result, error) {
	began := time.Now()
	dir, err := os.MkdirTemp(r.dir, b.Name+"-")
	if err != nil {
		return Result{}, err
	}
	defer os.RemoveAll(dir)
	result := Result{Bug: b}
	overlay, err := b.WriteOverlay(r.o.Root, dir)
	if err == nil {
		err = r.build(ctx, dir, overlay, b.Probes)
	}
	if err != nil {
		result.Problem = err.Error()
	}
	for _, p := range b.Probes {
		if result.Problem != "" {
			break
		}
		out, err := r.probe(ctx, dir, p, probeTime, b.fails())
		result.judge(p, out, err)
	}
	if ctx.Err() != nil {
		return Result{}, ctx.Err()
	}
	result.Caught = result.Problem == ""
	result.Time = time.Since(began)
	if r.o.Report != nil {
		r.report.Lock()
		defer r.report.Unlock()
		r.o.Report(result)
	}
	return result, nil
}

var seedsNeeded = regexp.MustCompile(`(?m)^seeds needed: (\d+)$`)

// judge takes in what one probe has said.
func (r *Result) judge(p Probe, out string, err error) {
	if r.Bug.Harmless {
		if err != nil {
			r.Problem = fmt.Sprintf("%s fails, so the bug is not harmless:\n%s", p, tail(out))
		}
		return
	}
	if err == nil {
		r.Problem = fmt.Sprintf("it escapes: %s passes", p)
		return
	}
	shown := lineWith(out, r.Bug.fails())
	if shown == "" {
		r.Problem = fmt.Sprintf("%s fails, but nowhere names %q:\n%s", p, r.Bug.fails(), tail(out))
		return
	}
	if r.Shown == "" {
		r.Shown = shown
	}
	if m := seedsNeeded.FindStringSubmatch(out); m != nil {
		r.Seeds, _ = strconv.ParseUint(m[1], 10, 64)
	}
}

// lineWith returns the first line of an output with one of the texts. That a test
// was begun, or has passed, says nothing.
func lineWith(out string, texts []string) string {
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "=== ") || strings.Contains(line, "--- PASS: ") {
			continue
		}
		for _, text := range texts {
			if strings.Contains(line, text) {
				return strings.TrimSpace(line)
			}
		}
	}
	return ""
}

// tail returns the end of an output, which is where it says what failed.
func tail(out string) string {
	lines := strings.SplitAfter(out, "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "")
}

// build builds what the probes need into dir, from the sources with overlay over
// them unless that is "". The tests of part4-kvservice/kvservice become
// part4-kvservice/kvservice.test there, for there are three packages kvservice.
// No debugger will look into them: without tables for one, linking takes half as long.
func (r *run) build(ctx context.Context, dir, overlay string, probes []Probe) error {
	folders := map[string][]string{} // the packages to test, by the folder they are in
	hunts := false
	for _, p := range probes {
		folder := path.Dir(p.Package)
		if p.Package == "" {
			hunts = true
		} else if !slices.Contains(folders[folder], "./"+p.Package) {
			folders[folder] = append(folders[folder], "./"+p.Package)
		}
	}
	var flags []string
	if overlay != "" {
		flags = []string{"-overlay", overlay}
	}
	if hunts {
		if err := r.goCommand(ctx, slices.Concat([]string{"build", "-ldflags=-s -w"}, flags, []string{"-o", dir + "/", "./" + huntPackage})); err != nil {
			return err
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		into := filepath.Join(dir, filepath.FromSlash(folder))
		if err := os.MkdirAll(into, 0o755); err != nil {
			return err
		}
		args := slices.Concat([]string{"test", "-c", "-vet=off", "-ldflags=-s -w"}, flags, []string{"-o", into + "/"}, folders[folder])
		if err := r.goCommand(ctx, args); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) goCommand(ctx context.Context, args []string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = r.o.Root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, tail(string(out)))
	}
	return nil
}

// probe runs a probe that was built into dir, and returns its output. The error
// tells that it failed.
func (r *run) probe(ctx context.Context, dir string, p Probe, limit time.Duration, texts []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var cmd *exec.Cmd
	if p.Package == "" {
		args := []string{p.Profile, fmt.Sprint(p.From), fmt.Sprint(p.To)}
		cmd = exec.CommandContext(ctx, filepath.Join(dir, path.Base(huntPackage)+exeSuffix), append(args, texts...)...)
		cmd.Dir = dir
	} else {
		cmd = exec.CommandContext(ctx, filepath.Join(dir, filepath.FromSlash(p.Package)+".test"+exeSuffix), "-test.v", "-test.failfast", "-test.run="+p.pattern())
		cmd.Dir = filepath.Join(r.o.Root, filepath.FromSlash(p.Package)) // where go test runs it
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		fmt.Fprintf(&out, "no end within %v\n", limit)
	}
	return out.String(), err
}
