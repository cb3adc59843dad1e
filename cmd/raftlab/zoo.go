package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"raftkv/internal/zoo"
)

func newZoo() *cobra.Command {
	c := &cobra.Command{
		Use:   "zoo",
		Short: "Famous bugs, and whether the tests catch them",
		Long: `Famous bugs, each a few lines that are laid over the sources of this repository
(never written to them), with the test that must notice. docs/zoo has their
stories. The commands need the sources, and run needs the go command.`,
		Args: cobra.NoArgs,
	}
	c.AddCommand(newZooList(), newZooShow(), newZooRun(), newZooOverlay())
	return c
}

// zooBugs reads the bugs of the repository that the working directory is in.
func zooBugs() (root string, bugs []zoo.Bug, err error) {
	if root, err = zoo.Root("."); err != nil {
		return "", nil, err
	}
	bugs, err = zoo.Bugs(root)
	return root, bugs, err
}

func newZooList() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List the bugs", Args: cobra.NoArgs}
	format := c.Flags().StringP("write-out", "w", "text", "text, markdown or json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		_, bugs, err := zooBugs()
		if err != nil {
			return err
		}
		switch *format {
		case "text":
			fmt.Fprint(c.OutOrStdout(), zoo.List(bugs))
		case "markdown":
			fmt.Fprint(c.OutOrStdout(), zoo.Markdown(bugs))
		case "json":
			return writeZooBugs(c.OutOrStdout(), bugs)
		default:
			return fmt.Errorf("there is no format %q; there are text, markdown and json", *format)
		}
		return nil
	}
	return c
}

func newZooShow() *cobra.Command {
	c := &cobra.Command{Use: "show NAME…", Short: "Show a bug's story, its change and its proof", Args: cobra.MinimumNArgs(1)}
	format := c.Flags().StringP("write-out", "w", "text", "text or json")
	c.RunE = func(c *cobra.Command, names []string) error {
		root, bugs, err := zooBugs()
		if err != nil {
			return err
		}
		if bugs, err = zoo.Named(bugs, names); err != nil {
			return err
		}
		switch *format {
		case "text":
			return showZooBugs(c.OutOrStdout(), root, bugs)
		case "json":
			return writeZooBugs(c.OutOrStdout(), bugs)
		}
		return fmt.Errorf("there is no format %q; there are text and json", *format)
	}
	return c
}

func showZooBugs(w io.Writer, root string, bugs []zoo.Bug) error {
	for _, b := range bugs {
		page, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(b.Page())))
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\nThe change:\n\n%s\nThe proof (each passes on the sources as they are):\n\n", page, b.Change)
		for _, p := range b.Probes {
			fmt.Fprintf(w, "    %s\n", p.Command())
		}
		fmt.Fprintln(w)
	}
	return nil
}

func newZooRun() *cobra.Command {
	c := &cobra.Command{
		Use:   "run [NAME…]",
		Short: "Let each bug loose and see that the tests catch it",
		Long: `Build the tests with each bug laid over the sources, and demand that its test
passes without the bug and fails with it, naming what is broken. Without names
all bugs are tried. Exits 1 if one escapes, or fits the sources no longer.`,
	}
	jobs := c.Flags().Int("jobs", runtime.GOMAXPROCS(0), "how many to try at the same time")
	format := c.Flags().StringP("write-out", "w", "text", "text, or json for one object a line")
	c.RunE = func(c *cobra.Command, names []string) error {
		line, ok := zooFormats[*format]
		if !ok {
			return fmt.Errorf("there is no format %q; there are text and json", *format)
		}
		root, bugs, err := zooBugs()
		if err != nil {
			return err
		}
		if bugs, err = zoo.Named(bugs, names); err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		began, done := time.Now(), 0
		results, err := zoo.Run(ctx, zoo.Options{Root: root, Jobs: *jobs, Report: func(r zoo.Result) {
			done++
			fmt.Fprintf(c.ErrOrStderr(), "%d of %d: %s: %s\n", done, len(bugs), r.Bug.Name, r.Verdict())
		}}, bugs)
		if err != nil {
			return err
		}
		fmt.Fprint(c.OutOrStdout(), line(results))
		return zooVerdict(c.OutOrStdout(), *format, results, time.Since(began))
	}
	return c
}

var zooFormats = map[string]func([]zoo.Result) string{"text": zoo.Table, "json": zooResults}

// errEscaped reports a bug that no test noticed. Which has been printed.
var errEscaped = errors.New("a bug escaped")

// zooVerdict ends a run in words, and returns errEscaped if that is not good.
func zooVerdict(w io.Writer, format string, results []zoo.Result, took time.Duration) (err error) {
	var b strings.Builder
	caught := 0
	for _, r := range results {
		if r.Caught {
			caught++
			continue
		}
		err = errEscaped
		fmt.Fprintf(&b, "\nFAILED %s: %s\n", r.Bug.Name, r.Problem)
	}
	fmt.Fprintf(&b, "%d of %d in %.0f s\n", caught, len(results), took.Seconds())
	if format == "text" {
		fmt.Fprint(w, b.String())
	}
	return err
}

// zooBug is a bug for programs.
type zooBug struct {
	Name     string
	Title    string
	Area     string
	Property string
	Harmless bool `json:",omitempty"`
	Layer    string
	Page     string
	Change   string
	Probes   []string // commands
}

func newZooBug(b zoo.Bug) zooBug {
	z := zooBug{b.Name, b.Title, b.Area, b.Property, b.Harmless, b.Layer(), b.Page(), b.Change, nil}
	for _, p := range b.Probes {
		z.Probes = append(z.Probes, p.Command())
	}
	return z
}

func writeZooBugs(w io.Writer, bugs []zoo.Bug) error {
	for _, b := range bugs {
		line, err := json.Marshal(newZooBug(b))
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\n", line)
	}
	return nil
}

func zooResults(results []zoo.Result) string {
	var b strings.Builder
	for _, r := range results {
		line, err := json.Marshal(struct {
			Name     string
			Property string
			Layer    string
			Verdict  string
			Seeds    uint64 `json:",omitempty"`
			Shown    string
			Problem  string `json:",omitempty"`
			Seconds  float64
		}{r.Bug.Name, r.Bug.Property, r.Bug.Layer(), r.Verdict(), r.Seeds, r.Shown, r.Problem, r.Time.Seconds()})
		if err != nil {
			panic(err) // texts and numbers can always be written down
		}
		fmt.Fprintf(&b, "%s\n", line)
	}
	return b.String()
}
