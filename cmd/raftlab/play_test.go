package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

var updatePlay = flag.Bool("update-play", false, "write the screens that the scripts of testdata/play show now")

// playScript returns the screens of a script.
func playScript(t *testing.T, part, script string, width, height int, colored bool) (string, error) {
	t.Helper()
	var out bytes.Buffer
	for _, p := range parts {
		if p.name == part {
			s := screen{out: &out, colored: colored, size: func() (int, int) { return width, height }}
			err := play(newGame(p, 1, 3), s, strings.NewReader(script), true)
			return out.String(), err
		}
	}
	t.Fatalf("there is no %s", part)
	return "", nil
}

func readScript(t *testing.T, part string) string {
	t.Helper()
	script, err := os.ReadFile(filepath.Join("testdata", "play", part+".txt"))
	require.NoError(t, err)
	return string(script)
}

// What a player sees, at 80×24. The screens are the point here, so they are
// golden: look at them before you commit new ones.
func TestPlay(t *testing.T) {
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			got, err := playScript(t, p.name, readScript(t, p.name), 80, 24, false)
			require.NoError(t, err)
			golden := filepath.Join("testdata", "play", p.name+".golden")
			if *updatePlay {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, strings.ReplaceAll(string(want), "\r\n", "\n"), got)
		})
	}
}

// A screen and the prompt fit into every terminal that is not tiny, and colour
// changes nothing but the colour.
func TestPlayFits(t *testing.T) {
	colour := regexp.MustCompile("\x1b\\[[0-9]+m")
	for _, p := range parts {
		for _, size := range [][2]int{{80, 24}, {60, 20}, {132, 50}} {
			width, height := size[0], size[1]
			script := strings.ReplaceAll(readScript(t, p.name), "help\n", "")
			got, err := playScript(t, p.name, script, width, height, false)
			require.NoError(t, err)
			for shown := range strings.SplitSeq(got, "\n\n>") {
				lines := strings.Split(strings.TrimSuffix(shown, "\n"), "\n")
				if !strings.HasPrefix(lines[0], p.name) {
					lines = lines[1:] // the line that the script typed
				}
				require.LessOrEqual(t, len(lines), height-1, "%s", shown)
				for _, line := range lines {
					require.LessOrEqual(t, utf8.RuneCountInString(line), width, "%s", line)
				}
			}
			colored, err := playScript(t, p.name, script, width, height, true)
			require.NoError(t, err)
			require.NotEqual(t, got, colored)
			trimmed := regexp.MustCompile(` +\n`).ReplaceAllString(colour.ReplaceAllString(colored, ""), "\n")
			require.Equal(t, got, trimmed)
		}
	}
}

// back undoes any line, and what comes after is as if the line had never been.
func TestPlayBack(t *testing.T) {
	last := func(script string) string {
		got, err := playScript(t, "part3", script, 80, 24, false)
		require.NoError(t, err)
		screens := strings.Split(got, "part3   seed 1")
		return strings.ReplaceAll(screens[len(screens)-1], "*", " ")
	}
	want := last("leader\nsubmit x=1\nnext 5\n")
	for _, line := range []string{"", "second", "crash 1", "cut 1-2", "submit x=2", "isolate 3", "run 10ms"} {
		require.Equal(t, want, last("leader\n"+line+"\nback\nsubmit x=1\nnext 5\n"), line)
	}
}

// What cannot be done is said, and changes nothing.
func TestPlayRefuses(t *testing.T) {
	for line, says := range map[string]string{
		"crash 9":      "crash 2: the servers are 1 to 3",
		"crash":        "crash 2: the servers are 1 to 3",
		"cut 1":        "the servers are 1 to 3",
		"cut 1-4":      "the servers are 1 to 3",
		"run fast":     "run 300ms: a duration up to 1m",
		"next x":       "next 5: a number up to 10000",
		"submit":       "a command without blanks",
		"submit x=1":   "no server leads",
		"back":         "this is the beginning",
		"fly":          `"fly"? help lists what there is`,
		"put x 1":      `"put"? help lists what there is`,
		"submit a b c": "a command without blanks",
	} {
		p := parts[2]
		g := newGame(p, 1, 3)
		require.ErrorContains(t, g.do(line), says)
		require.Empty(t, g.lines, line)
		require.Contains(t, g.said, says)
	}
	g := newGame(parts[4], 1, 3)
	for _, line := range []string{"submit x", "put x", "Z put x 1", "A", "lose Z", "get x y"} {
		require.Error(t, g.do(line), line)
	}
	require.NoError(t, g.do("put x 1"))
	require.ErrorContains(t, g.do("get x"), "still waits")
	require.NoError(t, g.do("B get x"))
}

func TestPlayColor(t *testing.T) {
	for _, test := range []struct {
		flag     string
		terminal bool
		env      map[string]string
		want     bool
	}{
		{"auto", true, nil, true},
		{"auto", false, nil, false},
		{"auto", true, map[string]string{"NO_COLOR": "1"}, false},
		{"auto", true, map[string]string{"TERM": "dumb"}, false},
		{"always", false, map[string]string{"NO_COLOR": "1"}, true},
		{"never", true, nil, false},
	} {
		got, err := wantsColor(test.flag, test.terminal, func(name string) string { return test.env[name] })
		require.NoError(t, err)
		require.Equal(t, test.want, got, "%+v", test)
	}
	_, err := wantsColor("sometimes", true, os.Getenv)
	require.Error(t, err)
}
