package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"raftkv/internal/labs/mutants"
	"raftkv/internal/zoo"
)

func newMutants() *cobra.Command {
	o := mutants.Options{Limits: mutants.DefaultLimits(), Helper: confinedHelper}
	c := &cobra.Command{
		Use:   "mutants DIR --part PART",
		Short: "Grade a student's own tests: bugs found, and false alarms",
		Long: `Runs the tests (*_test.go) and scenarios (*.txt, also in scenarios/) in DIR
against a part with one bug after the other in it, and against correct variants
of the part. A good test fails on many of the former and on none of the latter.

It needs the sources of raftkv, here or above, and the go command.`,
		Args: cobra.ExactArgs(1),
	}
	c.Flags().StringVar(&o.Part, "part", "", "part1 to part5")
	c.Flags().IntVar(&o.Jobs, "jobs", runtime.NumCPU(), "how many bugs at the same time")
	c.Flags().StringSliceVar(&o.Bugs, "bug", nil, "only this bug, by its name in docs/zoo or labs/wrong; may be repeated")
	format := c.Flags().StringP("write-out", "w", "text", "text or json")
	c.MarkFlagRequired("part")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *format != "text" && *format != "json" {
			return fmt.Errorf("there is no format %q; there are text and json", *format)
		}
		var err error
		if o.Dir, err = filepath.Abs(args[0]); err != nil {
			return err
		}
		if o.Root, err = zoo.Root("."); err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		result, err := mutants.Run(ctx, o)
		if err != nil {
			return err
		}
		if *format == "json" {
			return result.WriteJSON(c.OutOrStdout())
		}
		result.WriteText(c.OutOrStdout())
		return nil
	}
	return c
}
