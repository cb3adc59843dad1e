package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/api"
)

// viewOf is the answer of a server that knows a configuration.
func viewOf(id uint64, role string, commit uint64, c api.Configuration, match map[uint64]uint64) nodeView {
	s := &api.StatusResponse{ID: id, Role: role, Term: 3, Commit: commit, Configuration: c}
	for _, voter := range append(c.Voters, c.OldVoters...) {
		s.Members = append(s.Members, api.Member{ID: voter, Match: match[voter]})
	}
	return nodeView{Status: s}
}

// What an unfinished configuration wants for, as far as those who answer know
// (pitfall MB-12).
func TestConfigurationInStatus(t *testing.T) {
	joint := api.Configuration{Index: 8, Voters: []uint64{1, 4, 5}, OldVoters: []uint64{1, 2, 3}, Learners: []uint64{6}}
	before := api.Configuration{Index: 5, Voters: []uint64{1, 2, 3}}
	for name, tc := range map[string]struct {
		views []nodeView
		want  string
	}{
		"nobody answers":             {[]nodeView{{Error: "refused"}}, ""},
		"one that waits to be added": {[]nodeView{viewOf(9, "follower", 0, api.Configuration{}, nil)}, ""},
		"finished":                   {[]nodeView{viewOf(1, "leader", 5, before, nil)}, "configuration 5: voters 1, 2, 3\n"},
		"the leader knows who has it": {
			[]nodeView{viewOf(1, "leader", 7, joint, map[uint64]uint64{1: 9, 2: 8, 3: 7, 4: 6})},
			`configuration 8: voters change from 1, 2, 3 to 1, 4, 5, learners 6
  not finished: 2 of the old voters 1, 2, 3 must have it, 2 have
  not finished: 2 of the new voters 1, 4, 5 must have it, 1 have; missing: 4, 5
`,
		},
		"nobody leads": {
			[]nodeView{viewOf(2, "follower", 5, before, nil), viewOf(1, "follower", 7, joint, nil), viewOf(4, "candidate", 7, joint, nil)},
			`configuration 8: voters change from 1, 2, 3 to 1, 4, 5, learners 6
  not finished: 2 of the old voters 1, 2, 3 must have it, 1 have; missing: 2, 3
  not finished: 2 of the new voters 1, 4, 5 must have it, 2 have
`,
		},
		"a change of learners": {
			[]nodeView{viewOf(1, "leader", 4, before, map[uint64]uint64{1: 5, 2: 4, 3: 4})},
			`configuration 5: voters 1, 2, 3
  not finished: 2 of the voters 1, 2, 3 must have it, 1 have; missing: 2, 3
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			require.NoError(t, configurationOf(tc.views).print(&out))
			require.Equal(t, tc.want, out.String())
		})
	}
}
