// Command raftlab is for studying the cluster rather than using it: it runs
// whole clusters in virtual time, from one number each, and shows what happened.
//
//	raftlab chaos --seeds 1000    many clusters with many faults; all must hold
//	raftlab replay --seed 17      one of them again, step by step, also as a page
//	raftlab shrink --seed 17      the few faults with which it still fails
//	raftlab scenario run          stories about messages, each a test of a rule
//	raftlab hash --seeds 20       what each did, as a number, to compare machines
//	raftlab days                  three days of sessions that are kept for one
//	raftlab play part3            a part of the tutorial, step by step
//	raftlab zoo run               famous bugs, and whether the tests catch them
//	raftlab search                every state that a small cluster can reach
//	raftlab skeleton part2        a part with holes, for a student to fill
//	raftlab check                 what is right in it and what is not yet
//	raftlab hint replication/3    help, in three steps
//	raftlab grade submissions     the marks of a class
//	raftlab mutants tests         what a student's own tests find
//
// docs/simulator.md tells what is simulated and how to read a trace.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"raftkv/internal/sim"
)

// errFound reports a seed or a story that failed. What was wrong has been printed.
var errFound = errors.New("something failed")

func main() {
	if err := newCommand().Execute(); err != nil {
		if !errors.Is(err, errFound) && !errors.Is(err, errNotAll) {
			fmt.Fprintln(os.Stderr, "raftlab:", err)
		}
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "raftlab",
		Short:         "Run Raft clusters in virtual time and see what happens",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newChaos(), newReplay(), newShrink(), newScenario(), newHash(), newDays(), newPlay(), newZoo(), newSearch(), newSkeleton(), newCheck(), newHint(), newGrade(), newMutants(), newConfined())
	return root
}

// profileFlag adds --profile and returns how to read it.
func profileFlag(c *cobra.Command) func() (sim.Profile, error) {
	usage := "how much takes part:"
	for _, p := range sim.Profiles() {
		usage += " " + p.Name
	}
	name := c.Flags().String("profile", sim.Full.Name, usage)
	return func() (sim.Profile, error) { return sim.ProfileNamed(*name) }
}
