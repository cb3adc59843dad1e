package kvservice

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/api"
	"raftkv/kvservice/machine"
	"raftkv/raft"
)

func TestHashAtAMark(t *testing.T) {
	s, _ := newInstant(t, nil)
	mark := func() (index uint64) {
		code, body := post(s, api.PathAdminHash, `{}`)
		require.Equal(t, 200, code, body)
		var answer api.HashResponse
		require.NoError(t, api.DecodeResponse([]byte(body), &answer))
		require.Empty(t, answer.Hash, "the leader's word counts no more than another's")
		return answer.Index
	}
	hash := func(index uint64) (int, api.HashResponse) {
		code, body := get(s, fmt.Sprintf("%s?index=%d", api.PathAdminHash, index))
		var answer api.HashResponse
		require.NoError(t, api.DecodeResponse([]byte(body), &answer), body)
		return code, answer
	}
	first := mark()
	code, empty := hash(first)
	require.Equal(t, 200, code)
	require.Equal(t, first, empty.Index)
	require.Len(t, empty.Hash, 64)

	post(s, api.PathPut, putX1)
	second := mark()
	_, one := hash(second)
	require.NotEqual(t, empty.Hash, one.Hash)
	require.Equal(t, 1, one.Keys)
	require.Equal(t, 1, one.Sessions)
	_, again := hash(first)
	require.Equal(t, empty, again, "it is the state of then, not of now")

	code, _ = hash(second - 1)
	require.Equal(t, 404, code, "there is no mark")
	for range keptHashes {
		mark()
	}
	code, forgotten := hash(second)
	require.Equal(t, 404, code)
	require.Contains(t, forgotten.Error, "set another mark")
	for _, query := range []string{"", "?index=", "?index=0", "?index=-1", "?index=x"} {
		code, _ := get(s, api.PathAdminHash+query)
		require.Equal(t, 400, code, query)
	}
}

// A server that has not come to the mark is waited for, within bounds.
func TestHashIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		code, body := get(s, api.PathAdminHash+"?index=3")
		require.Equal(t, 504, code, body)

		done := make(chan int)
		go func() {
			code, _ := get(s, api.PathAdminHash+"?index=3")
			done <- code
		}()
		synctest.Wait()
		_, _, err := r.append(machine.Command{Kind: machine.KindMark}.Encode())
		require.NoError(t, err)
		r.commit()
		require.Equal(t, 200, <-done)
	})
}

// hashes sets a mark through a server and asks all for their hash there.
func (s *system) hashes(through raft.ServerID) map[raft.ServerID]api.HashResponse {
	s.t.Helper()
	code, body := s.post(through, api.PathAdminHash, `{}`)
	require.Equal(s.t, 200, code, body)
	var mark api.HashResponse
	require.NoError(s.t, json.Unmarshal([]byte(body), &mark))
	all := map[raft.ServerID]api.HashResponse{}
	for id, n := range s.nodes {
		resp, err := s.client.Get(fmt.Sprintf("http://%s%s?index=%d", n.HTTPAddr(), api.PathAdminHash, mark.Index))
		require.NoError(s.t, err)
		var answer api.HashResponse
		require.NoError(s.t, json.NewDecoder(resp.Body).Decode(&answer))
		resp.Body.Close()
		require.Equal(s.t, api.StatusOK, answer.RespStatus, answer.Error)
		all[id] = answer
	}
	return all
}

// Servers with the same state say so while writes go on, whoever is asked; and
// a server whose state is another one is found out.
func TestSystemStatesAreCompared(t *testing.T) {
	s := newSystem(t)
	s.leader()
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := 1; ; i++ {
				select {
				case <-stop:
					return
				default:
					code, body := s.post(raft.ServerID(w%3+1), api.PathAppend, fmt.Sprintf(`{"Key":"k%d","Value":"v","ClientID":"w%d","RequestID":%d}`, i%7, w, i))
					if code != 200 {
						t.Error(body)
						return
					}
				}
			}
		})
	}
	seen := map[string]bool{}
	for round := range 5 {
		all := s.hashes(raft.ServerID(round%3 + 1))
		require.Equal(t, all[1], all[2])
		require.Equal(t, all[1], all[3])
		seen[all[1].Hash] = true
	}
	require.Len(t, seen, 5, "nothing was written in between")
	close(stop)
	writers.Wait()

	// Server 2 turns a bit, as bad memory would.
	now := s.hashes(1)[1].Index
	s.eventually("all have applied the mark", func() bool { return s.status(2).Applied >= now })
	service := s.nodes[2].service
	service.mu.Lock()
	other := machine.New()
	for i := raft.Index(1); i <= service.machine.AppliedIndex(); i++ {
		c := machine.Command{Kind: machine.KindSettings, Settings: machine.DefaultSettings()}
		if i > 1 {
			c = machine.Command{Kind: machine.KindPut, Key: "k1", Value: "other"}
		}
		_, err := other.Apply(raft.CommitEntry{Index: i, Term: 1, Command: c.Encode()})
		require.NoError(t, err)
	}
	service.machine = other
	service.mu.Unlock()
	all := s.hashes(1)
	require.Equal(t, all[1].Hash, all[3].Hash)
	require.NotEqual(t, all[1].Hash, all[2].Hash)
}

// What operators see of a real node.
func TestSystemInstruments(t *testing.T) {
	s := newSystem(t)
	leader := s.leader()
	code, body := s.post(leader, "/put", putX1)
	require.Equal(t, 200, code, body)
	look := func(id raft.ServerID, path string) (int, string) {
		resp, err := s.client.Get("http://" + s.nodes[id].HTTPAddr() + path)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(text)
	}
	for id := range s.nodes {
		s.eventually("all are ready, connected, and have the write", func() bool {
			code, _ := look(id, pathReady)
			_, metrics := look(id, pathMetrics)
			return code == 200 && strings.Contains(metrics, "\nraftkv_peers_connected 2\n") && strings.Contains(metrics, "\nraftkv_keys 1\n")
		})
		_, metrics := look(id, pathMetrics)
		require.NotContains(t, metrics, "raft_leader_changes_total 0")
		require.NotContains(t, metrics, "raftkv_storage_save_duration_seconds_count 0")
		require.NotContains(t, metrics, "raftkv_log_bytes 0")
		require.Contains(t, metrics, "\ndedup_session_table_size 1\n")
		require.Contains(t, metrics, "\nprocess_start_time_seconds ")
		for _, m := range s.status(id).Members {
			require.Equal(t, m.ID != uint64(id), m.Connected, "server %d of %d", m.ID, id)
		}
	}

	// The leader is cut off. It lives, but nobody should ask it.
	for id := range s.nodes {
		if id != leader {
			s.nodes[leader].Cut(id)
		}
	}
	s.eventually("it is not ready", func() bool {
		code, line := look(leader, pathReady)
		return code == 503 && strings.Contains(line, "no leader is known")
	})
	code, _ = look(leader, pathLive)
	require.Equal(t, 200, code)
	for _, m := range s.status(leader).Members {
		require.False(t, m.Connected)
	}
	s.nodes[leader].Heal()
	s.leader()
	require.Less(t, s.nodes[leader].raft.Busy(), 10*time.Second)

	service := s.nodes[leader].service
	s.stop(leader)
	require.True(t, service.stopping.Load(), "who asks while it hands over must be sent elsewhere")
}
