package zoo

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Probe is a test that notices a bug: a test of a package, or seeds of the
// simulator.
type Probe struct {
	Package string // relative to the root, with slashes; "" for the simulator
	Test    string // Test or Test/subtest, a part between slashes as go test prints it

	Profile  string // of the simulator
	From, To uint64 // the seeds
}

// parseProbe reads a field: test: raft/storage TestSaveIsOneWriteAndOneSync, or
// seeds: full 1-100.
func parseProbe(key, value string) (Probe, error) {
	where, what, _ := strings.Cut(value, " ")
	what = strings.TrimSpace(what)
	if key == "test" {
		if !strings.HasPrefix(what, "Test") {
			return Probe{}, fmt.Errorf("%q names no test of a package", value)
		}
		return Probe{Package: where, Test: what}, nil
	}
	from, to, _ := strings.Cut(what, "-")
	p := Probe{Profile: where}
	var err error
	if p.From, err = strconv.ParseUint(from, 10, 64); err == nil {
		p.To, err = strconv.ParseUint(to, 10, 64)
	}
	if err != nil || p.From > p.To {
		return Probe{}, fmt.Errorf("%q is no profile and range of seeds", value)
	}
	return p, nil
}

// String returns the probe as bug.txt has it.
func (p Probe) String() string {
	if p.Package == "" {
		return fmt.Sprintf("%s %d-%d", p.Profile, p.From, p.To)
	}
	return p.Package + " " + p.Test
}

// layers says what the tests of a package are called in docs/testing.md.
var layers = map[string]string{
	"":                          "simulator",
	"internal/scenario":         "scenario",
	"raft":                      "core",
	"raft/server":               "server loop",
	"raft/storage":              "storage",
	"raft/transport":            "transport",
	"kvservice":                 "service",
	"kvservice/machine":         "state machine",
	"kvservice/waiters":         "waiters",
	"kvclient":                  "client",
	"kvclient/numbering":        "numbering",
	"part1-election":            "scenario",
	"part2-commands":            "scenario",
	"part3-persistence":         "scenario",
	"part4-kvservice":           "service",
	"part4-kvservice/kvservice": "service",
	"part4-kvservice/kvclient":  "client",
	"part5-dedup":               "service",
	"part5-dedup/kvservice":     "service",
	"part5-dedup/kvclient":      "client",
}

// Layer returns which layer of tests the probe belongs to.
func (p Probe) Layer() string { return layers[p.Package] }

// Command returns what a person types to run the probe on the sources as they are.
func (p Probe) Command() string {
	if p.Package == "" {
		return fmt.Sprintf("go run ./cmd/raftlab chaos --profile %s --from %d --seeds %d", p.Profile, p.From, p.To-p.From+1)
	}
	return fmt.Sprintf("go test -count=1 -run '%s' ./%s", p.pattern(), p.Package)
}

// pattern returns the probe's test, and no other, as go test -run wants it.
func (p Probe) pattern() string {
	parts := strings.Split(p.Test, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// target returns the package that must be built to run the probe.
func (p Probe) target() string {
	if p.Package == "" {
		return huntPackage
	}
	return p.Package
}

const huntPackage = "internal/zoo/hunt"
