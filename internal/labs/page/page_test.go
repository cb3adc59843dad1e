package page

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/internal/labs/run"
)

const printed = `votes/1  one vote in a term, seed 7

  0.000 s  server 1: starts
  0.163 s  server 3: the election timer fires; now candidate of term 1
  0.170 s  lost on the way from server 3 to server 1: <b>
server 1: it starts, one of 3

One vote a term
  server 1 votes twice
`

func TestNewStory(t *testing.T) {
	s := NewStory("votes/1", printed)
	require.Equal(t, Story{
		Check: "votes/1", Title: "votes/1  one vote in a term, seed 7", Servers: []int{1, 3},
		Rows: []Row{
			{"0.000", 1, "starts"},
			{"0.163", 3, "the election timer fires; now candidate of term 1"},
			{"0.170", 0, "lost on the way from server 3 to server 1: <b>"},
			{"", 1, "it starts, one of 3"},
		},
		End: []string{"One vote a term", "server 1 votes twice"},
	}, s)
	require.Empty(t, NewStory("votes/1", "").Rows)

	long := NewStory("votes/1", strings.Replace(printed, "server 1: it", strings.Repeat("server 2: steps\n", 2000)+"server 1: it", 1))
	require.Len(t, long.Rows, maxRows)
	require.Equal(t, 2004-maxRows, long.Left)
}

// What a student's code says is text on the page and nothing else.
func TestWrite(t *testing.T) {
	v := run.Verdict{Part: "part1", Max: 50, Checks: []run.Result{{ID: "votes/1", Status: run.Fail, Property: "No panic: <script>"}}}
	var b strings.Builder
	require.NoError(t, Page{Part: "part1", Verdict: &v, Stories: []Story{NewStory("votes/1", printed)}}.Write(&b))
	for _, want := range []string{"part1: 0 of 50 points", `<a href="#votes%2f1">`, "server 1 votes twice", "&lt;script&gt;", `colspan="2">lost on the way from server 3 to server 1: &lt;b&gt;`} {
		require.Contains(t, b.String(), want)
	}
	require.NotContains(t, b.String(), "<script>")
}
