package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"raftkv/api"
	"raftkv/kvclient"
)

func getCommand() *cobra.Command {
	var f clientFlags
	var level string
	var inBase64 bool
	cmd := &cobra.Command{
		Use:   "get KEY",
		Short: "Print the value of a key",
		Long:  "Get prints the value and a newline. An absent key is exit code 2.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkLevel(level); err != nil {
				return err
			}
			client, ctx, done, err := f.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			result, err := client.Get(ctx, args[0], kvclient.WithConsistency(api.Consistency(level)))
			if err != nil {
				return f.explain(cmd, getFailure(args[0], err))
			}
			if err := f.printGet(cmd.OutOrStdout(), args[0], result, wanted(inBase64)); err != nil {
				return err
			}
			if !result.KeyFound {
				return &failure{api.ExitAbsent, fmt.Sprintf("there is no key %q; `raftkv put` makes one", args[0])}
			}
			return nil
		},
	}
	f.addTo(cmd)
	cmd.Flags().StringVar(&level, "consistency", string(api.ConsistencyLinearizable), "linearizable, lease, log or stale")
	cmd.Flags().BoolVar(&inBase64, "base64", false, "print the value in base64")
	return cmd
}

// wanted returns the encoding that --base64 asks for.
func wanted(inBase64 bool) api.Encoding {
	if inBase64 {
		return api.EncodingBase64
	}
	return api.EncodingText
}

// checkLevel refuses what no server would take.
func checkLevel(level string) error {
	switch api.Consistency(level) {
	case api.ConsistencyLinearizable, api.ConsistencyLease, api.ConsistencyLog, api.ConsistencyStale:
		return nil
	}
	return refused("--consistency %q is no level; use linearizable, lease, log or stale", level)
}

func getFailure(key string, err error) *failure {
	var status *kvclient.StatusError
	if errors.As(err, &status) && makesNoSense(status) {
		return refused("cannot read %q: %v; correct it", key, status)
	}
	return unavailable("cannot read %q (%s); try again later (`raftkv status` shows the servers)", key, reason(err))
}

func (f *clientFlags) printGet(w io.Writer, key string, r kvclient.GetResult, e api.Encoding) error {
	switch f.format {
	case formatJSON:
		value, encoding := api.EncodeValue(r.Value, e)
		var age *int64
		if r.AgeKnown {
			age = new(r.Age.Milliseconds())
		}
		return printJSON(w, struct {
			Key          string
			KeyFound     bool
			Value        string
			Version      uint64
			Encoding     api.Encoding `json:",omitzero"`
			Stale        bool         `json:",omitzero"`
			AppliedIndex uint64       `json:",omitzero"`
			AgeMillis    *int64       `json:",omitzero"`
		}{key, r.KeyFound, value, r.Version, encoding, r.Stale, r.AppliedIndex, age})
	case formatTable:
		return printTable(w, []any{"KEY", "FOUND", "VERSION", "VALUE"}, []any{fmt.Sprintf("%q", key), r.KeyFound, r.Version, fmt.Sprintf("%q", r.Value)})
	}
	if !r.KeyFound {
		return nil
	}
	value := r.Value // bytes that are no text are printed as they are, for a pipe
	if e == api.EncodingBase64 {
		value, _ = api.EncodeValue(value, e)
	}
	_, err := fmt.Fprintln(w, value)
	return err
}

func putCommand() *cobra.Command {
	return writeCommand("put KEY VALUE", "Set a key to a value", 2, func(args []string) kvclient.Write {
		return kvclient.Write{Op: kvclient.OpPut, Key: args[0], Value: args[1]}
	})
}

func appendCommand() *cobra.Command {
	return writeCommand("append KEY VALUE", "Add a value to the end of what a key holds", 2, func(args []string) kvclient.Write {
		return kvclient.Write{Op: kvclient.OpAppend, Key: args[0], Value: args[1]}
	})
}

func casCommand() *cobra.Command {
	return writeCommand("cas KEY COMPARE VALUE", "Set a key to a value if it holds another (exit code 3 if it does not)", 3, func(args []string) kvclient.Write {
		return kvclient.Write{Op: kvclient.OpCAS, Key: args[0], CompareValue: args[1], Value: args[2]}
	})
}

func deleteCommand() *cobra.Command {
	return writeCommand("delete KEY", "Remove a key", 1, func(args []string) kvclient.Write {
		return kvclient.Write{Op: kvclient.OpDelete, Key: args[0]}
	})
}

// writeCommand makes a command that writes. If its last argument is a value, "-"
// there reads the value from standard input, byte for byte.
func writeCommand(use, short string, nArgs int, write func(args []string) kvclient.Write) *cobra.Command {
	var f clientFlags
	var options writeOptions
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ExactArgs(nArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := options.decode(args[1:]); err != nil {
				return err
			}
			if last := nArgs - 1; last > 0 && args[last] == "-" {
				value, err := readValue(cmd.InOrStdin())
				if err != nil {
					return err
				}
				args[last] = value
			}
			w := write(args)
			if err := options.applyTo(cmd, &w); err != nil {
				return err
			}
			result, err := f.write(cmd.Context(), cmd.ErrOrStderr(), w)
			if err != nil {
				return f.explain(cmd, err)
			}
			return f.printWrite(cmd.OutOrStdout(), w, result, wanted(options.base64))
		},
	}
	if nArgs > 1 {
		cmd.Long = short + ".\nA VALUE of - is read from standard input, to its end, as it is."
	}
	f.addTo(cmd)
	f.addSession(cmd)
	options.addTo(cmd)
	return cmd
}

