package sim

import (
	"fmt"
	"strings"
)

// Profile says how much of the system takes part in a run. The parts of the
// tutorial run with what they have; package raft runs with everything.
type Profile struct {
	Name string

	// Clients send commands. Without them only elections are simulated.
	Clients bool

	// Crashes of servers, which come back with what they have saved. Without
	// them the core need not save anything.
	Crashes bool

	// Disks: servers save to simulated files that tear and fail, not to memory.
	Disks bool

	// Extensions beyond the paper's Figure 2 are mostly switched on: pre-vote,
	// quorum check, small windows and batches. Without it they never are.
	Extensions bool
}

// The profiles, from part1-election to the whole system.
var (
	Elections   = Profile{Name: "elections"}
	Commands    = Profile{Name: "commands", Clients: true}
	Persistence = Profile{Name: "persistence", Clients: true, Crashes: true}
	Full        = Profile{Name: "full", Clients: true, Crashes: true, Disks: true, Extensions: true}
)

// Profiles returns all of them, the smallest first.
func Profiles() []Profile { return []Profile{Elections, Commands, Persistence, Full} }

// ProfileNamed returns the profile with the given name.
func ProfileNamed(name string) (Profile, error) {
	var names []string
	for _, p := range Profiles() {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Profile{}, fmt.Errorf("there is no profile %q; there are %s", name, strings.Join(names, ", "))
}
