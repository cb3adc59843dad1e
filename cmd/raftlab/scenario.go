package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"raftkv/internal/core"
	"raftkv/internal/scenario"
	"raftkv/internal/zoo"
)

func newScenario() *cobra.Command {
	c := &cobra.Command{
		Use:   "scenario",
		Short: "Stories about messages, each a test of a rule",
		Long: `Stories about messages, each a test of a rule of Raft. docs/scenarios.md describes
their language. A story is named as its file in testdata/scenarios, or by a path.`,
		Args: cobra.NoArgs,
	}
	c.AddCommand(newScenarioList(), newScenarioRun())
	return c
}

// stories reads those that are named, or all of testdata/scenarios.
func stories(names []string) ([]*scenario.Story, error) {
	if len(names) == 0 {
		root, err := zoo.Root(".")
		if err != nil {
			return nil, err
		}
		if names, err = filepath.Glob(filepath.Join(root, "testdata", "scenarios", "*.txt")); err != nil {
			return nil, err
		}
	}
	var all []*scenario.Story
	for _, name := range names {
		story, err := readStory(name)
		if err != nil {
			return nil, err
		}
		all = append(all, story)
	}
	return all, nil
}

func readStory(name string) (*scenario.Story, error) {
	file := name
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		root, rootErr := zoo.Root(".")
		if rootErr != nil {
			return nil, rootErr
		}
		file = filepath.Join(root, "testdata", "scenarios", strings.TrimSuffix(name, ".txt")+".txt")
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("there is no story %s: %w", name, err)
	}
	return scenario.Parse(file, string(text))
}

func storyName(s *scenario.Story) string { return strings.TrimSuffix(filepath.Base(s.File), ".txt") }

func newScenarioList() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List the stories", Args: cobra.NoArgs}
	format := c.Flags().StringP("write-out", "w", "text", "text, or json for one object a line")
	c.RunE = func(c *cobra.Command, _ []string) error {
		all, err := stories(nil)
		if err != nil {
			return err
		}
		line, ok := storyForms[*format]
		if !ok {
			return fmt.Errorf("there is no format %q; there are text and json", *format)
		}
		for _, s := range all {
			fmt.Fprintln(c.OutOrStdout(), line(s))
		}
		return nil
	}
	return c
}

var storyForms = map[string]func(*scenario.Story) string{
	"text": func(s *scenario.Story) string {
		return fmt.Sprintf("%-38s %-6s %-24s %s", storyName(s), s.From, strings.Join(append(s.Rules, s.Pitfalls...), " "), s.Title)
	},
	"json": func(s *scenario.Story) string {
		return mustJSON(struct {
			Name, Title     string
			Rules, Pitfalls []string `json:",omitempty"`
			Paper           string   `json:",omitempty"`
			From            string
		}{storyName(s), s.Title, s.Rules, s.Pitfalls, s.Paper, s.From})
	},
}

func newScenarioRun() *cobra.Command {
	c := &cobra.Command{
		Use:   "run [NAME…]",
		Short: "Play stories to package raft",
		Long: `Play stories to package raft, all of them if none is named. Of one that fails it
prints the line, what was expected and what is, and the last steps; the exit status
is then 1.`,
	}
	format := c.Flags().StringP("write-out", "w", "text", "text, or json for one object a line")
	c.RunE = func(c *cobra.Command, names []string) error {
		if *format != "text" && *format != "json" {
			return fmt.Errorf("there is no format %q; there are text and json", *format)
		}
		all, err := stories(names)
		if err != nil {
			return err
		}
		return playStories(c.OutOrStdout(), all, *format == "json")
	}
	return c
}

func playStories(w io.Writer, all []*scenario.Story, asJSON bool) error {
	failed := 0
	for _, s := range all {
		err := s.Play(core.Raft, false)
		why := ""
		if err != nil {
			failed++
			why = err.Error()
		}
		switch {
		case asJSON:
			fmt.Fprintln(w, mustJSON(struct {
				Name    string
				OK      bool
				Problem string `json:",omitempty"`
			}{storyName(s), err == nil, why}))
		case err == nil:
			fmt.Fprintf(w, "ok      %s\n", storyName(s))
		default:
			fmt.Fprintf(w, "FAILED  %s\n%s\n", storyName(s), why)
		}
	}
	if !asJSON {
		fmt.Fprintf(w, "%d of %d stories hold\n", len(all)-failed, len(all))
	}
	if failed > 0 {
		return errFound
	}
	return nil
}

// mustJSON writes down what can always be written down: texts and flags.
func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}
