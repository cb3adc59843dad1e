package raft

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Configuration says who takes part (§6). The zero value is that of a server
// which waits to be added to a cluster: nobody votes. The lists are sorted and
// have no doubles; a Configuration is never changed once it is made.
type Configuration struct {
	// Voters decide: votes, commits, reads and leases need a majority of them.
	Voters []ServerID

	// OldVoters are those of before, while the voters are being changed (joint
	// consensus, §6): everything then needs a majority of each. Nil otherwise.
	OldVoters []ServerID

	// Learners get the log and decide nothing (thesis 4.2.1).
	Learners []ServerID

	// Addresses says where the others reach a server. This package only carries
	// it, so that every server learns of a new one with the configuration.
	Addresses []Address
}

// Address is where the other servers reach a server, as host:port.
type Address struct {
	ID   ServerID
	Addr string

	// Since is the index of the configuration that added the server; 0 if it was
	// there from the beginning. It tells a server from an earlier one of the same
	// id, whose disk may be lost.
	Since Index
}

// NewConfiguration returns the configuration in which the given servers vote.
func NewConfiguration(voters ...ServerID) Configuration {
	return Configuration{Voters: sortedIDs(voters)}
}

func sortedIDs(ids []ServerID) []ServerID {
	sorted := slices.Clone(ids)
	slices.Sort(sorted)
	return slices.Compact(sorted)
}

// Joint reports whether the voters are being changed.
func (c Configuration) Joint() bool { return len(c.OldVoters) > 0 }

// IsVoter reports whether id has a vote, as one of the voters or the old ones.
func (c Configuration) IsVoter(id ServerID) bool {
	return slices.Contains(c.Voters, id) || slices.Contains(c.OldVoters, id)
}

// Has reports whether id takes part, with a vote or as a learner.
func (c Configuration) Has(id ServerID) bool {
	return c.IsVoter(id) || slices.Contains(c.Learners, id)
}

// Members returns everyone who takes part, sorted.
func (c Configuration) Members() []ServerID {
	return sortedIDs(slices.Concat(c.Voters, c.OldVoters, c.Learners))
}

// Address returns where the others reach id; zero if it is not written down.
func (c Configuration) Address(id ServerID) Address {
	for _, a := range c.Addresses {
		if a.ID == id {
			return a
		}
	}
	return Address{}
}

// WithAddresses returns the configuration with the addresses of its members,
// taken from the given ones.
func (c Configuration) WithAddresses(addresses ...Address) Configuration {
	members := c.Members()
	c.Addresses = nil
	for _, a := range addresses {
		if slices.Contains(members, a.ID) {
			c.Addresses = append(c.Addresses, a)
		}
	}
	slices.SortFunc(c.Addresses, func(a, b Address) int { return cmp.Compare(a.ID, b.ID) })
	return c
}

// Equal reports whether two configurations say the same.
func (c Configuration) Equal(d Configuration) bool {
	return slices.Equal(c.Voters, d.Voters) && slices.Equal(c.OldVoters, d.OldVoters) &&
		slices.Equal(c.Learners, d.Learners) && slices.Equal(c.Addresses, d.Addresses)
}

// quorum reports whether the servers for which yes answers true are a majority.
// Every decision in this package that needs one asks here: with four voters it
// takes three, while the voters change it takes a majority of the old and one
// of the new, and a learner or a stranger counts for nothing.
func (c Configuration) quorum(yes func(ServerID) bool) bool {
	return majority(c.Voters, yes) && (!c.Joint() || majority(c.OldVoters, yes))
}

func majority(voters []ServerID, yes func(ServerID) bool) bool {
	n := 0
	for _, id := range voters {
		if yes(id) {
			n++
		}
	}
	return n > len(voters)/2
}

// quorumReached returns the largest number that a quorum has reached, where
// reached tells how far each server is: an index of the log, or a round.
func quorumReached[N Index | Round](c Configuration, reached func(ServerID) N) N {
	best := majorityReached(c.Voters, reached)
	if c.Joint() {
		best = min(best, majorityReached(c.OldVoters, reached))
	}
	return best
}

