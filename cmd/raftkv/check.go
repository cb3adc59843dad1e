package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raftkv/api"
	"raftkv/kvclient"
)

const (
	checkMarks = 3                      // how often a mark is set, if a server got a snapshot instead of it
	checkPause = 100 * time.Millisecond // before a server is asked again
)

func checkCommand() *cobra.Command {
	var f clientFlags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Compare the states of all servers at one place in the log",
		Long: `Check puts a mark into the log and asks every member of the cluster for the hash of
its state at the mark. It may be run while the cluster is in use. It exits with 0
if all hold the same, with 1 if they do not, and with 4 if a member cannot be asked.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, ctx, done, err := f.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			found, err := findHashes(ctx, client)
			if err != nil {
				return unavailable("the servers could not be compared (%s); try again later", reason(err))
			}
			return f.printCheck(cmd.OutOrStdout(), found)
		},
	}
	f.addTo(cmd)
	return cmd
}

// checked is what the members hold at one index.
type checked struct {
	Index uint64
	Same  bool // all members were asked, and hold the same
	Nodes []nodeHash
}

// nodeHash is what one member holds, or why that is not known.
type nodeHash struct {
	ID       uint64
	Endpoint string
	Hash     string `json:",omitzero"`
	Keys     int
	Sessions int
	Error    string `json:",omitzero"`

	skipped bool // it has passed the mark without noting it
}

// findHashes sets a mark and asks all members. The error says that there was none
// to ask, or no leader to set a mark.
func findHashes(ctx context.Context, client *kvclient.KVClient) (c checked, err error) {
	for range checkMarks {
		members, err := client.Members(ctx)
		if err != nil {
			return c, err
		}
		if c.Index, err = client.Mark(ctx); err != nil {
			return c, err
		}
		var again bool
		c.Nodes, again = askForHashes(ctx, client, members.Members, c.Index)
		if !again {
			break
		}
	}
	groups, missing := c.groups()
	c.Same = len(groups) == 1 && len(missing) == 0
	return c, nil
}

// askForHashes asks all members at once. again says that one has not noted this
// mark and may note another.
func askForHashes(ctx context.Context, client *kvclient.KVClient, members []api.Member, index uint64) (nodes []nodeHash, again bool) {
	// One that hangs must not take the time of everybody; half is left for others.
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	nodes = atOnce(members, func(m api.Member) nodeHash { return askForHash(ctx, client, m, index) })
	return nodes, slices.ContainsFunc(nodes, func(n nodeHash) bool { return n.skipped })
}

// askForHash asks until the server has come to the mark.
func askForHash(ctx context.Context, client *kvclient.KVClient, m api.Member, index uint64) nodeHash {
	n := nodeHash{ID: m.ID, Endpoint: m.HTTP}
	if n.Endpoint == "" {
		n.Error = "its HTTP address is not known to the leader"
		return n
	}
	for {
		answer, err := client.StateHash(ctx, n.Endpoint, index)
		n.Error = shortly(err)
		if err == nil {
			n.Hash, n.Keys, n.Sessions = answer.Hash, answer.Keys, answer.Sessions
			return n
		}
		var refusal *kvclient.StatusError
		late := errors.As(err, &refusal) && refusal.Status == api.StatusTimeout
		if !late {
			n.skipped = refusal != nil && refusal.Status == api.StatusNotFound
			return n
		}
		select {
		case <-time.After(checkPause):
		case <-ctx.Done():
			return n
		}
	}
}

// groups puts together who holds the same, the largest group first.
func (c checked) groups() (groups [][]nodeHash, missing []nodeHash) {
	for _, n := range c.Nodes {
		i := slices.IndexFunc(groups, func(g []nodeHash) bool { return g[0].Hash == n.Hash })
		switch {
		case n.Hash == "":
			missing = append(missing, n)
		case i < 0:
			groups = append(groups, []nodeHash{n})
		default:
			groups[i] = append(groups[i], n)
		}
	}
	slices.SortStableFunc(groups, func(a, b []nodeHash) int { return len(b) - len(a) })
	return groups, missing
}

func (f *clientFlags) printCheck(out io.Writer, c checked) error {
	switch f.format {
	case formatJSON:
		if err := printJSON(out, c); err != nil {
			return err
		}
	case formatTable:
		rows := [][]any{{"ID", "ENDPOINT", "INDEX", "KEYS", "SESSIONS", "HASH"}}
		for _, n := range c.Nodes {
			if n.Hash == "" {
				rows = append(rows, []any{n.ID, n.Endpoint, "-", "-", "-", n.Error})
				continue
			}
			rows = append(rows, []any{n.ID, n.Endpoint, c.Index, n.Keys, n.Sessions, n.Hash})
		}
		if err := printTable(out, rows...); err != nil {
			return err
		}
	}
	failed := c.verdict()
	if failed != nil {
		return failed
	}
	if f.format == formatSimple {
		_, err := fmt.Fprintf(out, "OK: %s hold the same at index %d: %s\n", serverList(c.Nodes), c.Index, c.Nodes[0].describe())
		return err
	}
	return nil
}

// verdict is nil if all members hold the same.
func (c checked) verdict() error {
	groups, missing := c.groups()
	switch {
	case len(groups) > 1:
		var texts []string
		for _, g := range slices.Backward(groups) { // the odd one out is the news
			texts = append(texts, fmt.Sprintf("%s: %s", serverList(g), g[0].describe()))
		}
		return refused("the servers differ at index %d: %s; stop the one that differs and keep its data directory (docs/cli.md#check)", c.Index, strings.Join(texts, "; "))
	case len(groups) == 0:
		return unavailable("no member could be asked (%s); check whether the servers run", missing[0].Error)
	case len(missing) > 0:
		return unavailable("%s could not be asked (%s); the others, %s, hold the same at index %d", serverList(missing), missing[0].Error, serverList(groups[0]), c.Index)
	}
	return nil
}

func (n nodeHash) describe() string {
	return fmt.Sprintf("%s, %s, hash %s", counted(n.Keys, "key"), counted(n.Sessions, "session"), n.Hash[:min(12, len(n.Hash))])
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func serverList(nodes []nodeHash) string {
	var ids []uint64
	for _, n := range nodes {
		ids = append(ids, n.ID)
	}
	if len(ids) == 1 {
		return fmt.Sprintf("server %d", ids[0])
	}
	return "servers " + numberList(ids)
}
