package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"raftkv/internal/labs"
)

func newSkeleton() *cobra.Command {
	c := &cobra.Command{
		Use:   "skeleton part1|part2|… --out DIR",
		Short: "Write a part with holes, for a student to fill",
		Long: `Writes a Go module of its own that compiles: the part with the bodies of some
functions left out, its tests, and what they need. It needs no network.

With --verify it writes nothing, and proves of each part (of all, if none is
named) that the skeleton compiles and fails its checks, that it passes them with
the solution put back, and that no line of the solution is left in it.`,
		ValidArgs: labs.Parts(),
	}
	out := c.Flags().StringP("out", "o", "", "a new folder")
	drop := c.Flags().StringSlice("drop", nil, "the functions to leave out, instead of the standard cut in labs/")
	verify := c.Flags().Bool("verify", false, "prove that the skeletons are what they should be")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *verify {
			return verifySkeletons(c, args)
		}
		if len(args) != 1 || *out == "" {
			return fmt.Errorf("say which part, and where to: raftlab skeleton part1 --out mine")
		}
		lab, err := labs.Load(args[0])
		if err != nil {
			return err
		}
		if err := lab.Skeleton(*out, *drop); err != nil {
			return err
		}
		fmt.Fprintf(c.OutOrStdout(), "%s: write the functions listed in README.md, in %s. Then, in that folder:\n  raftlab check\n",
			*out, filepath.ToSlash(filepath.Join(*out, filepath.FromSlash(lab.Dir))))
		return nil
	}
	return c
}

func verifySkeletons(c *cobra.Command, parts []string) error {
	if len(parts) == 0 {
		parts = labs.Parts()
	}
	for _, part := range parts {
		lab, err := labs.Load(part)
		if err != nil {
			return err
		}
		err = func() error {
			dir, err := os.MkdirTemp("", "raftlab-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			return lab.Verify(dir)
		}()
		if err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
		fmt.Fprintf(c.OutOrStdout(), "%s: the skeleton compiles and fails, the solution passes %d checks, and none of it is left: %s\n",
			part, len(lab.Checks), strings.Join(lab.Files, " "))
	}
	return nil
}