func majorityReached[N Index | Round](voters []ServerID, reached func(ServerID) N) N {
	var best N
	for _, id := range voters {
		n := reached(id)
		if n > best && majority(voters, func(v ServerID) bool { return reached(v) >= n }) {
			best = n
		}
	}
	return best
}

// check says what is wrong with a configuration that is to come into force.
func (c Configuration) check() error {
	if len(c.Voters) == 0 {
		return fmt.Errorf("%w: a cluster needs at least one voter", ErrConfig)
	}
	for _, ids := range [][]ServerID{c.Voters, c.OldVoters, c.Learners} {
		if !slices.Equal(ids, sortedIDs(ids)) {
			return fmt.Errorf("%w: the servers %v are not sorted, or one is named twice", ErrConfig, ids)
		}
		if slices.Contains(ids, None) {
			return fmt.Errorf("%w: server id 0 means nobody; ids start at 1", ErrConfig)
		}
	}
	for _, id := range c.Learners {
		if slices.Contains(c.Voters, id) {
			return fmt.Errorf("%w: server %d cannot be a voter and a learner", ErrConfig, id)
		}
	}
	for i, a := range c.Addresses {
		if !c.Has(a.ID) {
			return fmt.Errorf("%w: server %d has an address and does not take part", ErrConfig, a.ID)
		}
		if i > 0 && c.Addresses[i-1].ID >= a.ID {
			return fmt.Errorf("%w: server %d has two addresses, or they are not sorted", ErrConfig, a.ID)
		}
		for _, b := range c.Addresses[:i] {
			if a.Addr == b.Addr {
				return fmt.Errorf("%w: servers %d and %d have the same address %s", ErrConfig, b.ID, a.ID, a.Addr)
			}
		}
	}
	return nil
}

// ErrBadConfiguration reports bytes that are no configuration.
var ErrBadConfiguration = errors.New("raft: not an encoded configuration")

// AppendTo appends the configuration's bytes to b and returns the longer slice:
// voters, old voters and learners, each a count and the ids, then the
// addresses, a count and for each its id, the index that added it, length and
// text. Every number is a varint.
func (c Configuration) AppendTo(b []byte) []byte {
	for _, ids := range [][]ServerID{c.Voters, c.OldVoters, c.Learners} {
		b = binary.AppendUvarint(b, uint64(len(ids)))
		for _, id := range ids {
			b = binary.AppendUvarint(b, uint64(id))
		}
	}
	b = binary.AppendUvarint(b, uint64(len(c.Addresses)))
	for _, a := range c.Addresses {
		b = binary.AppendUvarint(b, uint64(a.ID))
		b = binary.AppendUvarint(b, uint64(a.Since))
		b = binary.AppendUvarint(b, uint64(len(a.Addr)))
		b = append(b, a.Addr...)
	}
	return b
}

// DecodeConfiguration reads the configuration that fills all of b. Anything but
// what AppendTo writes is ErrBadConfiguration.
func DecodeConfiguration(b []byte) (Configuration, error) {
	rest, bad := b, false
	number := func() uint64 {
		n, size := binary.Uvarint(rest)
		if size <= 0 {
			bad = true
			return 0
		}
		rest = rest[size:]
		return n
	}
	var c Configuration
	for _, ids := range []*[]ServerID{&c.Voters, &c.OldVoters, &c.Learners} {
		for n := number(); n > 0 && !bad; n-- { // a wrong count ends with the bytes
			*ids = append(*ids, ServerID(number()))
		}
	}
	for n := number(); n > 0 && !bad; n-- {
		id, since, size := ServerID(number()), Index(number()), number()
		if size > uint64(len(rest)) {
			return Configuration{}, ErrBadConfiguration
		}
		c.Addresses = append(c.Addresses, Address{id, string(rest[:size]), since})
		rest = rest[size:]
	}
	if bad || !slices.Equal(c.AppendTo(nil), b) {
		return Configuration{}, ErrBadConfiguration
	}
	return c, nil
}
