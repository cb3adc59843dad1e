package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

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
		Long: `Status asks the servers at --endpoints, and then the members of the cluster that
these know of. Each answers for itself: one that is cut off may still call itself
leader. With -w table a second table says what each sees of the others.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, ctx, done, err := f.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			views := askCluster(ctx, client, f.list(), f.timeout/2)
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
	return atOnce(endpoints, func(endpoint string) nodeView {
		status, err := client.Status(ctx, endpoint)
		return nodeView{endpoint, status, shortly(err)}
	})
}

// atOnce asks all servers at the same time; the answers are in their order.
func atOnce[S, A any](servers []S, ask func(S) A) []A {
	answers := make([]A, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() { answers[i] = ask(s) })
	}
	wg.Wait()
	return answers
}

// askCluster asks every endpoint, and then the members of the cluster that these
// know of and that are not among them. patience is for the endpoints: one that
// hangs must leave time for the others.
func askCluster(ctx context.Context, client *kvclient.KVClient, endpoints []string, patience time.Duration) []nodeView {
	first, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	views := askAll(first, client, endpoints)
	asked := map[string]bool{}
	for _, endpoint := range endpoints {
		asked[hostPort(endpoint)] = true
	}
	answered := map[uint64]bool{}
	for _, v := range views {
		if v.Status != nil {
			answered[v.Status.ID] = true
		}
	}
	var more []string
	for _, v := range views {
		if v.Status == nil {
			continue
		}
		for _, m := range v.Status.Members {
			if m.HTTP != "" && !answered[m.ID] && !asked[m.HTTP] {
				asked[m.HTTP] = true
				more = append(more, m.HTTP)
			}
		}
	}
	return append(views, askAll(ctx, client, more)...)
}

// hostPort returns an endpoint as servers write it.
func hostPort(endpoint string) string {
	return strings.TrimSuffix(strings.TrimPrefix(endpoint, "http://"), "/")
}

// innermost returns the cause at the end of an error's chain.
func innermost(err error) error {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err
}

// shortly says why a server has not answered; "" if it has.
func shortly(err error) string {
	if err == nil {
		return ""
	}
	return oneLine(innermost(err).Error())
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
	now := configurationOf(views)
	switch f.format {
	case formatJSON:
		return printJSON(out, struct {
			Leader        uint64
			Configuration *configurationView `json:",omitzero"`
			Nodes         []nodeView
		}{leaderOf(views), now, views})
	case formatTable:
		if err := printTable(out, clusterTable(views)...); err != nil {
			return err
		}
		if seen := seenBy(views); len(seen) > 1 {
			fmt.Fprintln(out)
			if err := printTable(out, seen...); err != nil {
				return err
			}
			fmt.Fprintln(out)
		}
	default:
		for _, v := range views {
			if _, err := fmt.Fprintln(out, v.line()); err != nil {
				return err
			}
		}
	}
	for _, line := range warnings(views) {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return now.print(out)
}

// configurationView is the newest configuration that any server knows. While it
// is not committed, nothing else can be either: Halves says what that wants for.
type configurationView struct {
	api.Configuration
	Committed bool
	Halves    []half `json:",omitzero"`
}

// half is one of the sets of voters of which a majority must store an unfinished
// configuration.
type half struct {
	Name    string
	Voters  []uint64
	Missing []uint64 `json:",omitzero"` // those that are not known to have stored it
}

// configurationOf finds the newest configuration; nil if nobody answers or knows
// one. A leader's word counts most, for it knows what the others have.
func configurationOf(views []nodeView) *configurationView {
	var best *api.StatusResponse
	leader := leaderOf(views)
	has := map[uint64]uint64{} // how much of the log each server is known to have
	for _, v := range views {
		s := v.Status
		if s == nil {
			continue
		}
		has[s.ID] = max(has[s.ID], s.Configuration.Index)
		if s.ID == leader {
			for _, m := range s.Members {
				has[m.ID] = max(has[m.ID], m.Match)
			}
		}
		if best == nil || s.Configuration.Index > best.Configuration.Index || s.ID == leader && s.Configuration.Index == best.Configuration.Index {
			best = s
		}
	}
	if best == nil || len(best.Configuration.Voters) == 0 {
		return nil
	}
	c := best.Configuration
	view := &configurationView{Configuration: c, Committed: best.Commit >= c.Index}
	if view.Committed && len(c.OldVoters) == 0 {
		return view
	}
	add := func(name string, voters []uint64) {
		missing := slices.DeleteFunc(slices.Clone(voters), func(id uint64) bool { return has[id] >= c.Index })
		view.Halves = append(view.Halves, half{name, voters, missing})
	}
	if len(c.OldVoters) > 0 {
		add("old voters", c.OldVoters)
		add("new voters", c.Voters)
	} else {
		add("voters", c.Voters)
	}
	return view
}

func (c *configurationView) print(out io.Writer) error {
	if c == nil {
		return nil
	}
	text := fmt.Sprintf("configuration %d: %s\n", c.Index, describeConfiguration(c.Configuration))
	for _, h := range c.Halves {
		have, needed := len(h.Voters)-len(h.Missing), len(h.Voters)/2+1
		text += fmt.Sprintf("  not finished: %d of the %s %s must have it, %d have", needed, h.Name, numberList(h.Voters), have)
		if have < needed {
			text += fmt.Sprintf("; missing: %s", numberList(h.Missing))
		}
		text += "\n"
	}
	_, err := io.WriteString(out, text)
	return err
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
	if s.TransferTo != 0 {
		leader += fmt.Sprintf(" (handing over to %d)", s.TransferTo)
	}
	return fmt.Sprintf("%s: server %d is %s in term %d, %s, commit %d, applied %d, log %d to %d, snapshot %d", v.Endpoint, s.ID, s.Role, s.Term, leader, s.Commit, s.Applied, s.FirstIndex, s.LastIndex, s.SnapshotIndex)
}
