// Command ran reads what `go test -json ./...` prints and compares the tests
// that ran with the tests that exist in the sources. It fails if any exists and
// did not run: for its name, its build tag, its folder, or because it skipped itself.
//
//	go test -json ./... | go run ./internal/tidy/ran
//
// The lines that go test prints about packages and failures pass through.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"raftkv/internal/tidy"
)

func main() {
	ok, err := run(os.Stdin, os.Stdout, ".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "ran:", err)
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

// event is a line of go test -json; see go doc test2json.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// run reports whether every test of the repository at root is among the events
// and none of them failed or was skipped.
func run(in io.Reader, out io.Writer, root string) (ok bool, err error) {
	declared, err := tidy.DeclaredTests(root)
	if err != nil {
		return false, err
	}
	times := map[string]int{} // how often each test ran to its end
	ok = true
	output := map[string][]string{}
	for decoder := json.NewDecoder(in); ; {
		var e event
		if err := decoder.Decode(&e); err == io.EOF {
			break
		} else if err != nil {
			return false, fmt.Errorf("the input is not what go test -json prints: %w", err)
		}
		key := e.Package + "." + e.Test
		switch e.Action {
		case "output", "build-output":
			switch {
			case e.Test != "":
				output[key] = append(output[key], e.Output)
			case e.Output != "PASS\n":
				fmt.Fprint(out, e.Output)
			}
		case "pass":
			times[key]++
			delete(output, key)
		case "fail", "build-fail":
			ok = false
			fmt.Fprint(out, strings.Join(output[key], ""))
			times[key]++
			delete(output, key) // with -count it runs again
		case "skip":
			if e.Test == "" {
				continue // a package without tests
			}
			ok = false
			fmt.Fprintf(out, "%s was skipped\n%s", key, strings.Join(output[key], ""))
		}
	}
	ran := 0
	for _, test := range declared {
		if times[test.Package+"."+test.Name] == 0 {
			ok = false
			fmt.Fprintf(out, "%s: %s did not run\n", test.File, test.Name)
			continue
		}
		ran++
	}
	fmt.Fprintf(out, "%d of %d test functions ran\n", ran, len(declared))
	return ok, nil
}
