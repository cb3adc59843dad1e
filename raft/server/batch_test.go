package server

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/raft"
)

// countingStorage remembers how many entries each Save had.
type countingStorage struct {
	slowStorage
	saves []int
}

func (s *countingStorage) Save(save raft.Save) error {
	s.mu.Lock()
	s.saves = append(s.saves, len(save.Entries))
	s.mu.Unlock()
	return s.slowStorage.Save(save)
}

func (s *countingStorage) setHold(hold chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = hold
}

// While the leader writes one command, others gather, and then all of them are one
// write and one sync, there and at each follower. Meanwhile the followers store
// the one that the leader is still writing: it was sent before. (docs/performance.md)
func TestCommandsGatherWhileTheDiskIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disks := []*countingStorage{{}, {}, {}}
		c := newCluster(t, disks[0], disks[1], disks[2])
		lead := c.leader()
		pass(time.Second)
		first := c.nodes[lead].Status().LastIndex + 1
		for _, d := range disks {
			d.saves = nil
		}

		release := make(chan struct{})
		disks[lead-1].setHold(release)
		submit := func(command string) {
			go c.nodes[lead].Submit(t.Context(), []byte(command))
			synctest.Wait()
		}
		submit("one")
		for id, n := range c.nodes {
			if id != lead {
				require.Equal(t, first, n.Status().SavedIndex, "server %d stores it beside the leader", id)
			}
		}
		require.Less(t, c.nodes[lead].Status().SavedIndex, first)
		for i := range 100 {
			submit(fmt.Sprint(i))
		}
		disks[lead-1].setHold(nil)
		close(release)
		pass(time.Second)
		for i, d := range disks {
			require.Equal(t, []int{1, 100}, d.saves, "server %d", i+1)
			require.Len(t, c.nodes[raft.ServerID(i+1)].commands(), 101)
		}
	})
}

// Twenty goroutines are about to submit, and there is one processor: whoever comes
// first wakes the loop, and the loop lets the others come first, too. The scheduler
// makes an exception now and then, so it is asked fifty times.
func TestWhoIsReadyGetsIntoTheRound(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		disks := []*countingStorage{{}, {}, {}}
		c := newCluster(t, disks[0], disks[1], disks[2])
		lead := c.leader()
		pass(time.Second)
		disks[lead-1].saves = nil
		for range 50 {
			for i := range 20 {
				go c.nodes[lead].Submit(t.Context(), []byte(fmt.Sprint(i)))
			}
			pass(time.Second)
		}
		alone := 0
		for _, entries := range disks[lead-1].saves {
			if entries == 1 {
				alone++
			}
		}
		require.Less(t, alone, 25, "writes of a single entry, among %v", disks[lead-1].saves)
	})
}
