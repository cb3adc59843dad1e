package labs

import (
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// hollow returns a Go file in which the bodies of the named functions are a panic
// that says what to write, and the lines that stood in them. rules has the names.
func hollow(name string, source []byte, rules map[string]string) (holes []byte, solution []string, found []string, err error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, source, parser.ParseComments)
	if err != nil {
		return nil, nil, nil, err
	}
	text := string(source)
	for _, decl := range slices.Backward(file.Decls) { // from the end, so that offsets stay right
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		rule, wanted := rules[f.Name.Name]
		key := f.Name.Name
		if r := receiver(f); !wanted && r != "" {
			key = r + "." + f.Name.Name
			rule, wanted = rules[key]
		}
		if !wanted {
			continue
		}
		found = append(found, key)
		if rule == "" {
			rule = ruleOf(f)
		}
		from, to := fset.Position(f.Body.Lbrace).Offset, fset.Position(f.Body.Rbrace).Offset
		for line := range strings.SplitSeq(text[from+1:to], "\n") {
			if line = strings.TrimSpace(line); line != "" {
				solution = append(solution, line)
			}
		}
		text = text[:from] + "{\n\tpanic(" + strconv.Quote("write me: "+rule) + ")\n" + text[to:]
	}
	holes, err = withoutUnusedImports(name, text)
	return holes, solution, found, err
}

// receiver returns the name of a method's type.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	t := f.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// ruleOf says what to write where cut.txt does not: the first sentence of the
// function's comment.
func ruleOf(f *ast.FuncDecl) string {
	words := strings.Join(strings.Fields(f.Doc.Text()), " ")
	if sentence, _, ok := strings.Cut(words, ". "); ok {
		words = sentence
	}
	if words == "" {
		words = f.Name.Name
	}
	return strings.TrimSuffix(words, ".")
}

// withoutUnusedImports takes out what nothing in the file uses any more, and formats.
func withoutUnusedImports(name, text string) ([]byte, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := s.X.(*ast.Ident); ok {
				used[id.Name] = true
			}
		}
		return true
	})
	lines := strings.Split(text, "\n")
	gone := map[int]bool{}
	kept := 0
	for _, spec := range file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		local := path.Base(imported)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		if local == "v2" {
			local = path.Base(path.Dir(imported))
		}
		if used[local] || local == "_" || local == "." {
			kept++
			continue
		}
		gone[fset.Position(spec.Pos()).Line-1] = true
	}
	var out []string
	for i, line := range lines {
		if !gone[i] {
			out = append(out, line)
		}
	}
	text = strings.Join(out, "\n")
	if kept == 0 && len(file.Imports) > 0 {
		text = emptyImport.ReplaceAllString(text, "")
	}
	return format.Source([]byte(text))
}

var emptyImport = regexp.MustCompile(`import \(\s*\)\n+`)

// inspect returns what a student's file may not contain, a sentence each.
func (l Lab) inspect(name string, source []byte) (refused []string) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, source, parser.ParseComments)
	if err != nil {
		return nil // the compiler says it better
	}
	say := func(at token.Pos, format string, args ...any) {
		refused = append(refused, fmt.Sprintf("%s:%d: ", name, fset.Position(at).Line)+fmt.Sprintf(format, args...))
	}
	for _, spec := range file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		if !slices.Contains(l.Allowed, imported) {
			say(spec.Pos(), "imports %s; this part may import %s", imported, strings.Join(l.Allowed, ", "))
		}
	}
	for _, group := range file.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "//go:") || strings.HasPrefix(c.Text, "// +build") {
				say(c.Pos(), "%s: no orders to the compiler here", c.Text)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil && n.Name.Name == "init" {
				say(n.Pos(), "an init function runs before the checks; write what it does where it is needed")
			}
		case *ast.GoStmt:
			if !l.Goroutines {
				say(n.Pos(), "starts a goroutine; in virtual time nothing happens but by an event")
			}
		}
		return true
	})
	return refused
}
