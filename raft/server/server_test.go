package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/raft"
	"raftkv/raft/storage"
)

// cluster runs servers in one process and in the virtual time of a synctest
// bubble. Its network delivers at once, except over links that are cut.
type cluster struct {
	t  *testing.T
	mu sync.Mutex

	nodes map[raft.ServerID]*node
	cut   map[[2]raft.ServerID]bool
	slow  raft.ServerID // everything to it takes slowness
	batch int           // raft.Config's MaxBatchBytes
	tail  int           // raft.Config's TrailingBytes; 0 means that next to nothing is kept
}

const slowness = 10 * time.Millisecond

type node struct {
	*Server
	storage storage.Storage

	mu       sync.Mutex
	applied  []string // the commands that were consumed
	at       raft.CommitEntry
	hold     chan struct{} // if not nil, the consumer waits for it to be closed
	seen     []raft.Status // what Observe was told
	restored int           // snapshots that the consumer was given
	sent     int           // messages that left
}

func newCluster(t *testing.T, stores ...storage.Storage) *cluster {
	c := &cluster{t: t, nodes: map[raft.ServerID]*node{}, cut: map[[2]raft.ServerID]bool{}}
	for i := range stores {
		c.prepare(raft.ServerID(i+1), stores[i], len(stores))
	}
	for i := range stores {
		c.nodes[raft.ServerID(i+1)].Start(&link{c, raft.ServerID(i + 1)})
	}
	t.Cleanup(c.stop)
	return c
}

func (c *cluster) prepare(id raft.ServerID, store storage.Storage, n int) {
	var voters []raft.ServerID
	for i := range n {
		voters = append(voters, raft.ServerID(i+1))
	}
	nd := &node{storage: store}
	commitChan := make(chan raft.CommitEntry)
	s, err := New(Config{
		Raft:       raft.Config{Cluster: 7, ID: id, Configuration: raft.NewConfiguration(voters...), MaxBacklogBytes: 1 << 20, TrailingBytes: max(1, c.tail), MaxBatchBytes: c.batch},
		Storage:    store,
		CommitChan: commitChan,
		Observe: func(s raft.Status) {
			nd.mu.Lock()
			nd.seen = append(nd.seen, s)
			nd.mu.Unlock()
		},
	})
	require.NoError(c.t, err)
	nd.Server = s
	go func() {
		for e := range commitChan {
			nd.mu.Lock()
			hold := nd.hold
			nd.at = e
			if e.Kind == raft.EntrySnapshot {
				nd.applied = readState(c.t, e.Installed.Data)
				nd.restored++
			}
			if e.Kind == raft.EntryCommand {
				nd.applied = append(nd.applied, string(e.Command))
			}
			nd.mu.Unlock()
			if hold != nil {
				<-hold
			}
		}
	}()
	c.mu.Lock()
	c.nodes[id] = nd
	c.mu.Unlock()
}

func (c *cluster) stop() {
	for _, n := range c.nodes {
		n.Stop()
	}
}

// link is the transport of one server of a cluster.
type link struct {
	c    *cluster
	from raft.ServerID
}

func (l *link) Send(messages []raft.Message) {
	for _, m := range messages {
		l.c.mu.Lock()
		to, cut := l.c.nodes[m.To], l.c.cut[[2]raft.ServerID{l.from, m.To}]
		from := l.c.nodes[l.from]
		l.c.mu.Unlock()
		from.mu.Lock()
		from.sent++
		from.mu.Unlock()
		switch {
		case to == nil || cut:
		case m.To == l.c.slow:
			time.AfterFunc(slowness, func() { to.Deliver([]raft.Message{m}) })
		default:
			to.Deliver([]raft.Message{m})
		}
	}
}

func (l *link) Call(context.Context, raft.ServerID, []byte) ([]byte, error) {
	return nil, errors.New("no calls here")
}

func (l *link) Close() error { return nil }

func (c *cluster) cutBoth(a raft.ServerID, others ...raft.ServerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range others {
		c.cut[[2]raft.ServerID{a, b}] = true
		c.cut[[2]raft.ServerID{b, a}] = true
	}
}

func (c *cluster) heal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.cut)
}

// leader lets virtual time pass until a running server leads.
func (c *cluster) leader() raft.ServerID {
	c.t.Helper()
	for range 200 {
		for id, n := range c.nodes {
			if s := n.Status(); s.State == raft.Leader && n.running() {
				return id
			}
		}
		pass(50 * time.Millisecond)
	}
	c.t.Fatal("no leader within ten seconds")
	return 0
}

func (n *node) running() bool {
	select {
	case <-n.Done():
		return false
	default:
		return true
	}
}

func (n *node) commands() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.applied...)
}

