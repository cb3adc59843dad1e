package tidy

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// room says what the Go files of a folder, tests apart, may import.
type room struct {
	dir string // the folder; a trailing "/..." takes in those below

	std standard // what of the standard library
	own []string // other folders of this repository; "..." takes in those below
	lib []string // modules of others
}

// standard is how much of the standard library a room may use.
type standard int

const (
	pure       standard = iota // no clock, socket, lock, goroutine or operating system
	virtual                    // time only as a number: no sockets, no processes
	everything                 // all of it
)

// purePackages neither start, wait for nor ask anything outside the program.
var purePackages = []string{
	"bytes", "cmp", "encoding/binary", "errors", "fmt", "iter", "maps", "math", "math/bits",
	"slices", "sort", "strconv", "strings", "unicode", "unicode/utf8",
}

// The rooms, in the order of the map in README.md. The first row that fits a
// folder counts. What the compiler cannot hold, this table does: the core stays
// pure, storage and transport do not know each other, the tutorial parts stand
// alone, and nothing leans on a command.
var rooms = []room{
	{dir: "api", std: everything, lib: []string{"github.com/go-json-experiment/json"}},

	{dir: "raft", std: pure},
	{dir: "raft/storage", std: everything, own: []string{"raft"}, lib: []string{"github.com/gofrs/flock", "golang.org/x/sys"}},
	{dir: "raft/transport", std: everything, own: []string{"raft"}},
	{dir: "raft/server", std: everything, own: []string{"raft", "raft/storage", "raft/transport"}},

	{dir: "kvservice/machine", std: pure, own: []string{"raft", "api"}, lib: []string{"github.com/tidwall/btree"}},
	{dir: "kvservice/waiters", std: pure, own: []string{"raft", "api", "kvservice/machine"}},
	{dir: "kvservice", std: everything, own: []string{"raft", "raft/server", "api", "kvservice/machine", "kvservice/waiters"}, lib: []string{"github.com/go-json-experiment/json", "github.com/prometheus/client_golang"}},

	{dir: "kvclient/numbering", std: pure, own: []string{"api"}},
	{dir: "kvclient", std: everything, own: []string{"api", "kvclient/numbering"}, lib: []string{"github.com/go-json-experiment/json"}},

	{dir: "internal/core", std: pure, own: []string{"raft"}},
	{dir: "internal/invariant", std: pure, own: []string{"raft", "internal/core"}},
	{dir: "internal/trace", std: virtual, own: []string{"raft", "internal/core"}},
	{dir: "internal/lincheck", std: virtual, own: []string{"api"}, lib: []string{"github.com/anishathalye/porcupine"}},
	{dir: "internal/scenario", std: virtual, own: []string{"raft", "internal/core", "internal/invariant", "internal/trace"}},
	{dir: "internal/simdisk", std: virtual, own: []string{"raft/storage"}},
	{dir: "internal/sim", std: virtual, own: []string{
		"raft", "raft/storage", "kvservice/machine", "kvservice/waiters", "kvclient/numbering", "api",
		"internal/core", "internal/invariant", "internal/trace", "internal/lincheck", "internal/simdisk",
	}, lib: []string{"github.com/anishathalye/porcupine"}},
	{dir: "internal/cores", std: pure, own: []string{
		"rafttest", "part1-election", "part2-commands", "part3-persistence",
		"part4-kvservice/api", "part4-kvservice/kvservice", "part5-dedup/api", "part5-dedup/kvservice",
	}},
	{dir: "internal/shrink", std: virtual, own: []string{"raft", "internal/core", "internal/sim", "internal/scenario", "internal/trace"}},
	{dir: "internal/viewer", std: virtual, own: []string{"raft", "internal/trace"}},
	{dir: "internal/viewer/browsercheck", std: everything, own: []string{"raft", "internal/core", "internal/sim", "internal/shrink", "internal/trace", "internal/viewer"}},
	{dir: "internal/search", std: pure, own: []string{"raft"}},
	{dir: "internal/zoo", std: everything},
	{dir: "internal/zoo/hunt", std: everything, own: []string{"internal/sim"}},
	{dir: "internal/docgen/...", std: everything, own: []string{"raft", "internal/core", "internal/scenario", "internal/trace", "internal/zoo"}},
	{dir: "docs/bothways", std: everything},
	{dir: ".", std: everything}, // sources.go, which carries the sources of the labs
	{dir: "internal/labs/run", std: everything, own: []string{"rafttest"}},
	{dir: "internal/labs/checks/...", std: everything, own: []string{
		"rafttest", "internal/labs/run", "internal/cores", "part1-election", "part2-commands", "part3-persistence",
		"part4-kvservice/api", "part4-kvservice/kvservice", "part5-dedup/api", "part5-dedup/kvservice",
	}},
	{dir: "internal/labs/...", std: everything, own: []string{".", "rafttest", "internal/scenario", "internal/zoo"}},
	{dir: "internal/exercise", std: everything},
	{dir: "internal/load", std: everything, own: []string{"api", "kvclient"}},
	{dir: "internal/prochaos", std: everything, own: []string{"api", "kvclient", "internal/lincheck"}},
	{dir: "internal/tidy/...", std: everything, own: []string{"internal/tidy"}},

	{dir: "part1-election/...", std: everything},
	{dir: "part2-commands/...", std: everything},
	{dir: "part3-persistence/...", std: everything},
	{dir: "part4-kvservice/...", std: everything, own: []string{"part3-persistence"}},
	{dir: "part5-dedup/...", std: everything, own: []string{"part3-persistence"}},

	{dir: "rafttest", std: virtual, own: []string{"internal/lincheck"}},

	{dir: "bench/curves", std: everything, own: []string{"bench/internal/rawhttp"}},
	{dir: "bench/internal/rawhttp", std: everything},

	{dir: "cmd/...", std: everything, own: []string{"api", "rafttest", "raft/...", "kvservice/...", "kvclient/...", "internal/..."}, lib: []string{
		"github.com/spf13/cobra", "github.com/go-json-experiment/json", "github.com/gofrs/flock",
	}},
}

