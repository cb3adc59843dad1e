package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The forms of output, -w.
const (
	formatSimple = "simple" // for reading, and for $(…)
	formatTable  = "table"  // names and values in columns
	formatJSON   = "json"   // one object on one line, for programs
)

// printJSON writes v as one object on one line.
func printJSON(w io.Writer, v any) error {
	data, err := json.Marshal(v, json.Deterministic(true), jsontext.EscapeForHTML(false))
	if err != nil {
		return refused("cannot print the answer: %v", err)
	}
	_, err = fmt.Fprintf(w, "%s\n", data)
	return err
}

// printTable writes rows in columns; the first row is the heading.
func printTable(w io.Writer, rows ...[]any) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, cell)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}
