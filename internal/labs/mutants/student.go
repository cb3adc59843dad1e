package mutants

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"raftkv/internal/labs/grade"
	"raftkv/internal/scenario"
)

// testImports are what a student's tests may use. Nothing in them reads a clock
// or draws without a seed: a test must say the same each time.
var testImports = []string{
	"cmp", "errors", "fmt", "maps", "math", "slices", "sort", "strconv", "strings", "testing", "time",
	"github.com/stretchr/testify/assert", "github.com/stretchr/testify/require",
	"raftkv/rafttest",
}

// A student's module has a small stand-in for testify, so that it needs nothing
// from the network. Here its tests get the real one.
const (
	shippedRequire = `"raftkv/internal/require"`
	testify        = `"github.com/stretchr/testify/require"`
)

// student is what somebody has handed in.
type student struct {
	files   map[string][]byte // test files, by name
	stories map[string]string // scenarios, by name
	tests   []string          // the names of all tests, the stories' among them
}

// storyTest is the name of the test that we write around the stories.
const storyTest = "TestStudentStory"

// read takes the tests (*_test.go) and the scenarios (*.txt) of a folder, and of
// a folder scenarios in it. Files with the names of the part's own tests are
// ours and are left out.
func read(dir string, p part) (student, error) {
	s := student{files: map[string][]byte{}, stories: map[string]string{}}
	for _, pattern := range []string{"*_test.go", "*.txt", "scenarios/*.txt"} {
		paths, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern)))
		if err != nil {
			return student{}, err
		}
		for _, path := range paths {
			name := filepath.Base(path)
			if slices.Contains(p.ownTests, name) {
				continue
			}
			info, err := os.Lstat(path)
			if err != nil {
				return student{}, err
			}
			if !info.Mode().IsRegular() || info.Size() > 256<<10 {
				return student{}, fmt.Errorf("%s is no file of at most 256 kB", name)
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return student{}, err
			}
			if story, ok := strings.CutSuffix(name, ".txt"); ok {
				s.stories[strings.Join(strings.Fields(story), "_")] = string(text)
			} else {
				s.files[name] = bytes.ReplaceAll(text, []byte(shippedRequire), []byte(testify))
			}
		}
	}
	if why := grade.Inspect(s.files, grade.Rules{Imports: append(testImports, p.imports...)}); why != "" {
		return student{}, errors.New(why)
	}
	if err := s.findTests(); err != nil {
		return student{}, err
	}
	if len(s.stories) > 0 && p.adapter == "" {
		return student{}, errors.New("scenarios are about a core, and this part is a service: write tests")
	}
	for name, text := range s.stories {
		if _, err := scenario.Parse(name+".txt", text); err != nil {
			return student{}, err
		}
		s.tests = append(s.tests, storyTest+"/"+name)
	}
	slices.Sort(s.tests)
	if len(s.tests) == 0 {
		return student{}, fmt.Errorf("%s has no tests of its own: files *_test.go with functions TestX, or scenarios *.txt", dir)
	}
	return s, nil
}

func (s *student) findTests() error {
	for name, text := range s.files {
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") && fn.Name.Name != "TestMain" {
				s.tests = append(s.tests, fn.Name.Name)
			}
		}
	}
	return nil
}

// storyFile is a test file that tells the stories to the part's core.
func (s student) storyFile(p part) string {
	var b strings.Builder
	fmt.Fprintf(&b, `package %s

import (
	"testing"

	"raftkv/internal/scenario"
)

func %s(t *testing.T) {
	for name, text := range studentStories {
		t.Run(name, func(t *testing.T) {
			story, err := scenario.Parse(name+".txt", text)
			if err == nil {
				err = story.Play(newNode, %v)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

var studentStories = map[string]string{
`, p.pkg, storyTest, p.volatile)
	for _, name := range slices.Sorted(maps.Keys(s.stories)) {
		fmt.Fprintf(&b, "\t%s: %s,\n", strconv.Quote(name), strconv.Quote(s.stories[name]))
	}
	b.WriteString("}\n")
	return b.String()
}
