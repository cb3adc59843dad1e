package run

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// Options say which checks run, and with what.
type Options struct {
	Only  string   // this check and those that it needs; "" for all
	Seeds []uint64 // instead of the seeds of each check that has more than one
}

// Supervise runs the checks of a built runner in child processes: a new one after
// each check that its child has died of.
func Supervise(binary, part string, checks []Check, o Options) (Verdict, error) {
	checks = chosen(checks, o.Only)
	v := blank(part, checks)
	for i := 0; i < len(checks); {
		nonce := rand.Text()
		args := []string{"-child", "-nonce", nonce, "-state", state(v)}
		if len(o.Seeds) > 0 {
			args = append(args, "-seeds", list(o.Seeds))
		}
		if o.Only != "" {
			args = append(args, "-only", o.Only)
		}
		cmd := exec.Command(binary, args...)
		stderr := &head{}
		cmd.Stderr = stderr
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			return v, err
		}
		if err := cmd.Start(); err != nil {
			return v, fmt.Errorf("the runner does not start: %w", err)
		}
		var last outcome
		silent := each(stdout, nonce, func(o outcome) {
			if last = o; !o.Begun {
				v.note(o)
			}
		})
		if !silent {
			cmd.Process.Kill()
		}
		err = cmd.Wait()
		if last.Begun { // and not come back
			last.Property, last.Event = died(stderr.String())
			if !silent {
				last.Property, last.Event = fmt.Sprintf("Bounded output: more than %d MB are printed in one run", maxPrinted>>20), "what is printed is thrown away; it only takes time"
			}
			v.note(last)
		}
		v.wait(checks)
		if n := v.decided(); n > i {
			i = n
		} else if err == nil {
			return v, errors.New("the runner has ended without a word")
		} else {
			return v, fmt.Errorf("the runner: %w: %s", err, oneLine(stderr.String()))
		}
	}
	return v, nil
}

// Show has a built runner show one check with one seed.
func Show(binary, check string, seed uint64, w io.Writer) error {
	cmd := exec.Command(binary, "-only", check, "-show", strconv.FormatUint(seed, 10))
	stderr := &head{}
	cmd.Stderr = stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("the runner does not start: %w", err)
	}
	n, copied := io.CopyN(w, stdout, maxPrinted)
	if n == maxPrinted {
		cmd.Process.Kill()
	}
	err = cmd.Wait()
	switch {
	case copied != nil && copied != io.EOF:
		return copied
	case n == maxPrinted:
		_, err = fmt.Fprintf(w, "\n\nBounded output: more than %d MB are printed in one run\n  the rest is cut off\n", maxPrinted>>20)
	case err != nil:
		property, event := died(stderr.String())
		_, err = fmt.Fprintf(w, "\n\n%s\n  %s\n", property, event)
	}
	return err
}

// chosen returns the check named only and all that it needs; all checks if only is "".
func chosen(checks []Check, only string) []Check {
	if only == "" {
		return checks
	}
	want := map[string]bool{only: true}
	var some []Check
	for _, c := range slices.Backward(checks) {
		if want[c.ID] {
			some = append(some, c)
			for _, id := range c.Needs {
				want[id] = true
			}
		}
	}
	slices.Reverse(some)
	return some
}

// note takes over what a child reports.
func (v *Verdict) note(o outcome) {
	for i := range v.Checks {
		r := &v.Checks[i]
		if r.ID != o.ID || r.Status != "" {
			continue
		}
		if o.OK {
			r.Status, r.Points = OK, r.Max
			v.Points += r.Max
			continue
		}
		r.Status, r.Property, r.Event, r.Seed = Fail, o.Property, o.Event, o.Seed
		r.Replay = fmt.Sprintf("raftlab check --only %s --seed %d --trace", r.ID, r.Seed)
		r.Hint = "raftlab hint " + r.ID
		if v.Part != "" {
			r.Hint += " --part " + v.Part
		}
	}
}

// wait marks the checks that will not run.
func (v *Verdict) wait(checks []Check) {
	for i, c := range checks {
		r := &v.Checks[i]
		if r.Status != "" {
			continue
		}
		if id := v.waitsFor(c.Needs); id != "" {
			j := slices.IndexFunc(v.Checks, func(r Result) bool { return r.ID == id })
			if v.Checks[j].Status != "" { // it failed, or waits itself
				r.Status, r.Property = Wait, "needs "+id
			}
		}
	}
}

// decided returns how many checks are.
func (v *Verdict) decided() (n int) {
	for _, r := range v.Checks {
		if r.Status != "" {
			n++
		}
	}
	return n
}

// state tells a child what is known already: the ids that are ok, and those that
// are not.
func state(v Verdict) string {
	var words []string
	for _, r := range v.Checks {
		if r.Status != "" {
			words = append(words, r.ID+"="+string(r.Status))
		}
	}
	return strings.Join(words, ",")
}

// maxPrinted bounds what a child may print during one seed of a check.
const maxPrinted = 16 << 20

// each calls f with what a child reports, and skips what else it prints. It
// returns false if that is too much: whoever prints without end would be ended
// by some limit of time, and when depends on the machine.
func each(r io.Reader, nonce string, f func(outcome)) bool {
	lines := bufio.NewReader(r)
	for printed := 0; printed <= maxPrinted; {
		line, err := lines.ReadSlice('\n')
		printed += len(line)
		if data, ok := bytes.CutPrefix(line, []byte(nonce)); ok {
			var o outcome
			if json.Unmarshal(data, &o) == nil {
				printed = 0
				f(o)
			}
		}
		if err != nil && err != bufio.ErrBufferFull {
			return true
		}
	}
	return false
}