// writeOptions are the flags that change what a write asks for.
type writeOptions struct {
	ifVersion    uint64
	expectAbsent bool
	base64       bool
	key          string
}

const (
	ifVersionFlag      = "if-version"
	idempotencyKeyFlag = "idempotency-key"
)

func (o *writeOptions) addTo(cmd *cobra.Command) {
	if cmd.Name() == string(kvclient.OpCAS) {
		cmd.Flags().BoolVar(&o.expectAbsent, "expect-absent", false, "set the key if it is absent; COMPARE must be '' then")
	} else {
		cmd.Flags().Uint64Var(&o.ifVersion, ifVersionFlag, 0, "only if the key has this version, or is absent if it is 0 (exit code 3 if not)")
	}
	cmd.Flags().BoolVar(&o.base64, "base64", false, "values in the command line and in the output of -w json are base64")
	cmd.Flags().StringVar(&o.key, idempotencyKeyFlag, "", "text that no other write has, such as an order's number: the same command with it again changes nothing, and prints the first result; the session file is not used")
}

// applyTo gives w its condition, and its key.
func (o *writeOptions) applyTo(cmd *cobra.Command, w *kvclient.Write) error {
	if o.expectAbsent && w.CompareValue != "" {
		return refused("--expect-absent and a COMPARE of %q contradict each other; give '' for COMPARE", w.CompareValue)
	}
	if cmd.Flags().Changed(idempotencyKeyFlag) && o.key == "" {
		return refused("--idempotency-key must not be empty; leave it out, or give the write a name")
	}
	w.IdempotencyKey = o.key
	w.ExpectAbsent = o.expectAbsent
	if cmd.Flags().Changed(ifVersionFlag) {
		w.IfVersion = &o.ifVersion
	}
	return nil
}

// decode replaces values in base64 by their bytes. What comes from standard
// input is bytes already.
func (o *writeOptions) decode(values []string) error {
	for i, text := range values {
		if !o.base64 || text == "-" {
			continue
		}
		value, err := api.EncodingBase64.Decode(text)
		if err != nil {
			return refused("--base64: %q is not base64 with padding; correct it", text)
		}
		values[i] = value
	}
	return nil
}

// maxValueBytes bounds what is read from standard input. Servers take less; they
// say how much.
const maxValueBytes = 64 << 20

func readValue(in io.Reader) (string, error) {
	value, err := io.ReadAll(io.LimitReader(in, maxValueBytes+1))
	if err != nil {
		return "", refused("cannot read the value from standard input: %v", err)
	}
	if len(value) > maxValueBytes {
		return "", refused("the value on standard input is larger than %d MiB; split it", maxValueBytes>>20)
	}
	return string(value), nil
}

// printWrite prints the result of a write that was applied. The error is the
// exit code of a compare-and-set that found another value.
func (f *clientFlags) printWrite(out io.Writer, w kvclient.Write, r written, e api.Encoding) error {
	notSwapped := w.Op == kvclient.OpCAS && !r.Swapped
	var err error
	switch f.format {
	case formatJSON:
		prev, encoding := api.EncodeValue(r.PrevValue, e)
		err = printJSON(out, struct {
			Outcome    api.Outcome
			Op         kvclient.Op
			Key        string
			KeyFound   bool
			PrevValue  string
			Swapped    *bool `json:",omitzero"`
			Version    uint64
			Encoding   api.Encoding `json:",omitzero"`
			Duplicate  bool         `json:",omitzero"`
			ResultLost bool         `json:",omitzero"`
		}{api.OutcomeApplied, w.Op, w.Key, r.KeyFound, prev, swappedOf(w, r), r.Version, encoding, r.Duplicate, r.resultLost})
	case formatTable:
		err = printTable(out,
			[]any{"OP", "KEY", "FOUND", "VERSION", "SWAPPED", "DUPLICATE", "PREVIOUS"},
			[]any{w.Op, fmt.Sprintf("%q", w.Key), r.KeyFound, r.Version, r.Swapped, r.Duplicate, fmt.Sprintf("%q", r.PrevValue)})
	default:
		switch {
		case notSwapped: // said by the failure
		case r.resultLost:
			_, err = fmt.Fprintln(out, "OK (an earlier attempt had taken effect; the cluster has not kept its result)")
		case r.Duplicate:
			_, err = fmt.Fprintln(out, "OK (an earlier attempt had taken effect)")
		default:
			_, err = fmt.Fprintln(out, "OK")
		}
	}
	if err == nil && notSwapped {
		holds := "is absent"
		switch {
		case w.ExpectAbsent:
			holds = "is there"
		case r.KeyFound:
			holds = "holds another value"
		}
		return &failure{api.ExitNotSwapped, fmt.Sprintf("not swapped: %q %s; read it and decide again", w.Key, holds)}
	}
	return err
}

// swappedOf returns nil for a write that is no compare-and-set.
func swappedOf(w kvclient.Write, r written) *bool {
	if w.Op != kvclient.OpCAS {
		return nil
	}
	return &r.Swapped
}

// explain prints a failure as an object too if the output is for programs, so
// that these need not read prose. It returns the failure.
func (f *clientFlags) explain(cmd *cobra.Command, err error) error {
	var failed *failure
	if f.format != formatJSON || !errors.As(err, &failed) {
		return err
	}
	outcome := api.OutcomeNotApplied
	if failed.code == api.ExitUnknown {
		outcome = api.OutcomeUnknown
	}
	return errors.Join(err, printJSON(cmd.OutOrStdout(), struct {
		Outcome api.Outcome
		Error   string
	}{outcome, oneLine(failed.text)}))
}
