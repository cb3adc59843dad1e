package server

import (
	"context"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fortytw2/leaktest"
	"github.com/stretchr/testify/require"

	"raftkv/raft"
	"raftkv/raft/storage"
)

// addsServer4 is a log in which server 4 is added by the second configuration and
// again by the fourth.
func addsServer4() []raft.LogEntry {
	entry := func(since raft.Index, learners ...raft.ServerID) raft.LogEntry {
		c := raft.NewConfiguration(1, 2, 3)
		if len(learners) > 0 {
			c.Learners = learners
			c = c.WithAddresses(raft.Address{ID: 4, Addr: "4", Since: since})
		}
		return raft.LogEntry{Term: 1, Kind: raft.EntryConfiguration, Command: c.AppendTo(nil)}
	}
	return []raft.LogEntry{entry(0), entry(2, 4), entry(0), entry(4, 4)}
}

func append4(prev raft.Index, entries ...raft.LogEntry) raft.Message {
	args := raft.AppendEntriesArgs{Term: 1, LeaderID: 1, PrevLogIndex: prev, LeaderCommit: prev, Entries: entries}
	if prev > 0 {
		args.PrevLogTerm = 1
	}
	return raft.Message{Cluster: 7, From: 1, To: 4, Body: args}
}

// startJoiner starts a server to which a test talks, and which talks to nobody.
func startJoiner(t *testing.T, id raft.ServerID, after raft.Index, store storage.Storage) *Server {
	commits := make(chan raft.CommitEntry)
	s, err := New(Config{Raft: raft.Config{Cluster: 7, ID: id, AddedAfter: after}, Storage: store, CommitChan: commits})
	require.NoError(t, err)
	go func() {
		for range commits {
		}
	}()
	s.Start(silence{})
	t.Cleanup(func() { s.Stop() })
	return s
}

type silence struct{}

func (silence) Send([]raft.Message) {}
func (silence) Close() error        { return nil }
func (silence) Call(context.Context, raft.ServerID, []byte) ([]byte, error) {
	return nil, ErrNotSent
}

// Server 4 has lost its disk and is added again. What is about the old server, and
// what a crash could still take back, it does not announce.
func TestSinceIsAnnouncedWhenItIsOnTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entries := addsServer4()
		disk := &hangingDisk{storage.NewMapStorage(), make(chan struct{})}
		close(disk.hang)
		n := startJoiner(t, 4, 3, disk)
		n.Deliver([]raft.Message{append4(0, entries[:2]...)})
		synctest.Wait()
		now, _ := n.Configuration()
		require.EqualValues(t, 2, now.Address(4).Since)
		require.Zero(t, n.takesPartSince(), "that is about the old server")

		disk.hang = make(chan struct{})
		n.Deliver([]raft.Message{append4(2, entries[2:]...)})
		synctest.Wait()
		now, _ = n.Configuration()
		require.EqualValues(t, 4, now.Address(4).Since)
		require.Zero(t, n.takesPartSince(), "it is not on the disk")
		close(disk.hang)
		synctest.Wait()
		require.EqualValues(t, 4, n.takesPartSince())

		require.NoError(t, n.Stop())
		require.EqualValues(t, 4, startJoiner(t, 4, 3, disk).takesPartSince(), "after a restart")
	})
}

// Who announces that it was added later than the configuration here knows is
// remembered as that; the configuration counts if it knows more.
func TestLaterSinceCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startJoiner(t, 5, 0, storage.NewMapStorage())
		m := append4(0, addsServer4()[:2]...)
		m.To = 5
		n.Deliver([]raft.Message{m})
		synctest.Wait()
		for _, test := range []struct {
			announced, remembered raft.Index
			newer                 bool
		}{{0, 2, false}, {1, 2, false}, {2, 2, false}, {9, 9, true}} {
			remember := func(id raft.ServerID, since raft.Index, store raft.StoreID) error {
				require.EqualValues(t, 4, id)
				require.Equal(t, test.remembered, since)
				require.Equal(t, raft.StoreID{1}, store)
				return storage.ErrForeignStore
			}
			newer, err := n.checkStore(remember)(4, raft.StoreID{1}, test.announced)
			require.ErrorIs(t, err, storage.ErrForeignStore)
			require.Equal(t, test.newer, newer)
		}
	})
}

// nodes is a cluster of nodes on real files and ports.
type nodes struct {
	*testing.T
	running map[raft.ServerID]*Node
}

