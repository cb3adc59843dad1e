package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"raftkv/kvclient"
)

func leaderCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "leader",
		Short: "Move leadership",
	}
	isGroup(cmd)
	var f clientFlags
	transfer := &cobra.Command{
		Use:   "transfer [ID]",
		Short: "Hand leadership to a server; without ID to the voter that lacks least",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var to uint64
			if len(args) > 0 {
				var err error
				if to, err = parseID(args[0]); err != nil {
					return err
				}
			}
			client, ctx, done, err := f.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			leader, err := client.TransferLeadership(ctx, to)
			if err != nil {
				return f.explain(cmd, transferFailure(err))
			}
			out := cmd.OutOrStdout()
			switch f.format {
			case formatJSON:
				return printJSON(out, struct{ Leader uint64 }{leader})
			case formatTable:
				return printTable(out, []any{"LEADER"}, []any{leader})
			}
			_, err = fmt.Fprintf(out, "OK: server %d leads\n", leader)
			return err
		},
	}
	f.addTo(transfer)
	cmd.AddCommand(transfer)
	return cmd
}

func transferFailure(err error) *failure {
	var open *kvclient.UnknownError
	var status *kvclient.StatusError
	switch {
	case errors.As(err, &open):
		return unknown("leadership may have moved, or may still (%s); `raftkv status` shows who leads", reason(open.Err))
	case errors.As(err, &status) && makesNoSense(status):
		return refused("leadership has not moved: %s", status.Message)
	}
	return unavailable("leadership has not moved (%s); try again later (`raftkv status` shows the servers)", reason(err))
}
