package raft

import (
	"math/bits"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNewConfiguration(t *testing.T) {
	c := NewConfiguration(3, 1, 2, 1)
	assert.Equal(t, []ServerID{1, 2, 3}, c.Voters)
	assert.True(t, c.Has(2))
	assert.False(t, c.Has(4))
	assert.False(t, c.Has(None))
}

// TestQuorum tries every set of servers that say yes (EL-10).
func TestQuorum(t *testing.T) {
	for n := 1; n <= 7; n++ {
		c := plain(1, n).Configuration
		for set := uint(0); set < 1<<n; set++ {
			got := c.quorum(func(id ServerID) bool { return set>>(id-1)&1 == 1 })
			require.Equal(t, bits.OnesCount(set) >= n/2+1, got, "%d of %d servers", bits.OnesCount(set), n)
		}
		assert.False(t, c.quorum(func(id ServerID) bool { return false }))
	}
	assert.False(t, NewConfiguration(1, 2, 3, 4).quorum(func(id ServerID) bool { return id > 2 }), "two of four")
}

// TestQuorumIndexTwin tries all match vectors: the largest index stored on a
// majority is found by going through the indexes (EL-10).
func TestQuorumIndexTwin(t *testing.T) {
	const highest = 3
	for n := 1; n <= 7; n++ {
		c := plain(1, n).Configuration
		reached := make([]Index, n)
		for {
			var want Index
			for i := Index(1); i <= highest; i++ {
				copies := 0
				for _, r := range reached {
					if r >= i {
						copies++
					}
				}
				if copies > n/2 {
					want = i
				}
			}
			require.Equal(t, want, quorumReached(c, func(id ServerID) Index { return reached[id-1] }), "%v", reached)

			at := 0
			for at < n && reached[at] == highest {
				reached[at] = 0
				at++
			}
			if at == n {
				break
			}
			reached[at]++
		}
	}
}

// TestJointQuorumTwin tries every joint configuration of up to four servers, with
// every set that says yes and every vector of what they have reached: it takes a
// majority of the old voters and one of the new, counted one by one (§6).
func TestJointQuorumTwin(t *testing.T) {
	const servers, highest = 4, 2
	members := func(set int) (ids []ServerID) {
		for id := range servers {
			if set>>id&1 == 1 {
				ids = append(ids, ServerID(id+1))
			}
		}
		return ids
	}
	count := func(of, yes int) bool { return 2*bits.OnesCount(uint(of&yes)) > bits.OnesCount(uint(of)) }
	for voters := 1; voters < 1<<servers; voters++ {
		for old := range 1 << servers {
			c := Configuration{Voters: members(voters), OldVoters: members(old), Learners: members(^voters & (1<<servers - 1))}
			decides := func(yes int) bool { return count(voters, yes) && (old == 0 || count(old, yes)) }
			for yes := range 1 << servers {
				require.Equal(t, decides(yes), c.quorum(func(id ServerID) bool { return yes>>(id-1)&1 == 1 }), "%+v: %v", c, members(yes))
			}
			for vector := range 81 { // 3 to the power of 4
				reached := [servers]Index{}
				for id, v := 0, vector; id < servers; id, v = id+1, v/(highest+1) {
					reached[id] = Index(v % (highest + 1))
				}
				var want Index
				for i := Index(1); i <= highest; i++ {
					have := 0
					for id, r := range reached {
						if r >= i {
							have |= 1 << id
						}
					}
					if decides(have) {
						want = i
					}
				}
				require.Equal(t, want, quorumReached(c, func(id ServerID) Index { return reached[id-1] }), "%+v: %v", c, reached)
			}
		}
	}
}

// TestConfigurationBytes: what is encoded comes back, roles, both halves and
// addresses (MB-10), from exactly these bytes and no others.
func TestConfigurationBytes(t *testing.T) {
	rng := seeded()
	for range 3_000 {
		var c Configuration
		for _, ids := range []*[]ServerID{&c.Voters, &c.OldVoters, &c.Learners} {
			for range rng.IntN(4) {
				*ids = append(*ids, ServerID(rng.Uint64()>>rng.IntN(64)))
			}
		}
		for range rng.IntN(3) {
			c.Addresses = append(c.Addresses, Address{ServerID(rng.Uint64()), "host:1"[:rng.IntN(7)], Index(rng.IntN(300))})
		}
		b := c.AppendTo([]byte("before"))
		require.Equal(t, "before", string(b[:6]))
		b = b[6:]
		back, err := DecodeConfiguration(b)
		require.NoError(t, err)
		require.Equal(t, c, back)
		require.True(t, c.Equal(back))

		_, err = DecodeConfiguration(b[:rng.IntN(len(b))])
		require.ErrorIs(t, err, ErrBadConfiguration, "cut short")
		_, err = DecodeConfiguration(append(b, 0))
		require.ErrorIs(t, err, ErrBadConfiguration, "something behind it")
	}
	for name, b := range map[string][]byte{
		"nothing":                  nil,
		"a number in two bytes":    {0x81, 0x00, 1, 0, 0, 0},
		"a count without ids":      {0xff, 0xff, 0xff, 0xff, 0x7f, 1},
		"a number of 65 bits":      {1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0},
		"an address without text":  {1, 1, 0, 0, 1, 1, 0, 9, 'a'},
		"an address without index": {1, 1, 0, 0, 1, 1},
	} {
		_, err := DecodeConfiguration(b)
		assert.ErrorIs(t, err, ErrBadConfiguration, name)
	}
}

// FuzzConfiguration: whatever decodes encodes to the same bytes.
func FuzzConfiguration(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(NewConfiguration(1, 2, 3).AppendTo(nil))
	f.Add(Configuration{Voters: []ServerID{1}, OldVoters: []ServerID{2}, Learners: []ServerID{300}, Addresses: []Address{{1, "a:1", 9}}}.AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeConfiguration(b)
		if err != nil {
			require.ErrorIs(t, err, ErrBadConfiguration)
			return
		}
		require.Equal(t, string(b), string(c.AppendTo(nil)))
	})
}

