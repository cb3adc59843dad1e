package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"raftkv/internal/search"
)

func newSearch() *cobra.Command {
	c := &cobra.Command{
		Use:   "search",
		Short: "Visit every state that a small cluster can reach",
		Long: `Visit every state that a small cluster can reach, whatever is lost, doubled,
late or crashed, and check Figure 3 of the paper in each. It runs the core of
this repository. Prints what was seen and whether that is all there is within
the bounds; exits 1 with the steps that lead there if a property is broken.

With --prune, messages of a term that is over for their receiver are left out.
That makes a search complete that would not end otherwise, and blind for bugs
that such messages cause; so a second search without it, cut off somewhere,
belongs to it. docs/search.md has figures.`,
		Args: cobra.NoArgs,
	}
	var config search.Config
	c.Flags().IntVar(&config.Nodes, "nodes", 3, "servers")
	c.Flags().Uint64Var((*uint64)(&config.Terms), "terms", 3, "no election begins beyond this term")
	c.Flags().IntVar(&config.Entries, "entries", 1, "commands in all; the leaders' empty entries come on top")
	c.Flags().IntVar(&config.Crashes, "crashes", 0, "crashes in all, each with a restart")
	c.Flags().BoolVar(&config.Prune, "prune", true, "leave out messages of a term that is over for their receiver")
	c.Flags().BoolVar(&config.Single, "single", false, "at most one entry in a message, not all that is missing")
	c.Flags().IntVar(&config.MaxStates, "max-states", 0, "give up there; 0 is 4 million, some 3 GB")
	c.Flags().IntVar(&config.MaxDepth, "max-depth", 0, "look no farther than so many steps; 0 is no bound")
	c.RunE = func(c *cobra.Command, _ []string) error {
		config.Progress = func(r search.Report) {
			fmt.Fprintf(c.ErrOrStderr(), "%d states, %d steps deep\n", r.States, r.Depth)
		}
		began := time.Now()
		r, err := search.Run(config)
		var found *search.Violation
		if err != nil && !errors.As(err, &found) {
			return err
		}
		fmt.Fprint(c.OutOrStdout(), searchReport(config, r, time.Since(began)))
		if found != nil {
			fmt.Fprintf(c.OutOrStdout(), "\n%v\n", found)
			return errFound
		}
		return nil
	}
	return c
}

func searchReport(config search.Config, r search.Report, took time.Duration) string {
	mode, end := "all messages", "cut off"
	if config.Prune {
		mode = "without messages of old terms"
	}
	if r.Complete {
		end = "complete"
	}
	return fmt.Sprintf(`nodes %d, terms %d, entries %d, crashes %d, %s: %s
%d states in %.1f s, up to %d steps deep; %d combinations of %d server states and %d messages; %d steps of the core
%d states with two leaders, %d with something applied
`, config.Nodes, config.Terms, config.Entries, config.Crashes, mode, end,
		r.States, took.Seconds(), r.Depth, r.Clusters, r.Servers, r.Messages, r.Steps, r.Deposed, r.Commits)
}
