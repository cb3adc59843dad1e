package kvservice

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/raft"
)

// A retried append whose first answer was lost: one effect and one answer, when
// every node has restarted from a snapshot and its log does not hold the entry
// any more; through a server that joined later; and after leadership was handed
// to it.
func TestSystemRetryAfterSnapshotRestartJoinAndTransfer(t *testing.T) {
	s := newSystem(t)
	s.trailing = 1
	s.restartAll()
	s.leader()
	retried := `{"Key":"x","Value":"bar","ClientID":"a","RequestID":2}`
	code, _ := s.post(1, "/put", `{"Key":"x","Value":"foo","ClientID":"a","RequestID":1}`)
	require.Equal(t, 200, code)
	_, answer := s.post(1, "/append", retried)
	require.JSONEq(t, `{"RespStatus":"OK","Outcome":"applied","KeyFound":true,"PrevValue":"foo","Version":2}`, answer)
	want := strings.TrimSuffix(answer, "}") + `,"Duplicate":true}`
	retry := func(when string) {
		t.Helper()
		for id := range s.nodes {
			code, again := s.post(id, "/append", retried)
			require.Equal(t, 200, code, when)
			require.Equal(t, want, again, "%s, through node %d", when, id)
		}
	}
	retry("at once")

	for id := range s.nodes {
		applied := s.status(id).Commit
		s.eventually("the node has applied what is committed", func() bool { return s.status(id).Applied >= applied })
		code, body := s.post(id, "/admin/snapshot", `{}`)
		require.Equal(t, 200, code, body)
		s.eventually("the log begins behind the entry", func() bool { return s.status(id).FirstIndex > 4 })
	}
	retry("after a snapshot and compaction")
	s.restartAll()
	s.leader()
	for id := range s.nodes {
		require.Positive(t, s.status(id).SnapshotIndex, "it starts from its snapshot")
	}
	retry("after all restarted")

	s.join(4)
	s.change(1, `"Add":[{"ID":4,"Raft":%q}]}`, s.nodes[4].RaftAddr())
	s.change(1, `"Promote":[4]}`)
	s.leader()
	require.Positive(t, s.status(4).SnapshotIndex, "it was sent a snapshot")
	retry("with a server that joined")

	code, body := s.post(1, "/admin/transfer", `{"To":4}`)
	require.Equal(t, 200, code, body)
	require.Equal(t, raft.ServerID(4), s.leader())
	retry("after a transfer")

	s.stop(4)
	s.leader(1, 2, 3)
	retry("when the server that joined has gone again")
	_, body = s.post(1, "/get", `{"Key":"x"}`)
	require.Contains(t, body, `"Value":"foobar"`)
}

// A server that stops hands over first: a client that asks on does not wait for
// an election timeout.
func TestSystemStopHandsOver(t *testing.T) {
	s := newSystem(t)
	leader := s.leader()
	term := s.status(leader).Term
	s.stop(leader)
	var newest uint64
	for id := range s.nodes {
		newest = max(newest, s.status(id).Term)
	}
	require.Equal(t, term+1, newest, "one election, which nobody had to wait for")
	s.leader()
	for id := range s.nodes {
		s.eventually("the third one hears of it", func() bool { return s.status(id).Term > term })
		require.Equal(t, term+1, s.status(id).Term, "and no other")
	}
}

func (s *system) restartAll() {
	for id := range s.members {
		s.stop(id)
	}
	for id := range s.members {
		s.start(id)
	}
}
