package main

import (
	"github.com/spf13/cobra"

	"raftkv/internal/sim"
)

func newDays() *cobra.Command {
	return &cobra.Command{
		Use:   "days",
		Short: "Play three days of sessions that are kept for one",
		Long: `Play three days of a cluster of three in a second: clients write and ask again,
within a day and after it, with an issued id, a chosen one and an
Idempotency-Key, while leaders crash, servers begin with a snapshot, all are off
for hours and a clock goes back. Prints what each was told and the state of each
server; exits 1 if an answer is another than docs/sessions.md has it, or if two
servers are in different states. It is always the same play.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return sim.Days(c.OutOrStdout()) },
	}
}
