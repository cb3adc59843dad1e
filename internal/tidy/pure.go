package tidy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// checkPure looks for what would let one sequence of events give two runs:
// goroutines, channels, and the order in which a map is walked. The clock, the
// disk and chance are shut out by the import table already. Whether something is
// a map only its type tells, so the pure rooms are type-checked.
func (t *tree) checkPure() error {
	var dirs []string
	for _, r := range rooms {
		if r.std == pure && slices.ContainsFunc(t.files, func(f *goFile) bool { return f.dir == r.dir && !f.test }) {
			dirs = append(dirs, r.dir)
		}
	}
	if len(dirs) == 0 {
		return nil
	}
	imports, err := t.compiledImports(dirs)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		var files []*ast.File
		for _, f := range t.files {
			if f.dir == dir && !f.test {
				files = append(files, f.ast)
			}
		}
		info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
		config := types.Config{Importer: imports}
		if _, err := config.Check(t.module+"/"+dir, t.fset, files, info); err != nil {
			return err
		}
		for _, f := range files {
			t.checkPureFile(f, info)
		}
	}
	return nil
}

// compiledImports returns an importer for all that the given folders import. It
// reads what the compiler has written about those packages into its cache.
func (t *tree) compiledImports(dirs []string) (types.Importer, error) {
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Export"}
	for _, dir := range dirs {
		args = append(args, "./"+dir)
	}
	list := exec.Command("go", args...)
	list.Dir = t.root
	out, err := list.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, exit.Stderr)
		}
		return nil, err
	}
	exports := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		if err := decoder.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
	}
	return importer.ForCompiler(t.fset, "gc", func(imported string) (io.ReadCloser, error) {
		return os.Open(exports[imported])
	}), nil
}

func (t *tree) checkPureFile(file *ast.File, info *types.Info) {
	// A call such as slices.Sorted(maps.Keys(m)) puts the map's keys in order
	// before anyone sees them. These calls of package maps are therefore fine.
	ordered := map[ast.Expr]bool{}

	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			t.report(n.Pos(), "pure", "a goroutine")
		case *ast.SelectStmt:
			t.report(n.Pos(), "pure", "a select")
		case *ast.ChanType:
			t.report(n.Pos(), "pure", "a channel")
		case *ast.SendStmt:
			t.report(n.Pos(), "pure", "a send on a channel")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				t.report(n.Pos(), "pure", "a receive from a channel")
			}
		case *ast.RangeStmt:
			if typ := info.TypeOf(n.X); typ != nil && isMap(typ) {
				t.report(n.Pos(), "pure", "ranges over a map, whose order differs from run to run: range over slices.Sorted(maps.Keys(m))")
			}
		case *ast.CallExpr:
			switch called := calledFunc(n, info); {
			case strings.HasPrefix(called, "slices.Sorted"):
				for _, arg := range n.Args {
					ordered[ast.Unparen(arg)] = true
				}
			case called == "maps.Keys" || called == "maps.Values" || called == "maps.All":
				if !ordered[n] {
					t.report(n.Pos(), "pure", "%s gives a map's order, which differs from run to run: wrap it in slices.Sorted", called)
				}
			}
		}
		return true
	})
}

func isMap(typ types.Type) bool {
	_, ok := typ.Underlying().(*types.Map)
	return ok
}

// calledFunc returns "package.Name" of a function of another package that is
// called; "" for any other call.
func calledFunc(call *ast.CallExpr, info *types.Info) string {
	selector, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	fn, ok := info.Uses[selector.Sel].(*types.Func)
	if !ok || fn.Pkg() == nil || fn.Signature().Recv() != nil {
		return ""
	}
	return fn.Pkg().Path() + "." + fn.Name()
}

// worldFree lists what a room in virtual time may use of packages that are half
// a way into the world, half names and arithmetic.
var worldFree = map[string][]string{
	"time": {
		"Duration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour",
		"Time", "Unix", "UnixMilli", "ParseDuration",
	},
	"math/rand/v2":  {"New", "NewPCG", "Rand", "PCG", "Source"},
	"runtime/debug": {"Stack"},
	"syscall":       {"Errno", "EIO", "ENOSPC"},
}

// checkClock lets the rooms in virtual time compute with durations and draw
// from seeded generators, but neither read the clock nor draw from the global one.
func (t *tree) checkClock() {
	for _, f := range t.files {
		if r, found := roomOf(f.dir); f.test || !found || r.std != virtual {
			continue
		}
		allowed := map[string][]string{}
		for _, spec := range f.ast.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			if names, ok := worldFree[imported]; ok {
				allowed[localName(spec, imported)] = names
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := selector.X.(*ast.Ident)
			if !ok {
				return true
			}
			if names, known := allowed[pkg.Name]; known && !slices.Contains(names, selector.Sel.Name) {
				t.report(n.Pos(), "clock", "%s.%s reaches out of virtual time", pkg.Name, selector.Sel.Name)
			}
			return true
		})
	}
}

// localName is how a file calls a package that it imports.
func localName(spec *ast.ImportSpec, imported string) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	if rest, versioned := strings.CutSuffix(imported, "/v2"); versioned {
		imported = rest
	}
	return imported[strings.LastIndexByte(imported, '/')+1:]
}
