package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"raftkv/internal/zoo"
)

func newZooOverlay() *cobra.Command {
	c := &cobra.Command{
		Use:   "overlay NAME",
		Short: "Write what lays a bug over the sources, to run anything with it",
		Long: `Write the changed files of a bug to a folder, with the file that go's -overlay
reads, and print how to look for a seed that fails with it, shrink it and see it.`,
		Args: cobra.ExactArgs(1),
	}
	dir := c.Flags().StringP("out", "o", "", "the folder (default: a temporary one)")
	c.RunE = func(c *cobra.Command, names []string) error {
		root, bugs, err := zooBugs()
		if err != nil {
			return err
		}
		if bugs, err = zoo.Named(bugs, names); err != nil {
			return err
		}
		if *dir == "" {
			if *dir, err = os.MkdirTemp("", "raftlab-"+names[0]+"-"); err != nil {
				return err
			}
		}
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
		if err := os.MkdirAll(*dir, 0o755); err != nil {
			return err
		}
		file, err := bugs[0].WriteOverlay(root, *dir)
		if err != nil {
			return err
		}
		for _, next := range []string{"chaos --seeds 100", "shrink --seed N", "replay --decisions seed-N.json --html N.html"} {
			fmt.Fprintf(c.OutOrStdout(), "go run -overlay %s ./cmd/raftlab %s\n", file, next)
		}
		return nil
	}
	return c
}
