// Package shrink makes a failing run small: it looks for a part of the run's
// decisions, few faults and few calls, with which the same property fails.
//
// A counterexample of thousands of lost messages explains nothing. Whether a
// smaller one fails is found by running it, so what comes out does fail; that it
// is the smallest there is, nobody promises. The search is delta debugging: take
// away large parts, then smaller ones, and keep what still fails.
package shrink

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"time"

	"raftkv/internal/sim"
)

// Options bound the search. The zero value is ready to use.
type Options struct {
	Runs     int                           // at most so many; 0 means 2000
	Progress func(runs int, d *sim.Report) // called when a smaller run is found; may be nil
}

// Result is a failing run, and a smaller one.
type Result struct {
	From, To sim.Report // both failed
	Small    sim.Decisions
	Runs     int // how many it took
}

// Shrink runs the seed and, if it fails, looks for a smaller run that fails in
// the same way. The error is that of a seed that does not fail.
func Shrink(config sim.Config, seed uint64, o Options) (*Result, error) {
	if o.Runs == 0 {
		o.Runs = 2000
	}
	config.Record, config.Only, config.Observe, config.Trace = true, nil, nil, nil
	from := sim.RunSeed(config, seed)
	if from.Failure == nil {
		return nil, fmt.Errorf("seed %d of profile %s does not fail", seed, config.Profile.Name)
	}
	s := search{config: config, options: o, property: Property(from.Failure), best: from}
	s.shrink()
	return &Result{From: from, To: s.best, Small: s.decisions(s.best.Decisions), Runs: s.runs}, nil
}

// Property names what failed, so that two failures can be compared. A panic is
// told by its text, but for the numbers in it.
func Property(f *sim.Failure) string {
	if f.Kind != "panic" {
		return f.Kind
	}
	return f.Kind + ": " + digits.ReplaceAllString(f.Text, "N")
}

var digits = regexp.MustCompile(`[0-9]+`)

// search is one run of Shrink.
type search struct {
	config   sim.Config
	options  Options
	property string
	best     sim.Report
	healAt   time.Duration // 0: when the seed says
	runs     int
}

func (s *search) shrink() {
	s.remove(func(d sim.Decision) bool { return d.IsFault() })
	for {
		before := len(s.best.Decisions)
		s.wholeClasses()
		s.chunks(sim.Decision.IsFault)
		s.chunks(func(d sim.Decision) bool { return !d.IsFault() })
		s.healEarlier()
		if len(s.best.Decisions) == before || s.runs >= s.options.Runs {
			return
		}
	}
}

// wholeClasses tries to do without all decisions of a kind, the most frequent first.
func (s *search) wholeClasses() {
	counts := map[string]int{}
	var classes []string
	for _, d := range s.best.Decisions {
		if counts[d.Class()] == 0 {
			classes = append(classes, d.Class())
		}
		counts[d.Class()]++
	}
	slices.SortStableFunc(classes, func(a, b string) int { return cmp.Compare(counts[b], counts[a]) })
	for _, class := range classes {
		s.remove(func(d sim.Decision) bool { return d.Class() == class })
	}
}

// chunks tries to do without half of those that are meant, then without quarters,
// and so on down to single ones, until none of these can be missed.
func (s *search) chunks(meant func(sim.Decision) bool) {
	size := len(s.places(meant))
	for size > 0 {
		size = (size + 1) / 2
		removed := false
		for at := 0; ; {
			places := s.places(meant)
			if at >= len(places) {
				break
			}
			gone := map[sim.Decision]bool{}
			for _, i := range places[at:min(at+size, len(places))] {
				gone[s.best.Decisions[i]] = true
			}
			if s.remove(func(d sim.Decision) bool { return gone[d] }) {
				removed = true
			} else {
				at += size
			}
			if s.runs >= s.options.Runs {
				return
			}
		}
		if size == 1 && !removed {
			return
		}
	}
}

// places returns where in the list those that are meant stand.
func (s *search) places(meant func(sim.Decision) bool) (places []int) {
	for i, d := range s.best.Decisions {
		if meant(d) {
			places = append(places, i)
		}
	}
	return places
}

// remove tries to do without some, and reports whether the run still fails.
func (s *search) remove(these func(sim.Decision) bool) bool {
	rest := slices.DeleteFunc(slices.Clone(s.best.Decisions), these)
	return len(rest) < len(s.best.Decisions) && s.try(rest, s.healAt)
}

// healEarlier makes a run that fails at its end a shorter one.
func (s *search) healEarlier() {
	for range 8 {
		healAt := s.best.HealAt / 2
		if s.best.Failure.At < s.best.HealAt || healAt < time.Second || !s.try(s.best.Decisions, healAt) {
			return
		}
		s.healAt = healAt
	}
}

// try runs a list of decisions and keeps it if the same property fails. What is
// kept are the decisions that the run came to: after it has failed, and on
// occasions that it no longer has, there are none.
func (s *search) try(list []sim.Decision, healAt time.Duration) bool {
	if s.runs >= s.options.Runs {
		return false
	}
	s.runs++
	config := s.config
	d := s.decisions(list)
	d.HealAt = healAt
	config.Only = &d
	if s.best.Failure.At < s.best.HealAt {
		config.Until = 2*s.best.Failure.At + time.Second // that late it is another story
	}
	r := sim.RunSeed(config, s.best.Seed)
	if r.Failure == nil || Property(r.Failure) != s.property {
		return false
	}
	s.best = r
	if s.options.Progress != nil {
		s.options.Progress(s.runs, &r)
	}
	return true
}

func (s *search) decisions(list []sim.Decision) sim.Decisions {
	return sim.Decisions{Seed: s.best.Seed, Profile: s.config.Profile.Name, Fails: s.property, HealAt: s.healAt, List: list}
}
