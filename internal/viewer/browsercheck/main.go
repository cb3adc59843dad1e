// Command browsercheck opens replay pages in a real browser, presses keys, and
// compares what the page shows with what the trace says. It needs chromium; the
// stage browser of .ci/run installs it.
//
//	go run ./internal/viewer/browsercheck [--screenshots DIR]
//
// The pages are those of three runs that fail, because a rule of Raft is broken
// in them, and of one with more than 100,000 steps.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"raftkv/internal/core"
	"raftkv/internal/shrink"
	"raftkv/internal/sim"
	"raftkv/internal/trace"
	"raftkv/internal/viewer"
	"raftkv/raft"
)

func main() {
	screenshots := flag.String("screenshots", "", "a folder for pictures of the pages")
	flag.Parse()
	if err := run(*screenshots); err != nil {
		fmt.Fprintln(os.Stderr, "browsercheck:", err)
		os.Exit(1)
	}
}

func run(screenshots string) error {
	dir, err := os.MkdirTemp("", "browsercheck")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	browser, err := startChromium(filepath.Join(dir, "profile"))
	if err != nil {
		return err
	}
	defer browser.close()
	for _, b := range bugs {
		lines, err := b.run()
		if err != nil {
			return err
		}
		if err := checkPage(browser, dir, screenshots, b.name, lines); err != nil {
			return fmt.Errorf("the page of %q: %w", b.name, err)
		}
	}
	if err := checkPage(browser, dir, screenshots, "long", longTrace(100_000)); err != nil {
		return fmt.Errorf("the long page: %w", err)
	}
	return nil
}

// bug is a broken rule, and the run that shows it.
type bug struct {
	name   string
	shrink bool // show the smallest run that fails, not the first
	core   core.New
}

var bugs = []bug{
	{"forgotten-vote", true, func(config raft.Config, saved raft.PersistentState) (core.Core, raft.Effects, error) {
		saved.VotedFor = raft.None
		return core.Raft(config, saved)
	}},
	{"false-acknowledgement", true, spoil(func(c core.Core, e *raft.Effects) {
		for i := range e.SendAfter {
			if r, ok := e.SendAfter[i].Body.(raft.AppendEntriesReply); ok && !r.Success && r.Term == r.AskedTerm {
				r.Success, r.MatchIndex = true, r.PrevLogIndex
				e.SendAfter[i].Body = r
			}
		}
	})},
	{"no-second-election", false, spoil(func(c core.Core, e *raft.Effects) {
		if s := c.Status(); s.State == raft.Candidate || s.State == raft.PreCandidate {
			e.Timers[raft.ElectionTimer] = raft.TimerChange{}
		}
	})},
}

type spoiled struct {
	core.Core
	out func(core.Core, *raft.Effects)
}

func (s spoiled) Step(event raft.Event) raft.Effects {
	effects := s.Core.Step(event)
	s.out(s.Core, &effects)
	return effects
}

func spoil(out func(core.Core, *raft.Effects)) core.New {
	return func(config raft.Config, saved raft.PersistentState) (core.Core, raft.Effects, error) {
		c, effects, err := core.Raft(config, saved)
		return spoiled{c, out}, effects, err
	}
}

func (b bug) run() (lines []trace.Line, err error) {
	config := sim.Config{New: b.core, Profile: sim.Full}
	for seed := uint64(1); seed <= 100; seed++ {
		if sim.RunSeed(config, seed).Failure == nil {
			continue
		}
		if b.shrink {
			r, err := shrink.Shrink(config, seed, shrink.Options{})
			if err != nil {
				return nil, err
			}
			config.Only = &r.Small
		}
		config.Trace = func(l trace.Line) { lines = append(lines, l) }
		sim.RunSeed(config, seed)
		return lines, nil
	}
	return nil, fmt.Errorf("%s: no seed fails", b.name)
}

// longTrace returns a trace of at least so many steps: one run after the other,
// as if it were one.
func longTrace(steps uint64) (lines []trace.Line) {
	var one []trace.Line
	sim.RunSeed(sim.Config{Profile: sim.Full, Trace: func(l trace.Line) { one = append(one, l) }}, 4)
	end := one[len(one)-1].(trace.Verdict)
	var at time.Duration
	var step, message uint64
	var call, fault int
	lines = append(lines, one[0])
	for step < steps {
		var last struct {
			step, message uint64
			call, fault   int
		}
		for _, line := range one[1 : len(one)-1] {
			switch l := line.(type) {
			case trace.Step:
				last.step = l.Number
				l.At, l.Number = l.At+at, l.Number+step
				if l.Message != 0 {
					l.Message += message
				}
				line = l
			case trace.Send:
				last.message = l.Message
				l.At, l.Message = l.At+at, l.Message+message
				line = l
			case trace.Arrive:
				l.At, l.Message = l.At+at, l.Message+message
				line = l
			case trace.Call:
				last.call = l.Call
				l.At, l.Call = l.At+at, l.Call+call
				line = l
			case trace.Attempt:
				l.At, l.Call = l.At+at, l.Call+call
				line = l
			case trace.Effect:
				l.At, l.Call = l.At+at, l.Call+call
				line = l
			case trace.Answer:
				l.At, l.Call = l.At+at, l.Call+call
				line = l
			case trace.Fault:
				last.fault = l.Fault
				l.At, l.Fault = l.At+at, l.Fault+fault
				line = l
			case trace.FaultEnd:
				l.At, l.Fault = l.At+at, l.Fault+fault
				line = l
			}
			lines = append(lines, line)
		}
		at, step, message = at+end.At, step+last.step, message+last.message
		call, fault = call+last.call, fault+last.fault
	}
	end.At, end.Steps = at, int64(step)
	return append(lines, end)
}

func writePage(file string, lines []trace.Line) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := viewer.WritePage(f, slices.Values(lines)); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
