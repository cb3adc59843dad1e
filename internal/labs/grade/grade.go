package grade

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"raftkv/internal/labs"
)

// Status is how far a submission has come.
type Status string

// How far a submission can come.
const (
	Graded    Status = "graded"     // the checks have run
	Refused   Status = "refused"    // something is missing or not allowed; nothing was compiled
	NoBuild   Status = "no build"   // the compiler refuses it
	NoVerdict Status = "no verdict" // it was ended before it had been judged
)

// Mark is what one student gets.
type Mark struct {
	Login  string `json:"login"`
	Status Status `json:"status"`
	Points int    `json:"points"`
	Max    int    `json:"max"`

	// Notes say in sentences why there is no verdict, if there is none: what is
	// not allowed, or the compiler's lines.
	Notes []string `json:"notes,omitempty"`

	Checks []labs.Result `json:"checks"`

	// Key is a sum over all that the mark depends on. A submission with the same
	// key as last time need not be graded again.
	Key string `json:"key"`
}

// Class is the marks of a folder of submissions. It tells no times and nothing
// of the machine: the same submissions give the same Class.
type Class struct {
	Part  string   `json:"part"`
	Max   int      `json:"max"`
	Seeds []uint64 `json:"seeds,omitempty"` // if they are not the part's own
	Marks []Mark   `json:"students"`
}

// Options say how to grade.
type Options struct {
	Part   string
	Seeds  []uint64 // instead of the part's own; nil for those
	Jobs   int      // how many submissions at the same time; at least 1
	Limits Limits

	// Helper is the beginning of a command line with which this program calls
	// [Confined].
	Helper []string

	// Known are marks of an earlier run. Those whose key has not changed stay.
	Known []Mark

	// Report, if not nil, is called with each mark as it comes, one at a time;
	// fresh tells whether it is not one of Known.
	Report func(m Mark, fresh bool) error
}

// Confinement says in a sentence what this machine can keep a student's code from.
func Confinement() string { return newConfinement(nil).String() }

// Run grades submissions. The error is never a student's fault.
func Run(ctx context.Context, o Options, submissions []Submission) (Class, error) {
	lab, err := labs.Load(o.Part)
	if err != nil {
		return Class{}, err
	}
	dir, err := os.MkdirTemp("", "raftlab-grade-")
	if err != nil {
		return Class{}, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	class := Class{Part: o.Part, Seeds: o.Seeds, Max: maximum(lab), Marks: make([]Mark, len(submissions))}
	g := grader{o: o, lab: lab, confinement: newConfinement(o.Helper), known: map[string]Mark{}}
	for _, m := range o.Known {
		g.known[m.Login] = m
	}
	next := make(chan int)
	var workers sync.WaitGroup
	for n := range max(1, o.Jobs) {
		place := filepath.Join(dir, strconv.Itoa(n))
		workers.Go(func() {
			for i := range next {
				mark, err := g.grade(ctx, place, submissions[i])
				if err != nil {
					cancel(fmt.Errorf("%s: %w", submissions[i].Login, err))
				}
				class.Marks[i] = mark
			}
		})
	}
	for i := range submissions {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	if ctx.Err() != nil {
		return Class{}, context.Cause(ctx)
	}
	return class, nil
}

func maximum(lab labs.Lab) (points int) {
	for _, c := range lab.Checks {
		points += c.Points
	}
	return points
}

// grader is one call of Run.
type grader struct {
	o           Options
	lab         labs.Lab
	confinement confinement
	known       map[string]Mark
	report      sync.Mutex
}

// grade marks one submission, with place as a folder to work in.
func (g *grader) grade(ctx context.Context, place string, s Submission) (Mark, error) {
	if err := os.RemoveAll(place); err != nil {
		return Mark{}, err
	}
	mark := g.blank(s.Login)
	student, module := filepath.Join(place, "student"), filepath.Join(place, "module")
	err := g.assemble(s, student, module)
	var refused refusal
	switch {
	case errors.As(err, &refused):
		mark.Status, mark.Notes = Refused, []string{string(refused)}
		mark.Key = sum(string(refused))
		return mark, g.tell(mark, true)
	case err != nil:
		return Mark{}, err
	}
	if mark.Key, err = g.key(module); err != nil {
		return Mark{}, err
	}
	if known, ok := g.known[s.Login]; ok && known.Key == mark.Key {
		return known, g.tell(known, false)
	}
	if err := g.judge(ctx, place, module, &mark); err != nil {
		return Mark{}, err
	}
	return mark, g.tell(mark, true)
}

func (g *grader) tell(m Mark, fresh bool) error {
	if g.o.Report == nil {
		return nil
	}
	g.report.Lock()
	defer g.report.Unlock()
	return g.o.Report(m, fresh)
}

// blank is the mark of somebody who has handed in nothing that can be judged.
func (g *grader) blank(login string) Mark {
	mark := Mark{Login: login, Max: maximum(g.lab)}
	for _, c := range g.lab.Checks {
		mark.Checks = append(mark.Checks, labs.Result{ID: c.ID, Title: c.Title, Max: c.Points, Status: labs.Wait})
	}
	return mark
}

// assemble takes the files of a submission and makes a module of them and ours.
// The error is a refusal if the submission is at fault.
func (g *grader) assemble(s Submission, student, module string) error {
	files, err := s.Take(g.lab.Files, g.lab.Dir)
	if err != nil {
		return err
	}
	if sentence := Inspect(files, rules(g.lab)); sentence != "" {
		return refusal(sentence)
	}
	for name, data := range files {
		path := filepath.Join(student, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
	}
	err = g.lab.Assemble(student, module)
	var refused *labs.RefusedError
	if errors.As(err, &refused) {
		return refusal(refused.Error())
	}
	return err
}

// rules are what the files of a part may contain.
func rules(lab labs.Lab) Rules {
	return Rules{Imports: lab.Allowed, Goroutines: lab.Goroutines}
}

// key is a sum over all that a mark depends on: each file of the module, the
// student's and ours, the seeds and the limits.
func (g *grader) key(module string) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%v\n%+v\n", g.o.Part, g.o.Seeds, g.o.Limits)
	err := filepath.WalkDir(module, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(module, path)
		fmt.Fprintf(h, "%s %x\n", filepath.ToSlash(name), sha256.Sum256(data))
		return err
	})
	return hex.EncodeToString(h.Sum(nil)), err
}

func sum(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:])
}

