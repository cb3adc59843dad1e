package bothways

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// network calls the other modules directly; what is cut off is not reached.
type network struct {
	mu      sync.Mutex
	modules map[int]*ConsensusModule
	cut     map[int]bool
}

// link is the network as one server sees it.
type link struct {
	n    *network
	from int
}

func (l link) to(to int) (cm *ConsensusModule, ok bool) {
	<-time.After(time.Millisecond) // the way there
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	cm, ok = l.n.modules[to]
	return cm, ok && !l.n.cut[to] && !l.n.cut[l.from]
}

func (l link) RequestVote(to int, args RequestVoteArgs) (reply RequestVoteReply, ok bool) {
	cm, ok := l.to(to)
	if !ok {
		return reply, false
	}
	return cm.RequestVote(args), true
}

func (l link) AppendEntries(to int, args AppendEntriesArgs) (reply AppendEntriesReply, ok bool) {
	cm, ok := l.to(to)
	if !ok {
		return reply, false
	}
	return cm.AppendEntries(args), true
}

func (n *network) setCut(id int, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[id] = cut
}

// leaders returns who takes itself for a leader, and fails if a term has two.
func (n *network) leaders(t *testing.T) map[int]int {
	leaderOf := map[int]int{}
	for id, cm := range n.modules {
		if term, isLeader := cm.Report(); isLeader {
			require.Zero(t, leaderOf[term], "term %d has two leaders", term)
			leaderOf[term] = id
		}
	}
	return leaderOf
}

// In virtual time (synctest): a leader is elected, replaced when it is cut off, and
// steps down when it comes back.
func TestElection(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			n := &network{modules: map[int]*ConsensusModule{}, cut: map[int]bool{}}
			for id := 1; id <= 3; id++ {
				var peerIDs []int
				for other := 1; other <= 3; other++ {
					if other != id {
						peerIDs = append(peerIDs, other)
					}
				}
				n.mu.Lock()
				n.modules[id] = NewConsensusModule(id, peerIDs, link{n, id})
				n.mu.Unlock()
			}
			wait := func(leaders int) (newest int) {
				for deadline := time.Now().Add(10 * time.Second); ; <-time.After(time.Millisecond) {
					found := n.leaders(t)
					term := 0
					for t, id := range found {
						if t > term {
							term, newest = t, id
						}
					}
					if len(found) == leaders {
						return newest
					}
					require.True(t, time.Now().Before(deadline), "%d leaders, not %d", len(found), leaders)
				}
			}
			old := wait(1)
			n.setCut(old, true)
			next := wait(2) // the old one does not know yet
			require.NotEqual(t, old, next)
			n.setCut(old, false)
			require.Equal(t, next, wait(1))
			for _, cm := range n.modules {
				cm.Stop()
			}
			<-time.After(time.Second) // the goroutines look once more, and end
		})
	}
}
