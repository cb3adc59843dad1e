package raft

import "slices"

// Configuration says which servers vote. Voters is sorted and has no doubles.
type Configuration struct {
	Voters []ServerID
}

// NewConfiguration returns the configuration in which the given servers vote.
func NewConfiguration(voters ...ServerID) Configuration {
	v := slices.Clone(voters)
	slices.Sort(v)
	return Configuration{Voters: slices.Compact(v)}
}

// Has reports whether id votes.
func (c Configuration) Has(id ServerID) bool {
	_, found := slices.BinarySearch(c.Voters, id)
	return found
}

// quorum reports whether the servers for which yes answers true are a majority.
// Every decision in this package that needs one asks here: with four voters it
// takes three, and a server outside the configuration counts for nothing.
func (c Configuration) quorum(yes func(ServerID) bool) bool {
	n := 0
	for _, id := range c.Voters {
		if yes(id) {
			n++
		}
	}
	return n > len(c.Voters)/2
}

// quorumIndex returns the largest index that a majority has reached, where
// reached tells how far each server is.
func (c Configuration) quorumIndex(reached func(ServerID) Index) Index {
	var best Index
	for _, id := range c.Voters {
		candidate := reached(id)
		if candidate > best && c.quorum(func(v ServerID) bool { return reached(v) >= candidate }) {
			best = candidate
		}
	}
	return best
}