// pass lets virtual time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func mapStores(n int) []storage.Storage {
	var stores []storage.Storage
	for range n {
		stores = append(stores, storage.NewMapStorage())
	}
	return stores
}

func TestEveryServerAppliesTheSameCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, mapStores(3)...)
		lead := c.nodes[c.leader()]
		var want []string
		for i := range 100 {
			command := fmt.Sprintf("x=%d", i)
			index, term, err := lead.Submit(t.Context(), []byte(command))
			require.NoError(t, err)
			require.Equal(t, raft.Index(i+2), index, "the leader's empty entry is index 1")
			require.Equal(t, lead.Status().Term, term)
			want = append(want, command)
		}
		pass(time.Second)
		for id, n := range c.nodes {
			require.Equal(t, want, n.commands(), "server %d", id)
		}
	})
}

func TestOnlyTheLeaderTakesCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, mapStores(3)...)
		lead := c.leader()
		pass(time.Second)
		for id, n := range c.nodes {
			if id == lead {
				continue
			}
			_, _, err := n.Submit(t.Context(), []byte("x=1"))
			var notLeader *raft.NotLeaderError
			require.ErrorAs(t, err, &notLeader)
			require.Equal(t, lead, notLeader.Leader)
		}
	})
}

func TestAnotherLeadsWhenTheLeaderStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, mapStores(3)...)
		old := c.leader()
		_, _, err := c.nodes[old].Submit(t.Context(), []byte("x=1"))
		require.NoError(t, err)
		pass(time.Second)
		require.NoError(t, c.nodes[old].Stop())
		next := c.leader()
		require.NotEqual(t, old, next)
		_, _, err = c.nodes[next].Submit(t.Context(), []byte("x=2"))
		require.NoError(t, err)
		pass(time.Second)
		require.Equal(t, []string{"x=1", "x=2"}, c.nodes[next].commands())

		// The old one comes back over the same storage and applies everything anew.
		c.prepare(old, c.nodes[old].storage, 3)
		c.nodes[old].Start(&link{c, old})
		pass(time.Second)
		require.Equal(t, []string{"x=1", "x=2"}, c.nodes[old].commands())
	})
}

// A consumer that has stopped must not stop elections and heartbeats, and what
// it leaves undone must not grow without a bound.
func TestSlowConsumerDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, mapStores(3)...)
		lead := c.nodes[c.leader()]
		release := make(chan struct{})
		lead.mu.Lock()
		lead.hold = release
		lead.mu.Unlock()
		term := lead.Status().Term

		command := make([]byte, 1000)
		accepted := 0
		for ; accepted < 5000; accepted++ {
			if _, _, err := lead.Submit(t.Context(), command); err != nil {
				require.ErrorIs(t, err, raft.ErrBusy)
				break
			}
		}
		require.InDelta(t, 1<<20, accepted*1009, 3000, "refused at MaxBacklogBytes")
		pass(10 * time.Second)
		require.Equal(t, raft.Leader, lead.Status().State)
		require.Equal(t, term, lead.Status().Term, "nobody has started an election")

		close(release)
		pass(time.Second)
		require.Len(t, lead.commands(), accepted)
		_, _, err := lead.Submit(t.Context(), command)
		require.NoError(t, err)
	})
}

// slowStorage blocks Save while held, and fails it when broken.
type slowStorage struct {
	storage.MapStorage
	mu     sync.Mutex
	hold   chan struct{}
	broken error
}

func (s *slowStorage) Save(save raft.Save) error {
	s.mu.Lock()
	hold, broken := s.hold, s.broken
	s.mu.Unlock()
	if hold != nil {
		<-hold
	}
	if broken != nil {
		return broken
	}
	return s.MapStorage.Save(save)
}

// A follower's disk hangs for longer than an election timeout while the
// leader's heartbeats wait in the inbox. When the disk comes back, the timers
// have fired, but the heartbeats count first and the timers' numbers are old.
func TestTimerThatFiredBehindAHangingDiskIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disks := []*slowStorage{{}, {}, {}}
		c := newCluster(t, disks[0], disks[1], disks[2])
		lead := c.leader()
		pass(time.Second)
		term := c.nodes[lead].Status().Term
		slow := lead%3 + 1
		release := make(chan struct{})
		disks[slow-1].mu.Lock()
		disks[slow-1].hold = release
		disks[slow-1].mu.Unlock()
		_, _, err := c.nodes[lead].Submit(t.Context(), []byte("x=1"))
		require.NoError(t, err)
		pass(2 * time.Second)
		disks[slow-1].mu.Lock()
		disks[slow-1].hold = nil
		disks[slow-1].mu.Unlock()
		close(release)
		pass(time.Second)
		require.Equal(t, []string{"x=1"}, c.nodes[slow].commands())
		for _, s := range c.nodes[slow].seen {
			require.LessOrEqual(t, s.Term, term)
			require.False(t, s.Term == term && s.State != raft.Follower, "it has looked for another leader: %+v", s)
		}
	})
}