func (s *nodes) eventually(what string, f func() bool) {
	s.Helper()
	require.Eventually(s, f, time.Minute, 10*time.Millisecond, what)
}

func (s *nodes) leader() *Node {
	var leader *Node
	s.eventually("somebody leads", func() bool {
		for _, n := range s.running {
			if st := n.Status(); st.State == raft.Leader && (leader == nil || st.Term > leader.Status().Term) {
				leader = n
			}
		}
		return leader != nil
	})
	return leader
}

// change waits until the members are what edit makes of them.
func (s *nodes) change(what string, edit func(raft.Configuration) raft.Configuration) {
	s.Helper()
	s.eventually(what, func() bool {
		leader := s.leader()
		now, at := leader.Configuration()
		if next := edit(now); !slices.Equal(next.Voters, now.Voters) || !slices.Equal(next.Learners, now.Learners) {
			leader.ChangeConfiguration(s.Context(), at, next) // it is asked again until it is done
			return false
		}
		return !now.Joint() && leader.Status().CommitIndex >= at
	})
}

// Server 4 loses its disk, is removed, and comes back with another one at another
// address, while server 3 is down. Then it leads, and is the only one that would tell
// server 3: who had refused it for the disk that it knew was stuck until another led.
func TestSystemServerAddedAgainLeadsOneThatWasAway(t *testing.T) {
	defer leaktest.Check(t)()
	t.Run("run", func(t *testing.T) {
		listeners := map[raft.ServerID]net.Listener{}
		dirs := map[raft.ServerID]string{}
		var members []Member
		for id := raft.ServerID(1); id <= 5; id++ { // the fifth is for the second server 4
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			listeners[id], dirs[id] = l, t.TempDir()
			if id <= 3 {
				members = append(members, Member{ID: id, Addr: l.Addr().String()})
			}
		}
		s := &nodes{t, map[raft.ServerID]*Node{}}
		start := func(identity Identity, dir string, l net.Listener) {
			s.running[identity.Server] = openDrained(t, NodeConfig{Identity: identity, Dir: dir, Listener: l, ElectionTimeout: 500 * time.Millisecond})
		}
		for _, m := range members {
			start(NewIdentity("c", m.ID, members), dirs[m.ID], listeners[m.ID])
		}
		join := func(dir string, l net.Listener, after raft.Index) {
			start(JoinIdentity(NewIdentity("c", 1, members).Cluster, "c", 4, after), dir, l)
		}
		add := func(addr string) func(raft.Configuration) raft.Configuration {
			return func(c raft.Configuration) raft.Configuration {
				c.Learners = []raft.ServerID{4}
				return c.WithAddresses(append(slices.Clone(c.Addresses), raft.Address{ID: 4, Addr: addr})...)
			}
		}
		join(dirs[4], listeners[4], 0)
		s.change("server 4 is added", add(listeners[4].Addr().String()))
		s.eventually("server 3 has met server 4", func() bool {
			return s.running[3].Connected(4) && s.running[4].Status().CommitIndex > 0
		})
		require.NoError(t, s.running[3].Stop())
		require.NoError(t, s.running[4].Stop())
		delete(s.running, 3)
		delete(s.running, 4)

		s.change("server 4 is removed", func(c raft.Configuration) raft.Configuration {
			c.Learners = nil
			return c.WithAddresses(c.Addresses...)
		})
		_, at := s.leader().Configuration()
		join(dirs[5], listeners[5], at)
		s.change("server 4 is added again", add(listeners[5].Addr().String()))
		s.change("server 4 votes", func(c raft.Configuration) raft.Configuration {
			c.Voters, c.Learners = []raft.ServerID{1, 2, 3, 4}, nil
			return c
		})
		s.eventually("server 4 leads", func() bool {
			if leader := s.leader(); leader != s.running[4] {
				leader.TransferLeadership(t.Context(), 4)
				return false
			}
			return true
		})

		l, err := net.Listen("tcp", members[2].Addr)
		require.NoError(t, err)
		start(NewIdentity("c", 3, members), dirs[3], l)
		s.running[3].Cut(1) // nobody but server 4 is to tell it
		s.running[3].Cut(2)
		s.eventually("server 3 follows server 4, and has caught up", func() bool {
			_, at := s.running[4].Configuration()
			_, known := s.running[3].Configuration()
			return s.running[3].Status().LeaderID == 4 && known == at
		})
	})
}
