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
// A mark behind a bar is put at the end of the first line that has its text. The
// mark "narrow" makes the code fit into half a page: without comments and assertions,
// and with long lines wrapped.
func fillInCode(root, text, page string) (string, error) {
	var err error
	filled := quotePlace.ReplaceAllStringFunc(text, func(old string) string {
		m := quotePlace.FindStringSubmatch(old)
		code, e := declaration(root, m[1], m[2])
		marks, isNarrow := strings.CutPrefix(m[3], " | narrow")
		if isNarrow {
			code = plain(code)
		}
		if e == nil {
			code, e = mark(code, marks)
		}
		if isNarrow {
			code = wrapped(code)
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

// plain leaves out comments and assertions. In the code that is quoted no string
// has two slashes.
func plain(code string) string {
	var kept []string
	for line := range strings.Lines(code) {
		text, _, found := strings.Cut(strings.TrimRight(line, "\n"), "//")
		if found && strings.TrimSpace(text) == "" || strings.Contains(text, "cm.assertf(") {
			continue
		}
		kept = append(kept, strings.TrimRight(text, " "))
	}
	return strings.Join(kept, "\n")
}

// wrapped breaks long lines behind an operator, a comma or a parenthesis, and
// indents by two blanks where the source has a tab.
func wrapped(code string) string {
	const wide = 50
	var lines []string
	for line := range strings.Lines(code) {
		line = strings.TrimRight(line, "\n")
		text := strings.TrimLeft(line, "\t")
		indent := strings.Repeat("  ", len(line)-len(text))
		for further := ""; ; further = "    " {
			at := breakAt(text, wide-len(indent+further))
			lines = append(lines, indent+further+strings.TrimRight(text[:at], " "))
			if text = text[at:]; text == "" {
				break
			}
		}
	}
	return strings.Join(lines, "\n")
}

// breakAt says where to break a text that should not be longer than room.
func breakAt(text string, room int) int {
	if len([]rune(text)) <= room {
		return len(text)
	}
	for _, ends := range [][]string{{" && ", " || "}, {", ", "("}} {
		at := 0
		for _, end := range ends {
			if i := strings.LastIndex(text[:room], end); i > 0 {
				at = max(at, i+len(end))
			}
		}
		if at > 0 {
			return at
		}
	}
	if i := strings.Index(text, " // "); i > 0 {
		return i + 1
	}
	return len(text)
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
