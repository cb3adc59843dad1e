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
	i.initialValues(f)
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

// initialValues refuses what would run before the first check, as init would: a
// call in the initial value of a variable of the package, unless it calls an
// imported package and hands over nothing that could call back.
func (i *inspector) initialValues(f *ast.File) {
	imported := map[string]bool{}
	for _, spec := range f.Imports {
		name, _ := strconv.Unquote(spec.Path.Value)
		name = path.Base(name)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imported[name] = true
	}
	for _, decl := range f.Decls {
		g, ok := decl.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR {
			continue
		}
		for _, spec := range g.Specs {
			for _, value := range spec.(*ast.ValueSpec).Values {
				if at := ownCode(value, imported); at.IsValid() && calls(value) {
					i.refuse(at, "the initial value of a variable of the package may not run code of yours: like init, it would run before the first check")
				}
			}
		}
	}
}

// calls reports whether an expression calls anything when it is evaluated.
func calls(e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		_, call := n.(*ast.CallExpr)
		found = found || call
		_, literal := n.(*ast.FuncLit)
		return !literal // its body is not run by writing it down
	})
	return found
}

// harmless are the names that a call in an initial value may use: they run
// nothing of the student's.
var harmless = []string{
	"make", "new", "len", "cap", "append", "min", "max", "nil", "true", "false", "string", "byte", "rune", "bool", "any", "error",
	"int", "int8", "int16", "int32", "int64", "uint", "uint8", "uint16", "uint32", "uint64", "float64",
}

// ownCode returns where an expression names something that could be code of the
// student's: a literal of a function, a method, or any name that is not harmless.
func ownCode(e ast.Expr, imported map[string]bool) token.Pos {
	var at token.Pos
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			at = n.Pos()
			return false
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && imported[x.Name] {
				return false
			}
		case *ast.Ident:
			if !slices.Contains(harmless, n.Name) {
				at = n.Pos()
			}
		}
		return true
	})
	return at
}
