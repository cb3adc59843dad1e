package tidy

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// The pages that must agree with the code.
const (
	dependenciesPage = "docs/dependencies.md"
	divergencesPage  = "docs/divergences.md"
	namesPage        = "docs/names.md"
)

var (
	divergence = regexp.MustCompile(`\bD-[0-9]+\b`)
	codeSpan   = regexp.MustCompile("`([^`]+)`")
)

// row is a line of a page's table.
type row struct {
	line  int
	cells []string
}

// rows returns the lines of all tables of a page, without their heads; none if
// there is no such page.
func (t *tree) rows(name string) []row {
	page := t.text(name)
	if page == nil {
		t.reportLine(name, 1, "ledgers", "the page is missing")
		return nil
	}
	var rows []row
	for n, line := range page.lines {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if strings.Trim(cells[0], "-: ") == "" {
			rows = rows[:len(rows)-1] // the line under a head: what came before is one
			continue
		}
		rows = append(rows, row{n + 1, cells})
	}
	return rows
}

// checkDependencies compares go.mod with docs/dependencies.md: every module
// that our own code imports has a row there, and every row such a module.
func (t *tree) checkDependencies() {
	used := t.usedModules()
	explained := map[string]bool{}
	for _, r := range t.rows(dependenciesPage) {
		name := strings.Trim(r.cells[0], "`")
		explained[name] = true
		if !used[name] {
			t.reportLine(dependenciesPage, r.line, "dependencies", "nothing imports %s", name)
		}
	}
	for _, r := range t.require {
		switch {
		case used[r.module] == r.indirect:
			t.reportLine(t.mod.path, r.line, "dependencies", "%s: the // indirect is wrong: run go mod tidy", r.module)
		case used[r.module] && !explained[r.module]:
			t.reportLine(t.mod.path, r.line, "dependencies", "%s has no row in %s: what for, and why not our own code", r.module, dependenciesPage)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if !slices.ContainsFunc(t.require, func(r requirement) bool { return r.module == name }) {
			t.reportLine(t.mod.path, 1, "dependencies", "%s is imported but not required", name)
		}
	}
}

// checkDivergences compares the labels D-n in the code with the rows of
// docs/divergences.md, both ways.
func (t *tree) checkDivergences() {
	explained := map[string]int{}
	for _, r := range t.rows(divergencesPage) {
		explained[r.cells[0]] = r.line
	}
	seen := map[string]bool{}
	for _, f := range t.files {
		for _, group := range f.ast.Comments {
			for _, comment := range group.List {
				for _, label := range divergence.FindAllString(comment.Text, -1) {
					seen[label] = true
					if explained[label] == 0 {
						t.report(comment.Pos(), "divergences", "%s has no row in %s", label, divergencesPage)
					}
				}
			}
		}
	}
	for _, label := range slices.Sorted(maps.Keys(explained)) {
		if divergence.MatchString(label) && !seen[label] {
			t.reportLine(divergencesPage, explained[label], "divergences", "no comment in the code says %s", label)
		}
	}
}

// checkNames resolves the second column of docs/names.md, where readers of the
// posts are sent: each thing in backquotes there is a file, a folder or a
// symbol of a Go file. A row without one says "gone" and why.
func (t *tree) checkNames() {
	for _, r := range t.rows(namesPage) {
		if len(r.cells) < 2 {
			t.reportLine(namesPage, r.line, "names", "the row has no second cell")
			continue
		}
		spans := codeSpan.FindAllStringSubmatch(r.cells[1], -1)
		if len(spans) == 0 && !strings.HasPrefix(r.cells[1], "gone") {
			t.reportLine(namesPage, r.line, "names", "the second cell leads nowhere; name a file, or say \"gone\"")
		}
		for _, m := range spans {
			if quote.MatchString(m[1]) {
				continue // checkQuotes looks it up
			}
			if !t.exists(m[1]) {
				t.reportLine(namesPage, r.line, "names", "%s does not exist", m[1])
			}
		}
	}
}
