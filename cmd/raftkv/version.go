package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func versionCommand() *cobra.Command {
	var f clientFlags
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print which program this is",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.checkFormat(); err != nil {
				return err
			}
			version := "unknown"
			if info, ok := debug.ReadBuildInfo(); ok {
				version = info.Main.Version
			}
			out := cmd.OutOrStdout()
			switch f.format {
			case formatJSON:
				return printJSON(out, struct{ Version, Go, OS, Arch string }{version, runtime.Version(), runtime.GOOS, runtime.GOARCH})
			case formatTable:
				return printTable(out, []any{"VERSION", "GO", "SYSTEM"}, []any{version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH})
			}
			_, err := fmt.Fprintf(out, "raftkv %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
	f.addFormat(cmd)
	return cmd
}
