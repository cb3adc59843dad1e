package mutants

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"raftkv/internal/labs/edits"
	"raftkv/internal/labs/grade"
	"raftkv/internal/zoo"
)

// part is what there is to know of a part of the tutorial.
type part struct {
	dir, pkg string
	imports  []string // what its tests need besides testImports
	adapter  string   // the file that shows its core to internal/scenario; "" for a service
	volatile bool     // nothing survives a crash
	ownTests []string // the names of its own test files
}

var parts = map[string]part{
	"part1": {dir: "part1-election", pkg: "raft", adapter: "adapter_test.go", volatile: true},
	"part2": {dir: "part2-commands", pkg: "raft", adapter: "adapter_test.go", volatile: true},
	"part3": {dir: "part3-persistence", pkg: "raft", adapter: "adapter_test.go"},
	"part4": {dir: "part4-kvservice", pkg: "part4", imports: []string{"raftkv/part3-persistence", "raftkv/part4-kvservice/api"}},
	"part5": {dir: "part5-dedup", pkg: "part5", imports: []string{"raftkv/part3-persistence", "raftkv/part5-dedup/api"}},
}

// adapter is the file that shows every part to rafttest.
const adapter = "adapter_rafttest_test.go"

// unseen are the files of the parts that rafttest does not run: goroutines, the
// clock, HTTP and the real client. Bugs in them are none for a test in virtual time.
var unseen = []string{"/server.go", "/handlers.go", "/api/api.go", "/kvclient/kvclient.go"}

// unseenBugs are in files that rafttest runs, but in the way that a request takes
// through goroutines, which it does not.
var unseenBugs = []string{"lost-leadership-called-failure", "register-after-submit", "waiter-left-behind"}

// seen reports whether a test in virtual time can see a change of a file.
func (p part) seen(file string) bool {
	return strings.HasPrefix(file, p.dir+"/") &&
		!slices.ContainsFunc(unseen, func(end string) bool { return strings.HasSuffix(file, end) })
}

// Options say what to run.
type Options struct {
	Root   string   // of the repository
	Part   string   // "part1" to "part5"
	Dir    string   // of the student's tests
	Bugs   []string // only these, by name; nil for all that apply to the part
	Jobs   int      // how many at the same time; at least 1
	Limits grade.Limits
	Helper []string // see grade.Options

	// Report, if not nil, is called with each target as it is done, one at a time.
	Report func(Target)
}

// Target is something that the tests were run against.
type Target struct {
	Name  string `json:"name"`
	Title string `json:"title"`

	// Failed are the tests that failed, with the first line of why.
	Failed []Failure `json:"failed,omitempty"`

	right   bool // a correct variant, or the solution itself
	letter  bool // true to the letter of Figure 2, on which stories rely: terms are counted one by one
	changed map[string]string
}

// Failure is a test that failed on a target.
type Failure struct {
	Test string `json:"test"`
	Says string `json:"says"`
}

// Result is what became of a student's tests.
type Result struct {
	Part  string   `json:"part"`
	Tests []string `json:"tests"`

	// Killed and Missed are the bugs that the tests found and did not find. What a
	// test says that also fails on correct code counts for nothing.
	Killed []Target `json:"killed"`
	Missed []Target `json:"missed"`

	// Alarms are the correct variants on which tests failed.
	Alarms []Target `json:"false_alarms"`

	Variants int `json:"variants"` // how many correct ones there were, the solution among them
}

// Solution is the name of the target without a change.
const Solution = "solution"

// Targets returns what a part's tests are run against: the solution, its correct
// variants, and then the bugs, of the zoo and of labs/wrong.
func Targets(root, name string) ([]Target, error) {
	p, ok := parts[name]
	if !ok {
		return nil, fmt.Errorf("there is no part %q; there are part1 to part5", name)
	}
	targets := []Target{{Name: Solution, Title: "the part as it is", right: true, letter: true}}
	variants, err := edits.Variants(root, name)
	if err != nil {
		return nil, err
	}
	for _, e := range variants {
		changed, err := e.Apply(root)
		if err != nil {
			return nil, err
		}
		targets = append(targets, Target{Name: e.Name, Title: e.Title, right: true, letter: e.Fields["stories"] == nil, changed: changed})
	}
	bugs, err := zoo.Bugs(root)
	if err != nil {
		return nil, err
	}
	for _, b := range bugs {
		b.Hunks = slices.DeleteFunc(b.Hunks, func(h zoo.Hunk) bool { return !p.seen(h.File) })
		if b.Harmless || len(b.Hunks) == 0 || slices.Contains(unseenBugs, b.Name) {
			continue
		}
		changed, err := b.Apply(root)
		if err != nil {
			return nil, err
		}
		targets = append(targets, Target{Name: b.Name, Title: b.Title, changed: changed})
	}
	if p.adapter != "" {
		return targets, nil
	}
	// Few of the zoo's bugs of services can be seen in virtual time. Here are more.
	wrong, err := edits.Wrong(root, name)
	if err != nil {
		return nil, err
	}
	for _, e := range wrong {
		changed, err := e.Apply(root)
		if err != nil {
			return nil, err
		}
		same := func(t Target) bool { return maps.Equal(t.changed, changed) }
		if !slices.ContainsFunc(targets, same) {
			targets = append(targets, Target{Name: e.Name, Title: e.Title, changed: changed})
		}
	}
	return targets, nil
}

