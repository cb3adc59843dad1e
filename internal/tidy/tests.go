package tidy

import (
	"go/ast"
	"go/build"
	"go/doc"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// excused lists the tests that may break a rule of checkTests, by file and
// rule, each with its reason. A test that sleeps lacks an event, and a test
// that skips itself is green without having looked; so far none has to.
var excused = map[string]string{}

// checkTests looks for tests that wait for a clock or that leave themselves out.
func (t *tree) checkTests() {
	for _, f := range t.files {
		if !f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			selector, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			switch selector.Sel.Name {
			case "Skip", "Skipf", "SkipNow":
				t.reportTest(f, call, "skips", "a test that skips itself is green without having looked")
			case "Sleep":
				if pkg, ok := selector.X.(*ast.Ident); ok && pkg.Name == "time" {
					t.reportTest(f, call, "sleeps", "a test that sleeps is slow on a fast machine and wrong on a slow one: wait for an event")
				}
			}
			return true
		})
		if match, err := build.Default.MatchFile(filepath.Join(t.root, f.dir), filepath.Base(f.path)); err == nil && !match {
			t.reportTest(f, f.ast.Name, "unbuilt", "this file's name or build constraint leaves its tests out here")
		}
	}
}

func (t *tree) reportTest(f *goFile, n ast.Node, rule, text string) {
	if _, ok := excused[f.path+" "+rule]; !ok {
		t.report(n.Pos(), rule, "%s", text)
	}
}

// A Test is a test function: a test, a fuzz target (which go test runs on its
// seeds) or an example whose output is compared.
type Test struct {
	Package string // import path
	Name    string
	File    string // relative to the root, with slashes
}

// DeclaredTests returns every test function in the repository at root, in
// order of file and line, whether or not go test would build its file.
func DeclaredTests(root string) ([]Test, error) {
	t, err := readTree(root)
	if err != nil {
		return nil, err
	}
	var tests []Test
	for _, f := range t.files {
		if !f.test {
			continue
		}
		add := func(name string) {
			tests = append(tests, Test{strings.TrimSuffix(t.module+"/"+f.dir, "/."), name, f.path})
		}
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if ok && fn.Recv == nil && (isTestName(fn.Name.Name, "Test") && fn.Name.Name != "TestMain" || isTestName(fn.Name.Name, "Fuzz")) {
				add(fn.Name.Name)
			}
		}
		for _, example := range doc.Examples(f.ast) {
			if example.Output != "" || example.EmptyOutput {
				add(strings.TrimSuffix("Example"+example.Name, "_"))
			}
		}
	}
	return tests, nil
}

// isTestName reports whether go test would take name for one of its functions:
// the prefix, and then nothing or something that is not a small letter.
func isTestName(name, prefix string) bool {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return false
	}
	first, _ := utf8.DecodeRuneInString(rest)
	return rest == "" || !unicode.IsLower(first)
}
