package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/api"
)

// pretenders answer as the servers of a cluster would that hold given hashes; ""
// is a server that has no hash at the first mark, "down" one that does not answer.
func pretenders(t *testing.T, hashes ...string) *shell {
	var mu sync.Mutex
	marks := uint64(0)
	var members []api.Member
	for i, hash := range hashes {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			var answer api.Response
			switch {
			case req.URL.Path == api.PathAdminMembers:
				answer = &api.MembersResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, Members: members}
			case req.Method == http.MethodPost:
				marks++
				answer = &api.HashResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, Index: 100 + marks}
			case hash == "" && marks == 1:
				answer = api.Refuse(api.StatusNotFound, "it got a snapshot")
			default:
				answer = &api.HashResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, Index: 100 + marks, Hash: strings.Repeat(hash+"a", 32), Keys: 12, Sessions: 3}
			}
			body, _ := api.Encode(answer)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(api.HTTPStatus(answer.Head().RespStatus))
			w.Write(body)
		}))
		t.Cleanup(server.Close)
		if hash == "down" {
			server.Close()
		}
		mu.Lock() // a client of an earlier test may still look for its servers, and find these
		members = append(members, api.Member{ID: uint64(i + 1), HTTP: strings.TrimPrefix(server.URL, "http://")})
		mu.Unlock()
	}
	return newShell(t, members[0].HTTP)
}

// Exit code and line of raftkv check.
func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		hashes         []string
		code           int
		stdout, stderr string
	}{
		"all the same": {[]string{"a", "a", "a"}, 0, "OK: servers 1, 2, 3 hold the same at index 101: 12 keys, 3 sessions, hash aaaaaaaaaaaa\n", ""},
		"one differs":  {[]string{"a", "a", "b"}, 1, "", "raftkv: the servers differ at index 101: server 3: 12 keys, 3 sessions, hash babababababa; servers 1, 2: 12 keys, 3 sessions, hash aaaaaaaaaaaa; stop the one that differs"},
		"all differ":   {[]string{"a", "b", "c"}, 1, "", "the servers differ at index 101: server 3: "},
		"one is away":  {[]string{"a", "a", "down"}, 4, "", "raftkv: server 3 could not be asked (connection refused); the others, servers 1, 2, hold the same at index 101\n"},
		// That one is away does not excuse the others.
		"one is away, two differ": {[]string{"a", "b", "down"}, 1, "", "the servers differ at index 101"},
		"one got a snapshot":      {[]string{"a", "a", ""}, 1, "", "the servers differ at index 102: server 3"},
	} {
		t.Run(name, func(t *testing.T) {
			s := pretenders(t, c.hashes...)
			got := s.run("check")
			require.Equal(t, c.code, got.code, got.stderr)
			require.Equal(t, c.stdout, got.stdout)
			require.Contains(t, got.stderr, c.stderr)
			if c.code != 4 {
				got = s.run("check", "-w", "json")
				require.Contains(t, got.stdout, fmt.Sprintf(`"Same":%t`, c.code == 0))
				got = s.run("check", "-w", "table")
				require.Equal(t, len(c.hashes)+1, strings.Count(got.stdout, "\n"))
			}
		})
	}
	s := newShell(t, "127.0.0.1:1")
	got := s.run("check", "--timeout", "300ms")
	require.Equal(t, 4, got.code)
	require.Contains(t, got.stderr, "could not be compared")
}
