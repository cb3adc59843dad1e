package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"raftkv/internal/sim"
)

func newHash() *cobra.Command {
	c := &cobra.Command{
		Use:   "hash",
		Short: "Print the hash of what each seed does",
		Long: `Print, for each seed, the hash of its trace. The output is the same on every
processor and with any GOMAXPROCS; .ci/run compares amd64, 386 and js/wasm.`,
		Args: cobra.NoArgs,
	}
	seeds := c.Flags().Int("seeds", 20, "how many seeds to run")
	from := c.Flags().Uint64("from", 1, "the first seed")
	profile := profileFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		p, err := profile()
		if err != nil {
			return err
		}
		for i := range *seeds {
			r := sim.RunSeed(sim.Config{Profile: p}, *from+uint64(i))
			verdict := "ok"
			if r.Failure != nil {
				verdict = r.Failure.Kind
			}
			fmt.Fprintf(c.OutOrStdout(), "%d %016x %d %s\n", r.Seed, r.Hash, r.Steps, verdict)
		}
		return nil
	}
	return c
}
