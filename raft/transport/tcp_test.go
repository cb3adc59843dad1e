package transport

import (
	"testing"

	"github.com/fortytw2/leaktest"
	"github.com/stretchr/testify/require"

	"raftkv/raft"
)

func TestMessagesArriveBothWays(t *testing.T) {
	t.Cleanup(leaktest.Check(t))
	nodes := startNodes(t, 2, nil)
	there := heartbeat(1, 2, 7)
	back := raft.Message{Cluster: testCluster, From: 2, To: 1, Body: raft.AppendEntriesReply{Term: 7, Success: true, AskedTerm: 7}}
	eventually(t, "no connection", func() bool { return nodes[0].PeerHTTP(2) != "" })
	nodes[0].Send([]raft.Message{there})
	require.Equal(t, there, nodes[1].in.wait(t))
	nodes[1].Send([]raft.Message{back})
	require.Equal(t, back, nodes[0].in.wait(t))
	require.Equal(t, "http-2", nodes[0].PeerHTTP(2))
	require.Equal(t, "http-1", nodes[1].PeerHTTP(1))
}
