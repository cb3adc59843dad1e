package labs

import "fmt"

// Load returns the lab of a part, "part1" to "part5".
func Load(part string) (Lab, error) {
	return Lab{}, fmt.Errorf("labs: there is no lab %q", part)
}

// Assemble writes into outDir, which must be empty or absent, the module to be
// judged: of studentDir only the named Files, which may stand there, in Dir
// below it, or in any one folder of these names; all else is ours. The error is a
// *RefusedError if the files are not there or use what they may not.
func (l Lab) Assemble(studentDir, outDir string) error { return nil }

// Build compiles what Assemble has written into one binary, without a network.
// The error is a *CompileError if the student's code is at fault.
//
// The binary runs the checks and writes a Verdict as JSON to file descriptor 3,
// in one write, before it exits 0. It starts itself once more as a child, so that
// code which exhausts the stack or the memory costs a check and not the verdict;
// what the child prints goes to its standard output and error. If descriptor 3
// holds nothing at the end, the code was killed from outside. With
// -seeds N,N,… it uses these seeds instead of its own; with -only ID it runs one
// check and those that it needs.
func (l Lab) Build(outDir, binary string) error { return nil }
