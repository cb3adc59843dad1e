package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"raftkv/internal/labs"
)

func newHint() *cobra.Command {
	c := &cobra.Command{
		Use:   "hint CHECK",
		Short: "Help with a check, in three steps",
		Args:  cobra.ExactArgs(1),
	}
	level := c.Flags().Int("level", 1, "1 asks a question, 2 says where to look, 3 says what to write")
	part := c.Flags().String("part", "", "of which part; if left out, the one in the current folder, or the first that has the check")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *level < 1 || *level > 3 {
			return fmt.Errorf("there are levels 1, 2 and 3")
		}
		parts := labs.Parts()
		if *part != "" {
			parts = []string{*part}
		} else if lab, err := labOf(".", ""); err == nil {
			parts = []string{lab.Part}
		}
		for _, name := range parts {
			lab, err := labs.Load(name)
			if err != nil {
				return err
			}
			i := slices.IndexFunc(lab.Checks, func(check labs.Check) bool { return check.ID == args[0] })
			if i < 0 {
				continue
			}
			check := lab.Checks[i]
			fmt.Fprintf(c.OutOrStdout(), "%s, %s: %s\n\n%s\n", name, check.ID, check.Title, wrap(check.Hints[*level-1], 78))
			if *level < 3 {
				fmt.Fprintf(c.OutOrStdout(), "\nMore: raftlab hint %s --part %s --level %d\n", check.ID, name, *level+1)
			}
			return nil
		}
		return fmt.Errorf("no check %q in %v", args[0], parts)
	}
	return c
}

// wrap breaks a text into lines of at most width characters.
func wrap(text string, width int) string {
	var out []rune
	line := 0
	for _, word := range strings.Fields(text) {
		if line > 0 && line+1+len([]rune(word)) > width {
			out, line = append(out, '\n'), 0
		} else if line > 0 {
			out, line = append(out, ' '), line+1
		}
		out = append(out, []rune(word)...)
		line += len([]rune(word))
	}
	return string(out)
}
