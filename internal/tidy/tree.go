package tidy

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A Finding is one place where a rule is broken.
type Finding struct {
	File string // relative to the root, with slashes
	Line int    // from 1
	Rule string // the rule's short name, as in testdata/planted
	Text string // what is wrong and, where it is not obvious, what to do
}

func (f Finding) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.Rule, f.Text)
}

// Check applies every rule to the repository at root, the folder with go.mod,
// and returns what it found in the order of files and lines. The error reports
// a repository that cannot be read or parsed at all. Check runs the go command
// and takes about a second once the packages are built.
func Check(root string) ([]Finding, error) {
	t, err := readTree(root)
	if err != nil {
		return nil, err
	}
	t.checkImports()
	t.checkDependencies()
	if err := t.checkPure(); err != nil {
		return nil, err
	}
	t.checkClock()
	t.checkTests()
	t.checkLinks()
	t.checkQuotes()
	t.checkNames()
	t.checkDivergences()
	t.checkText()
	slices.SortFunc(t.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Rule, b.Rule))
	})
	return t.findings, nil
}

// tree is the repository, read once.
type tree struct {
	root    string
	module  string
	mod     *textFile // go.mod
	apart   []string  // folders that are modules of their own
	require []requirement

	fset  *token.FileSet
	files []*goFile   // in order of path, without testdata and what is apart
	texts []*textFile // every file made of text, Go files and pages included

	findings []Finding
}

// goFile is one Go file, whatever system it is for.
type goFile struct {
	path string // relative to the root, with slashes
	dir  string // its folder; "." for the root
	test bool
	ast  *ast.File
}

type textFile struct {
	path  string
	lines []string
}

func (f *textFile) isPage() bool { return strings.HasSuffix(f.path, ".md") }

// requirement is one line of go.mod's require block.
type requirement struct {
	module   string
	line     int
	indirect bool
}

// textEndings are the files that the rules for text read. A name without an
// ending is a script or a Makefile.
var textEndings = []string{".go", ".md", ".mod", ".txt", ".json", ".yml", ".yaml", ".html", ".js", ""}

func readTree(root string) (*tree, error) {
	t := &tree{root: root, fset: token.NewFileSet()}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		return t.read(name, filepath.ToSlash(rel), entry)
	})
	if err != nil {
		return nil, err
	}
	for _, f := range t.texts {
		if f.path == "go.mod" {
			t.readMod(f)
		}
	}
	if t.module == "" {
		return nil, fmt.Errorf("%s holds no go.mod with a module line", root)
	}
	return t, nil
}

func (t *tree) read(name, rel string, entry fs.DirEntry) error {
	if entry.IsDir() {
		switch {
		case rel == ".git" || rel == "bin" || rel == "out":
			return fs.SkipDir // not part of the repository
		case rel == "internal/tidy/testdata":
			return fs.SkipDir // broken on purpose
		case strings.HasSuffix(rel, "testdata/fuzz"), strings.HasSuffix(rel, "testdata/rapid"):
			return fs.SkipDir // found by machines, may hold any text
		}
		if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil && rel != "." {
			t.apart = append(t.apart, rel+"/")
		}
		return nil
	}
	if !entry.Type().IsRegular() || !slices.Contains(textEndings, path.Ext(rel)) && rel != ".ci/run" {
		return nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if bytes.IndexByte(data, 0) >= 0 {
		return nil // a binary without an ending
	}
	t.texts = append(t.texts, &textFile{rel, strings.Split(string(data), "\n")})
	if path.Ext(rel) != ".go" || slices.Contains(strings.Split(rel, "/"), "testdata") {
		return nil
	}
	// go build ./... does not see the code of another module; its text is ours.
	if slices.ContainsFunc(t.apart, func(dir string) bool { return strings.HasPrefix(rel, dir) }) {
		return nil
	}
	parsed, err := parser.ParseFile(t.fset, rel, data, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	t.files = append(t.files, &goFile{
		path: rel,
		dir:  path.Dir(rel),
		test: strings.HasSuffix(rel, "_test.go"),
		ast:  parsed,
	})
	return nil
}

// indirect is the go command's mark on what only other modules need.
var indirect = regexp.MustCompile(`// indirect(;|$)`)

// readMod takes from go.mod what the rules need. The format is Go's own; these
// few words of it do not change.
func (t *tree) readMod(f *textFile) {
	t.mod = f
	inRequire := false
	for n, line := range f.lines {
		fields := strings.Fields(line)
		switch {
		case len(fields) >= 2 && fields[0] == "module":
			t.module = fields[1]
		case len(fields) >= 2 && fields[0] == "require" && fields[1] == "(":
			inRequire = true
		case len(fields) > 0 && fields[0] == ")":
			inRequire = false
		case len(fields) >= 3 && fields[0] == "require":
			t.require = append(t.require, requirement{fields[1], n + 1, indirect.MatchString(line)})
		case len(fields) >= 2 && inRequire:
			t.require = append(t.require, requirement{fields[0], n + 1, indirect.MatchString(line)})
		}
	}
}

// report adds a finding at a place in a Go file.
func (t *tree) report(pos token.Pos, rule, format string, args ...any) {
	p := t.fset.Position(pos)
	t.reportLine(p.Filename, p.Line, rule, format, args...)
}

func (t *tree) reportLine(file string, line int, rule, format string, args ...any) {
	t.findings = append(t.findings, Finding{file, line, rule, fmt.Sprintf(format, args...)})
}
