package tidy

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

var (
	link    = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]+)\)`)
	quote   = regexp.MustCompile(`[\w.-]+(?:/[\w.-]+)+\.go#[\w.]*\w`)
	pageRef = regexp.MustCompile(`\bdocs/[\w/-]+\.md\b`)
)

// checkLinks follows every link of every page, and looks up every page of docs/
// that any text names. Addresses elsewhere are not asked.
func (t *tree) checkLinks() {
	for _, f := range t.texts {
		fenced := false
		for n, line := range f.lines {
			fenced = fenced != strings.HasPrefix(strings.TrimSpace(line), "```")
			if f.isPage() && !fenced {
				for _, m := range link.FindAllStringSubmatch(line, -1) {
					if why := t.followLink(f, m[1]); why != "" {
						t.reportLine(f.path, n+1, "links", "%s: %s", m[1], why)
					}
				}
			}
			for _, name := range pageRef.FindAllString(withoutLinks(f, line), -1) {
				if !t.exists(name) {
					t.reportLine(f.path, n+1, "links", "%s does not exist", name)
				}
			}
		}
	}
}

// withoutLinks takes the links out of a line of a page: followLink looks at those.
func withoutLinks(f *textFile, line string) string {
	if !f.isPage() {
		return line
	}
	return link.ReplaceAllString(line, "")
}

// followLink says what is wrong with a link; "" if it leads somewhere.
func (t *tree) followLink(from *textFile, target string) string {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return ""
	}
	name, fragment, _ := strings.Cut(target, "#")
	page := from
	if name != "" {
		name = path.Join(path.Dir(from.path), name)
		if !t.exists(name) {
			return "there is no such file"
		}
		if fragment != "" && strings.HasSuffix(name, ".go") {
			return t.lookUp(name + "#" + fragment)
		}
		page = t.text(name)
	}
	if fragment != "" && (page == nil || !hasHeading(page, fragment)) {
		return "there is no such heading"
	}
	return ""
}

func (t *tree) exists(name string) bool {
	_, err := os.Stat(filepath.Join(t.root, filepath.FromSlash(name)))
	return err == nil
}

func (t *tree) text(name string) *textFile {
	for _, f := range t.texts {
		if f.path == name {
			return f
		}
	}
	return nil
}

// hasHeading reports whether a page has a heading with the given anchor, made
// as GitHub makes it: small letters, blanks to hyphens, punctuation dropped.
func hasHeading(page *textFile, anchor string) bool {
	fenced := false
	for _, line := range page.lines {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if fenced || !strings.HasPrefix(line, "#") {
			continue
		}
		made := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(strings.TrimLeft(line, "#")))
		if made == anchor {
			return true
		}
	}
	return false
}

// checkQuotes looks up every symbol that a page or a comment quotes, such as
// raft/election.go#startElection.
func (t *tree) checkQuotes() {
	for _, f := range t.texts {
		for n, line := range f.lines {
			for _, quoted := range quote.FindAllString(withoutLinks(f, line), -1) {
				if why := t.lookUp(quoted); why != "" {
					t.reportLine(f.path, n+1, "quotes", "%s: %s", quoted, why)
				}
			}
		}
	}
}

// lookUp says what is wrong with a quote file.go#symbol; "" if the file declares
// the symbol. A symbol is a name declared in the file, methods included, or
// Type.Name for a method or field of one of its types.
func (t *tree) lookUp(quoted string) string {
	name, symbol, _ := strings.Cut(quoted, "#")
	for _, f := range t.files {
		if f.path != name {
			continue
		}
		if declares(f.ast, symbol) {
			return ""
		}
		return "the file does not declare that"
	}
	return "there is no such Go file"
}

func declares(file *ast.File, symbol string) bool {
	typeName, member, qualified := strings.Cut(symbol, ".")
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			switch {
			case !qualified && decl.Name.Name == symbol:
				return true
			case qualified && decl.Name.Name == member && receiverName(decl) == typeName:
				return true
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, id := range spec.Names {
						if id.Name == symbol {
							return true
						}
					}
				case *ast.TypeSpec:
					if spec.Name.Name == symbol || qualified && spec.Name.Name == typeName && hasMember(spec.Type, member) {
						return true
					}
				}
			}
		}
	}
	return false
}

func receiverName(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	typ := fn.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if generic, ok := typ.(*ast.IndexExpr); ok {
		typ = generic.X
	}
	id, ok := typ.(*ast.Ident)
	if !ok {
		return ""
	}
	return id.Name
}

// hasMember reports whether a struct has a field or an interface a method of that name.
func hasMember(typ ast.Expr, name string) bool {
	var list *ast.FieldList
	switch typ := typ.(type) {
	case *ast.StructType:
		list = typ.Fields
	case *ast.InterfaceType:
		list = typ.Methods
	default:
		return false
	}
	for _, field := range list.List {
		for _, id := range field.Names {
			if id.Name == name {
				return true
			}
		}
	}
	return false
}
