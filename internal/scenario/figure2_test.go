package scenario

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	breaks = flag.String("breaks", "figure8.txt", "whose breaks in docs/figure2.md TestBreaks tries out: a story, or all (some five minutes)")
	update = flag.Bool("update", false, "let TestBreaks write the lines that turn red into docs/figure2.md")
)

const figure2Page = "docs/figure2.md"

// breakage is a section of docs/figure2.md under "Breaks": a change of the code
// and the line of a story that it turns red.
type breakage struct {
	line  int
	rule  string
	story string
	title string
	hunks []hunk
	red   string // the story's line, and why
}

// hunk is a run of lines of one file before and after the change.
type hunk struct{ file, before, after string }

// root finds the folder of go.mod.
func root(t testing.TB) string { return filepath.Dir(filepath.Dir(folder(t))) }

func figure2(t testing.TB) string {
	text, err := os.ReadFile(filepath.Join(root(t), figure2Page))
	require.NoError(t, err)
	return string(text)
}

var heading = regexp.MustCompile(`^### (\S+) · (\S+) · (.+)$`)

func readBreaks(t testing.TB) []breakage {
	var all []breakage
	var file, fence string
	for n, line := range strings.Split(figure2(t), "\n") {
		if m := heading.FindStringSubmatch(line); m != nil {
			all = append(all, breakage{line: n + 1, rule: m[1], story: m[2], title: m[3]})
			continue
		}
		if strings.HasPrefix(line, "```") {
			fence = strings.TrimPrefix(line, "```")
			continue
		}
		if len(all) == 0 || fence == "" {
			continue
		}
		b := &all[len(all)-1]
		if fence == "text" {
			b.red += line + "\n"
			continue
		}
		if name, ok := strings.CutPrefix(line, "--- "); ok {
			file = name
			b.hunks = append(b.hunks, hunk{file: file})
			continue
		}
		if line == "@@" {
			b.hunks = append(b.hunks, hunk{file: file})
			continue
		}
		require.NotEmpty(t, b.hunks, "%s:%d: no file is named", figure2Page, n+1)
		h := &b.hunks[len(b.hunks)-1]
		if rest, ok := strings.CutPrefix(line, "+"); ok {
			h.after += rest + "\n"
		} else if rest, ok := strings.CutPrefix(line, "-"); ok {
			h.before += rest + "\n"
		} else {
			h.before += strings.TrimPrefix(line, " ") + "\n"
			h.after += strings.TrimPrefix(line, " ") + "\n"
		}
	}
	return all
}

// apply returns the changed files. Each hunk must fit exactly one place.
func (b breakage) apply(root string) (map[string]string, error) {
	changed := map[string]string{}
	for _, h := range b.hunks {
		text, ok := changed[h.file]
		if !ok {
			bytes, err := os.ReadFile(filepath.Join(root, h.file))
			if err != nil {
				return nil, err
			}
			text = string(bytes)
		}
		if n := strings.Count("\n"+text, "\n"+h.before); n != 1 {
			return nil, fmt.Errorf("%s has %d places like this:\n%s", h.file, n, h.before)
		}
		changed[h.file] = strings.Replace("\n"+text, "\n"+h.before, "\n"+h.after, 1)[1:]
	}
	return changed, nil
}