// extraPure are the parts of the standard library that a pure room may use
// beyond purePackages: sums of bytes, which are the same everywhere, and the
// snapshot's way out through a writer that somebody else has opened.
var extraPure = map[string][]string{
	"raft":              {"io"}, // an interface, for bytes that only pass through
	"kvservice/machine": {"bufio", "crypto/sha256", "hash", "hash/fnv", "hash/crc32", "io"},
	"kvservice/waiters": {"crypto/sha256"},
}

// notVirtual are the parts of the standard library that the simulator's world
// may not touch. Packages that it may touch in part, checkClock looks after.
var notVirtual = []string{"crypto/rand", "math/rand", "net", "os/exec", "os/signal", "runtime"}

func (t *tree) checkImports() {
	missing := map[string]bool{}
	for _, f := range t.files {
		if f.test {
			continue // a test may lean on what it likes
		}
		r, found := roomOf(f.dir)
		if !found {
			if !missing[f.dir] {
				missing[f.dir] = true
				t.report(f.ast.Package, "imports", "folder %s has no row in internal/tidy/imports.go: say there what it may import", f.dir)
			}
			continue
		}
		for _, spec := range f.ast.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			if why := t.refuses(r, f.dir, imported); why != "" {
				t.report(spec.Pos(), "imports", "%s may not import %s: %s", f.dir, imported, why)
			}
		}
	}
}

func roomOf(dir string) (room, bool) {
	i := slices.IndexFunc(rooms, func(r room) bool { return covers(r.dir, dir) })
	if i < 0 {
		return room{}, false
	}
	return rooms[i], true
}

// covers reports whether pattern names dir, as in the go command.
func covers(pattern, dir string) bool {
	parent, below := strings.CutSuffix(pattern, "/...")
	return dir == parent || below && strings.HasPrefix(dir, parent+"/")
}

// refuses says why a room may not import a package; "" if it may.
func (t *tree) refuses(r room, dir, imported string) string {
	if own, ok := t.ownFolder(imported); ok {
		switch {
		case slices.ContainsFunc(r.own, func(p string) bool { return covers(p, own) }):
			return ""
		case strings.HasSuffix(r.dir, "/...") && covers(r.dir, own) && !strings.HasPrefix(own, "cmd/"):
			return "" // a room's folders may use each other
		}
		return "it is not among the rooms in its row of internal/tidy/imports.go"
	}
	if isStandard(imported) {
		switch r.std {
		case pure:
			if !slices.Contains(purePackages, imported) && !slices.Contains(extraPure[dir], imported) {
				return "this room is pure, and that package is not in the list of pure ones"
			}
		case virtual:
			_, inPart := worldFree[imported]
			if !inPart && slices.ContainsFunc(notVirtual, func(p string) bool { return covers(p+"/...", imported) }) {
				return "this room lives in virtual time"
			}
		}
		return ""
	}
	if slices.ContainsFunc(r.lib, func(m string) bool { return covers(m+"/...", imported) }) {
		return ""
	}
	return "that module is not in its row of internal/tidy/imports.go"
}

// ownFolder returns the folder of an import path of this module.
func (t *tree) ownFolder(imported string) (string, bool) {
	if imported == t.module {
		return ".", true
	}
	return strings.CutPrefix(imported, t.module+"/")
}

// isStandard reports whether an import path is of the standard library: those
// have no dot in their first element.
func isStandard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// usedModules returns the modules that this repository's code imports itself,
// tests included.
func (t *tree) usedModules() map[string]bool {
	used := map[string]bool{}
	for _, f := range t.files {
		for _, spec := range f.ast.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			if _, own := t.ownFolder(imported); own || isStandard(imported) {
				continue
			}
			used[t.moduleOf(imported)] = true
		}
	}
	return used
}

// moduleOf returns the module of go.mod that holds a package, the longest if
// several could; the path itself if none does.
func (t *tree) moduleOf(imported string) string {
	for p := imported; p != "."; p = path.Dir(p) {
		if slices.ContainsFunc(t.require, func(r requirement) bool { return r.module == p }) {
			return p
		}
	}
	return imported
}
