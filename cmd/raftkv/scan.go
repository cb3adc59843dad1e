package main

import (
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
	var inBase64 bool
	cmd := &cobra.Command{
		Use:   "scan PREFIX",
		Short: "Print the keys that begin with a prefix, and their values",
		Long: `Scan prints a line for each key, in their order: the key, a tab, the value. A
prefix of '' is every key. If there are more than --limit, standard error says how
to go on.`,
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
			result, err := client.Scan(ctx, scan)
			if err != nil {
				return f.explain(cmd, scanFailure(scan.Prefix, err))
			}
			if err := f.printScan(cmd.OutOrStdout(), result, wanted(inBase64)); err != nil {
				return err
			}
			if result.Next != "" && f.format != formatJSON {
				fmt.Fprintf(cmd.ErrOrStderr(), "raftkv: there are more; go on with --after %q\n", result.Next)
			}
			return nil
		},
	}
	f.addTo(cmd)
	cmd.Flags().StringVar(&scan.After, "after", "", "begin behind this key")
	cmd.Flags().IntVar(&scan.Limit, "limit", api.DefaultScanLimit, "at most so many keys")
	cmd.Flags().StringVar((*string)(&scan.Consistency), "consistency", string(api.ConsistencyLinearizable), "linearizable, lease or stale")
	cmd.Flags().BoolVar(&inBase64, "base64", false, "print values in base64")
	return cmd
}

func scanFailure(prefix string, err error) *failure {
	var status *kvclient.StatusError
	if errors.As(err, &status) && makesNoSense(status) {
		return refused("cannot scan %q: %v; correct it", prefix, status)
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
		}{items, r.Next, r.Stale, r.AppliedIndex})
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
