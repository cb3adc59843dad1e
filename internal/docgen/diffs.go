package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// pair is two neighbours of the tutorial and what is new in the second one. It
// is read from a file docs/diffs/NAME.txt:
//
//	# From part 1 to part 2: commands
//	from part1-election      a dash if it builds on no folder's files
//	to   part2-commands
//
//	Words, in paragraphs of Markdown.
//
//	RV-2 | handleRequestVote, in election.go | what is new about it
//
// A row begins with rules of docs/figure2.md, or with a dash if the news is of no
// rule.
type pair struct {
	name     string
	title    string
	from, to string
	words    []string
	rows     []string
}

var label = regexp.MustCompile(`\b(ALL|FOL|CAN|LEAD|RV|AE|PV)-[0-9]+\b`)

func readPairs(root string) ([]pair, error) {
	files, err := filepath.Glob(filepath.Join(root, "docs", "diffs", "*.txt"))
	if err != nil {
		return nil, err
	}
	var pairs []pair
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		p := pair{name: strings.TrimSuffix(filepath.Base(file), ".txt")}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimRight(line, "\n")
			word, rest, _ := strings.Cut(line, " ")
			switch {
			case word == "#":
				p.title = rest
			case word == "from" && p.from == "":
				p.from = strings.TrimSpace(rest)
			case word == "to" && p.to == "":
				p.to = strings.TrimSpace(rest)
			case strings.Count(line, " | ") == 2:
				p.rows = append(p.rows, "| "+line+" |")
			default:
				p.words = append(p.words, line)
			}
		}
		if p.title == "" || p.from == "" || p.to == "" {
			return nil, fmt.Errorf("docs/diffs/%s.txt has no title, from or to", p.name)
		}
		pairs = append(pairs, p)
	}
	return pairs, nil
}

// makeDiffs writes a page for each pair, and the list of the pages.
func makeDiffs(root string, made map[string][]byte) error {
	pairs, err := readPairs(root)
	if err != nil {
		return err
	}
	var list strings.Builder
	list.WriteString("# From part to part\n\nWhat each step of the tutorial adds, by the rules of " +
		"[Figure 2](../figure2.md), and then line by line. Tests are left out. The numbers count lines of Go: " +
		"those of new files, and those that were added and removed in files that were there before.\n\n" +
		"| step | new files | lines in them | lines added elsewhere | removed |\n|---|---|---|---|---|\n")
	for _, p := range pairs {
		page, counts, err := p.page(root)
		if err != nil {
			return fmt.Errorf("docs/diffs/%s.txt: %w", p.name, err)
		}
		made["docs/diffs/"+p.name+".md"] = []byte(page)
		fmt.Fprintf(&list, "| [%s](%s.md) | %d | %d | %d | %d |\n", p.title, p.name, counts.files, counts.lines, counts.added, counts.removed)
	}
	list.WriteString("\nThe first half of each page is written by hand (the `.txt` files beside them), the rest is made by `make gen`.\n")
	made["docs/diffs/README.md"] = []byte(list.String())
	return nil
}

// counts says how large a step is.
type counts struct{ files, lines, added, removed int }