// judge compiles a module and runs the checks.
func (g *grader) judge(ctx context.Context, place, module string, mark *Mark) error {
	binary := filepath.Join(place, "runner.exe")
	err := g.lab.Build(module, binary)
	var wrong *labs.CompileError
	switch {
	case errors.As(err, &wrong):
		mark.Status, mark.Notes = NoBuild, slices.Clip(wrong.Lines)
		return nil
	case err != nil:
		return err
	}
	nonce := rand.Text()
	env := []string{"GOMAXPROCS=1", "GOTRACEBACK=all", nonceVariable + "=" + nonce}
	o, err := g.confinement.run(ctx, g.o.Limits, env, binary, g.arguments()...)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	verdict, ok := g.believe(o.channel, nonce)
	if !ok {
		mark.Status, mark.Notes = NoVerdict, []string{g.o.Limits.sentence(o)}
		return nil
	}
	mark.Status, mark.Checks = Graded, verdict.Checks
	for _, r := range verdict.Checks {
		mark.Points += r.Points
	}
	return nil
}

func (g *grader) arguments() []string {
	if g.o.Seeds == nil {
		return nil
	}
	var numbers []string
	for _, seed := range g.o.Seeds {
		numbers = append(numbers, strconv.FormatUint(seed, 10))
	}
	return []string{"-seeds", strings.Join(numbers, ",")}
}

// believe reads a verdict. It must carry the number that this run was given, and
// speak of our checks and of no more points than there are.
func (g *grader) believe(data []byte, nonce string) (labs.Verdict, bool) {
	var v struct {
		labs.Verdict
		Nonce string `json:"nonce"`
	}
	if json.Unmarshal(data, &v) != nil || v.Nonce != nonce || v.Part != g.lab.Part || len(v.Checks) != len(g.lab.Checks) {
		return labs.Verdict{}, false
	}
	for i, r := range v.Checks {
		c := g.lab.Checks[i]
		if r.ID != c.ID || r.Max != c.Points || r.Points < 0 || r.Points > c.Points {
			return labs.Verdict{}, false
		}
	}
	return v.Verdict, true
}

// nonceVariable is the variable of the environment that tells a runner what to
// put into its verdict.
const nonceVariable = "RAFTLAB_NONCE"

// sentence says why there is no verdict.
func (l Limits) sentence(o outcome) string {
	switch o.ending {
	case OutOfTime:
		return fmt.Sprintf("it did not end within %v of processor time", l.CPU)
	case OutOfRoom:
		return fmt.Sprintf("it wanted more than %d MB of memory", l.Memory>>20)
	case Talkative:
		return fmt.Sprintf("it printed more than %d kB", l.Output>>10)
	}
	for line := range strings.Lines(string(o.printed)) {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return "it crashed: " + strings.TrimSpace(line)
		}
	}
	return "it ended without a verdict"
}

// ReadSeeds reads numbers, divided by blanks or line ends; # begins a comment.
func ReadSeeds(r io.Reader) ([]uint64, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	var seeds []uint64
	for n, line := range strings.Split(string(text), "\n") {
		line, _, _ = strings.Cut(line, "#")
		for _, word := range strings.Fields(line) {
			seed, err := strconv.ParseUint(word, 10, 64)
			if err != nil || seed == 0 || slices.Contains(seeds, seed) {
				return nil, fmt.Errorf("line %d: %q is no seed: a whole number above 0, each once", n+1, word)
			}
			seeds = append(seeds, seed)
		}
	}
	if seeds == nil {
		return nil, errors.New("there are no seeds in it")
	}
	return seeds, nil
}
