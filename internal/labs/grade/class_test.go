package grade

import (
	"archive/zip"
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"raftkv/internal/labs"
	"raftkv/internal/labs/edits"
	"raftkv/internal/zoo"
)

var (
	all    = flag.Bool("all", false, "mark all of labs/wrong and labs/variants, and a class of 30")
	keep   = flag.String("class", "", "leave the class of TestClassTwice in this folder, for raftlab grade")
	update = flag.Bool("update", false, "let TestWrongSubmissions write points and first failures into labs/wrong")
)

// quick are the wrong submissions of part 1 that are marked without -all: those
// that the compiler never sees, and one that does all it can to look right.
var quick = []string{"opens-a-socket", "begins-early", "prints-the-verdict"}

// handIn writes a part's files, with a change, as a submission into a folder.
func handIn(t *testing.T, lab labs.Lab, dir, login string, change edits.Edit) Submission {
	root, err := zoo.Root(".")
	require.NoError(t, err)
	changed, err := change.Apply(root)
	require.NoError(t, err)
	for _, name := range lab.Files {
		path := lab.Dir + "/" + name
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
		require.NoError(t, err)
		if other, ok := changed[path]; ok {
			text = []byte(other)
			delete(changed, path)
		}
		to := filepath.Join(dir, login, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
		require.NoError(t, os.WriteFile(to, text, 0o644))
	}
	require.Empty(t, changed, "%s changes files that are not handed in", login)
	return Submission{login, filepath.Join(dir, login)}
}

// readEdits reads a part's edits with edits.Wrong or edits.Variants.
func readEdits(t *testing.T, read func(root, part string) ([]edits.Edit, error), part string) []edits.Edit {
	root, err := zoo.Root(".")
	require.NoError(t, err)
	found, err := read(root, part)
	require.NoError(t, err)
	return found
}

// chosen returns the labs whose submissions are marked: that of part 1, or with
// -all every one.
func chosen(t *testing.T) (chosen []labs.Lab) {
	parts := labs.Parts()
	if !*all {
		parts = parts[:1]
	}
	for _, part := range parts {
		lab, err := labs.Load(part)
		require.NoError(t, err)
		chosen = append(chosen, lab)
	}
	return chosen
}

func mark(t *testing.T, part string, submissions []Submission) Class {
	class, err := Run(t.Context(), Options{Part: part, Jobs: 2, Limits: DefaultLimits(), Helper: helper}, submissions)
	require.NoError(t, err)
	return class
}

// Every wrong submission loses the points that it should, and is told why.
func TestWrongSubmissions(t *testing.T) {
	for _, lab := range chosen(t) {
		part := lab.Part
		wrong := readEdits(t, edits.Wrong, part)
		require.GreaterOrEqual(t, len(wrong), 6, part)
		if !*all {
			wrong = slices.DeleteFunc(wrong, func(e edits.Edit) bool { return !slices.Contains(quick, e.Name) })
		}
		var submissions []Submission
		dir := t.TempDir()
		for _, e := range wrong {
			submissions = append(submissions, handIn(t, lab, dir, e.Name, e))
		}
		for i, m := range mark(t, part, submissions).Marks {
			if *update {
				note(t, part, wrong[i], m)
				continue
			}
			t.Logf("%s %s", part, m.Summary())
			assert.Equal(t, expectation(wrong[i].Fields), expectation(found(m)), "%s/%s", part, m.Login)
			assert.Less(t, m.Points, m.Max, "%s/%s", part, m.Login)
		}
	}
}

// found says about a mark what a file of labs/wrong says about what it should be.
func found(m Mark) map[string][]string {
	switch m.Status {
	case Refused:
		return map[string][]string{"points": {"0"}, "refused": m.Notes}
	case NoBuild:
		return map[string][]string{"points": {"0"}, "no build": m.Notes[:1]}
	case NoVerdict:
		return map[string][]string{"points": {"0"}, "first": m.Notes}
	}
	f, _ := m.FirstFailure()
	return map[string][]string{"points": {strconv.Itoa(m.Points)}, "first": {f.ID + " " + f.Property}}
}

func expectation(fields map[string][]string) string {
	var lines []string
	for _, key := range []string{"points", "first", "refused", "no build"} {
		for _, value := range fields[key] {
			lines = append(lines, key+": "+value)
		}
	}
	return strings.Join(lines, "\n")
}

// note puts what was found into a file of labs/wrong.
func note(t *testing.T, part string, e edits.Edit, m Mark) {
	root, err := zoo.Root(".")
	require.NoError(t, err)
	path := filepath.Join(root, "labs", "wrong", part, e.Name+".txt")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	_, change, _ := strings.Cut(string(text), "\n\n")
	head := "title: " + e.Title + "\n" + expectation(found(m)) + "\n\n"
	require.NoError(t, os.WriteFile(path, []byte(head+change), 0o644))
}

// What is right gets all points, however it was written.
func TestCorrectVariants(t *testing.T) {
	for _, lab := range chosen(t) {
		part := lab.Part
		var submissions []Submission
		dir := t.TempDir()
		submissions = append(submissions, handIn(t, lab, dir, "solution", edits.Edit{}))
		for _, e := range readEdits(t, edits.Variants, part) {
			root, err := zoo.Root(".")
			require.NoError(t, err)
			changed, err := e.Apply(root)
			require.NoError(t, err)
			inPart := true // and not in the core below a service
			for path := range changed {
				inPart = inPart && strings.HasPrefix(path, lab.Dir+"/")
			}
			if *all && inPart {
				submissions = append(submissions, handIn(t, lab, dir, e.Name, e))
			}
		}
		for _, m := range mark(t, part, submissions).Marks {
			t.Logf("%s %s", part, m.Summary())
			assert.Equal(t, m.Max, m.Points, "%s/%s: %s", part, m.Login, m.FirstFailureText())
		}
	}
}

// A class of 30, right and wrong, gets the marks and the sentences that it should,
// twice the same to the last byte, whether its files come in folders or zips and
// however many are judged at a time.
func TestClassTwice(t *testing.T) {
	part, size := "part1", 3
	if *all {
		part, size = "part2", 30
	}
	lab, err := labs.Load(part)
	require.NoError(t, err)
	kinds := append([]edits.Edit{{}}, readEdits(t, edits.Variants, part)...)
	if *all {
		kinds = append(kinds, readEdits(t, edits.Wrong, part)...)
	}
	dir := t.TempDir()
	if *keep != "" {
		dir = *keep
	}
	for i := range size {
		login := fmt.Sprintf("student%02d", i+1)
		s := handIn(t, lab, dir, login, kinds[i%len(kinds)])
		if i%3 == 1 {
			pack(t, s.Path)
		}
	}
	report := func(jobs int) map[string]string {
		submissions, others, err := Find(dir)
		require.NoError(t, err)
		require.Empty(t, others)
		require.Len(t, submissions, size)
		class, err := Run(t.Context(), Options{Part: part, Jobs: jobs, Limits: DefaultLimits(), Helper: helper}, submissions)
		require.NoError(t, err)
		for i, m := range class.Marks {
			if kind := kinds[i%len(kinds)]; kind.Fields["points"] != nil {
				require.Equal(t, expectation(kind.Fields), expectation(found(m)), "%s is %s", m.Login, kind.Name)
			} else {
				require.Equal(t, m.Max, m.Points, "%s is %s", m.Login, kind.Name)
			}
		}
		var csv, json bytes.Buffer
		require.NoError(t, class.WriteCSV(&csv))
		require.NoError(t, class.WriteJSON(&json))
		files := map[string]string{"csv": csv.String(), "json": json.String()}
		pages := t.TempDir()
		require.NoError(t, class.WriteHTML(pages))
		entries, err := os.ReadDir(pages)
		require.NoError(t, err)
		require.Len(t, entries, size+1)
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(pages, e.Name()))
			require.NoError(t, err)
			files[e.Name()] = string(text)
		}
		return files
	}
	require.Equal(t, report(2), report(1))
}

// pack makes a zip of a folder, as students do: with a folder in it.
func pack(t *testing.T, dir string) {
	parent := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(parent, "my lab"), os.DirFS(dir)))
	file, err := os.Create(dir + ".zip")
	require.NoError(t, err)
	z := zip.NewWriter(file)
	require.NoError(t, z.AddFS(os.DirFS(parent)))
	require.NoError(t, z.Close())
	require.NoError(t, file.Close())
	require.NoError(t, os.RemoveAll(dir))
}
