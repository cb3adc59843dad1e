package grade

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Rules say what a part's files may contain.
type Rules struct {
	Imports    []string // the packages that may be imported, by path
	Goroutines bool     // whether a go statement is allowed
}

// Inspect looks at the sources of a submission, by name, before anything of them
// is compiled. It returns a sentence for the first thing that is not allowed, in
// the order of the names and then of the lines; "" if there is none. A file that
// is no Go is left to the compiler, whose words are better.
//
// What it refuses is what could reach out of the package: the operating system,
// the network, memory by address, or the time before the first check runs. A
// part of the course is an algorithm; it needs none of these.
func Inspect(files map[string][]byte, rules Rules) string {
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, files[name], parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			continue
		}
		i := inspector{fset: fset, rules: rules}
		i.file(file)
		if i.found != "" {
			return i.found
		}
	}
	return ""
}

// inspector looks at one file and keeps the first finding, by line.
type inspector struct {
	fset  *token.FileSet
	rules Rules
	found string
	line  int
}

func (i *inspector) refuse(at token.Pos, format string, args ...any) {
	p := i.fset.PositionFor(at, false) // the real place, whatever a //line comment says
	if i.found == "" || p.Line < i.line {
		i.line = p.Line
		i.found = fmt.Sprintf("%s:%d: ", p.Filename, p.Line) + fmt.Sprintf(format, args...)
	}
}

func (i *inspector) file(f *ast.File) {
	for _, spec := range f.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		switch {
		case err != nil:
		case imported == "C":
			i.refuse(spec.Pos(), "cgo is not allowed")
		case imported == "unsafe":
			i.refuse(spec.Pos(), "unsafe is not allowed")
		case !slices.Contains(i.rules.Imports, imported):
			i.refuse(spec.Pos(), "%s may not be imported here; allowed are %s", imported, strings.Join(i.rules.Imports, ", "))
		case spec.Name != nil && spec.Name.Name == ".":
			i.refuse(spec.Pos(), "an import with a dot hides where a name comes from")
		}
	}
	for _, group := range f.Comments {
		for _, c := range group.List {
			i.comment(c)
		}
	}
	for _, decl := range f.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		switch {
		case !ok:
		case fn.Recv == nil && fn.Name.Name == "init":
			i.refuse(fn.Pos(), "init functions are not allowed: they would run before the first check")
		case fn.Recv == nil && fn.Name.Name == "main":
			i.refuse(fn.Pos(), "a part has no main function")
		case fn.Body == nil:
			i.refuse(fn.Pos(), "%s has no body: it could only come from outside of Go", fn.Name.Name)
		}
	}
	for _, decl := range f.Decls {
		if g, ok := decl.(*ast.GenDecl); ok && g.Tok == token.VAR {
			ast.Inspect(g, i.initialValue)
		}
	}
	if !i.rules.Goroutines {
		ast.Inspect(f, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				i.refuse(g.Pos(), "go statements are not allowed: this part is called by one goroutine and starts none")
			}
			return true
		})
	}
}

// comment refuses the comments that the compiler obeys. All that begin like
// one, because there are new ones now and then. A //line comment must not move a
// place in our own messages, and // +build is how build tags used to be written.
func (i *inspector) comment(c *ast.Comment) {
	text := c.Text
	switch {
	case strings.HasPrefix(text, "//go:"), strings.HasPrefix(text, "//export "), strings.HasPrefix(text, "//extern "):
		i.refuse(c.Pos(), "%s is not allowed: the files are compiled as they stand", strings.Fields(text)[0])
	case strings.HasPrefix(text, "//line "), strings.HasPrefix(text, "/*line "):
		i.refuse(c.Pos(), "line directives are not allowed")
	case strings.HasPrefix(strings.TrimSpace(strings.TrimPrefix(text, "//")), "+build "):
		i.refuse(c.Pos(), "build tags are not allowed: the files are compiled as they stand")
	}
}

// initialValue refuses a function literal in the initial value of a variable of
// the package: it may be called before the first check, like init.
func (i *inspector) initialValue(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncLit:
		i.refuse(n.Pos(), "a variable of the package may not begin with a function literal: like init, it could run before the first check")
		return false
	}
	return true
}

// stops reports whether a file's name would keep it out of some builds, as in
// raft_windows.go, or make it a test.
func stops(name string) bool {
	base := strings.TrimSuffix(path.Base(name), ".go")
	return strings.HasSuffix(base, "_test") || strings.HasPrefix(base, "_") || strings.HasPrefix(base, ".")
}
