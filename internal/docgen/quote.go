package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var quotePlace = regexp.MustCompile(`(?s)<!-- code (\S+\.go)#(\S+)(( \| [^\n]+?)*) -->\n.*?<!-- end -->`)

// fillInCode returns the text of a page with the code that it quotes as it is now:
//
//	<!-- code part1-election/election.go#startElection | (i) restartTimer -->
//	<!-- end -->
//
// A mark behind a bar is put at the end of the first line that has its text.
func fillInCode(root, text, page string) (string, error) {
	var err error
	filled := quotePlace.ReplaceAllStringFunc(text, func(old string) string {
		m := quotePlace.FindStringSubmatch(old)
		code, e := declaration(root, m[1], m[2])
		if e == nil {
			code, e = mark(code, m[3])
		}
		if e != nil {
			err = fmt.Errorf("%s: %s#%s: %w", page, m[1], m[2], e)
			return old
		}
		first, _, _ := strings.Cut(old, "\n")
		return first + "\n\n```go\n" + code + "\n```\n\n<!-- end -->"
	})
	return filled, err
}

// mark puts marks such as "(i)" at the ends of lines.
func mark(code, marks string) (string, error) {
	lines := strings.Split(code, "\n")
next:
	for _, m := range strings.Split(marks, " | ")[1:] {
		sign, text, _ := strings.Cut(m, " ")
		for i, line := range lines {
			if strings.Contains(line, text) {
				if !strings.Contains(line, "//") {
					line += " //"
				}
				lines[i] = line + " ◀ " + sign
				continue next
			}
		}
		return "", fmt.Errorf("no line has %q", text)
	}
	return strings.Join(lines, "\n"), nil
}

// declaration returns the source of a function, method or type, with its comment.
func declaration(root, file, symbol string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		return "", err
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, text, parser.ParseComments)
	if err != nil {
		return "", err
	}
	for _, decl := range parsed.Decls {
		from, to := decl.Pos(), decl.End()
		var doc *ast.CommentGroup
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Name.Name != symbol {
				continue
			}
			doc = d.Doc
		case *ast.GenDecl:
			spec, ok := d.Specs[0].(*ast.TypeSpec)
			if !ok || spec.Name.Name != symbol {
				continue
			}
			doc = d.Doc
		}
		if doc != nil {
			from = doc.Pos()
		}
		return string(text[set.Position(from).Offset:set.Position(to).Offset]), nil
	}
	return "", fmt.Errorf("the file does not declare that")
}
