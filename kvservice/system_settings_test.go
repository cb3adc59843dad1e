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
	code, first := s.post(1, "/append", retried)
	require.Equal(t, 200, code)
	require.Contains(t, first, `"RespStatus":"OK"`)
	retry := func(when string) {
		t.Helper()
		for id := range s.nodes {
			code, again := s.post(id, "/append", retried)
			require.Equal(t, 200, code, when)
			require.Contains(t, again, `"RespStatus":"DuplicateRequest","Outcome":"applied"`, "%s, through node %d", when, id)
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

	for id := range s.nodes {
		applied := s.status(id).Commit
		s.eventually("the node has applied what is committed", func() bool { return s.status(id).Applied >= applied })
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
	code, body := s.post(1, "/admin/transfer", `{"To":5}`)
	require.Equal(t, 200, code, body)
	require.Equal(t, raft.ServerID(5), s.leader())
	retry("after a transfer to the server that was sent a snapshot")
	_, body = s.post(1, "/get", `{"Key":"x"}`)
	require.Contains(t, body, `"Value":"bar"`)
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
		code, _ := s.post(id, "/put", `{"Key":"x","Value":"1"}`)
		require.Equal(t, 200, code)
		s.eventually("the node has come to the settings", func() bool { return s.status(id).Duplicates == has })
	}
}
