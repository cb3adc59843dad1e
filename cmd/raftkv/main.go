// Raftkv runs and uses the store.
//
//	raftkv demo             a cluster on this machine, to try things on
//	raftkv serve            one server of a cluster
//	raftkv get, put, …      what clients do
//	raftkv log dump DIR     what a data directory holds
//
// docs/cli.md describes every command, its exit codes and the session file.
//
// Reading order:
//
//	main.go         the commands, and how an error becomes a line and an exit code
//	flags.go        the flags that client commands share
//	keys.go         get, put, append, cas, delete
//	scan.go         scan
//	write.go        one write under the session file
//	sessionfile.go  the session file: what it holds, how it is locked and replaced
//	session.go      session show, resume, drop
//	output.go       the three forms of output
//	status.go       status; views.go: its tables
//	check.go        check
//	member.go       member list, add, promote, demote, remove, replace
//	leader.go       leader transfer
//	snapshot.go     snapshot take, save, inspect
//	restore.go      snapshot restore; rescue.go: snapshot save from a directory
//	serve.go        serve; join.go: a server that is to be added to a running cluster
//	demo.go         demo: what is typed and what is shown
//	children.go     the demo's child processes; process_*.go, pause_unix.go: per system
//	logdump.go      log dump
//	bench.go        bench
//	version.go      version
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"raftkv/api"
)

func main() {
	// A signal ends a call as its deadline would: an open write is reported as
	// unknown and stays in the session file.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run carries out one command line and returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := rootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return api.ExitOK
	}
	var failed *failure
	if !errors.As(err, &failed) {
		failed = refused("%v; see raftkv help", err) // a wrong command line
	}
	fmt.Fprintf(stderr, "raftkv: %s\n", oneLine(failed.text))
	return failed.code
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:                "raftkv",
		Short:              "A key/value store on Raft whose retries are safe",
		SilenceErrors:      true,
		SilenceUsage:       true,
		DisableSuggestions: true, // they would take more than a line
	}
	isGroup(root)
	root.AddCommand(demoCommand(), serveCommand(),
		getCommand(), scanCommand(), putCommand(), appendCommand(), casCommand(), deleteCommand(),
		sessionCommand(), statusCommand(), checkCommand(), memberCommand(), leaderCommand(), snapshotCommand(), logCommand(), benchCommand(), versionCommand())
	return root
}

// isGroup makes cmd a command that only has others under it: alone it prints its
// help, and with the name of no command it fails.
func isGroup(cmd *cobra.Command) {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

// failure is an error that has become what the user sees: one line, which says
// what happened and what to do, and the exit code.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

func refused(format string, args ...any) *failure {
	return &failure{api.ExitRefused, fmt.Sprintf(format, args...)}
}

func unavailable(format string, args ...any) *failure {
	return &failure{api.ExitUnavailable, fmt.Sprintf(format, args...)}
}

func unknown(format string, args ...any) *failure {
	return &failure{api.ExitUnknown, fmt.Sprintf(format, args...)}
}

// oneLine joins the lines of an error from elsewhere.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), " ")
}
