package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"raftkv/api"
	"raftkv/kvclient"
)

// nodeView is what one endpoint says, or why it says nothing.
type nodeView struct {
	Endpoint string
	Status   *api.StatusResponse `json:",omitzero"` // nil if there is no answer
	Error    string              `json:",omitzero"`
}

func statusCommand() *cobra.Command {
	var f clientFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show every server as it sees the cluster",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, ctx, done, err := f.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			views := askAll(ctx, client, f.list())
			if err := f.printStatus(cmd, views); err != nil {
				return err
			}
			for _, v := range views {
				if v.Status != nil {
					return nil
				}
			}
			return unavailable("no server answers at %s; check --endpoints and whether the servers run", f.endpoints)
		},
	}
	f.addTo(cmd)
	return cmd
}

// askAll asks every endpoint at once for its status.
func askAll(ctx context.Context, client *kvclient.KVClient, endpoints []string) []nodeView {
	views := make([]nodeView, len(endpoints))
	var wg sync.WaitGroup
	for i, endpoint := range endpoints {
		wg.Go(func() {
			status, err := client.Status(ctx, endpoint)
			views[i] = nodeView{Endpoint: endpoint, Status: status}
			if err != nil {
				views[i].Error = oneLine(innermost(err).Error())
			}
		})
	}
	wg.Wait()
	return views
}

// innermost returns the cause at the end of an error's chain.
func innermost(err error) error {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err
}

// leaderOf returns the server that leads, as the servers themselves say; 0 if
// none does. One that is cut off may still believe in its old term, so the
// highest term counts.
func leaderOf(views []nodeView) uint64 {
	var leader, term uint64
	for _, v := range views {
		if v.Status != nil && v.Status.Role == "leader" && v.Status.Term > term {
			leader, term = v.Status.ID, v.Status.Term
		}
	}
	return leader
}

func (f *clientFlags) printStatus(cmd *cobra.Command, views []nodeView) error {
	out := cmd.OutOrStdout()
	switch f.format {
	case formatJSON:
		return printJSON(out, struct {
			Leader uint64
			Nodes  []nodeView
		}{leaderOf(views), views})
	case formatTable:
		rows := [][]any{{"ENDPOINT", "CLUSTER", "ID", "ROLE", "TERM", "LEADER", "COMMIT", "APPLIED", "LAST", "SESSIONS"}}
		for _, v := range views {
			if s := v.Status; s != nil {
				rows = append(rows, []any{v.Endpoint, s.Cluster, s.ID, s.Role, s.Term, s.Leader, s.Commit, s.Applied, s.LastIndex, s.Sessions})
			} else {
				rows = append(rows, []any{v.Endpoint, "-", "-", v.Error})
			}
		}
		return printTable(out, rows...)
	}
	for _, v := range views {
		if _, err := fmt.Fprintln(out, v.line()); err != nil {
			return err
		}
	}
	return nil
}

// line is the view as one line for people.
func (v nodeView) line() string {
	s := v.Status
	if s == nil {
		return fmt.Sprintf("%s: no answer (%s)", v.Endpoint, v.Error)
	}
	leader := "no leader known"
	if s.Leader != 0 {
		leader = fmt.Sprintf("leader %d", s.Leader)
	}
	return fmt.Sprintf("%s: server %d is %s in term %d, %s, commit %d, applied %d, last %d", v.Endpoint, s.ID, s.Role, s.Term, leader, s.Commit, s.Applied, s.LastIndex)
}