// Clients that give up while the disk hangs, and come again, do not fill the
// memory: what they have given up still waits for the loop, and counts.
func TestGivenUpSubmitsAreBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &slowStorage{}
		c := newCluster(t, disk)
		lead := c.leader()
		pass(time.Second)
		release := make(chan struct{})
		disk.mu.Lock()
		disk.hold = release
		disk.mu.Unlock()
		_, _, err := c.nodes[lead].Submit(t.Context(), []byte("being stored"))
		require.NoError(t, err)
		large := make([]byte, 1<<20)
		for range maxWaitingBytes / len(large) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_, _, err = c.nodes[lead].Submit(ctx, large)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		_, _, err = c.nodes[lead].Submit(t.Context(), large)
		require.ErrorIs(t, err, raft.ErrBusy)
		disk.mu.Lock()
		disk.hold = nil
		disk.mu.Unlock()
		close(release)
		pass(time.Second)
		_, _, err = c.nodes[lead].Submit(t.Context(), large)
		require.NoError(t, err)
	})
}

// Many large commands wait: they are taken in portions, so that a leader with a
// slow disk has its heartbeats sent in between. None is forgotten.
func TestLargeCommandsAreTakenInPortions(t *testing.T) {
	in := newInbox()
	put := func(bytes int) { require.True(t, in.putSubmit(submit{command: make([]byte, bytes)})) }
	var taken []int // commands in each portion
	takeAll := func() {
		taken = nil
		for len(in.wake) > 0 {
			<-in.wake
			taken = append(taken, len(in.take().submits))
		}
		require.Zero(t, in.waiting.bytes)
	}
	for range 10 {
		put(1 << 20)
	}
	takeAll()
	require.Equal(t, []int{4, 4, 2}, taken)
	put(1)
	put(maxRoundBytes + 1)
	put(1)
	takeAll()
	require.Equal(t, []int{1, 1, 1}, taken)
	for range 1000 {
		put(100)
	}
	takeAll()
	require.Equal(t, []int{1000}, taken)
}

// The same for reads that no majority confirms. The leader resigns soon, and until
// then it takes so many.
func TestGivenUpReadsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, mapStores(3)...)
		lead := c.leader()
		pass(time.Second)
		c.cutBoth(lead, lead%3+1, (lead+1)%3+1)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for range maxWaiting {
			_, err := c.nodes[lead].ReadIndex(gone)
			require.ErrorIs(t, err, context.Canceled)
		}
		synctest.Wait()
		_, err := c.nodes[lead].ReadIndex(t.Context())
		require.ErrorIs(t, err, raft.ErrBusy)
	})
}

// A leader's disk hangs: it sends no heartbeats, and another takes over.
func TestLeaderWithAHangingDiskIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disks := []*slowStorage{{}, {}, {}}
		c := newCluster(t, disks[0], disks[1], disks[2])
		old := c.leader()
		pass(time.Second)
		term := c.nodes[old].Status().Term
		release := make(chan struct{})
		disks[old-1].mu.Lock()
		disks[old-1].hold = release
		disks[old-1].mu.Unlock()
		submitted := make(chan error, 1)
		go func() {
			_, _, err := c.nodes[old].Submit(t.Context(), []byte("x=1"))
			submitted <- err
		}()
		pass(2 * time.Second)
		require.NoError(t, <-submitted)
		next := old%3 + 1
		if c.nodes[next].Status().State != raft.Leader {
			next = next%3 + 1
		}
		require.Equal(t, raft.Leader, c.nodes[next].Status().State)
		require.Greater(t, c.nodes[next].Status().Term, term)
		disks[old-1].mu.Lock()
		disks[old-1].hold = nil
		disks[old-1].mu.Unlock()
		close(release)
		pass(time.Second)
		require.Equal(t, next, c.nodes[old].Status().LeaderID)
	})
}

// One failed write, and the server is silent for ever.
func TestFailedSaveStopsTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disks := []*slowStorage{{}, {}, {}}
		c := newCluster(t, disks[0], disks[1], disks[2])
		lead := c.leader()
		pass(time.Second)
		broken := lead%3 + 1
		full := errors.New("no space left on device")
		disks[broken-1].mu.Lock()
		disks[broken-1].broken = full
		disks[broken-1].mu.Unlock()
		n := c.nodes[broken]
		require.NoError(t, n.Err())
		n.mu.Lock()
		before := n.sent
		n.mu.Unlock()
		_, _, err := c.nodes[lead].Submit(t.Context(), []byte("x=1"))
		require.NoError(t, err)
		pass(5 * time.Second)
		<-n.Done()
		require.ErrorIs(t, n.Err(), full)
		require.ErrorIs(t, n.Stop(), full)
		require.Equal(t, before, n.sent, "it sent something that relied on what was not saved")
		_, _, err = n.Submit(t.Context(), []byte("x=2"))
		require.ErrorIs(t, err, ErrStopped)
		require.Equal(t, []string{"x=1"}, c.nodes[lead].commands(), "the other two go on")
	})
}