func (p pair) page(root string) (string, counts, error) {
	var before map[string]string
	var err error
	if p.from != "-" {
		if before, err = goFiles(root, p.from); err != nil {
			return "", counts{}, err
		}
	}
	after, err := goFiles(root, p.to)
	if err != nil {
		return "", counts{}, err
	}
	if err := p.checkLabels(before, after); err != nil {
		return "", counts{}, err
	}
	if err := p.checkNames(after); err != nil {
		return "", counts{}, err
	}
	var c counts
	var news, diffs strings.Builder
	for _, name := range readingOrder(after) {
		old, found := before[name]
		// A part imports its own packages. That they are called otherwise is no news.
		old = strings.ReplaceAll(old, `"raftkv/`+p.from+`/`, `"raftkv/`+p.to+`/`)
		switch lines := strings.Count(after[name], "\n"); {
		case !found:
			c.files++
			c.lines += lines
			fmt.Fprintf(&news, "- [%s](../../%s/%s), %d lines\n", name, p.to, name, lines)
		case old != after[name]:
			d := diff(splitLines(old), splitLines(after[name]))
			c.added += count(d, '+')
			c.removed += count(d, '-')
			fmt.Fprintf(&diffs, "\n### %s\n\n```diff\n%s```\n", name, unified(d))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n", p.title, strings.TrimSpace(strings.Join(p.words, "\n")))
	fmt.Fprintf(&b, "\n| rule | where | what is new |\n|---|---|---|\n%s\n", strings.Join(p.rows, "\n"))
	if news.Len() > 0 {
		fmt.Fprintf(&b, "\n## New files\n\nRead these whole.\n\n%s", news.String())
	}
	if diffs.Len() > 0 {
		fmt.Fprintf(&b, "\n## The diff\n\n%d lines are added and %d removed, in the order in which `doc.go` has them read.\n%s", c.added, c.removed, diffs.String())
	}
	return b.String(), c, nil
}

// checkLabels demands a row for every rule that the second part names and the
// first one does not.
func (p pair) checkLabels(before, after map[string]string) error {
	labels := func(texts map[string]string) map[string]bool {
		found := map[string]bool{}
		for _, text := range texts {
			for _, l := range label.FindAllString(text, -1) {
				found[l] = true
			}
		}
		return found
	}
	told := labels(map[string]string{"": strings.Join(p.rows, "\n")})
	known := labels(before)
	for l := range labels(after) {
		if !known[l] && !told[l] {
			return fmt.Errorf("rule %s is new, and no row says so", l)
		}
	}
	return nil
}

var name = regexp.MustCompile("`(\\w+)`")

// checkNames demands that the functions and types in the second column of a row
// are in the code.
func (p pair) checkNames(after map[string]string) error {
	code := ""
	for _, text := range after {
		code += text
	}
	for _, row := range p.rows {
		for _, m := range name.FindAllStringSubmatch(strings.Split(row, " | ")[1], -1) {
			if !regexp.MustCompile(`(?m)^(func( \(\w+ \*?\w+\))?|type|const|\t)\s*` + m[1] + `\b`).MatchString(code) {
				return fmt.Errorf("%s declares no %s", p.to, m[1])
			}
		}
	}
	return nil
}

// goFiles returns the Go files of a folder and those below it, by path from
// there. Tests, exercises and their solutions are left out.
func goFiles(root, dir string) (map[string]string, error) {
	texts := map[string]string{}
	top := filepath.Join(root, dir)
	err := filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != top && (dir == "raft" || slices.Contains([]string{"exercise", "solution"}, d.Name())):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(top, path)
		texts[filepath.ToSlash(name)] = string(text)
		return err
	})
	return texts, err
}

var inOrder = regexp.MustCompile(`(?m)^//\t(\S+\.go) `)

// readingOrder returns the files of a part in the order that its doc.go gives.
func readingOrder(files map[string]string) []string {
	var names []string
	for _, m := range inOrder.FindAllStringSubmatch(files["doc.go"], -1) {
		if _, ok := files[m[1]]; ok {
			names = append(names, m[1])
		}
	}
	var rest []string
	for name := range files {
		if !slices.Contains(names, name) {
			rest = append(rest, name)
		}
	}
	slices.Sort(rest)
	return append(names, rest...)
}

func splitLines(text string) []string { return strings.Split(strings.TrimSuffix(text, "\n"), "\n") }

// edit is a line of a diff: ' ' stays, '-' goes, '+' comes.
type edit struct {
	kind byte
	line string
}

// diff turns a into b by the longest run of lines that both have.
func diff(a, b []string) []edit {
	// common[i][j] is how many lines a[i:] and b[j:] have in common.
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var edits []edit
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			edits = append(edits, edit{' ', a[i]})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			edits = append(edits, edit{'-', a[i]})
			i++
		default:
			edits = append(edits, edit{'+', b[j]})
			j++
		}
	}
	return edits
}

func count(edits []edit, kind byte) int {
	n := 0
	for _, e := range edits {
		if e.kind == kind {
			n++
		}
	}
	return n
}

// unified writes a diff with three lines around each change. Where lines are
// left out it names the declaration that follows is in, instead of numbers, which
// would be wrong tomorrow.
func unified(edits []edit) string {
	const around = 3
	near := make([]bool, len(edits))
	for i, e := range edits {
		if e.kind != ' ' {
			for k := max(0, i-around); k <= min(len(edits)-1, i+around); k++ {
				near[k] = true
			}
		}
	}
	var b strings.Builder
	in := ""
	for i, e := range edits {
		if !near[i] {
			if strings.HasPrefix(e.line, "func ") || strings.HasPrefix(e.line, "type ") {
				in = " " + strings.TrimSuffix(e.line, " {")
			}
			continue
		}
		if i > 0 && !near[i-1] {
			fmt.Fprintf(&b, "@@%s\n", in)
		}
		if strings.HasPrefix(e.line, "func ") || strings.HasPrefix(e.line, "type ") {
			in = " " + strings.TrimSuffix(e.line, " {")
		}
		fmt.Fprintf(&b, "%c%s\n", e.kind, e.line)
	}
	return b.String()
}
