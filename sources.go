// Package raftkv carries sources of its own, from which raftlab makes exercises:
// the tutorial's parts, what their tests stand on, and the checks.
package raftkv

import "embed"

// Sources are these folders as they were when the program was built.
//
//go:embed labs/part1 labs/part2 labs/part3 labs/part4 labs/part5 rafttest part1-election part2-commands part3-persistence part4-kvservice part5-dedup
//go:embed internal/cores internal/labs/run internal/labs/checks internal/labs/plain
var Sources embed.FS