// died says what a child has died of.
func died(stderr string) (property, event string) {
	switch {
	case strings.Contains(stderr, "stack overflow") || strings.Contains(stderr, "stack exceeds"):
		return "Termination: a function must not call itself without end", handler(stderr) + " uses up the stack"
	case strings.Contains(stderr, "out of memory"), strings.Contains(stderr, "cannot allocate memory"),
		strings.Contains(stderr, "SIGSEGV: segmentation violation\nPC="):
		// Whichever part of the Go runtime asks next is the one that dies, and the
		// garbage collector does so with a segmentation violation of its own. So the
		// stack tells nothing that would be the same next time.
		return "Bounded memory: the program must fit into it", "all memory is used up"
	case strings.Contains(stderr, "all goroutines are asleep"), strings.Contains(stderr, "deadlock"):
		return "Termination: a step must return, and this one waits for ever", handler(stderr) + " does not return"
	case strings.Contains(stderr, "panic: "):
		_, text, _ := strings.Cut(stderr, "panic: ")
		text, _, _ = strings.Cut(text, "\n")
		return "No panic: the program has panicked: " + oneLine(text), "outside any step of a server"
	}
	return "The program has ended in the middle of this check", "it has ended itself, or it was ended from outside"
}

// head keeps the first part of what is written to it, and the last: a stack that
// overflows names its beginning at the end.
type head struct {
	first, last []byte
}

func (h *head) Write(p []byte) (int, error) {
	const most = 64 << 10
	if room := most - len(h.first); room > 0 {
		h.first = append(h.first, p[:min(room, len(p))]...)
	}
	h.last = append(h.last, p...)
	if len(h.last) > most {
		h.last = append(h.last[:0], h.last[len(h.last)-most:]...)
	}
	return len(p), nil
}

func (h *head) String() string {
	if len(h.first) < 64<<10 {
		return string(h.first)
	}
	return string(h.first) + "\n" + string(h.last)
}

func list(seeds []uint64) string {
	var words []string
	for _, seed := range seeds {
		words = append(words, strconv.FormatUint(seed, 10))
	}
	return strings.Join(words, ",")
}

// Main is the main function of a runner. Without flags it supervises itself and
// writes the verdict to file descriptor 3.
func Main(part, checksText string, funcs map[string]Func) {
	isChild := flag.Bool("child", false, "run the checks and report on standard output")
	nonce := flag.String("nonce", "", "the word before each report")
	known := flag.String("state", "", "what is known already")
	seedList := flag.String("seeds", "", "seeds to use instead of the checks' own")
	only := flag.String("only", "", "run this check and those that it needs")
	showSeed := flag.Uint64("show", 0, "print the run of the check -only with this seed")
	flag.Parse()

	err := func() error {
		checks, err := ParseChecks(checksText)
		if err != nil {
			return err
		}
		for _, c := range checks {
			if funcs[c.ID] == nil {
				return fmt.Errorf("nothing runs check %s", c.ID)
			}
		}
		seeds, err := ParseSeeds(*seedList)
		if err != nil {
			return err
		}
		switch {
		case *showSeed != 0:
			i := slices.IndexFunc(checks, func(c Check) bool { return c.ID == *only })
			if i < 0 {
				return fmt.Errorf("there is no check %q", *only)
			}
			flag.Set("rafttest.trace", "true")
			show(checks[i], funcs[*only], *showSeed)
			return nil
		case *isChild:
			serve(chosen(checks, *only), funcs, seeds, *nonce, *known)
			return nil
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		v, err := Supervise(self, part, checks, Options{Only: *only, Seeds: seeds})
		if err != nil {
			return err
		}
		data, err := json.Marshal(struct {
			Verdict
			Nonce string `json:"nonce,omitempty"` // tells raftlab grade that it is this run's verdict
		}{v, os.Getenv("RAFTLAB_NONCE")})
		if err != nil {
			return err
		}
		_, err = os.NewFile(3, "verdict").Write(append(data, '\n'))
		return err
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		os.Exit(1)
	}
}

// serve is a child's life.
func serve(checks []Check, funcs map[string]Func, seeds []uint64, nonce, known string) {
	v := blank("", checks)
	for word := range strings.SplitSeq(known, ",") {
		id, status, _ := strings.Cut(word, "=")
		for i := range v.Checks {
			if v.Checks[i].ID == id {
				v.Checks[i].Status = Status(status)
			}
		}
	}
	out := write(os.Stdout, nonce)
	report := func(o outcome) {
		if !o.Begun {
			v.note(o)
		}
		out(o)
	}
	child(funcs, seeds, report, func() (Check, bool) {
		v.wait(checks)
		for i, c := range checks {
			if v.Checks[i].Status == "" {
				return c, true
			}
		}
		return Check{}, false
	})
}

// ParseSeeds reads numbers between commas or spaces.
func ParseSeeds(text string) ([]uint64, error) {
	var seeds []uint64
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\r' || r == '\t' }) {
		seed, err := strconv.ParseUint(word, 10, 64)
		if err != nil || seed == 0 {
			return nil, fmt.Errorf("%q is no seed: a seed is a number from 1 on", word)
		}
		seeds = append(seeds, seed)
	}
	return seeds, nil
}
