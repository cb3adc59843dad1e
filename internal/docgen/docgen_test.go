package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"raftkv/internal/zoo"
)

// What is generated is as it would be generated now.
func TestGenerated(t *testing.T) {
	root, err := zoo.Root(".")
	require.NoError(t, err)
	made, err := generate(root)
	require.NoError(t, err)
	require.NotEmpty(t, made)
	require.Empty(t, staleFiles(root, made), "run make gen")
}

// A diff tells both texts, and changes no line that it need not.
func TestDiff(t *testing.T) {
	texts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 12)
	rapid.Check(t, func(t *rapid.T) {
		a, b := texts.Draw(t, "a"), texts.Draw(t, "b")
		edits := diff(a, b)
		var before, after []string
		for _, e := range edits {
			if e.kind != '+' {
				before = append(before, e.line)
			}
			if e.kind != '-' {
				after = append(after, e.line)
			}
		}
		require.Equal(t, strings.Join(a, "\n"), strings.Join(before, "\n"))
		require.Equal(t, strings.Join(b, "\n"), strings.Join(after, "\n"))
		if len(a) == len(b) {
			same := 0
			for i := range a {
				if a[i] == b[i] {
					same++
				}
			}
			require.LessOrEqual(t, count(edits, '-'), len(a)-same)
		}
	})
}

func TestUnified(t *testing.T) {
	a := "func f() {\n1\n2\n3\n4\n5\nx\n6\n7\n8\n9\n}"
	b := strings.Replace(a, "x", "y", 1)
	require.Equal(t, "@@ func f()\n 3\n 4\n 5\n-x\n+y\n 6\n 7\n 8\n", unified(diff(splitLines(a), splitLines(b))))
}

func TestMark(t *testing.T) {
	code, err := mark("a()\nb() // why\n", " | (i) a( | (ii) b(")
	require.NoError(t, err)
	require.Equal(t, "a() // ◀ (i)\nb() // why ◀ (ii)\n", code)
	_, err = mark("a()", " | (i) c(")
	require.ErrorContains(t, err, "no line has")
}

// Wrapping takes nothing away, and lines become short if they can.
func TestWrapped(t *testing.T) {
	code := "func (cm *ConsensusModule) handle(from ServerID, args RequestVoteArgs) RequestVoteReply {\n\tif from != None && args.Term == cm.currentTerm && cm.votedFor == from { // ◀ (i)\n\t}\n}"
	got := wrapped(code)
	require.Equal(t, strings.Fields(strings.ReplaceAll(code, "(", "( ")), strings.Fields(strings.ReplaceAll(got, "(", "( ")))
	for line := range strings.Lines(got) {
		require.LessOrEqual(t, len([]rune(line)), 52)
	}
	require.Equal(t, "func f() {\n  x()\n}", wrapped(plain("// f is.\nfunc f() {\n\t// why\n\tx() // what\n\tcm.assertf(a, \"b\")\n}")))
}

// A step of the tutorial that brings a rule has to say so.
func TestNewRuleNeedsARow(t *testing.T) {
	before := map[string]string{"raft.go": "// ALL-2"}
	after := map[string]string{"raft.go": "// ALL-2", "log.go": "// AE-3"}
	require.ErrorContains(t, pair{}.checkLabels(before, after), "AE-3")
	require.NoError(t, pair{rows: []string{"| AE-3 | log.go | cuts |"}}.checkLabels(before, after))
}

func TestRowsNameWhatIsThere(t *testing.T) {
	after := map[string]string{"log.go": "func (l *log) appendAfter(prev Index) {\n"}
	require.NoError(t, pair{rows: []string{"| AE-3 | `appendAfter` in log.go | cuts |"}}.checkNames(after))
	require.ErrorContains(t, pair{to: "part2", rows: []string{"| AE-3 | `append` in log.go | cuts |"}}.checkNames(after), "part2 declares no append")
}

// A figure that makes more than one point is refused.
func TestTooManyArrows(t *testing.T) {
	root, err := zoo.Root(".")
	require.NoError(t, err)
	f := figure{story: "figure7.txt", first: 1, last: 99, servers: strings.Fields("1 2 3 4 5 6 7")}
	_, err = f.draw(root)
	require.ErrorContains(t, err, "one point")
}
