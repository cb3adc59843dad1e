// Command hunt runs seeds of the simulator until one shows what it looks for. It
// is the probe of the bugs that only the simulator finds: package zoo builds it
// with a bug laid over the sources.
//
//	hunt PROFILE FROM TO [TEXT…]
//
// Without a TEXT any failure is what it looks for. Exit status: 0 if no seed
// failed, 1 if one showed one of the texts, 3 if seeds failed but none did so.
package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"raftkv/internal/sim"
)

func main() {
	if len(os.Args) < 4 {
		fatal(fmt.Errorf("usage: hunt PROFILE FROM TO [TEXT…]"))
	}
	profile, err := sim.ProfileNamed(os.Args[1])
	if err != nil {
		fatal(err)
	}
	from, err := strconv.ParseUint(os.Args[2], 10, 64)
	if err != nil {
		fatal(err)
	}
	to, err := strconv.ParseUint(os.Args[3], 10, 64)
	if err != nil {
		fatal(err)
	}
	debug.SetGCPercent(400) // a run leaves much garbage and keeps little
	os.Exit(hunt(profile, from, to, os.Args[4:]))
}

func hunt(profile sim.Profile, from, to uint64, texts []string) (exit int) {
	for seed := from; seed <= to; seed++ {
		r := sim.RunSeed(sim.Config{Profile: profile}, seed)
		if r.Failure == nil {
			continue
		}
		line := fmt.Sprintf("%s: %s", r.Failure.Kind, r.Failure.Text)
		fmt.Printf("seed %d: %s\n", seed, line)
		if len(texts) == 0 || slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(line, text) }) {
			fmt.Printf("seeds needed: %d\n", seed-from+1)
			return 1
		}
		exit = 3
	}
	return exit
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "hunt:", err)
	os.Exit(2)
}
