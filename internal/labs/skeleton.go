package labs

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"raftkv/internal/labs/run"
)

// Skeleton writes the part with holes into outDir, a module of its own that
// compiles, together with what its visible tests need. names are the functions to
// leave out; none means the standard cut. It refuses to write over anything.
func (l Lab) Skeleton(outDir string, names []string) error {
	entries, err := os.ReadDir(outDir)
	if err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty: choose a new folder", outDir)
	}
	m, _, err := l.skeleton(names)
	if err != nil {
		return err
	}
	return m.write(outDir)
}

// skeleton returns the module with holes, and the lines that stood in them.
func (l Lab) skeleton(names []string) (module, []string, error) {
	rules := map[string]string{}
	for _, d := range l.drops {
		if len(names) == 0 || slices.Contains(names, d.name) {
			rules[d.name] = d.rule
		}
	}
	for _, name := range names {
		if _, ok := rules[name]; !ok {
			rules[name] = ""
		}
	}
	m, err := l.base()
	if err != nil {
		return nil, nil, err
	}
	part, err := l.part()
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(m, part)
	var solution, found []string
	for _, name := range l.Files {
		name = path.Join(l.Dir, name)
		holes, lines, here, err := hollow(name, m[name], rules)
		if err != nil {
			return nil, nil, err
		}
		m[name] = holes
		solution = append(solution, lines...)
		found = append(found, here...)
	}
	for name := range rules {
		if !slices.Contains(found, name) {
			return nil, nil, fmt.Errorf("no function %s in %s", name, strings.Join(l.Files, ", "))
		}
	}
	m["README.md"] = l.readme(found)
	return m, solution, nil
}

func (l Lab) readme(names []string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# Your %s\n\nWrite these functions, in `%s/`; each says which rule of the paper it is:\n\n", l.Part, l.Dir)
	for _, name := range slices.Sorted(slices.Values(names)) {
		fmt.Fprintf(&b, "- `%s`\n", name)
	}
	fmt.Fprintf(&b, `
    raftlab check                   # what is right and what is not yet, in stages
    raftlab check --watch           # again whenever you save
    raftlab check --html run.html   # and the runs that fail, as a page
    raftlab hint %-18[1]s # three levels: --level 2, --level 3
    go test ./%-20[2]s  # the tests that you can read and change

You may change these files, and add functions and fields to them: %[3]s.
They may import: %[4]s. Everything else is replaced by ours when your work is
checked.
`, l.Checks[0].ID, l.Dir+"/", strings.Join(l.Files, ", "), strings.Join(l.Allowed, ", "))
	return []byte(b.String())
}

// Verify proves of the standard cut: the skeleton compiles with its tests, its
// first check fails because there is nothing, all checks pass with the solution
// put back, and none of the solution's lines is left. work is an empty folder.
func (l Lab) Verify(work string) error {
	m, solution, err := l.skeleton(nil)
	if err != nil {
		return err
	}
	if err := l.leak(m, solution); err != nil {
		return err
	}
	skeleton, put := filepath.Join(work, "skeleton"), filepath.Join(work, "solution")
	if err := m.write(skeleton); err != nil {
		return err
	}
	vet := exec.Command("go", "vet", "./...")
	vet.Dir = skeleton
	vet.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off", "GOTOOLCHAIN=local")
	if out, err := vet.CombinedOutput(); err != nil {
		return fmt.Errorf("the skeleton does not compile: %w\n%s", err, out)
	}
	v, err := l.Judge(skeleton, run.Options{})
	if err != nil {
		return fmt.Errorf("the skeleton: %w", err)
	}
	if v.Points != 0 {
		return fmt.Errorf("the skeleton gets %d points", v.Points)
	}
	if !strings.Contains(v.Checks[0].Property, "write me") {
		return fmt.Errorf("the skeleton fails %s for another reason than its holes: %s", v.Checks[0].ID, v.Checks[0].Property)
	}
	part, err := l.part()
	if err != nil {
		return err
	}
	maps.Copy(m, part)
	if err := m.write(put); err != nil {
		return err
	}
	if v, err = l.Judge(put, run.Options{}); err != nil {
		return fmt.Errorf("the solution: %w", err)
	}
	for _, r := range v.Checks {
		if r.Status != OK {
			return fmt.Errorf("the solution: %s: %s: %s", r.ID, r.Property, r.Event)
		}
	}
	if v.Points != v.Max {
		return errors.New("the solution does not get all points")
	}
	return nil
}

// leak looks in a skeleton for lines that stood in the holes and in no other
// function of the part.
func (l Lab) leak(m module, solution []string) error {
	given, err := l.part()
	if err != nil {
		return err
	}
	kept := map[string]bool{}
	for name := range given {
		rules := map[string]string{}
		for _, d := range l.drops {
			rules[d.name] = d.rule
		}
		text := given[name]
		if file, _ := strings.CutPrefix(name, l.Dir+"/"); slices.Contains(l.Files, file) {
			if text, _, _, err = hollow(name, text, rules); err != nil {
				return err
			}
		}
		for line := range strings.SplitSeq(string(text), "\n") {
			kept[strings.TrimSpace(line)] = true
		}
	}
	secret := map[string]bool{}
	for _, line := range solution {
		if len(line) >= minSecret && !kept[line] {
			secret[line] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		for line := range strings.SplitSeq(string(m[name]), "\n") {
			if secret[strings.TrimSpace(line)] {
				return fmt.Errorf("%s has a line of the solution: %s", name, strings.TrimSpace(line))
			}
		}
	}
	if len(secret) == 0 {
		return errors.New("the cut takes out nothing")
	}
	return nil
}

// minSecret is the length from which a line of the solution tells something.
// Shorter ones, such as return or cm.state = Leader, stand everywhere.
const minSecret = 18
