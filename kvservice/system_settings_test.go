package kvservice

import (
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/api"
	"raftkv/raft"
)

// refused waits until a node has ended because the cluster answers duplicates in
// another way than it was started with, and says so in one line.
func (s *system) refused(id raft.ServerID, has, flag api.Duplicates) {
	s.t.Helper()
	n := s.nodes[id]
	s.eventually("the node ends", func() bool { return isClosed(n.Done()) })
	require.ErrorContains(s.t, n.Err(), `this cluster answers duplicates with "`+string(has)+`", not "`+string(flag)+`"`)
	require.NotContains(s.t, n.Err().Error(), "\n")
	delete(s.nodes, id)
}

// insist repeats a request that may be repeated while nobody leads, or the answer was
// lost with a leader: a busy machine changes leaders. It returns the answer.
func (s *system) insist(id raft.ServerID, path, body string) (answer string) {
	s.t.Helper()
	s.eventually("an answer", func() bool {
		var code int
		code, answer = s.post(id, path, body)
		require.Contains(s.t, []int{200, 503, 504}, code, answer)
		return code == 200
	})
	return answer
}

// A cluster that reports duplicates goes on to do so: through every node, after all
// have restarted, with other flags or none, and on a server that joins and is given a
// snapshot. A server with another flag is refused, and disturbs nobody.
func TestSystemReportMode(t *testing.T) {
	s := newSystemWith(t, func(s *system) {
		s.trailing = 1
		s.duplicates = map[raft.ServerID]api.Duplicates{1: api.DuplicatesReport, 2: api.DuplicatesReport, 3: api.DuplicatesReport}
	})
	s.leader()
	retried := `{"Key":"x","Value":"bar","ClientID":"a","RequestID":1}`
	s.insist(1, "/append", retried)
	retry := func(when string) {
		t.Helper()
		for id := range s.nodes {
			require.Contains(t, s.insist(id, "/append", retried), `"RespStatus":"DuplicateRequest","Outcome":"applied"`, "%s, through node %d", when, id)
			s.eventually("the node has come to the settings", func() bool { return s.status(id).Duplicates == api.DuplicatesReport })
		}
	}
	retry("at once")

	s.duplicates = map[raft.ServerID]api.Duplicates{}
	s.restartAll()
	s.leader()
	retry("after all restarted without the flag")

	s.duplicates[3] = api.DuplicatesCached
	s.stop(3)
	s.start(3)
	s.refused(3, api.DuplicatesReport, api.DuplicatesCached)
	s.leader()
	retry("without the server that was started with another flag")
	s.duplicates[3] = api.DuplicatesReport
	s.start(3)

	committed := s.status(s.leader()).Commit
	for id := range s.nodes {
		s.eventually("the node has applied what is committed", func() bool { return s.status(id).Applied >= committed })
		code, body := s.post(id, "/admin/snapshot", `{}`)
		require.Equal(t, 200, code, body)
		s.eventually("the log begins behind the entry", func() bool { return s.status(id).FirstIndex > 4 })
	}
	s.duplicates[4] = api.DuplicatesCached
	s.join(4)
	s.change(1, `"Add":[{"ID":4,"Raft":%q}]}`, s.nodes[4].RaftAddr())
	s.refused(4, api.DuplicatesReport, api.DuplicatesCached)
	retry("without the server that was to join with another flag")
	s.change(1, `"Remove":[4]}`)

	s.join(5)
	s.change(1, `"Add":[{"ID":5,"Raft":%q}]}`, s.nodes[5].RaftAddr())
	s.change(1, `"Promote":[5]}`)
	s.leader()
	require.Positive(t, s.status(5).SnapshotIndex, "it was sent a snapshot")
	s.eventually("the server that was sent a snapshot leads", func() bool {
		s.insist(1, "/admin/transfer", `{"To":5}`)
		return s.status(5).Role == "leader"
	})
	retry("after a transfer to the server that was sent a snapshot")
	require.Contains(t, s.insist(1, "/get", `{"Key":"x"}`), `"Value":"bar"`)
}

// Servers that begin a cluster with different flags do not go on beside each other:
// the first leader decides, and those who were started with another flag stop.
func TestSystemMixedFlags(t *testing.T) {
	s := newSystemWith(t, func(s *system) {
		s.duplicates = map[raft.ServerID]api.Duplicates{1: api.DuplicatesReport, 3: api.DuplicatesCached}
	})
	s.eventually("one of the two ends", func() bool { return isClosed(s.nodes[1].Done()) || isClosed(s.nodes[3].Done()) })
	loses, has := raft.ServerID(1), api.DuplicatesCached
	if isClosed(s.nodes[3].Done()) {
		loses, has = 3, api.DuplicatesReport
	}
	s.refused(loses, has, s.duplicates[loses])
	s.leader()
	for id := range s.nodes {
		s.insist(id, "/put", `{"Key":"x","Value":"1"}`)
		s.eventually("the node has come to the settings", func() bool { return s.status(id).Duplicates == has })
	}
}
