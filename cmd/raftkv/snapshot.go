package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"raftkv/api"
	"raftkv/kvclient"
	"raftkv/kvservice"
	"raftkv/kvservice/machine"
)

func snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Cut logs short, save the store in a file, begin anew from one",
	}
	isGroup(cmd)
	cmd.AddCommand(snapshotTakeCommand(), snapshotSaveCommand(), snapshotInspectCommand(), snapshotRestoreCommand())
	return cmd
}

// taken is what one endpoint says to snapshot take.
type taken struct {
	Endpoint string
	Snapshot *api.SnapshotResponse `json:",omitzero"` // nil if none was taken
	Error    string                `json:",omitzero"`
}

func snapshotTakeCommand() *cobra.Command {
	var f clientFlags
	cmd := &cobra.Command{
		Use:   "take",
		Short: "Let every server take a snapshot, so that its log can be cut short",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, ctx, done, err := f.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			results := atOnce(f.list(), func(endpoint string) taken {
				answer, err := client.TakeSnapshot(ctx, endpoint)
				return taken{endpoint, answer, shortly(err)}
			})
			if err := f.printTaken(cmd.OutOrStdout(), results); err != nil {
				return err
			}
			if !slices.ContainsFunc(results, func(t taken) bool { return t.Snapshot != nil }) {
				return unavailable("no server has taken a snapshot; `raftkv status` shows the servers")
			}
			return nil
		},
	}
	f.addTo(cmd)
	return cmd
}

