// Package labs turns the tutorial's parts into exercises and judges what
// students make of them. A part's cut (which functions a student writes) and its
// checks are files in labs/; raftlab skeleton, check, hint and grade are made of
// this package.
//
// A verdict depends on nothing but the code: the checks run in virtual time, with
// fixed seeds and a fixed budget of events.
package labs

// Lab is one part as an exercise.
type Lab struct {
	Part string // "part1" to "part5"
	Dir  string // the part's folder, slash-separated: "part2-commands"

	// Files are the source files that a student hands in, relative to Dir. All
	// others of the module are ours.
	Files []string

	// Allowed are the packages that these files may import.
	Allowed []string

	Checks []Check // in the order in which they run
}

// Check is one question that the code has to answer.
type Check struct {
	ID     string // "replication/3"
	Title  string
	Points int
	Needs  []string // the checks that must be ok before this one is run
	Seeds  int      // it runs with the seeds 1 to Seeds
	Hints  []string // three, each telling more than the one before
}

// Status is what became of a check.
type Status string

// What can become of a check.
const (
	OK   Status = "ok"
	Fail Status = "fail"
	Wait Status = "wait" // not run: one that it needs is not ok
)

// Verdict is what the checks say about a student's code. The same code has the
// same verdict, byte for byte, on every machine.
type Verdict struct {
	Part   string   `json:"part"`
	Points int      `json:"points"`
	Max    int      `json:"max"`
	Checks []Result `json:"checks"`
}

// Result is what one check says.
type Result struct {
	ID     string `json:"id"`
	Title  string `json:"title"`
	Points int    `json:"points"`
	Max    int    `json:"max"`
	Status Status `json:"status"`

	// Of one that fails: what is broken, the first bad event in a sentence, and
	// with which seed. Of one that waits, Property says for which other.
	Property string `json:"property,omitempty"`
	Event    string `json:"event,omitempty"`
	Seed     uint64 `json:"seed,omitempty"`
	Replay   string `json:"replay,omitempty"` // the command that shows the failing run
	Hint     string `json:"hint,omitempty"`   // the command that shows a hint
}

// CompileError reports that the assembled module does not compile.
type CompileError struct {
	Lines []string // the compiler's, paths relative to the module
}

func (e *CompileError) Error() string {
	if len(e.Lines) == 0 {
		return "it does not compile"
	}
	return e.Lines[0]
}

// RefusedError reports that a student's files use what they may not, or that one
// of them is missing. Nothing was run.
type RefusedError struct {
	Lines []string // one sentence each, with file and line
}

func (e *RefusedError) Error() string {
	if len(e.Lines) == 0 {
		return "refused"
	}
	return e.Lines[0]
}
