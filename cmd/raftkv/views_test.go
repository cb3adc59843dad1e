package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/api"
)

// sees is the answer of one of three servers.
func sees(id uint64, role string, term, leader, commit uint64, connected ...uint64) nodeView {
	s := &api.StatusResponse{Cluster: "c", ID: id, Role: role, Term: term, Leader: leader, Commit: commit, Applied: commit, FirstIndex: 1, LastIndex: commit + 1, LogBytes: 16 << 20, SnapshotBytes: 1536, Keys: 12, Sessions: 3}
	s.Configuration = api.Configuration{Voters: []uint64{1, 2, 3}}
	for other := range uint64(3) {
		m := api.Member{ID: other + 1, Role: api.RoleVoter}
		for _, c := range connected {
			m.Connected = m.Connected || c == m.ID
		}
		s.Members = append(s.Members, m)
	}
	return nodeView{Endpoint: "host:" + string(rune('0'+id)), Status: s}
}

func table(t *testing.T, rows [][]any) string {
	var out strings.Builder
	require.NoError(t, printTable(&out, rows...))
	return out.String()
}

// A leader that is cut off says so itself, and shows where all are side by side.
func TestACutOffLeaderShows(t *testing.T) {
	views := []nodeView{
		sees(1, "leader", 3, 1, 57),
		sees(2, "leader", 4, 2, 61, 3),
		sees(3, "follower", 4, 2, 61, 2),
		{Endpoint: "host:4", Error: "connection refused"},
	}
	require.Equal(t, `ENDPOINT  ID  ROLE      TERM  LEADER  COMMIT  APPLIED  LAG  LOG   SNAPSHOT  DISK      KEYS  SESSIONS  CONFIGURATION
host:1    1   leader    3     1       57      57       4    1-58  0         16M+1.5K  12    3         0
host:2    2   leader    4     2       61      61       0    1-62  0         16M+1.5K  12    3         0
host:3    3   follower  4     2       61      61       0    1-62  0         16M+1.5K  12    3         0
host:4    -   no answer: connection refused
`, table(t, clusterTable(views)))
	require.Equal(t, `AS SEEN BY  TERM  SERVER 1        SERVER 2          SERVER 3
server 1    3     itself: leader  lost              lost
server 2    4     lost            itself: leader    connected
server 3    4     lost            connected, leads  itself: follower
`, table(t, seenBy(views)))
	require.Equal(t, []string{"warning: server 1 calls itself leader of term 3, but others are in term 4: it is cut off and can commit nothing"}, warnings(views))
}

func TestWarnings(t *testing.T) {
	healthy := []nodeView{sees(1, "leader", 3, 1, 57, 2, 3), sees(2, "follower", 3, 1, 57, 1, 3), {Error: "refused"}}
	require.Empty(t, warnings(healthy))
	require.Len(t, seenBy([]nodeView{{Error: "refused"}}), 1, "nobody has seen anything")
	require.Empty(t, warnings([]nodeView{{Error: "refused"}}))
	require.Contains(t, warnings([]nodeView{sees(1, "candidate", 3, 0, 57)})[0], "no server that answers leads")

	foreign := sees(3, "leader", 9, 3, 1)
	foreign.Status.Cluster = "other"
	require.Equal(t, []string{"warning: these servers belong to 2 clusters; check --endpoints"}, warnings(append(healthy, foreign)))

	stranger := sees(4, "follower", 3, 1, 57)
	rows := seenBy([]nodeView{healthy[0], stranger})
	require.Equal(t, "no member", rows[1][5], "server 1 does not know server 4")
}

func TestBytesText(t *testing.T) {
	for n, want := range map[uint64]string{0: "0B", 1023: "1023B", 1024: "1.0K", 1536: "1.5K", 16 << 20: "16M", 3 << 40: "3.0T", 1<<64 - 1: "16E"} {
		require.Equal(t, want, bytesText(n))
	}
}