// TestConfigurationEqual: each part counts.
func TestConfigurationEqual(t *testing.T) {
	c := Configuration{Voters: []ServerID{1, 2}, Learners: []ServerID{3}, Addresses: []Address{{1, "a", 0}}}
	for name, other := range map[string]Configuration{
		"voters":     {Voters: []ServerID{1}, Learners: c.Learners, Addresses: c.Addresses},
		"old voters": {Voters: c.Voters, OldVoters: []ServerID{1}, Learners: c.Learners, Addresses: c.Addresses},
		"learners":   {Voters: c.Voters, Addresses: c.Addresses},
		"an address": {Voters: c.Voters, Learners: c.Learners, Addresses: []Address{{1, "b", 0}}},
		"since when": {Voters: c.Voters, Learners: c.Learners, Addresses: []Address{{1, "a", 1}}},
	} {
		assert.False(t, c.Equal(other), name)
		assert.True(t, other.Equal(other), name)
	}
}

// TestMembers: who takes part, and where the others reach them.
func TestMembers(t *testing.T) {
	c := Configuration{Voters: []ServerID{2, 4}, OldVoters: []ServerID{1, 2}, Learners: []ServerID{1, 3}}
	assert.Equal(t, []ServerID{1, 2, 3, 4}, c.Members())
	for id, votes := range map[ServerID]bool{1: true, 2: true, 3: false, 4: true, 5: false} {
		assert.Equal(t, votes, c.IsVoter(id))
		assert.Equal(t, id <= 4, c.Has(id))
	}
	with := c.WithAddresses(Address{ID: 4, Addr: "d"}, Address{ID: 5, Addr: "e"}, Address{ID: 1, Addr: "a"})
	assert.Equal(t, []Address{{ID: 1, Addr: "a"}, {ID: 4, Addr: "d"}}, with.Addresses)
	assert.Equal(t, "d", with.Address(4).Addr)
	assert.Equal(t, Address{}, with.Address(2))
	assert.Nil(t, c.Addresses)
}

// TestCommitIndexTwin: a leader commits the largest index that a majority has
// and that carries its own term, whatever the order of the answers (EL-10, LM-01).
func TestCommitIndexTwin(t *testing.T) {
	rng := seeded()
	for range 3_000 {
		n := 1 + rng.IntN(7)
		old := rng.IntN(4)
		cm := lead(t, plain(1, n), PersistentState{CurrentTerm: 1, Entries: entries(slices.Repeat([]Term{1}, old)...)})
		stepSaved(cm, Submit{Commands: [][]byte{{1}, {2}}})
		reached := map[ServerID]Index{1: cm.log.lastIndex()}
		for range 2 * n {
			if len(cm.peerIDs) > 0 {
				from := cm.peerIDs[rng.IntN(len(cm.peerIDs))]
				match := Index(rng.IntN(int(cm.log.lastIndex()) + 1))
				reached[from] = max(reached[from], match)
				stepSaved(cm, matched(cm, from, match))
			}
			var want Index
			for i := Index(1); i <= cm.log.lastIndex(); i++ {
				copies := 0
				for _, r := range reached {
					if r >= i {
						copies++
					}
				}
				if copies > n/2 && cm.log.entry(i).Term == cm.currentTerm {
					want = i
				}
			}
			require.Equal(t, want, cm.commitIndex, "%v of %d servers", reached, n)
		}
	}
}