// Run runs a student's tests against everything that Targets returns. It needs
// the sources of the repository and the go command. The error is a sentence for
// the student if the tests cannot be run on the solution at all.
func Run(ctx context.Context, o Options) (Result, error) {
	targets, err := Targets(o.Root, o.Part)
	if err != nil {
		return Result{}, err
	}
	if targets, err = chosen(targets, o.Bugs); err != nil {
		return Result{}, err
	}
	p := parts[o.Part]
	own, err := filepath.Glob(filepath.Join(o.Root, p.dir, "*_test.go"))
	if err != nil {
		return Result{}, err
	}
	for _, path := range own {
		p.ownTests = append(p.ownTests, filepath.Base(path))
	}
	s, err := read(o.Dir, p)
	if err != nil {
		return Result{}, err
	}
	dir, err := os.MkdirTemp("", "raftlab-mutants-")
	if err != nil {
		return Result{}, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	r := runner{o: o, p: p, s: s, dir: dir}
	// The solution first: if the tests do not compile, one message is enough.
	if err := r.run(ctx, &targets[0]); err != nil {
		return Result{}, err
	}
	queue := make(chan *Target)
	var workers sync.WaitGroup
	for range max(1, o.Jobs) {
		workers.Go(func() {
			for t := range queue {
				if err := r.run(ctx, t); err != nil {
					cancel(fmt.Errorf("%s: %w", t.Name, err))
				}
			}
		})
	}
	for i := range targets[1:] {
		select {
		case queue <- &targets[1+i]:
		case <-ctx.Done():
		}
	}
	close(queue)
	workers.Wait()
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	return sum(o.Part, s.tests, targets), nil
}

// chosen returns the correct targets and the named bugs.
func chosen(targets []Target, bugs []string) ([]Target, error) {
	if len(bugs) == 0 {
		return targets, nil
	}
	for _, name := range bugs {
		if !slices.ContainsFunc(targets, func(t Target) bool { return !t.right && t.Name == name }) {
			return nil, fmt.Errorf("there is no bug %q that applies to this part", name)
		}
	}
	return slices.DeleteFunc(targets, func(t Target) bool { return !t.right && !slices.Contains(bugs, t.Name) }), nil
}

// sum judges the targets.
func sum(part string, tests []string, targets []Target) Result {
	r := Result{Part: part, Tests: tests}
	alarmists := map[string]bool{}
	for _, t := range targets {
		if !t.right {
			continue
		}
		r.Variants++
		if len(t.Failed) > 0 {
			r.Alarms = append(r.Alarms, t)
		}
		for _, f := range t.Failed {
			alarmists[f.Test] = true
		}
	}
	for _, t := range targets {
		if t.right {
			continue
		}
		t.Failed = slices.DeleteFunc(t.Failed, func(f Failure) bool { return alarmists[f.Test] })
		if len(t.Failed) > 0 {
			r.Killed = append(r.Killed, t)
		} else {
			r.Missed = append(r.Missed, t)
		}
	}
	return r
}

// runner is one call of Run.
type runner struct {
	o      Options
	p      part
	s      student
	dir    string
	report sync.Mutex
}

// run builds the part with a target's change and the student's tests in it, and
// runs those.
func (r *runner) run(ctx context.Context, t *Target) error {
	dir, err := os.MkdirTemp(r.dir, "target-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "tests.exe")
	if err := r.build(ctx, dir, binary, *t); err != nil {
		return err
	}
	if err := r.tests(ctx, binary, t); err != nil {
		return err
	}
	if r.o.Report != nil {
		r.report.Lock()
		defer r.report.Unlock()
		r.o.Report(*t)
	}
	return nil
}

// build compiles a test binary, without what a debugger wants. Nothing is written to
// the sources: go build's -overlay puts the changed files and the student's in their
// place, and hides the part's own tests.
func (r *runner) build(ctx context.Context, dir, binary string, t Target) error {
	replace := map[string]string{}
	place := func(name string) string { return filepath.Join(r.o.Root, r.p.dir, name) }
	add := func(path, text string) error {
		copied := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		replace[path] = copied
		return os.WriteFile(copied, []byte(text), 0o644)
	}
	for _, name := range r.p.ownTests {
		if name != adapter && (name != r.p.adapter || len(r.s.stories) == 0) {
			replace[place(name)] = "" // as if it were not there
		}
	}
	for name, text := range r.s.files {
		if err := add(place(name), string(text)); err != nil {
			return err
		}
	}
	if len(r.s.stories) > 0 {
		if err := add(place("student_stories_test.go"), r.s.storyFile(r.p)); err != nil {
			return err
		}
	}
	for file, text := range t.changed {
		if err := add(filepath.Join(r.o.Root, filepath.FromSlash(file)), text); err != nil {
			return err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, list, 0o644); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", binary, "./"+r.p.dir)
	cmd.Dir = r.o.Root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("the tests do not compile on the %s:\n%s", t.Name, strings.ReplaceAll(strings.TrimSpace(string(out)), dir+string(filepath.Separator), ""))
	}
	return nil
}

// tests runs each test of the student's, all in one process as far as it lives.
// A test in which it dies has failed; those that have had no turn get one in
// another process.
func (r *runner) tests(ctx context.Context, binary string, t *Target) error {
	waiting := slices.Clone(r.s.tests)
	if t.right && !t.letter {
		waiting = slices.DeleteFunc(waiting, func(test string) bool { return strings.HasPrefix(test, storyTest+"/") })
	}
	for len(waiting) > 0 {
		args := []string{"-test.v", "-test.run=" + next(waiting), "-test.timeout=0"}
		out, end, err := grade.Confine(ctx, r.o.Helper, r.o.Limits, nil, binary, args...)
		if err != nil {
			return err
		}
		left := len(waiting)
		waiting = slices.DeleteFunc(waiting, func(test string) bool {
			passed, says := outcome(out, test)
			if says != "" {
				t.Failed = append(t.Failed, Failure{test, says})
			}
			return passed || says != ""
		})
		if end == grade.OutOfTime && !t.right && len(t.Failed) > 0 {
			break // a bug that loops for ever would cost each test as much
		}
		if len(waiting) < left {
			continue
		}
		// It died before a test could say that it had begun.
		for _, test := range waiting {
			t.Failed = append(t.Failed, Failure{test, "the tests ended early: " + string(end)})
		}
		break
	}
	slices.SortFunc(t.Failed, func(a, b Failure) int { return strings.Compare(a.Test, b.Test) })
	return nil
}

// next returns those of the waiting tests that run in one process, and the
// pattern that matches their names and no others, as -test.run wants it.
func next(waiting []string) (pattern string) {
	_, _, stories := strings.Cut(waiting[0], "/")
	var names []string
	for _, test := range waiting {
		name, story, isStory := strings.Cut(test, "/")
		if isStory == stories {
			names = append(names, regexp.QuoteMeta(name))
			if stories {
				names[len(names)-1] = regexp.QuoteMeta(story)
			}
		}
	}
	pattern = "^(" + strings.Join(names, "|") + ")$"
	if stories {
		pattern = "^" + storyTest + "$/" + pattern
	}
	return pattern
}

// outcome looks in the output of a run for what became of a test: whether it has
// passed, or the first line of what it said when it failed or died. Neither if
// it has not begun.
func outcome(out, test string) (passed bool, says string) {
	_, rest, found := strings.Cut("\n"+out, "\n=== RUN   "+test+"\n")
	if !found {
		return false, ""
	}
	if regexp.MustCompile(`(?m)^ *--- PASS: ` + regexp.QuoteMeta(test) + ` \(`).MatchString(rest) {
		return true, ""
	}
	for line := range strings.Lines(rest) {
		line = strings.TrimSpace(line)
		if place.MatchString(line) && !strings.HasSuffix(line, ".go:") {
			line = place.ReplaceAllString(line, "")
		}
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "Error Trace:") || frame.MatchString(line) {
			continue
		}
		return false, short(line)
	}
	return false, "it failed without a word"
}

var (
	place = regexp.MustCompile(`^\S+\.go:\d+: ?`)
	frame = regexp.MustCompile(`^(/\S+|\S+\.go):\d+$`)
)

func short(line string) string {
	line = strings.Join(strings.Fields(line), " ")
	if r := []rune(line); len(r) > 200 {
		return string(r[:200]) + " …"
	}
	return strings.ToValidUTF8(line, strconv.Quote("?"))
}

// DefaultLimits bound a run of a student's tests against one target.
func DefaultLimits() grade.Limits {
	return grade.Limits{CPU: 20 * time.Second, Memory: 512 << 20, Output: 4 << 20}
}
