package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"raftkv/internal/sim"
	"raftkv/internal/trace"
	"raftkv/kvservice/machine"
	"raftkv/raft"
)

func newReplay() *cobra.Command {
	c := &cobra.Command{
		Use:   "replay",
		Short: "Run one seed and print every step",
		Long: `Run one seed and print every step of every server, and every call of every
client. The same seed prints the same, byte for byte. The last lines are the
verdict and the hash of the run; the exit status is 1 if the seed fails.`,
		Args: cobra.NoArgs,
	}
	seed := c.Flags().Uint64("seed", 1, "the seed")
	tail := c.Flags().Int("tail", 0, "print only so many of the last lines; 0 prints all")
	format := c.Flags().StringP("write-out", "w", "text", "text, or json for one object a line")
	profile := profileFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		p, err := profile()
		if err != nil {
			return err
		}
		line, ok := formats[*format]
		if !ok {
			return fmt.Errorf("there is no format %q; there are text and json", *format)
		}
		return replay(c.OutOrStdout(), p, *seed, *tail, line)
	}
	return c
}

var formats = map[string]func(fmt.Stringer) string{
	"text": text,
	"json": func(line fmt.Stringer) string {
		b, err := json.Marshal(line)
		if err != nil {
			panic(err) // a record that cannot be written down is a mistake of ours
		}
		return string(b)
	},
}

// text writes a line for people. Commands are told in words.
func text(line fmt.Stringer) string {
	r, isRecord := line.(*trace.Record)
	if !isRecord {
		return line.String()
	}
	submit, isSubmit := r.Event.(raft.Submit)
	if !isSubmit {
		return line.String()
	}
	told := *r
	words := make([][]byte, len(submit.Commands))
	for i, command := range submit.Commands {
		words[i] = []byte(describe(command))
	}
	told.Event = raft.Submit{Commands: words}
	return told.String()
}

var kinds = map[machine.Kind]string{
	machine.KindSettings:    "settings",
	machine.KindOpenSession: "session",
	machine.KindPut:         "put",
	machine.KindAppend:      "append",
	machine.KindCAS:         "cas",
	machine.KindDelete:      "delete",
	machine.KindGet:         "get",
}

// describe tells what a command does, and which request of which client it is.
func describe(command []byte) string {
	c, err := machine.Decode(command)
	if err != nil {
		return string(command)
	}
	words := []string{kinds[c.Kind]}
	for _, word := range []string{c.Key, c.CompareValue, c.Value, string(c.ClientID)} {
		if word != "" {
			words = append(words, word)
		}
	}
	if c.RequestID != 0 {
		words = append(words, fmt.Sprint("#", c.RequestID))
	}
	return strings.Join(words, " ")
}

func replay(out io.Writer, p sim.Profile, seed uint64, tail int, format func(fmt.Stringer) string) error {
	w := bufio.NewWriter(out)
	defer w.Flush()
	config := sim.Config{Profile: p}
	var last *sim.Tail
	if tail > 0 {
		last = sim.NewTail(tail)
		config.Observe = func(line fmt.Stringer) { last.Add(format(line)) }
	} else {
		config.Observe = func(line fmt.Stringer) { fmt.Fprintln(w, format(line)) }
	}
	r := sim.RunSeed(config, seed)
	if last != nil {
		for line := range last.Lines() {
			fmt.Fprintln(w, line)
		}
	}
	fmt.Fprintln(w, r.Plan)
	fmt.Fprintf(w, "hash %016x, %d events, %d operations, %v\n", r.Hash, r.Steps, r.Operations, r.Duration)
	if r.Failure == nil {
		fmt.Fprintln(w, "ok")
		return nil
	}
	fmt.Fprintf(w, "FAILED %s: %s\n", r.Failure.Kind, r.Failure.Text)
	if r.Failure.Stack != "" {
		fmt.Fprintln(w, r.Failure.Stack)
	}
	return errFound
}
