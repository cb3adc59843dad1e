package main

import (
	"github.com/spf13/cobra"

	"raftkv/raft/storage"
)

func logCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Look into a server's files",
	}
	isGroup(cmd)
	cmd.AddCommand(&cobra.Command{
		Use:   "dump DIR",
		Short: "Print a data directory readably",
		Long: `Dump prints what a data directory holds, record by record, and where it is
damaged. It changes nothing and wants no lock; while a server runs on the
directory the newest records may be half written.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := storage.Dump(cmd.OutOrStdout(), args[0], nil); err != nil {
				return refused("cannot dump %s: %v", args[0], err)
			}
			return nil
		},
	})
	return cmd
}
