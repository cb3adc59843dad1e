package server

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/raft"
)

// The server that asked for a vote must not hear of one that is not on the disk,
// and the loop must hear of the error (PE-05).
func TestNothingLeavesAfterAFailedSave(t *testing.T) {
	full := errors.New("no space left on device")
	s, err := New(Config{
		Raft:    raft.Config{Cluster: 7, ID: 1, Configuration: raft.NewConfiguration(1, 2, 3)},
		Storage: &slowStorage{broken: full},
	})
	require.NoError(t, err)
	from := &node{}
	s.transport = &link{c: &cluster{nodes: map[raft.ServerID]*node{1: from}}, from: 1}
	s.Deliver([]raft.Message{{Cluster: 7, From: 2, To: 1, Body: raft.RequestVoteArgs{Term: 1, CandidateID: 2}}})
	err = s.round()
	require.Zero(t, from.sent, "a promise has left that is not on the disk")
	require.ErrorIs(t, err, full)
}
