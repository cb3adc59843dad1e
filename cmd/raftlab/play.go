package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func newPlay() *cobra.Command {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	c := &cobra.Command{
		Use:   "play " + strings.Join(names, "|"),
		Short: "Step through a part of the tutorial, event by event",
		Long: `Step through a part of the tutorial, event by event, with a cluster that you
can crash and cut. You type a line and see what it does. An empty line lets the
next thing happen: a message arrives, or a timer fires. The same lines with the
same seed always do the same, so "back" is never wrong.

` + playHelp,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: names,
	}
	seed := c.Flags().Uint64("seed", 1, "the seed: who times out first, how long messages take")
	servers := c.Flags().Int("servers", 3, "how many servers, from 1 to 5")
	script := c.Flags().String("script", "", "read the lines from this file (- for the standard input) and print each screen")
	color := c.Flags().String("color", "auto", "auto, always or never; auto minds NO_COLOR and whether this is a terminal")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *servers < 1 || *servers > 5 {
			return fmt.Errorf("--servers %d: from 1 to 5, please", *servers)
		}
		colored, err := wantsColor(*color, isTerminal(os.Stdout), os.Getenv)
		if err != nil {
			return err
		}
		part := parts[slices.IndexFunc(parts, func(p part) bool { return p.name == args[0] })]
		g := newGame(part, *seed, *servers)
		s := screen{out: c.OutOrStdout(), colored: colored, size: func() (int, int) { return 80, 24 }}
		switch *script {
		case "":
			if isTerminal(os.Stdout) {
				s.clear, s.size = true, terminalSize
			}
			return play(g, s, c.InOrStdin(), false)
		case "-":
			return play(g, s, c.InOrStdin(), true)
		}
		file, err := os.Open(*script)
		if err != nil {
			return err
		}
		defer file.Close()
		return play(g, s, file, true)
	}
	return c
}

// wantsColor decides whether to print in colour.
func wantsColor(flag string, terminal bool, env func(string) string) (bool, error) {
	switch flag {
	case "always":
		return true, nil
	case "never":
		return false, nil
	case "auto":
		return terminal && env("NO_COLOR") == "" && env("TERM") != "dumb", nil
	}
	return false, fmt.Errorf("--color %s: there are auto, always and never", flag)
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// play reads line after line and shows a screen for each, until "quit" or the
// end. A script's lines are shown above their screens, since nobody typed them,
// and one that cannot be followed ends it.
func play(g *game, s screen, lines io.Reader, script bool) error {
	w := bufio.NewWriter(s.out)
	s.out = w
	defer w.Flush()
	s.show(g)
	for scanner, n := bufio.NewScanner(lines), 1; ; n++ {
		if !script {
			fmt.Fprint(w, "> ")
		}
		w.Flush()
		if !scanner.Scan() {
			return scanner.Err()
		}
		line := strings.TrimSpace(scanner.Text())
		switch {
		case script && strings.HasPrefix(line, "#"):
			continue
		case line == "quit" || line == "q":
			return nil
		case script:
			fmt.Fprintln(w, "\n"+strings.TrimSpace("> "+line))
		}
		if err := g.do(line); err != nil && script {
			return fmt.Errorf("line %d, %q: %w", n, line, err)
		}
		s.show(g)
	}
}