func (f *clientFlags) printTaken(out io.Writer, results []taken) error {
	switch f.format {
	case formatJSON:
		return printJSON(out, struct{ Nodes []taken }{results})
	case formatTable:
		rows := [][]any{{"ENDPOINT", "INDEX", "BYTES", "MILLIS"}}
		for _, t := range results {
			if s := t.Snapshot; s != nil {
				rows = append(rows, []any{t.Endpoint, s.Index, s.Bytes, s.Millis})
			} else {
				rows = append(rows, []any{t.Endpoint, "-", "-", t.Error})
			}
		}
		return printTable(out, rows...)
	}
	for _, t := range results {
		line := fmt.Sprintf("%s: no snapshot (%s)", t.Endpoint, t.Error)
		if s := t.Snapshot; s != nil {
			line = fmt.Sprintf("%s: snapshot of index %d, %d bytes in %d ms", t.Endpoint, s.Index, s.Bytes, s.Millis)
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}

func snapshotSaveCommand() *cobra.Command {
	var f clientFlags
	var level, data string
	cmd := &cobra.Command{
		Use:   "save FILE",
		Short: "Save the store in a file",
		Long: `Save asks a server for its store and writes it to FILE, which holds every write
that was acknowledged before. FILE is replaced when the whole of it has arrived.
With --consistency stale any server will do, also one that is alone; among those
that answer the one that has applied most is asked.

With --data it saves what the data directory of a server holds that does not run:
its whole log, with last entries that perhaps were never committed.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if l := api.Consistency(level); l != api.ConsistencyLinearizable && l != api.ConsistencyStale {
				return refused("--consistency %q is no level for a snapshot; use linearizable or stale", level)
			}
			if data != "" {
				if err := f.checkFormat(); err != nil {
					return err
				}
				content, err := saveDirectory(data, args[0])
				if err != nil {
					return f.explain(cmd, err)
				}
				return f.printContent(cmd.OutOrStdout(), args[0], content)
			}
			if err := f.check(); err != nil {
				return err
			}
			client := kvclient.New(f.list())
			defer client.Close()
			content, err := f.save(cmd.Context(), client, args[0], api.Consistency(level))
			if err != nil {
				return f.explain(cmd, err)
			}
			return f.printContent(cmd.OutOrStdout(), args[0], content)
		},
	}
	f.addTo(cmd)
	cmd.Flags().StringVar(&level, "consistency", string(api.ConsistencyLinearizable), "linearizable, or stale")
	cmd.Flags().StringVar(&data, "data", "", "save from the data directory of a server that does not run")
	return cmd
}

// save asks one server after the other until one has sent its store.
func (f *clientFlags) save(ctx context.Context, client *kvclient.KVClient, path string, level api.Consistency) (*content, error) {
	askCtx, cancel := context.WithTimeout(ctx, f.timeout)
	views := askAll(askCtx, client, f.list())
	cancel()
	views = slices.DeleteFunc(views, func(v nodeView) bool { return v.Status == nil })
	leader := leaderOf(views)
	slices.SortStableFunc(views, func(a, b nodeView) int {
		if level == api.ConsistencyLinearizable && (a.Status.ID == leader) != (b.Status.ID == leader) {
			if a.Status.ID == leader {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.Status.Applied, a.Status.Applied)
	})
	if len(views) == 0 {
		return nil, unavailable("nothing was saved: no server answers at %s; check --endpoints and whether the servers run", f.endpoints)
	}
	var last error
	for _, v := range views {
		c, err := saveFile(path, func(w io.Writer) error {
			// A large store may take its time, as long as something arrives.
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			stall := time.AfterFunc(f.timeout, func() { cancel(context.DeadlineExceeded) })
			defer stall.Stop()
			return client.SaveSnapshot(ctx, v.Endpoint, level, writerFunc(func(b []byte) (int, error) {
				stall.Reset(f.timeout)
				return w.Write(b)
			}))
		})
		var ready *failure
		if err == nil || errors.As(err, &ready) {
			return c, err
		}
		last = fmt.Errorf("%s: %w", v.Endpoint, err)
	}
	hint := "`raftkv status` shows the servers"
	if level == api.ConsistencyLinearizable {
		hint += "; without a majority only --consistency stale can save"
	}
	return nil, unavailable("nothing was saved (%s); %s", reason(last), hint)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// saveFile writes beside path first: a file of that name is always whole.
func saveFile(path string, write func(io.Writer) error) (*content, error) {
	temp := path + ".tmp"
	file, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, refused("cannot write: %v; choose another file", err)
	}
	defer os.Remove(temp)
	written := write(file)
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return nil, refused("cannot write: %v; choose another file", err)
	}
	if written != nil {
		return nil, written
	}
	c, err := inspect(temp)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.Rename(temp, path), syncDir(filepath.Dir(path))); err != nil {
		return nil, refused("cannot write: %v; choose another file", err)
	}
	return c, nil
}

// content is what a snapshot file holds.
type content struct {
	kvservice.SnapshotHeader
	Keys     int
	Sessions int
}

// inspect reads a whole snapshot file, so that it is certain that it can be read.
func inspect(path string) (*content, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	header, body, err := kvservice.ReadSnapshotFile(file)
	if err != nil {
		return nil, err
	}
	m, err := machine.ReadSnapshot(body)
	if err != nil {
		return nil, err
	}
	return &content{header, m.Keys(), m.Sessions()}, nil
}

func snapshotInspectCommand() *cobra.Command {
	var f clientFlags
	cmd := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Say what a snapshot file holds, and whether it is whole",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.checkFormat(); err != nil {
				return err
			}
			c, err := inspect(args[0])
			if err != nil {
				return f.explain(cmd, refused("cannot use %s: %v", args[0], err))
			}
			return f.printContent(cmd.OutOrStdout(), args[0], c)
		},
	}
	f.addFormat(cmd)
	return cmd
}

func (f *clientFlags) printContent(out io.Writer, path string, c *content) error {
	switch f.format {
	case formatJSON:
		return printJSON(out, struct {
			File string
			*content
		}{path, c})
	case formatTable:
		return printTable(out,
			[]any{"FILE", "CLUSTER", "NAME", "SERVER", "INDEX", "TERM", "BYTES", "KEYS", "SESSIONS"},
			[]any{path, c.Cluster, c.ClusterName, c.Server, c.Index, c.Term, c.Bytes, c.Keys, c.Sessions})
	}
	_, err := fmt.Fprintf(out, "%s: the store of cluster %s (%s) at index %d, by server %d: %d keys, %d sessions, %d bytes; %s\n",
		path, c.Cluster, c.ClusterName, c.Index, c.Server, c.Keys, c.Sessions, c.Bytes, describeConfiguration(c.Configuration))
	return err
}
