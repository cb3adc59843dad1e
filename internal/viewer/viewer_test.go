package viewer

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"raftkv/internal/trace"
	"raftkv/raft"
)

func example() []trace.Line {
	const ms = time.Millisecond
	return []trace.Line{
		trace.Run{Format: 1, Title: "seed 7", Servers: []raft.ServerID{1, 2, 3}, Plan: "3 servers\na bad network"},
		trace.Step{Number: 1, Server: 1, Outside: true, State: "follower", What: "starts"},
		trace.Step{Number: 2, Server: 2, Outside: true, State: "follower", What: "starts"},
		trace.Step{At: 150 * ms, Number: 3, Server: 1, State: "candidate", Term: 1, VotedFor: 1, What: "election timeout", Changes: "term 0→1", Todo: "save"},
		trace.Send{At: 150 * ms, Message: 1, From: 1, To: 2, Type: "RequestVoteArgs", Text: "RequestVote t1", Body: map[string]any{"Term": 1}, Copies: 2},
		trace.Send{At: 150 * ms, Message: 2, From: 1, To: 3, Type: "RequestVoteArgs", Text: "RequestVote t1", Lost: "the link is cut"},
		trace.Send{At: 150 * ms, Message: 3, From: 1, To: 3, Type: "RequestVoteArgs", Text: "RequestVote t1", Copies: 1},
		trace.Step{At: 170 * ms, Number: 4, Server: 1, State: "leader", Term: 1, Last: 1, What: "n2: vote"},
		trace.Log{Server: 1, From: 1, Entries: []trace.Entry{{Term: 1}}},
		trace.Call{At: 180 * ms, Client: 4, Call: 1, Text: `put x "</script>"`},
		trace.Attempt{At: 180 * ms, Client: 4, Call: 1, Server: 1},
		trace.Effect{At: 190 * ms, Client: 4, Call: 1, Server: 1, Index: 2},
		trace.Answer{At: 191 * ms, Client: 4, Call: 1, Outcome: "applied", Text: "put x = absent"},
		trace.Fault{At: 200 * ms, Fault: 1, Text: "server 1 is down", Servers: []raft.ServerID{1}},
		trace.Step{At: 200 * ms, Number: 5, Server: 1, Outside: true, Down: true, State: "leader", Term: 1, Last: 1, What: "crashes"},
		trace.Step{At: 210 * ms, Number: 6, Server: 2, State: "follower", Term: 1, What: "n1: RequestVote t1", Message: 1},
		trace.FaultEnd{At: 220 * ms, Fault: 1},
		trace.Fault{At: 230 * ms, Fault: 2, Text: "a link is cut", Links: [][2]raft.ServerID{{1, 2}}},
		trace.Verdict{At: 300 * ms, Failure: "liveness", Text: "nobody leads", Hash: "1f", Steps: 6, Operations: 1},
	}
}

func TestColumns(t *testing.T) {
	c := NewColumns()
	var got []string
	for _, l := range example() {
		for _, text := range c.Line(l) {
			got = append(got, strings.TrimRight(text, " "))
		}
	}
	assert.Equal(t, strings.Trim(`
seed 7
3 servers
a bad network
           n1             n2             n3
    0.000s F t0 0/0                                     starts
    0.000s │              F t0 0/0                      starts
    0.150s C t1 0/0       │                             election timeout | term 0→1 | save
    0.150s ┊              │                             · n1→n2 doubled: RequestVote t1
    0.150s ┊              │                             · n1→n3 lost (the link is cut): RequestVote t1
    0.170s L t1 1/0       │                             n2: vote
    0.180s ┃              │                             · client 4 calls: put x "</script>"
    0.180s ┃              │                             · client 4 asks n1: put x "</script>"
    0.190s ┃              │                             · client 4's call takes effect at index 2: put x "</script>"
    0.191s ┃              │                             · client 4 is told applied: put x = absent
    0.200s ┃              │                             · FAULT server 1 is down
    0.200s x t1 1/0       │                             crashes
    0.210s                F t1 0/0                      n1: RequestVote t1
    0.220s                │                             · over: server 1 is down
    0.230s                │                             · FAULT a link is cut (1→2)
hash 1f, 6 events, 1 operations, 300ms
FAILED liveness: nobody leads`, "\n"), strings.Join(got, "\n"))
}

// The page holds everything that it needs: the trace as it was, but for the
// messages' own fields, and nothing that is fetched from elsewhere.
func TestPageIsWhole(t *testing.T) {
	var page bytes.Buffer
	require.NoError(t, WritePage(&page, slices.Values(example())))
	text := page.String()
	for _, part := range []string{"/*CSS*/", "/*JS*/", "/*TRACE*/"} {
		assert.NotContains(t, text, part)
	}
	assert.Equal(t, 2, strings.Count(text, "</script>"), "nothing in the trace may end a script")
	for _, elsewhere := range []string{`https?://`, `\bsrc=`, `@import`, `url\([^#]`, `<link [^>]*href="[^d]`, `\bfetch\(`, `import\(`} {
		assert.NotRegexp(t, regexp.MustCompile(elsewhere), text)
	}

	packed := regexp.MustCompile(`(?s)<script id="trace"[^>]*>(.*?)</script>`).FindStringSubmatch(text)
	require.NotNil(t, packed)
	zip, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(packed[1])))
	require.NoError(t, err)
	var got []trace.Line
	for l, err := range trace.Read(zip) {
		require.NoError(t, err)
		got = append(got, l)
	}
	want := example()
	send := want[4].(trace.Send)
	send.Body = nil
	want[4] = send
	assert.Equal(t, want, got)
}
