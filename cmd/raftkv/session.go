package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"raftkv/api"
	"raftkv/kvclient"
)

func sessionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "session",
		Short: "Show the session file, or finish a write whose end is unknown",
	}
	isGroup(cmd)
	cmd.AddCommand(sessionShowCommand(), sessionResumeCommand(), sessionDropCommand())
	return cmd
}

// noNone refuses the one session file that is none.
func (f *clientFlags) noNone() error {
	if f.session == noSessionFile {
		return refused("--session none keeps nothing to show, resume or drop; name a file")
	}
	return nil
}

func sessionShowCommand() *cobra.Command {
	var f clientFlags
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print what the session file holds",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.checkFormat(); err != nil {
				return err
			}
			if err := f.noNone(); err != nil {
				return err
			}
			s, err := readSections(f.session)
			if err != nil {
				return err
			}
			if f.format == formatJSON {
				return printJSON(cmd.OutOrStdout(), s)
			}
			rows := [][]any{{"CLUSTER", "CLIENT", "LAST REQUEST", "PENDING"}}
			for _, cluster := range slices.Sorted(maps.Keys(s)) {
				pending := "-"
				if w := s[cluster].Pending; w != nil {
					pending = describe(*w)
				}
				rows = append(rows, []any{cluster, s[cluster].ClientID, s[cluster].LastRequestID, pending})
			}
			return printTable(cmd.OutOrStdout(), rows...)
		},
	}
	f.addFormat(cmd)
	f.addSession(cmd)
	return cmd
}

func sessionResumeCommand() *cobra.Command {
	var f clientFlags
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "Send the pending write again, under the same number",
		Long: `Resume sends the pending write again with the identity that it had. If it has
taken effect, its original result is printed; if not, it is carried out now.
Either way it takes effect once.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w, result, err := f.resume(cmd)
			if err != nil {
				return f.explain(cmd, err)
			}
			return f.printWrite(cmd.OutOrStdout(), w, result, api.EncodingText)
		},
	}
	f.addTo(cmd)
	f.addSession(cmd)
	return cmd
}

func (f *clientFlags) resume(cmd *cobra.Command) (w kvclient.Write, result written, err error) {
	if err := f.check(); err != nil {
		return w, result, err
	}
	if err := f.noNone(); err != nil {
		return w, result, err
	}
	file, err := openSessionFile(cmd.Context(), f.session, f.timeout)
	if err != nil {
		return w, result, err
	}
	defer file.close()
	if len(file.sections.pending()) == 0 {
		return w, result, refused("no write is pending in %s; there is nothing to resume", f.session)
	}
	client, ctx, done, err := f.connect(cmd.Context())
	if err != nil {
		return w, result, err
	}
	defer done()
	cluster, err := client.ClusterID(ctx)
	if err != nil {
		return w, result, unknown("the pending write stays unknown (%s); check --endpoints, or run `raftkv session drop` to give it up", reason(err))
	}
	s := file.sections[cluster]
	if s == nil || s.Pending == nil {
		return w, result, refused("no write is pending for cluster %s, but one is for %s; set --endpoints to that cluster, or run `raftkv session drop %[2]s`", cluster, file.sections.pending()[0])
	}
	w = *s.Pending
	r, err := client.Resume(ctx, s.identity(), w)
	file.settle(cmd.ErrOrStderr(), cluster, err)
	result, err = writtenOrNot(w, r, err)
	return w, result, err
}

// pending returns the clusters that a write is pending for, in order.
func (s sections) pending() []string {
	var clusters []string
	for _, cluster := range slices.Sorted(maps.Keys(s)) {
		if s[cluster].Pending != nil {
			clusters = append(clusters, cluster)
		}
	}
	return clusters
}

func sessionDropCommand() *cobra.Command {
	var f clientFlags
	cmd := &cobra.Command{
		Use:   "drop [CLUSTER]",
		Short: "Give up the pending write: its end stays unknown",
		Long: `Drop forgets the pending write, so that other writes are possible again. It
talks to no server. A copy of the write that is still under way may take effect
until the next write of this session file has been applied, and not after that.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.noNone(); err != nil {
				return err
			}
			file, err := openSessionFile(cmd.Context(), f.session, f.timeout)
			if err != nil {
				return err
			}
			defer file.close()
			cluster, err := file.sections.choose(args, f.session)
			if err != nil {
				return err
			}
			s := file.sections[cluster]
			dropped := *s.Pending
			s.Pending = nil
			if err := file.save(); err != nil {
				return refused("cannot write the session file: %v", err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "dropped %s, request %d of %s; whether it was applied stays unknown\n", describe(dropped), s.LastRequestID, s.ClientID)
			return err
		},
	}
	cmd.Flags().DurationVar(&f.timeout, "timeout", defaultTimeout, "how long to wait for another raftkv that uses the session file")
	f.addSession(cmd)
	return cmd
}

// choose returns the cluster whose pending write is meant.
func (s sections) choose(args []string, path string) (string, error) {
	pending := s.pending()
	if len(args) == 1 {
		if !slices.Contains(pending, args[0]) {
			return "", refused("no write is pending for cluster %q in %s; see `raftkv session show`", args[0], path)
		}
		return args[0], nil
	}
	switch len(pending) {
	case 0:
		return "", refused("no write is pending in %s; there is nothing to drop", path)
	case 1:
		return pending[0], nil
	}
	return "", refused("writes are pending for %d clusters; name one: `raftkv session drop %s`", len(pending), pending[0])
}
