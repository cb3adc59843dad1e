package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"raftkv/api"
	"raftkv/kvclient"
)

func scanCommand() *cobra.Command {
	var f clientFlags
	var scan kvclient.Scan
	var inBase64, all bool
	cmd := &cobra.Command{
		Use:   "scan PREFIX",
		Short: "Print the keys that begin with a prefix, and their values",
		Long: `Scan prints a line for each key, in their order: the key, a tab, the value. A
prefix of '' is every key. If there are more than --limit, standard error says how
to go on in the same state of the store, which the server keeps for a minute; with
--all the rest is printed as well, all of one state.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if scan.Limit < 1 || scan.Limit > api.MaxScanLimit {
				return refused("--limit %d must be from 1 to %d; go on with --after for more", scan.Limit, api.MaxScanLimit)
			}
			if scan.Consistency == api.ConsistencyLog || checkLevel(string(scan.Consistency)) != nil {
				return refused("--consistency %q is no level of a scan; use linearizable, lease or stale", scan.Consistency)
			}
			client, ctx, done, err := f.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			scan.Prefix = args[0]
			result, err := scanPages(ctx, client, scan, all)
			if err != nil {
				return f.explain(cmd, scanFailure(scan.Prefix, err))
			}
			if err := f.printScan(cmd.OutOrStdout(), result, wanted(inBase64)); err != nil {
				return err
			}
			if result.Next != "" && f.format != formatJSON {
				fmt.Fprintf(cmd.ErrOrStderr(), "raftkv: there are more; go on with --after %q --at %d --endpoints %s\n", result.Next, result.AppliedIndex, result.Server)
			}
			return nil
		},
	}
	f.addTo(cmd)
	cmd.Flags().StringVar(&scan.After, "after", "", "begin behind this key")
	cmd.Flags().Uint64Var(&scan.At, "at", 0, "read the state after this place in the log, if the server still has it; 0 is the newest")
	cmd.Flags().IntVar(&scan.Limit, "limit", api.DefaultScanLimit, "at most so many keys; with --all, at once")
	cmd.Flags().BoolVar(&all, "all", false, "print all keys")
	cmd.Flags().StringVar((*string)(&scan.Consistency), "consistency", string(api.ConsistencyLinearizable), "linearizable, lease or stale")
	cmd.Flags().BoolVar(&inBase64, "base64", false, "print values in base64")
	return cmd
}

// scanPages returns a page, or all of them as one.
func scanPages(ctx context.Context, client *kvclient.KVClient, scan kvclient.Scan, all bool) (result kvclient.ScanResult, err error) {
	result, err = client.Scan(ctx, scan)
	for all && err == nil && result.Next != "" {
		page := result
		result, err = client.Scan(ctx, scan.Rest(page))
		result.Items = append(page.Items, result.Items...)
	}
	return result, err
}

func scanFailure(prefix string, err error) *failure {
	var status *kvclient.StatusError
	if errors.As(err, &status) && makesNoSense(status) {
		return refused("cannot scan %q: %v; correct it", prefix, status)
	}
	if status != nil && status.Status == api.StatusScanExpired {
		return unavailable("cannot go on with the scan of %q (%s)", prefix, status.Message)
	}
	return unavailable("cannot scan %q (%s); try again later (`raftkv status` shows the servers)", prefix, reason(err))
}

func (f *clientFlags) printScan(w io.Writer, r kvclient.ScanResult, e api.Encoding) error {
	switch f.format {
	case formatJSON:
		items := make([]api.Item, len(r.Items))
		for i, item := range r.Items {
			item.Value, item.Encoding = api.EncodeValue(item.Value, e)
			items[i] = item
		}
		return printJSON(w, struct {
			Items        []api.Item
			Next         string `json:",omitzero"`
			Stale        bool   `json:",omitzero"`
			AppliedIndex uint64
			Server       string `json:",omitzero"`
		}{items, r.Next, r.Stale, r.AppliedIndex, r.Server})
	case formatTable:
		rows := [][]any{{"KEY", "VERSION", "VALUE"}}
		for _, item := range r.Items {
			rows = append(rows, []any{fmt.Sprintf("%q", item.Key), item.Version, fmt.Sprintf("%q", item.Value)})
		}
		return printTable(w, rows...)
	}
	for _, item := range r.Items {
		value := item.Value
		if e == api.EncodingBase64 {
			value, _ = api.EncodeValue(value, e)
		}
		if _, err := fmt.Fprintf(w, "%s\t%s\n", item.Key, value); err != nil {
			return err
		}
	}
	return nil
}
