package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"raftkv/internal/prochaos"
)

// processFlags are the flags of chaos for real processes.
type processFlags struct {
	on       bool
	duration time.Duration
	binary   string
	keep     string
	faults   []string
	shared   bool
	kills    int
}

func (f *processFlags) add(c *cobra.Command) {
	c.Flags().BoolVar(&f.on, "processes", false, "harm three real servers on loopback instead of simulated ones")
	c.Flags().DurationVar(&f.duration, "duration", time.Minute, "with --processes: for how long")
	c.Flags().StringVar(&f.binary, "binary", "", "with --processes: the raftkv program (default: built from this module)")
	c.Flags().StringVar(&f.keep, "keep", "", "with --processes: a folder for data and logs, which is kept (default: a temporary one)")
	c.Flags().BoolVar(&f.shared, "shared-client", false, "with --processes: 64 goroutines share one client, and no call may fail")
	c.Flags().IntVar(&f.kills, "kills", 0, "with --processes: end after so many killed processes, instead of --duration")
	c.Flags().StringSliceVar(&f.faults, "faults", nil, fmt.Sprintf("with --processes: which of %v (default all)", prochaos.AllFaults))
}

// run runs chaos on real processes. The seed repeats the order of the faults;
// it cannot repeat what the machine makes of them.
func (f *processFlags) run(c *cobra.Command, seed uint64) error {
	known := map[prochaos.Fault]bool{}
	for _, fault := range prochaos.AllFaults {
		known[fault] = true
	}
	var faults []prochaos.Fault
	for _, name := range f.faults {
		if !known[prochaos.Fault(name)] {
			return fmt.Errorf("--faults has %q; there are %v", name, prochaos.AllFaults)
		}
		faults = append(faults, prochaos.Fault(name))
	}
	dir := f.keep
	if dir == "" {
		temp, err := os.MkdirTemp("", "raftlab-processes-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(temp)
		dir = temp
	}
	binary := f.binary
	if binary == "" {
		binary = filepath.Join(dir, "raftkv")
		if runtime.GOOS == "windows" {
			binary += ".exe"
		}
		build := exec.Command("go", "build", "-o", binary, "raftkv/cmd/raftkv")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot build raftkv (give one with --binary): %v: %s", err, out)
		}
	}
	report, err := prochaos.Run(c.Context(), prochaos.Config{
		Binary:       binary,
		Dir:          dir,
		Duration:     f.duration,
		Seed:         seed,
		Faults:       faults,
		SharedClient: f.shared,
		Kills:        f.kills,
		Log:          c.ErrOrStderr(),
	})
	fmt.Fprintln(c.OutOrStdout(), report)
	if err != nil {
		fmt.Fprintln(c.OutOrStdout(), "FAILED", err)
		return errFound
	}
	return nil
}