// A full disk may first show when a new peer is to be written down. The simulator's
// fault "a full disk" raised the question; a server that only refused the
// connection stayed there, deaf, when there was room again.
func TestPeerThatCannotBeWrittenDownStopsTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, &slowStorage{}, &slowStorage{}, &slowStorage{})
		lead := c.leader()
		n := c.nodes[lead%3+1]
		var answer error
		check := func(id raft.ServerID) error {
			remember := func(raft.ServerID, raft.Index, raft.StoreID) error { return answer }
			_, err := n.checkStore(remember)(id, raft.StoreID{1}, 0)
			return err
		}

		answer = fmt.Errorf("server 3 %w", storage.ErrForeignStore)
		require.ErrorIs(t, check(3), storage.ErrForeignStore)
		pass(time.Second)
		require.NoError(t, n.Err(), "that is server 3's trouble")
		require.NoError(t, check(9), "server 9 does not take part, so nothing is written down")

		answer = errors.New("no space left on device")
		require.ErrorIs(t, check(3), answer)
		require.ErrorIs(t, check(3), answer, "it does not block")
		pass(time.Second)
		require.ErrorIs(t, n.Err(), answer)
	})
}

// Whoever waits for an entry of a leadership must hear that it has ended, even
// if the same server leads again before it looks.
func TestLeadershipLostAndRegainedIsReportedLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, mapStores(3)...)
		lead := c.leader()
		pass(time.Second)
		n := c.nodes[lead]
		term := n.Status().Term
		// A message of a newer term and then the votes that make it leader again
		// would have to be merged into one round; the report is per step.
		var effects raft.Effects
		require.NoError(t, n.Stop())
		n.seen = nil
		n.step(&effects, raft.Message{Cluster: 7, From: lead%3 + 1, To: lead,
			Body: raft.AppendEntriesReply{Term: term + 1, AskedTerm: term}})
		require.Len(t, n.seen, 1)
		require.Equal(t, raft.Follower, n.seen[0].State)
		require.Equal(t, term+1, n.seen[0].Term)
	})
}

// Cut off, a leader notices within two election timeouts that nobody answers.
func TestIsolatedLeaderResigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, mapStores(3)...)
		old := c.leader()
		pass(time.Second)
		c.cutBoth(old, old%3+1, (old+1)%3+1)
		pass(2*150*time.Millisecond + time.Millisecond)
		require.NotEqual(t, raft.Leader, c.nodes[old].Status().State)
		pass(time.Second)
		next := c.leader()
		require.NotEqual(t, old, next)
		term := c.nodes[next].Status().Term
		pass(10 * time.Second)
		c.heal()
		pass(time.Second)
		require.Equal(t, term, c.nodes[next].Status().Term, "coming back has disturbed nobody")
		require.Equal(t, next, c.nodes[old].Status().LeaderID)
	})
}

func TestStopUnderLoadLeavesNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, mapStores(3)...)
		lead := c.nodes[c.leader()]
		var submitters sync.WaitGroup
		for range 50 {
			submitters.Go(func() {
				for {
					if _, _, err := lead.Submit(context.Background(), []byte("x")); err != nil && !errors.Is(err, raft.ErrBusy) {
						return
					}
					<-time.After(time.Millisecond)
				}
			})
		}
		pass(100 * time.Millisecond)
		require.NoError(t, lead.Stop())
		require.NoError(t, lead.Stop())
		submitters.Wait()
	})
}

func TestConfigThatCannotWork(t *testing.T) {
	for name, config := range map[string]Config{
		"heartbeat not below the election timeout": {ElectionTimeout: time.Second, HeartbeatInterval: time.Second},
		"negative timeout":                         {ElectionTimeout: -time.Second},
		"not a voter":                              {Raft: raft.Config{ID: 4, Configuration: raft.NewConfiguration(1, 2, 3)}},
		"nobody":                                   {Raft: raft.Config{Configuration: raft.NewConfiguration(1, 2, 3)}},
	} {
		if config.Raft.ID == 0 && name != "nobody" {
			config.Raft = raft.Config{ID: 1, Configuration: raft.NewConfiguration(1)}
		}
		config.Storage = storage.NewMapStorage()
		_, err := New(config)
		require.ErrorIs(t, err, raft.ErrConfig, name)
	}
}