// TestFigure2 compares docs/figure2.md with the code and with the stories.
// (internal/tidy looks up the functions that it names.)
func TestFigure2(t *testing.T) {
	rows := map[string][]string{} // label: stories
	zoo := map[string]string{}    // label of a rule: its links into the zoo
	rule := regexp.MustCompile(`^\| ([A-Z]+-[0-9]+) \|[^|]*\|[^|]*\| ([^|]*) \| ([^|]*) \|$`)
	pitfall := regexp.MustCompile(`^\| ([A-Z]+-[0-9]+) \|[^|]*\| ([^|]*) \|$`)
	for _, line := range strings.Split(figure2(t), "\n") {
		m := rule.FindStringSubmatch(line)
		if m != nil {
			zoo[m[1]] = m[3]
		} else if m = pitfall.FindStringSubmatch(line); m == nil {
			continue
		}
		require.NotContains(t, rows, m[1], "%s has two rows", m[1])
		rows[m[1]] = strings.Fields(m[2])
	}

	// Every bug of a rule is in the zoo, and a story of that rule is what catches it.
	link := regexp.MustCompile(`\[([^\]]+)\]\(zoo/([^/]+)/README\.md\)`)
	for l, cell := range zoo {
		bugs := link.FindAllStringSubmatch(cell, -1)
		assert.True(t, len(bugs) > 0 || cell == "–", "%s has no bug in the zoo, and does not say so", l)
		for _, m := range bugs {
			assert.Equal(t, m[1], m[2], "%s: a link leads elsewhere than it says", l)
			bug, err := os.ReadFile(filepath.Join(root(t), "docs", "zoo", m[2], "bug.txt"))
			if assert.NoError(t, err, l) {
				assert.True(t, slices.ContainsFunc(rows[l], func(story string) bool {
					return strings.Contains(string(bug), "test: internal/scenario TestScenarios/"+strings.TrimSuffix(story, ".txt")+"\n")
				}), "%s: no story of its row catches %s", l, m[1])
			}
		}
	}

	// Every label in raft/ has a row.
	files, err := filepath.Glob(filepath.Join(root(t), "raft", "*.go"))
	require.NoError(t, err)
	label := regexp.MustCompile(`\b(ALL|FOL|CAN|LEAD|RV|AE|PV|SNAP|CONF|READ|LEASE|HAND)-[0-9]+\b`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, l := range label.FindAllString(string(text), -1) {
			assert.Contains(t, rows, l, "%s names it", filepath.Base(file))
		}
	}

	// Rows and stories claim the same, and every claim has a break.
	broken := map[string]bool{}
	for _, b := range readBreaks(t) {
		broken[b.rule+" "+b.story], broken[b.story] = true, true
		_, err := b.apply(root(t))
		assert.NoError(t, err, "%s:%d", figure2Page, b.line)
	}
	names, err := filepath.Glob(filepath.Join(folder(t), "*.txt"))
	require.NoError(t, err)
	stories := map[string]*Story{}
	for _, file := range names {
		name := filepath.Base(file)
		s := read(t, file)
		stories[name] = s
		for _, l := range append(slices.Clone(s.Rules), s.Pitfalls...) {
			assert.Contains(t, rows[l], name, "the story claims %s, its row does not name it", l)
		}
		for _, l := range s.Rules {
			assert.True(t, broken[l+" "+name], "no break of %s turns %s red", l, name)
		}
		assert.True(t, broken[name], "no break turns %s red", name)
	}
	for l, named := range rows {
		assert.NotEmpty(t, named, "%s has no story", l)
		for _, name := range named {
			if assert.Contains(t, stories, name, "%s names it", l) {
				assert.Contains(t, append(slices.Clone(stories[name].Rules), stories[name].Pitfalls...), l, "the row of %s names %s", l, name)
			}
		}
	}
}

// TestBreaks breaks the code as docs/figure2.md says and looks whether the story
// turns red, in the line given there. -breaks says how many it tries out.
func TestBreaks(t *testing.T) {
	page := figure2(t)
	tried := 0
	for _, b := range readBreaks(t) {
		if *breaks != "all" && *breaks != b.story {
			continue
		}
		tried++
		t.Run(b.story+"/"+b.title, func(t *testing.T) {
			if !*update {
				t.Parallel()
			}
			got := b.run(t)
			if *update {
				page = replaceAfter(page, b, got)
				return
			}
			assert.Equal(t, b.red, got)
		})
	}
	require.NotZero(t, tried, "%s has no break for %s", figure2Page, *breaks)
	if *update {
		require.NoError(t, os.WriteFile(filepath.Join(root(t), figure2Page), []byte(page), 0o644))
	}
}

// replaceAfter writes a new red line below the heading of b.
func replaceAfter(page string, b breakage, red string) string {
	at := strings.Index(page, fmt.Sprintf("### %s · %s · %s\n", b.rule, b.story, b.title))
	from := at + strings.Index(page[at:], "```text\n") + len("```text\n")
	to := from + strings.Index(page[from:], "```")
	return page[:from] + red + page[to:]
}

// run plays the story to the broken code and returns the line that turned red
// and the reason.
func (b breakage) run(t *testing.T) string {
	changed, err := b.apply(root(t))
	require.NoError(t, err)
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for file, text := range changed {
		copied := filepath.Join(dir, filepath.Base(file))
		require.NoError(t, os.WriteFile(copied, []byte(text), 0o644))
		overlay.Replace[filepath.Join(root(t), file)] = copied
	}
	data, err := json.Marshal(overlay)
	require.NoError(t, err)
	list := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(list, data, 0o644))

	run := "^TestScenarios$/^" + regexp.QuoteMeta(strings.TrimSuffix(b.story, ".txt")) + "$"
	cmd := exec.Command("go", "test", "-count=1", "-vet=off", "-ldflags=-s -w", "-overlay", list, "-run", run, "./internal/scenario")
	cmd.Dir = root(t)
	out, err := cmd.CombinedOutput()
	require.Error(t, err, "the story stays green:\n%s", out)

	m := regexp.MustCompile(`(?m)testdata/scenarios/(\S+:\d+: .*)\n\s+(.*)$`).FindSubmatch(out)
	require.NotNil(t, m, "no line of the story turned red:\n%s", out)
	return fmt.Sprintf("%s\n%s\n", m[1], m[2])
}
